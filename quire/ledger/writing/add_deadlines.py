"""When adds are overdue: at a bookie, and at their ack quorum. Pure; by tick, nothing per entry.

A `moment` is what an ack tracker says of the entries pushed until now; it comes back here once it is old enough.
"""

from __future__ import annotations

from collections import deque


class AddDeadlines:
    """Of one appender; in ticks of the client's wheel."""

    __slots__ = ("_bookie_ticks", "_moments", "_quorum_moments", "_quorum_ticks")

    def __init__(self, bookie_ticks: int, quorum_ticks: int | None) -> None:
        """None: an entry may take any time to reach its ack quorum."""
        self._bookie_ticks = bookie_ticks
        self._quorum_ticks = quorum_ticks
        self._moments: deque[tuple[int, object]] = deque()
        self._quorum_moments: deque[tuple[int, object]] = deque()

    @property
    def of_quorums(self) -> bool:
        """Whether entries have a deadline of their own."""
        return self._quorum_ticks is not None

    def passed(self, now: int, moment: object) -> list[object]:
        """Note the moment of tick `now`; the moments that every bookie should have acknowledged by now."""
        self._moments.append((now, moment))
        if self._quorum_ticks is not None:
            self._quorum_moments.append((now, moment))
        return self._pop(self._moments, now - self._bookie_ticks)

    def quorums_due(self, now: int) -> list[object]:
        """The moments whose entries should be confirmed by now."""
        return [] if self._quorum_ticks is None else self._pop(self._quorum_moments, now - self._quorum_ticks)

    def again(self, now: int, moment: object) -> None:
        """Ask for this moment once more, a whole timeout from now."""
        self._moments.append((now, moment))

    def opened_in_time(self, now: int, opened: int) -> bool:
        """Whether a channel opened at tick `opened` had a whole timeout."""
        return opened <= now - self._bookie_ticks

    def clear(self) -> None:
        """Nothing is under way."""
        self._moments.clear()
        self._quorum_moments.clear()

    def _pop(self, moments: deque[tuple[int, object]], until: int) -> list[object]:
        due: list[object] = []
        while moments and moments[0][0] <= until:
            due.append(moments.popleft()[1])
        return due
