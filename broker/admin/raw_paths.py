"""Paths whose parts may hold escaped slashes: matched before they are unescaped, then each part by itself.

    /persistent/{tenant}/{namespace}/{topic}/subscriptions     the pattern
    /persistent/public/default/a%2Fb+c/subscriptions           topic = "a/b c"

What a server calls the path of a request is unescaped already, and `a%2Fb` would be two parts in it. A part is
unescaped once, as the original's clients escape it (Java's URLEncoder): %XX, and `+` for a space; a plus sign is %2B.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from broker.admin.errors import InvalidNameInPathError
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import decode_name

_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


class PathPattern:
    """One shape of path, such as the first line above. A parameter stands for one part, never for an empty one."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        pieces = _PARAMETER.split(pattern)
        self._regex = re.compile(
            "".join(f"(?P<{piece}>[^/]+)" if number % 2 else re.escape(piece) for number, piece in enumerate(pieces))
        )

    def match(self, path: str) -> Mapping[str, str] | None:
        """Return the parts of an escaped path, still escaped; None if it does not match."""
        found = self._regex.fullmatch(path)
        return None if found is None else found.groupdict()


def raw_path(scope: Mapping[str, Any]) -> str:
    """Return the path of a request as received, without its query."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.decode("latin-1")


def unescape(part: str) -> str:
    """Unescape one part of a path. Raises InvalidNameInPathError if it is not escaped UTF-8."""
    try:
        # Undo the latin-1 decoding of `raw_path`, which maps every byte to one character.
        text = part if part.isascii() else part.encode("latin-1").decode()
        if _BAD_ESCAPE.search(text):
            raise InvalidNameInPathError(f"{part!a} holds a percent sign that escapes nothing")
        return decode_name(text)
    except (UnicodeDecodeError, InvalidNameError):
        raise InvalidNameInPathError(f"{part!a} is not escaped UTF-8") from None
