"""Keys, tokens and certificates of tests."""

from __future__ import annotations

import base64
import datetime
from functools import cache
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from broker.security.authentication.authentication import Authentication
from broker.security.authentication.config import AuthenticationOptions
from broker.security.authentication.loading import load

SECRET = bytes(range(100, 164))
DATA_URL = "data:;base64," + base64.b64encode(SECRET).decode()
PACKAGE = "org.apache.pulsar.broker.authentication."
TOKEN, BASIC, TLS = (f"{PACKAGE}AuthenticationProvider{name}" for name in ("Token", "Basic", "Tls"))
OPEN_ID = f"{PACKAGE}oidc.AuthenticationProviderOpenID"
PASSWORD = "123456"
USERS = "admin:$apr1$FG4AO6aX$KGYPuMoLUou3i6vUkPUUf.\nold:rqXexS6ZhobKA\n"
"""Passwords: 123456 and myPassword."""


def token(role: str | None = "alice", key: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """Return a signed token. `headers`: further headers."""
    headers = claims.pop("headers", None)
    if role is not None:
        claims["sub"] = role
    return jwt.encode(claims, key, algorithm, headers=headers)


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def public_der(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def url(data: bytes) -> str:
    return "data:;base64," + base64.b64encode(data).decode()


def authentication(**options: Any) -> Authentication:
    """Return authentication by tokens and passwords, or by what the options say."""
    values: dict[str, Any] = {
        "enabled": True,
        "providers": (TOKEN, BASIC),
        "token_secret_key": DATA_URL,
        "users": url(USERS.encode()),
    }
    proxies = options.pop("proxy_roles", ())
    return load(AuthenticationOptions(**(values | options)), proxies)


def certificate(common_name: str | None, *alternatives: x509.GeneralName) -> bytes:
    """Return a self-signed certificate in DER."""
    names = [] if common_name is None else [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests"), *names])
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(ec_key().public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=3650))
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(ec_key(), hashes.SHA256()).public_bytes(serialization.Encoding.DER)
