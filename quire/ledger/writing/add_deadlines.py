"""Deadlines of adds, per bookie and per ack quorum. Pure; works by tick, at no cost per entry.

A `moment` is an ack tracker's record of the entries pushed so far. It is returned here once it is old enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class AddDeadlines:
    """Deadlines of one appender, in ticks of the client's wheel."""

    __slots__ = ("_bookie_ticks", "_moments", "_quorum_moments", "_quorum_ticks")

    def __init__(self, bookie_ticks: int, quorum_ticks: int | None) -> None:
        """Create deadlines. If the quorum timeout is None, an entry may take any time to reach its ack quorum."""
        self._bookie_ticks = bookie_ticks
        self._quorum_ticks = quorum_ticks
        self._moments: deque[tuple[int, object]] = deque()
        self._quorum_moments: deque[tuple[int, object]] = deque()

    @classmethod
    def of(cls, bookie_s: float, quorum_s: float | None, ticks: Callable[[float], int]) -> AddDeadlines:
        """Return deadlines after these times, of which `ticks` makes ticks."""
        return cls(ticks(bookie_s), None if quorum_s is None else ticks(quorum_s))

    @property
    def of_quorums(self) -> bool:
        """Return whether confirmations have a deadline of their own."""
        return self._quorum_ticks is not None

    def passed(self, now: int, moment: object) -> list[object]:
        """Record the moment of tick `now`; return the moments that every bookie should have acknowledged by now."""
        self._moments.append((now, moment))
        if self._quorum_ticks is not None:
            self._quorum_moments.append((now, moment))
        return self._pop(self._moments, now - self._bookie_ticks)

    def quorums_due(self, now: int) -> list[object]:
        """Return the moments whose entries should be confirmed by now."""
        return [] if self._quorum_ticks is None else self._pop(self._quorum_moments, now - self._quorum_ticks)

    def again(self, now: int, moment: object) -> None:
        """Check this moment again after another timeout."""
        self._moments.append((now, moment))

    def opened_in_time(self, now: int, opened: int) -> bool:
        """Return whether a channel opened at tick `opened` has had a whole timeout."""
        return opened <= now - self._bookie_ticks

    def _pop(self, moments: deque[tuple[int, object]], until: int) -> list[object]:
        due: list[object] = []
        while moments and moments[0][0] <= until:
            due.append(moments.popleft()[1])
        return due
