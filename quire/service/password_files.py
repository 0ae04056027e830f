"""Users and the hashes of their passwords, from an htpasswd file (pure). Brokers and bookies have such files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quire.service.passwords import is_known, matches

PASSWORD_BYTES_MAX: Final = 256
"""Maximum bytes of name and password: checking a password costs a thousand times its length."""
_NO_USER: Final = "$apr1$........$0000000000000000000000"
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


def user_of(users: Mapping[str, str], data: bytes) -> str:
    """Return the user of the credentials `name:password`. Raises ValueError, whose text has nothing of them."""
    if len(data) > PASSWORD_BYTES_MAX:
        raise ValueError(f"name and password have more than {PASSWORD_BYTES_MAX} bytes")
    name, colon, password = data.partition(b":")
    if not colon or not name or not password or b":" in password:
        raise ValueError("the credentials are not name:password")
    user = name.decode("utf-8", "replace")
    hashed = users.get(user)
    if not matches(password, hashed or _NO_USER) or hashed is None:
        raise ValueError("unknown user or wrong password")
    return user
