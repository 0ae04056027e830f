"""Provider of user names with passwords, from an htpasswd file (pure). Source: Pulsar's AuthenticationProviderBasic."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.security.authentication.credentials import Identity, Presented
from broker.security.authentication.errors import AuthenticationError
from broker.security.authentication.passwords import is_known, matches

METHOD = "basic"
PASSWORD_BYTES_MAX = 256
"""Maximum bytes of name and password: checking a password costs a thousand times its length."""
_NO_USER = "$apr1$........$0000000000000000000000"
"""Hash of no password: an unknown user costs as much time as a known one."""


def read_users(data: bytes) -> dict[str, str]:
    """Read an htpasswd file, `name:hash` in each line. Raises ValueError, which names lines and never their content."""
    users: dict[str, str] = {}
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, colon, hashed = line.strip().partition(":")
        if not colon or not name or ":" in hashed:
            raise ValueError(f"line {number} is not name:hash")
        if not is_known(hashed):
            raise ValueError(f"line {number} has no hash of htpasswd -m ($apr1$) or htpasswd -d (crypt)")
        if name in users:
            raise ValueError(f"line {number} names a user again")
        users[name] = hashed
    if not users:
        raise ValueError("there is no user in it")
    return users


@dataclass(frozen=True, slots=True)
class BasicProvider:
    """Users and the hashes of their passwords."""

    users: Mapping[str, str] = field(repr=False)
    method: str = METHOD
    name: str = "AuthenticationProviderBasic"

    def identify(self, presented: Presented, now_ms: int) -> Identity:
        if len(presented.data) > PASSWORD_BYTES_MAX:
            raise AuthenticationError(
                f"name and password have more than {PASSWORD_BYTES_MAX} bytes", "INVALID_AUTH_DATA"
            )
        name, colon, password = presented.data.partition(b":")
        if not colon or not name or not password or b":" in password:
            raise AuthenticationError("the credentials are not name:password", "INVALID_AUTH_DATA")
        user = name.decode("utf-8", "replace")
        hashed = self.users.get(user)
        if not matches(password, hashed or _NO_USER) or hashed is None:
            raise AuthenticationError("unknown user or wrong password", "INVALID_AUTH_DATA")
        return Identity(user)

    def of_headers(self, headers: Mapping[str, str], certificate: bytes | None) -> Presented:
        scheme, _, data = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            raise AuthenticationError("there is no password in the Authorization header", "INVALID_AUTH_DATA")
        try:
            return Presented(base64.b64decode(data.strip(), validate=True))
        except (binascii.Error, ValueError):
            raise AuthenticationError("the Authorization header is not base64", "INVALID_AUTH_DATA") from None
