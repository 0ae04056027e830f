"""Values of options: numbers, sizes, choices, names. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from quire.spark.errors import OptionError

INT_MAX = (1 << 63) - 1

_SIZE = re.compile(r"(\d{1,15})\s*(?:([kmgt])(?:i?b)?|b)?", re.ASCII)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class Given:
    """Options by name, read as values. Every method raises OptionError."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default).strip()

    def refuse(self, name: str, remedy: str) -> OptionError:
        return OptionError(name, self._values.get(name), remedy)

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise self.refuse(name, "give true or false")
        return text == "true"

    def integer(self, name: str, default: int, least: int) -> int:
        return default if name not in self else self._integer(name, least)

    def optional_integer(self, name: str, least: int) -> int | None:
        return None if name not in self else self._integer(name, least)

    def _integer(self, name: str, least: int) -> int:
        text = self.text(name)
        if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or not least <= int(text) <= INT_MAX:
            raise self.refuse(name, f"give a whole number, at least {least}")
        return int(text)

    def size(self, name: str) -> int | None:
        if name not in self:
            return None
        match = _SIZE.fullmatch(self.text(name).lower())
        size = 0 if match is None else int(match[1]) << _UNITS[match[2] or ""]
        if not 1 <= size <= INT_MAX:
            raise self.refuse(name, "give a number of bytes, at least 1; k, m or g behind it are powers of 1024")
        return size

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        text = self.text(name, default)
        found = next((choice for choice in choices if choice.lower() == text.lower()), None)
        if found is None:
            raise self.refuse(name, f"give one of {', '.join(choices)}")
        return found

    def names(self, name: str) -> list[str]:
        found = [part.strip() for part in self.text(name).split(",")]
        if not all(found):
            raise self.refuse(name, "give comma-separated names, none of them empty")
        return found
