"""Provider of user names with passwords, from an htpasswd file (pure). Source: Pulsar's AuthenticationProviderBasic."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.security.authentication.credentials import Identity, Presented
from broker.security.authentication.errors import AuthenticationError
from quire.service.password_files import user_of

METHOD = "basic"


@dataclass(frozen=True, slots=True)
class BasicProvider:
    """Users and the hashes of their passwords."""

    users: Mapping[str, str] = field(repr=False)
    method: str = METHOD
    name: str = "AuthenticationProviderBasic"
    is_lasting: bool = True
    """The file is read at the start only."""

    def identify(self, presented: Presented, now_ms: int) -> Identity:
        try:
            return Identity(user_of(self.users, presented.data))
        except ValueError as error:
            raise AuthenticationError(str(error), "INVALID_AUTH_DATA") from None

    def of_headers(self, headers: Mapping[str, str], certificate: bytes | None) -> Presented:
        scheme, _, data = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            raise AuthenticationError("there is no password in the Authorization header", "INVALID_AUTH_DATA")
        try:
            return Presented(base64.b64decode(data.strip(), validate=True))
        except (binascii.Error, ValueError):
            raise AuthenticationError("the Authorization header is not base64", "INVALID_AUTH_DATA") from None
