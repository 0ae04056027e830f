"""Signed tokens (JWT): signature, dates and audience (pure).

Why this is hard: a token names the algorithm of its own signature, so only algorithms of the key's kind are taken:
neither `none`, nor HMAC with a public key as its secret. And a token is parsed before its signature is verified, so it
is bounded, and every kind of garbage is one error.

Sources: RFC 7515, 7519, 8725; jjwt's DefaultJwtParser for which dates are checked: `exp` and `nbf`, not `iat`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jwt import PyJWK, PyJWS
from jwt.exceptions import InvalidTokenError, PyJWKError

from broker.security.authentication.credentials import DATA_BYTES_MAX
from broker.security.authentication.errors import AuthenticationError, ExpiredError
from broker.security.authentication.keys import EC, RSA, PublicKey, algorithms_of_key, algorithms_of_secret

_VERIFY = PyJWS(algorithms=["HS256", "HS384", "HS512", *RSA, *EC])
_BAD = "the token is malformed, or its signature is wrong"
KEYS_MAX = 100
"""Keys of one set."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A key and the algorithms it verifies."""

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]
    key_id: str | None = None


def secret(data: bytes) -> VerifyingKey:
    """Return a key of a secret. Raises ValueError if it is too short."""
    return VerifyingKey(data, algorithms_of_secret(data))


def public(key: PublicKey) -> VerifyingKey:
    """Return a key of a public key. Raises ValueError."""
    return VerifyingKey(key, algorithms_of_key(key))


def key_set(data: bytes) -> tuple[VerifyingKey, ...]:
    """Return the keys of a JSON Web Key Set; keys for encryption are left out. Raises ValueError."""
    try:
        entries = json.loads(data)["keys"]
        if not isinstance(entries, list) or len(entries) > KEYS_MAX:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f'it is not a JSON Web Key Set, {{"keys": [...]}}, of at most {KEYS_MAX} keys') from None
    found = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        if entry.get("kty") not in ("RSA", "EC"):
            raise ValueError(f"key {number} of the set is not a public key of RSA or EC")
        try:
            key = PyJWK.from_dict({name: value for name, value in entry.items() if name != "alg"}).key
            if hasattr(key, "private_numbers"):
                raise ValueError(f"key {number} of the set is a private key; a set for verifying has public ones")
            made = public(key)
        except (PyJWKError, InvalidTokenError, TypeError, KeyError) as error:
            raise ValueError(f"key {number} of the set is malformed ({type(error).__name__})") from None
        algorithm = entry.get("alg")
        if algorithm is not None and algorithm not in made.algorithms:
            raise ValueError(f"key {number} of the set cannot be used with its algorithm")
        algorithms = made.algorithms if algorithm is None else (algorithm,)
        found.append(VerifyingKey(key, algorithms, entry.get("kid")))
    if not found:
        raise ValueError("the set has no key for signatures")
    return tuple(found)


def header_of(token: bytes) -> dict[str, Any]:
    """Return the header of a token, not verified. Raises AuthenticationError."""
    if not token.strip():
        raise AuthenticationError("there is no token")
    if len(token) > DATA_BYTES_MAX:
        raise AuthenticationError(f"the token has more than {DATA_BYTES_MAX} bytes")
    try:
        return _VERIFY.get_unverified_header(token)
    except (InvalidTokenError, ValueError, RecursionError, TypeError):
        raise AuthenticationError(_BAD) from None


def verified_claims(token: bytes, keys: Sequence[VerifyingKey]) -> dict[str, Any]:
    """Return the claims of a token that one of the keys has signed. Raises AuthenticationError."""
    header = header_of(token)
    key_id, algorithm = header.get("kid"), header.get("alg")
    for key in keys:
        if algorithm not in key.algorithms or (key.key_id is not None and key_id is not None and key.key_id != key_id):
            continue
        try:
            payload = _VERIFY.decode(token, key.key, algorithms=list(key.algorithms))
            claims = json.loads(payload)
        except (InvalidTokenError, ValueError, RecursionError, TypeError):
            continue
        if isinstance(claims, dict):
            return claims
    raise AuthenticationError(_BAD)


def unverified_claims(token: bytes) -> dict[str, Any]:
    """Return the claims of a token without verifying it, to choose a key by them. Raises AuthenticationError."""
    header_of(token)
    try:
        payload = _VERIFY.decode_complete(token, options={"verify_signature": False})["payload"]
        claims = json.loads(payload)
    except (InvalidTokenError, ValueError, RecursionError, TypeError):
        raise AuthenticationError(_BAD) from None
    if not isinstance(claims, dict):
        raise AuthenticationError(_BAD)
    return claims


def check_dates(claims: Mapping[str, Any], now_ms: int, skew_s: float) -> int | None:
    """Return the date at which a token expires, in milliseconds, the skew included; None: never. Raises
    AuthenticationError."""
    not_before, expiry = _date_ms(claims, "nbf"), _date_ms(claims, "exp")
    skew_ms = int(skew_s * 1000)
    if not_before is not None and now_ms < not_before - skew_ms:
        raise AuthenticationError("the token is not valid yet", may_pass=True)
    if expiry is None:
        return None
    if now_ms > expiry + skew_ms:
        raise ExpiredError
    return expiry + skew_ms


def _date_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 1e12:
        raise AuthenticationError(f"the claim {name} of the token is no date")
    return int(value * 1000)


def check_audience(claims: Mapping[str, Any], claim: str, allowed: frozenset[str]) -> None:
    """Raise AuthenticationError unless a claim has one of the allowed audiences."""
    audience = claims.get(claim)
    named = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(each, str) and each in allowed for each in named):
        raise AuthenticationError("the token is for another audience", "INVALID_AUDIENCES")


def role_of(claims: Mapping[str, Any], claim: str) -> str:
    """Return the role: the text of a claim, or the first of its list. Raises AuthenticationError."""
    value = claims.get(claim)
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, str) or not value.strip():
        raise AuthenticationError("the token names no role")
    return value
