"""Provider of tokens (JWT), and of tokens of OpenID Connect issuers whose keys are files (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.security.authentication.credentials import Identity, Presented
from broker.security.authentication.errors import AuthenticationError
from broker.security.authentication.signed import (
    VerifyingKey,
    check_audience,
    check_dates,
    role_of,
    unverified_claims,
    verified_claims,
)

METHOD = "token"
_BEARER = "Bearer "
_REQUIRED = ("iat", "exp", "nbf", "sub")
"""Claims that tokens of OpenID Connect must have. Source: Pulsar's AuthenticationProviderOpenID."""


def bearer(headers: Mapping[str, str]) -> Presented:
    """Return the token of a request. Raises AuthenticationError."""
    header = headers.get("authorization", "")
    if not header.startswith(_BEARER):
        raise AuthenticationError("there is no token in the Authorization header", "INVALID_AUTH_DATA")
    return Presented(header[len(_BEARER) :].strip().encode("latin-1", "replace"))


@dataclass(frozen=True, slots=True)
class TokenProvider:
    """Tokens signed with one secret, or with the private part of one or several keys. Source: Pulsar's
    AuthenticationProviderToken."""

    keys: Sequence[VerifyingKey] = field(repr=False)
    role_claim: str = "sub"
    audience_claim: str = ""
    """Claim with the audience; empty: it is not checked."""
    audience: str = ""
    skew_s: float = 0.0
    method: str = METHOD
    name: str = "AuthenticationProviderToken"
    is_lasting: bool = False

    def identify(self, presented: Presented, now_ms: int) -> Identity:
        claims = verified_claims(presented.data.strip(), self.keys)
        expires_ms = check_dates(claims, now_ms, self.skew_s)
        if self.audience_claim:
            check_audience(claims, self.audience_claim, frozenset((self.audience,)))
        return Identity(role_of(claims, self.role_claim), expires_ms)

    def of_headers(self, headers: Mapping[str, str], certificate: bytes | None) -> Presented:
        return bearer(headers)


@dataclass(frozen=True, slots=True)
class OpenIdProvider:
    """Tokens of issuers whose keys are known."""

    keys: Mapping[str, Sequence[VerifyingKey]] = field(repr=False)
    """By issuer."""
    audiences: frozenset[str]
    role_claim: str = "sub"
    skew_s: float = 0.0
    method: str = METHOD
    name: str = "AuthenticationProviderOpenID"
    is_lasting: bool = False

    def identify(self, presented: Presented, now_ms: int) -> Identity:
        token = presented.data.strip()
        issuer = unverified_claims(token).get("iss")
        keys = self.keys.get(issuer) if isinstance(issuer, str) else None
        if keys is None:
            raise AuthenticationError("the issuer of the token is not allowed", "UNSUPPORTED_ISSUER")
        claims = verified_claims(token, keys)
        if claims.get("iss") != issuer:
            raise AuthenticationError("the issuer of the token is not allowed", "UNSUPPORTED_ISSUER")
        for name in _REQUIRED:
            if claims.get(name) is None:
                raise AuthenticationError(f"the token has no claim {name}")
        expires_ms = check_dates(claims, now_ms, self.skew_s)
        check_dates({"nbf": claims["iat"]}, now_ms, self.skew_s)
        check_audience(claims, "aud", self.audiences)
        return Identity(role_of(claims, self.role_claim), expires_ms)

    def of_headers(self, headers: Mapping[str, str], certificate: bytes | None) -> Presented:
        return bearer(headers)
