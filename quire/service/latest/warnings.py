"""The latest warnings and errors of this process, for those who look at it from outside. Bounded in number and size.

Only lines that the log really writes are kept, as the log writes them: what it hides is hidden here too. The ring
belongs to the process, like the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import count, islice
from typing import Any, Final, NamedTuple

LINES_MAX: Final = 500
"""Lines that are kept; the oldest goes first."""
TEXT_MAX: Final = 2000
"""Characters kept of the values of one line. With LINES_MAX this bounds the bytes, too."""
EVENT_MAX: Final = 200
"""Characters kept of the phrase of one line."""
_OWN: Final = ("timestamp", "level", "logger", "event")


class KeptLine(NamedTuple):
    """One line of the log."""

    number: int
    """Place in the sequence of all lines that were kept since the process started; from 1."""
    timestamp: str
    level: str
    logger: str
    event: str
    text: str
    """The values, key=value, separated by blanks; cut at TEXT_MAX."""

    def as_json(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        return self._asdict()


class WarningRing:
    """Ring of lines. Appending is one step, so threads may log."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._lines: deque[KeptLine] = deque(maxlen=lines_max)
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def newest(self) -> int:
        """Return the number of the newest line; 0: there is none."""
        return self._lines[-1].number if self._lines else 0

    def keep(self, event: Mapping[str, Any]) -> None:
        """Keep an event of the log, which has its level, logger, phrase and time."""
        pairs = [f"{key}={_short(value)}" for key, value in islice(event.items(), 64) if key not in _OWN]
        own = [str(event.get(key, "")) for key in _OWN]
        text = " ".join(pairs)
        shown = text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."
        self._lines.append(KeptLine(next(self._numbers), own[0], own[1], own[2][:EVENT_MAX], own[3][:EVENT_MAX], shown))

    def after(self, number: int, lines_max: int = LINES_MAX) -> tuple[list[KeptLine], int]:
        """Return the newest lines after a number, oldest first, and how many after it are not returned.

        Args:
            number: the last number that is known; 0: none.
            lines_max: lines to return at most.
        """
        lines = list(self._lines)
        newest = lines[-1].number if lines else 0
        found = [line for line in lines if line.number > number][-lines_max:] if lines_max > 0 else []
        # A reader that knows a number which was never given has followed an earlier process: it begins again.
        known = number if number <= newest else 0
        if known != number:
            found = lines[-lines_max:]
        return found, newest - known - len(found)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX]


LATEST: Final = WarningRing()
"""The ring of this process."""
