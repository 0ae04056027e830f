"""Facts of a log about its entries and their positions, which its index answers from memory."""

from __future__ import annotations

from managed_ledger.log_index import LogIndex
from quire.ledger.position import Position


class IndexedLog:
    """Log with an index of its ledgers."""

    __slots__ = ("_index",)

    def __init__(self) -> None:
        self._index = LogIndex()

    @property
    def index(self) -> LogIndex:
        return self._index

    def last_entry_of(self, ledger_id: int) -> int | None:
        """See `cursors.doors.Log`."""
        return self._index.last_entry_of(ledger_id)

    def next_position(self, position: Position) -> Position:
        """See `cursors.doors.Log`."""
        return self._index.next_position(position)

    def count_between(self, after: Position, upto: Position) -> int:
        """See `cursors.doors.Log`."""
        return self._index.count_between(after, upto)

    def position_after(self, position: Position, count: int) -> Position:
        """See `cursors.doors.Log`."""
        return self._index.position_after(position, count)

    @property
    def last_confirmed(self) -> Position:
        """Return the last entry; entry -1 of the first ledger if there never was one."""
        return self._index.last_confirmed

    @property
    def entry_count(self) -> int:
        """Return the number of confirmed entries in the log."""
        return self._index.count()

    def first_position(self) -> Position:
        """Return the position of the first entry, existing or future."""
        return self._index.first_position()

    def previous_position(self, position: Position) -> Position:
        """See `cursors.doors.Log`."""
        return self._index.previous_position(position)
