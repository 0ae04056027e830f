"""Keys and other texts that a configuration names: by URL, by path, or themselves, in base64 (pure but for reading).

    file:///etc/quire/secret.key       the bytes of a file
    data:;base64,czNjcjN0              the bytes themselves; without `;base64` they are percent-encoded
    /etc/quire/secret.key              as file:
    czNjcjN0                           as data:;base64,

Sources: Pulsar's AuthTokenUtils.readKeyFromUrl, AuthenticationProviderBasic.readData. Errors name neither the text nor
its bytes: both may be a secret.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey
PrivateKey: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey

HMAC = ("HS256", "HS384", "HS512")
RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
EC = ("ES256", "ES384", "ES512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
RSA_BITS_MIN = 2048
FILE_BYTES_MAX = 4 << 20


def read_value(text: str) -> bytes:
    """Return the bytes that a text names. Raises ValueError."""
    text = text.strip()
    if text.startswith("data:"):
        return _of_data_url(text)
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise ValueError("a file URL is written file:///path")
        return _of_file(Path(unquote_to_bytes(parts.path).decode()))
    path = Path(text)
    if len(text) < 4096 and path.is_file():
        return _of_file(path)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is neither a file:, nor a data: URL, nor a path of a file, nor base64") from None


def _of_data_url(text: str) -> bytes:
    head, comma, data = text.removeprefix("data:").partition(",")
    if not comma:
        raise ValueError("a data URL is written data:;base64,...")
    if not head.endswith(";base64"):
        return unquote_to_bytes(data)
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("what follows data:;base64, is not base64") from None


def _of_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ValueError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def algorithms_of_secret(secret: bytes) -> tuple[str, ...]:
    """Return the algorithms that a secret is long enough for. Raises ValueError if it is for none (RFC 7518, 3.2)."""
    found = tuple(name for name in HMAC if len(secret) * 8 >= int(name[2:]))
    if not found:
        raise ValueError(f"a secret key needs at least 32 bytes, and this one has {len(secret)}")
    return found


def algorithms_of_key(key: PublicKey | PrivateKey) -> tuple[str, ...]:
    """Return the algorithms of an asymmetric key. Raises ValueError if it is too small, or of another curve."""
    if isinstance(key, RSAPublicKey | RSAPrivateKey):
        if key.key_size < RSA_BITS_MIN:
            raise ValueError(f"an RSA key needs at least {RSA_BITS_MIN} bits, and this one has {key.key_size}")
        return RSA
    algorithm = _CURVES.get(key.curve.name)
    if algorithm is None:
        raise ValueError(f"the curve of the key is {key.curve.name}, and only {', '.join(_CURVES)} are supported")
    return (algorithm,)


def public_key(data: bytes) -> PublicKey:
    """Return a public key: X.509 in DER, as Pulsar's tool writes it, or in PEM. Raises ValueError."""
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            key = serialization.load_pem_public_key(data)
        else:
            key = serialization.load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("it is not a public key in DER (X.509) or PEM") from None
    if not isinstance(key, RSAPublicKey | EllipticCurvePublicKey):
        raise ValueError("the public key is of a kind that is not supported; use RSA or EC")
    return key


def private_key(data: bytes) -> PrivateKey:
    """Return a private key: PKCS#8 in DER, as Pulsar's tool writes it, or in PEM. Raises ValueError."""
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            key = serialization.load_pem_private_key(data, None)
        else:
            key = serialization.load_der_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("it is not a private key in DER (PKCS#8) or PEM, without a password") from None
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey):
        raise ValueError("the private key is of a kind that is not supported; use RSA or EC")
    return key


def check_algorithm(algorithm: str, key: PublicKey | PrivateKey) -> None:
    """Raise ValueError if a key is not of the kind that an algorithm signs with."""
    if algorithm not in (*RSA, *EC):
        raise ValueError(f"{algorithm} is not an algorithm of key pairs: {', '.join((*RSA, *EC))}")
    is_rsa = isinstance(key, RSAPublicKey | RSAPrivateKey)
    if is_rsa != (algorithm in RSA):
        raise ValueError(f"{algorithm} needs a key of kind {'RSA' if algorithm in RSA else 'EC'}")
    algorithms_of_key(key)
