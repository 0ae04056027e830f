"""The entries of a log by number, at one moment: which place has the n-th, and how many come before a place. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from quire.ledger.position import Position


class Places:
    """The confirmed entries of a log, numbered from 0. A change of the log does not change it."""

    __slots__ = ("_before", "_ids", "count")

    def __init__(self, ids: Sequence[int], before: Sequence[int], count: int) -> None:
        """Take the ledgers in order, the entries before each, and the entries of all. The sequences do not change."""
        self._ids = ids
        self._before = before
        self.count = count

    def place(self, number: int) -> Position:
        """Return the place of an entry, 0 <= number < count.

        >>> places = Places((3, 4, 7), (0, 5, 5), 9)
        >>> places.place(4), places.place(5)
        (Position(ledger_id=3, entry_id=4), Position(ledger_id=7, entry_id=0))
        """
        at = bisect_right(self._before, number) - 1
        return Position(self._ids[at], number - self._before[at])

    def number(self, position: Position) -> int:
        """Return how many entries come before a place, which need not have one.

        >>> places = Places((3, 4, 7), (0, 5, 5), 9)
        >>> [places.number(Position(*each)) for each in ((3, -1), (3, 2), (3, 9), (6, 0), (7, 1), (8, 0))]
        [0, 2, 5, 5, 6, 9]
        """
        ledger_id, entry_id = position
        at = bisect_left(self._ids, ledger_id)
        if at == len(self._ids):
            return self.count
        if self._ids[at] != ledger_id:
            return self._before[at]
        end = self._before[at + 1] if at + 1 < len(self._ids) else self.count
        return min(self._before[at] + max(entry_id, 0), end)
