"""Making of keys and tokens, as Pulsar's command `tokens` makes them (pure but for randomness and keys).

Sources: Pulsar's TokensCliUtils, AuthTokenUtils and RelativeTimeUtil; jjwt's Keys for the sizes of keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt import PyJWS

from broker.security.authentication.keys import (
    EC,
    HMAC,
    RSA,
    PrivateKey,
    algorithms_of_secret,
    check_algorithm,
    private_key,
)

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_EXPIRY_MAX_S = 1000 * 365 * 86400
_CURVES: Mapping[str, type[ec.EllipticCurve]] = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


def secret_bytes(algorithm: str) -> int:
    """Return the size of a new secret. Raises ValueError if the algorithm has none."""
    if algorithm not in HMAC:
        raise ValueError(f"{algorithm} is not an algorithm of secret keys: {', '.join(HMAC)}")
    return int(algorithm[2:]) // 8


def key_pair(algorithm: str) -> PrivateKey:
    """Make a key pair. Raises ValueError if the algorithm has none."""
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm]())
    if algorithm not in RSA:
        raise ValueError(f"{algorithm} is not an algorithm of key pairs: {', '.join((*RSA, *EC))}")
    return rsa.generate_private_key(65537, int(algorithm[2:]) * 8)


def encoded(key: PrivateKey) -> tuple[bytes, bytes]:
    """Return the private key (PKCS#8) and the public key (X.509) of a pair, in DER."""
    private = key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


def seconds_of(expiry: str) -> int:
    """Return the seconds of a relative time, such as 30m, 1h, 3d, 2w, 10y; without a unit: seconds. Raises ValueError.

    >>> [seconds_of(text) for text in ("90", "5m", "2H", "1y")]
    [90, 300, 7200, 31536000]
    """
    found = re.fullmatch(r"([0-9]{1,12})([smhdwy]?)", expiry.strip().lower())
    if found is None:
        raise ValueError(f"{expiry[:40]!a} is not a time such as 30m, 1h, 3d, 2w or 10y")
    seconds = int(found[1]) * _UNITS[found[2]]
    if seconds > _EXPIRY_MAX_S:
        raise ValueError(f"{expiry[:40]!a} is more than a thousand years")
    return seconds


def token_of_secret(secret: bytes, claims: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return a token signed with the strongest algorithm that a secret is long enough for. Raises ValueError."""
    return _signed(secret, algorithms_of_secret(secret)[-1], claims, headers)


def token_of_key(data: bytes, algorithm: str, claims: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return a token signed with a private key. Raises ValueError."""
    key = private_key(data)
    check_algorithm(algorithm, key)
    return _signed(key, algorithm, claims, headers)


def _signed(key: Any, algorithm: str, claims: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    if "alg" in headers:
        raise ValueError("the header alg follows from the key")
    payload = json.dumps(claims, separators=(",", ":"), ensure_ascii=False).encode()
    # `typ` is left out, as the original does.
    return PyJWS().encode(payload, key, algorithm, headers={**headers, "typ": ""})
