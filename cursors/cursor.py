"""Position of one subscription in a log: the read position, and the acknowledged entries.

The calls that acknowledge are synchronous and take runs. They take effect in memory at once; it is
durable when `persisted` calls back, at the latest a moment later (`CursorConfig.flush_delay_ms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from cursors.ack_state import AckState
from cursors.batch_acks import ACK_SET_WORDS_MAX, BATCH_SIZE_MAX, to_bits, to_words
from cursors.cursor_store import CursorStore, Persisted
from cursors.doors import Log
from cursors.errors import InvalidAckError
from cursors.redelivery_counts import RedeliveryCounts
from quire.ledger.position import EARLIEST, LATEST, Position


class Cursor:
    """Cursor of a managed ledger, made by `open_cursor` or `new_reader_cursor`."""

    __slots__ = ("_log", "_state", "_store", "active", "name", "on_activity", "on_moved_back", "read_position")

    def __init__(self, name: str, log: Log, state: AckState, store: CursorStore | None) -> None:
        self.name = name
        self._log = log
        self._state = state
        self._store = store
        self.read_position = log.next_position(state.mark_delete)
        """The next entry to deliver, advanced by the code that delivers."""
        self.active = False
        """True while it reads near the end of the log, so that new entries are kept in the cache for it. See
        `activate`."""
        self.on_activity: Callable[[int], None] = _ignore_activity
        """Called with +1 and -1 when `active` changes."""
        self.on_moved_back: Callable[[Cursor], None] = _ignore_move
        """Called when the mark-delete position may have gone back."""

    @property
    def durable(self) -> bool:
        """Return whether it is kept over restarts, and protects entries from trimming."""
        return self._store is not None

    @property
    def mark_delete(self) -> Position:
        """Every entry up to and including this one is acknowledged."""
        return self._state.mark_delete

    @property
    def durable_mark_delete(self) -> Position:
        """Minimum mark-delete position after a restart; that in memory if the cursor is not durable."""
        return self._state.mark_delete if self._store is None else self._store.durable_mark_delete

    @property
    def store(self) -> CursorStore | None:
        return self._store

    @property
    def cursor_properties(self) -> tuple[tuple[str, str], ...]:
        """Properties given by the user with the subscription."""
        return () if self._store is None else self._store.node.value.cursor_properties

    async def set_cursor_properties(self, properties: Sequence[tuple[str, str]]) -> None:
        """Replace the user's properties; durable on return. A cursor in memory has none. Raises CursorError."""
        if self._store is not None:
            await self._store.change_node(lambda node: replace(node, cursor_properties=tuple(properties)))

    @property
    def last_active_ms(self) -> int:
        """When it was last in use, in ms since 1970; 0 of a cursor in memory, or of one that was never touched."""
        return 0 if self._store is None else self._store.node.value.last_active_ms

    @property
    def is_touched(self) -> bool:
        """True if `last_active_ms` is newer in memory than where it is stored."""
        return self._store is not None and self._store.node.is_touched

    def touch(self) -> None:
        """Note that it is in use now. Stored with the next write of its node, or by `store_activity`."""
        if self._store is not None:
            self._store.node.touch()

    async def store_activity(self) -> None:
        """Store that it was touched. Raises CursorError."""
        if self._store is not None:
            await self._store.change_node(lambda node: node)

    @property
    def properties(self) -> dict[str, int]:
        """Numbers that are stored with the position; changed with `set_properties`."""
        return dict(self._state.properties)

    # Acknowledging

    def ack_individual(self, positions: Iterable[Position]) -> None:
        """Acknowledge whole entries, in any order, skipping acknowledged ones.

        Raises InvalidAckError with those that are not of this log (the others took effect)."""
        try:
            self._state.ack_individual(positions)
        finally:
            self._acked()

    def ack_batch(self, position: Position, ack_set: Sequence[int]) -> bool:
        """Acknowledge part of a batch; return True if the whole entry is acknowledged now.

        `ack_set` is the bitmap, in 64-bit words, of the messages that are still wanted. Raises InvalidAckError,
        TooManyAcksError."""
        try:
            return self._state.ack_batch(position, _bits(position, ack_set)) == 0
        finally:
            self._acked()

    def ack_cumulative(self, position: Position, ack_set: Sequence[int] = ()) -> bool:
        """Acknowledge everything up to and including `position`; return False if it was already acknowledged.

        With `ack_set` only the messages of that entry that are 0 in it. Raises InvalidAckError, TooManyAcksError."""
        changed = True  # even if refused, entries before it may have been acknowledged
        try:
            changed = self._state.ack_cumulative(position, _bits(position, ack_set) or None)
        finally:
            if changed:
                self._acked()
        return changed

    def skip_all(self) -> None:
        """Acknowledge every confirmed entry."""
        self._state.reset(self._log.last_confirmed)
        self._acked()

    def skip(self, count: int) -> None:
        """Acknowledge everything up to and including the `count`-th entry that is not acknowledged; all if there are
        fewer. Source: Pulsar's ManagedCursorImpl.asyncSkipEntries, without the acknowledged ones."""
        if count > 0:
            found = self._state.nth_unacked(count)
            if found is None:
                self.skip_all()
            else:
                self.ack_cumulative(found)

    def nth_unacked(self, count: int) -> Position | None:
        """Return the `count`-th entry that is not acknowledged, from 1; None if there are fewer."""
        return self._state.nth_unacked(count)

    def skip_to(self, mark_delete: Position) -> None:
        """For a cursor whose next entries were trimmed: go on after `mark_delete`. Never moves back."""
        if mark_delete > self._state.mark_delete:
            self._state.reset(mark_delete)
            self._acked()

    @property
    def has_redeliveries(self) -> bool:
        """Return whether there is a record of entries that were delivered again; see `redeliveries`."""
        return self._state.redeliveries is not None

    @property
    def has_properties(self) -> bool:
        """Return whether numbers are stored with the position."""
        return bool(self._state.properties)

    def set_properties(self, properties: dict[str, int]) -> None:
        """Replace the numbers stored with the position; they are durable when `persisted` calls back."""
        self._state.properties = dict(properties)
        self._acked()

    @property
    def redeliveries(self) -> RedeliveryCounts:
        """Return how often entries were delivered again, made when first used. See `redelivered`."""
        if self._state.redeliveries is None:
            self._state.redeliveries = RedeliveryCounts()
        return self._state.redeliveries

    def drop_no_redeliveries(self) -> None:
        """Give back the memory of `redeliveries` if there are none."""
        if self._state.redeliveries is not None and not self._state.redeliveries.values:
            self._state.redeliveries = None

    def redelivered(self) -> None:
        """Store redelivery counts that went up, with the acknowledgements."""
        if self._store is not None:
            self._store.changed()

    @property
    def delayed_index(self) -> bytes:
        """Return the index of delayed messages that was stored last; empty if there is none."""
        return self._state.delayed_index

    def store_delayed_index(self, index: bytes) -> None:
        """Store an index of delayed messages soon, with the position; a cursor in memory only keeps it."""
        self._state.set_delayed_index(index)
        self._acked()

    def _acked(self) -> None:
        if self.read_position <= self._state.mark_delete:
            self.read_position = self._log.next_position(self._state.mark_delete)
        if self._store is not None:
            self._store.changed()

    def persisted(self, callback: Persisted) -> None:
        """Call back once, with None when everything acknowledged so far is durable (now, if it is), or with the
        CursorError that keeps it from being so. A cursor that is not durable calls back at once."""
        if self._store is None:
            callback(None)
        else:
            self._store.persisted(callback)

    async def wait_persisted(self) -> None:
        """As `persisted`, awaited. CursorError."""
        if self._store is not None:
            await self._store.wait_persisted()

    # Asking

    def is_acked(self, position: Position) -> bool:
        return self._state.is_acked(position)

    def unacked_runs(self, first: Position, count: int) -> list[tuple[int, int]]:
        """Return the unacknowledged ones of the `count` entries from `first` on, all of one ledger: (first entry id,
        count)."""
        return self._state.unacked_runs(first, count)

    def next_unacked(self, position: Position) -> Position:
        """The first place at or after `position` that is not acknowledged; maybe not written yet."""
        return self._state.next_unacked(position)

    @property
    def has_ack_sets(self) -> bool:
        """Return whether any batch is acknowledged in part."""
        return bool(self._state.batches)

    def ack_set(self, position: Position) -> list[int] | None:
        """The bitmap of messages still wanted of a batch that is acknowledged in part, in signed 64-bit words; else
        None."""
        batches = self._state.batches
        unacked = batches.unacked(position) if batches else None
        return None if unacked is None else to_words(unacked)

    def partly_acked(self) -> Iterator[list[tuple[Position, list[int]]]]:
        """Yield the batches that are acknowledged in part, with the words of `ack_set`, ascending, in lists of bounded
        length. The cursor may change between two of them."""
        for page in self._state.batches.pages():
            first = page.first_entry_id
            yield [
                (Position(page.ledger_id, first + low), to_words(bits)) for low, bits in sorted(page.unacked.items())
            ]

    def backlog(self) -> int:
        """Confirmed entries that are not acknowledged; exact."""
        return self._state.backlog()

    def delivered(self) -> int:
        """Entries before the read position that are not acknowledged; exact."""
        return self._state.unacked_before(self.read_position)

    def ack_ranges(self, after: tuple[int, int] = (-1, -1), count_max: int | None = None) -> list[tuple[int, int, int]]:
        """Acknowledged entries above the mark-delete position: (ledger id, first, last), inclusive, ascending.

        Args:
            after: entry behind which the first range begins.
            count_max: maximum number of ranges; None: no limit.
        """
        return list(islice(self._state.ranges.ranges(after), count_max))

    @property
    def range_count(self) -> int:
        """Return the number of those ranges."""
        return self._state.ranges.range_count

    @property
    def is_storable(self) -> bool:
        """Return whether there are at most managedLedgerMaxUnackedRangesToPersist of them, or none is stored.

        Source: Pulsar's ManagedCursorImpl.isCursorDataFullyPersistable."""
        return self._store is None or self._state.ranges.range_count <= self._store.node.ranges_max

    # Moving

    def rewind(self) -> None:
        """Read again from the first entry that is not acknowledged."""
        self.read_position = self._log.next_position(self._state.mark_delete)

    async def seek(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Deliver next what stands at `position` (EARLIEST: the first entry there is, LATEST: the first to come); of
        that entry, if it is a batch, only the messages in `ack_set`. Forgets every acknowledgement after it. Durable on
        return; CursorError if it could not be made so."""
        log = self._log
        if position >= LATEST or position > log.last_confirmed:
            mark_delete = log.last_confirmed
        elif position <= EARLIEST or position < log.first_position():
            mark_delete = log.previous_position(log.first_position())
        else:
            mark_delete = log.previous_position(position)
        self._state.reset(mark_delete)
        self.on_moved_back(self)
        last = log.last_entry_of(position.ledger_id)
        if ack_set and last is not None and 0 <= position.entry_id <= last:
            self._state.ack_batch(position, _bits(position, ack_set))
        self.rewind()
        if self._store is not None:
            self._store.changed()
            await self._store.wait_persisted()

    def activate(self) -> None:
        """A consumer reads near the end of the log from now on."""
        if not self.active:
            self.active = True
            self.on_activity(1)

    def deactivate(self) -> None:
        if self.active:
            self.active = False
            self.on_activity(-1)


def _bits(position: Position, ack_set: Sequence[int]) -> int:
    """The bitmap of a batch; InvalidAckError for one that no batch has."""
    if len(ack_set) > ACK_SET_WORDS_MAX:
        raise InvalidAckError([position], f"a batch has at most {BATCH_SIZE_MAX} messages")
    return to_bits(ack_set)


def _ignore_activity(change: int) -> None:
    pass


def _ignore_move(cursor: Cursor) -> None:
    pass
