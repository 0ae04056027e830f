"""Order of a log's ledgers, for questions about positions. Pure; answers from memory.

What holds: NoOutOfOrderEntries (`last_confirmed` only grows); nothing above `last_confirmed` counts as there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.places import Places
from quire.ledger.position import Position

NO_LEDGER = -2
"""A ledger id below those of all positions, including those before the first entry."""
_NONE_BEFORE = (0,)
"""Entries before the first ledger, shared by all logs with one ledger, which are most."""


class LogIndex:
    """The closed ledgers with their entries, and the current one, which grows."""

    __slots__ = ("_before", "_ids", "_ledgers", "current_id", "last_confirmed")

    def __init__(self) -> None:
        # Tuples, because a list of one ledger takes twice as much memory.
        self._ids: tuple[int, ...] = ()
        self._ledgers: Sequence[LedgerInfo] = ()
        """The list, which is kept anyway. The last entry of the current ledger is in `last_confirmed`."""
        self._before: tuple[int, ...] = ()
        """Entries of the log before each ledger."""
        self.current_id = NO_LEDGER
        self.last_confirmed = Position(-1, -1)

    def set(self, ledgers: Sequence[LedgerInfo], current_id: int) -> None:
        """Set the ledgers, which do not change; `current_id` is the open one, the last of them, or NO_LEDGER."""
        self._ids = tuple([info.ledger_id for info in ledgers])
        self._ledgers = ledgers
        before = accumulate([info.entries for info in ledgers[:-1]], initial=0)
        self._before = tuple(before) if len(ledgers) > 1 else _NONE_BEFORE[: len(ledgers)]
        self.current_id = current_id

    @property
    def ledger_ids(self) -> Sequence[int]:
        return self._ids

    def last_entry_of(self, ledger_id: int) -> int | None:
        """See `cursors.doors.Log`."""
        if ledger_id == self.current_id:
            confirmed = self.last_confirmed
            return confirmed.entry_id if confirmed.ledger_id == ledger_id else -1
        ids = self._ids  # asked several times for each run that is delivered: `_ordinal` would be one call more
        ordinal = bisect_left(ids, ledger_id)
        return self._ledgers[ordinal].entries - 1 if ordinal < len(ids) and ids[ordinal] == ledger_id else None

    def _ordinal(self, ledger_id: int) -> int | None:
        ids = self._ids
        ordinal = bisect_left(ids, ledger_id)
        return ordinal if ordinal < len(ids) and ids[ordinal] == ledger_id else None

    def first_position(self) -> Position:
        return Position(self._ids[0], 0) if self._ids else Position(self.last_confirmed.ledger_id, 0)

    def next_position(self, position: Position) -> Position:
        ledger_id, entry_id = position
        if ledger_id == self.current_id:
            return Position(ledger_id, entry_id + 1)
        last = self.last_entry_of(ledger_id)
        if last is not None and entry_id < last:
            return Position(ledger_id, entry_id + 1)
        ordinal = bisect_right(self._ids, ledger_id)
        if ordinal < len(self._ids):
            return Position(self._ids[ordinal], 0)
        if not self._ids:
            return Position(ledger_id, entry_id + 1)
        end = self._ids[-1]
        return (
            Position(end, (self.last_entry_of(end) or 0) + 1) if ledger_id > end else Position(ledger_id, entry_id + 1)
        )

    def previous_position(self, position: Position) -> Position:
        ledger_id, entry_id = position
        last = self.last_entry_of(ledger_id)
        if last is not None and entry_id > 0:
            before = min(entry_id - 1, last)
            if before >= 0:
                return Position(ledger_id, before)
        for ordinal in range(bisect_left(self._ids, ledger_id) - 1, -1, -1):
            # The last entry of the open ledger is not in the list.
            last = self.last_entry_of(self._ids[ordinal])
            if last is not None and last >= 0:
                return Position(self._ids[ordinal], last)
        return Position(self._ids[0] if self._ids else ledger_id, -1)

    def count_between(self, after: Position, upto: Position) -> int:
        return max(0, self._count_through(upto) - self._count_through(after))

    def count(self) -> int:
        """Return the number of confirmed entries in the log."""
        return self._count_through(self.last_confirmed)

    def places(self) -> Places:
        """Return the entries that are confirmed now, by number."""
        return Places(self._ids, self._before, self.count())

    def position_after(self, position: Position, count: int) -> Position:
        """See `cursors.doors.Log`."""
        places = self.places()
        number = self._count_through(position) + count - 1
        return places.place(number) if number < places.count else self.last_confirmed

    def _count_through(self, position: Position) -> int:
        """Return the number of entries of the log up to and including `position`."""
        ledger_id, entry_id = position
        ordinal = self._ordinal(ledger_id)
        if ordinal is not None:
            last = self.last_entry_of(ledger_id)
            return self._before[ordinal] + min(entry_id, -1 if last is None else last) + 1
        ordinal = bisect_left(self._ids, ledger_id)
        if ordinal < len(self._ids):
            return self._before[ordinal]
        if not self._ids:
            return 0
        return self._before[-1] + (self.last_entry_of(self._ids[-1]) or 0) + 1

    def readable(self, position: Position) -> Position | None:
        """Return the first confirmed entry at or after `position`; None if there is none yet."""
        ledger_id, entry_id = position
        last = self.last_entry_of(ledger_id)
        if last is None or entry_id > last or entry_id < 0:
            position = self.next_position(Position(ledger_id, max(entry_id, 0) - 1))
        return position if position <= self.last_confirmed else None
