"""Facts of a log about its ledgers, its entries and their positions, answered from memory."""

from __future__ import annotations

from collections.abc import Callable

from managed_ledger.ledger_list import LedgerInfo, LedgerList
from managed_ledger.log_index import LogIndex
from managed_ledger.stored_list import StoredList
from quire.ledger.position import Position


class IndexedLog:
    """Log with the stored list of its ledgers, and an index of them."""

    __slots__ = ("_index", "_stored")

    def __init__(self, stored: StoredList) -> None:
        self._stored = stored
        self._index = LogIndex()

    @property
    def ledgers(self) -> tuple[LedgerInfo, ...]:
        """Return the list as stored. The last ledger has no entries and size while it is open. After the open no ledger
        is open until the first append."""
        return self._stored.value.ledgers

    @property
    def stored_list(self) -> LedgerList:
        """Return the whole value of the log's node."""
        return self._stored.value

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        return self._stored.value.properties

    def keep_in_list(self, amend: Callable[[LedgerList], LedgerList]) -> None:
        """Store every list of ledgers from now on as `amend` changes it."""
        self._stored.amend = amend

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
