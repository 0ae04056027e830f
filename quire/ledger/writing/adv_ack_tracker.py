"""AdvAckTracker: turns acknowledgements into confirmations if the application assigns entry ids, in any order. Pure.

    confirmed ..... reach      island        island            ids ->
    ==========------------.....------........---
               pushed      gap  pushed   gap  pushed

Entries below `reach` are tracked as for ascending ids. Entries above it cannot be confirmed before the gap is filled,
but their acknowledgements are counted. An id is pushed once: islands never overlap.

Source: BookKeeper's LedgerHandleAdv.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TypeAlias

from quire.ledger.striping import Striping
from quire.ledger.writing.ack_tracker import AckTracker

ID_END = 1 << 63
"""Number above every entry id."""

Ranges: TypeAlias = tuple[tuple[int, int], ...]


class AdvAckTracker(AckTracker):
    """Ack tracker for entries pushed in any order of their ids."""

    __slots__ = ("_islands", "_recent")

    def __init__(self, striping: Striping, ack_quorum: int, *, confirmed: int = -1) -> None:
        super().__init__(striping, ack_quorum, confirmed=confirmed)
        self._islands: list[tuple[int, int]] = []
        """Ranges pushed above `_reach`, sorted; no two touch, and none touches `_reach`."""
        self._recent: list[tuple[int, int]] = []
        """Ranges pushed since the last `moment`."""

    def is_new(self, first: int, last: int) -> bool:
        """Return whether none of the entries `first` to `last` was pushed before."""
        if first <= self._reach:
            return False
        place = bisect_right(self._islands, (last, ID_END))
        return not place or self._islands[place - 1][1] < first

    def pushed(self, first: int, last: int) -> None:
        """Record that entries `first` to `last`, which are new, were sent to their write sets."""
        assert first <= last, f"no entries {first}..{last}"
        assert self.is_new(first, last), f"pushed {first}..{last} twice"
        self.pushed_last = max(self.pushed_last, last)
        self._note(first, last)
        islands = self._islands
        if first == self._reach + 1:
            self._reach = last
            if islands and islands[0][0] == last + 1:
                self._reach = islands.pop(0)[1]
            return
        place = bisect_right(islands, (first, last))
        if place and islands[place - 1][1] == first - 1:
            place -= 1
            first = islands.pop(place)[0]
        if place < len(islands) and islands[place][0] == last + 1:
            last = islands.pop(place)[1]
        insort(islands, (first, last))

    def sent(self, first: int, last: int) -> bool:
        if first < 0 or last > self.pushed_last:
            return False
        if last <= self._reach:
            return True
        place = bisect_right(self._islands, (last, ID_END)) - 1
        return place >= 0 and self._islands[place][0] <= max(first, self._reach + 1) and last <= self._islands[place][1]

    def moment(self) -> object:
        """Return the ranges pushed since the last moment: each belongs to one moment."""
        recent = tuple(self._recent)
        self._recent.clear()
        return recent

    def overdue(self, index: int, moment: object) -> bool:
        assert isinstance(moment, tuple), "a moment of this tracker"
        ranges: Ranges = moment
        return any(self._lacks_any(index, first, last) for first, last in ranges)

    def unconfirmed(self, moment: object) -> bool:
        assert isinstance(moment, tuple), "a moment of this tracker"
        ranges: Ranges = moment
        return any(last > self.confirmed for _, last in ranges)

    def waits(self, index: int) -> bool:
        return self.lacks(index, self._reach) or any(self._lacks_any(index, *island) for island in self._islands)

    def _lacks_any(self, index: int, first: int, last: int) -> bool:
        """Return whether bookie `index` lacks one of the pushed entries `first` to `last` that it stores."""
        first = max(self._striping.stored_from(index, first), self._through[index] + 1)
        last = self._striping.stored_until(index, last)
        if first > last:
            return False
        ahead = [] if self._ahead is None else self._ahead[index]
        place = bisect_right(ahead, (first, ID_END)) - 1
        return place < 0 or not (ahead[place][0] <= first and last <= ahead[place][1])

    def _note(self, first: int, last: int) -> None:
        recent = self._recent
        if recent and recent[-1][1] == first - 1:
            recent[-1] = (recent[-1][0], last)
        else:
            recent.append((first, last))
