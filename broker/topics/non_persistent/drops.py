"""Count of dropped messages, and their rate (pure).

Source: Pulsar's Rate, of which NonPersistentDispatcher keeps one (msgDropRate); it is read once in
statsUpdateFrequencyInSecs. Here the rate is that of the last WINDOW_S to twice WINDOW_S seconds, whenever it is read.
"""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 60.0


class Drops:
    """Messages that were dropped."""

    __slots__ = ("_before", "_begun", "_former", "count")

    def __init__(self, now: float) -> None:
        """Take the time of the event loop in seconds."""
        self.count = 0
        """All of them."""
        self._begun = now
        """Begin of the current window."""
        self._before = 0
        """`count` at that time."""
        self._former: int | None = None
        """`count` at the begin of the window before; None: it is the first one."""

    def add(self, messages: int, now: float) -> None:
        """Count messages."""
        self._move(now)
        self.count += messages

    def rate(self, now: float) -> float:
        """Return messages per second.

        >>> drops = Drops(now=0.0)
        >>> drops.add(30, now=5.0)
        >>> drops.rate(now=10.0), drops.rate(now=60.0), drops.rate(now=180.0)
        (3.0, 0.5, 0.0)
        """
        self._move(now)
        if self._former is None:
            return (self.count - self._before) / max(now - self._begun, 1.0)
        return (self.count - self._former) / (now - self._begun + WINDOW_S)

    def _move(self, now: float) -> None:
        passed = int((now - self._begun) // WINDOW_S)
        if passed > 0:
            self._former = self._before if passed == 1 else self.count
            self._before = self.count
            self._begun += passed * WINDOW_S
