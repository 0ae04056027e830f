"""Acknowledgement state of a cursor: the pure core of `Cursor`. No await, no clock, no I/O.

Why this is hard: acknowledgements arrive in any order, for entries, for parts of batches and cumulatively, while
ledgers are added and trimmed. The mark-delete position has to advance exactly over what is contiguous, across ledgers.
The whole state has to fit one entry, so it is bounded, and each change has to be recorded as a difference that is cheap
to store. All this at about 0.1 us per acknowledgement.

What holds after every call:
- MarkDeleteIsTight: the entry after the mark-delete position is not acknowledged; every entry up to it is.
- AcksAreOfThisLog: nothing above the log's last confirmed entry, nor of a ledger it does not have, is acknowledged.
- AcksNeverShrink: only `reset` takes an acknowledgement back.
- StateFitsAnEntry: more than the bounds below is refused (TooManyAcksError), so that what was taken can be stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from cursors.ack_ranges import CHUNK, AckRanges
from cursors.batch_acks import BATCH_SIZE_MAX, RECOVERED_IN_STEP, BatchAcks, word_count
from cursors.doors import Log
from cursors.errors import InvalidAckError, TooManyAcksError
from cursors.redelivery_counts import RedeliveryCounts
from quire.ledger.position import Position
from quire.service.shared_maps import EMPTY

PARTIAL_CHUNKS_MAX = 18_000
"""Maximum number of partly acknowledged chunks of ranges (1024 entries, 133 bytes stored), plus those of one call."""
BATCHES_MAX = 100_000
"""Maximum number of partly acknowledged batches. Pulsar persists 10,000:
managedLedgerMaxBatchDeletedIndexToPersist."""
BATCH_WORDS_MAX = 120_832
"""Maximum words of 64 messages in the bitmaps of all of them."""
BATCH_BYTES_MAX = 1_800_000
"""Maximum bytes of all of them when stored: eight per word, and these."""
_BYTES_PER_BATCH = 4
_BYTES_PER_PAGE = 32
_CHANGES_MAX = 3 * 65_536


class Changes:
    """Acknowledgements above the mark-delete position since the state was last written."""

    __slots__ = ("batches", "ranges", "redelivered", "replaced")

    def __init__(self) -> None:
        self.ranges: list[int] = []
        """Ranges as ledger id, first entry id, last entry id, and so on."""
        self.batches: dict[Position, None] = {}
        """Batches whose bitmap changed."""
        self.redelivered: Sequence[Position] = ()
        """Entries whose redelivery counts went up."""
        self.replaced = True
        """True if the state cannot be expressed as changes and has to be written whole."""


_WHOLE: Final = Changes()
"""Shared by the cursors whose next entry has the whole state, which are most; never changed."""


class AckState:
    """Mark-delete position, acknowledged entries above it, and batches acknowledged in part."""

    __slots__ = (
        "_log",
        "batches",
        "changes",
        "delayed_index",
        "mark_delete",
        "properties",
        "ranges",
        "redeliveries",
    )

    def __init__(self, log: Log, mark_delete: Position) -> None:
        self._log = log
        self.mark_delete = mark_delete
        """Every entry up to and including this one is acknowledged; entry -1 is "none of this ledger"."""
        self.ranges = AckRanges()
        self.batches = BatchAcks()
        self.properties: Mapping[str, int] = EMPTY
        """Numbers given with the last acknowledgement; stored with the position."""
        self.redeliveries: RedeliveryCounts | None = None
        """None: nothing was counted."""
        self.delayed_index = b""
        """Index of the subscription's delayed messages, which only its owner can read; stored with the position."""
        self.changes = _WHOLE

    def with_redeliveries(self, counts: dict[Position, int]) -> AckState:
        """Set the redelivery counts that were read from the store."""
        if counts:
            self.redeliveries = RedeliveryCounts()
            self.redeliveries.values.update(counts)
        return self

    def as_stored(
        self, mark_delete: Position, ranges: AckRanges, batches: BatchAcks, properties: Mapping[str, int]
    ) -> AckState:
        """Return the state that was read from the store."""
        state = AckState(self._log, mark_delete)
        state.ranges, state.batches, state.properties = ranges, batches, properties
        return state

    def ack_individual(self, positions: Iterable[Position]) -> None:
        """Acknowledge entries, in any order, skipping acknowledged ones. About 0.1 us each in order.

        Raises InvalidAckError with the positions that are not of this log, TooManyAcksError with those that do not fit;
        the others took effect."""
        mark_ledger, mark_entry = self.mark_delete
        bound_ledger, bound = self._bound(mark_ledger)
        invalid: list[Position] = []
        refused: list[Position] = []
        ranges = self.ranges
        full = ranges.partial_chunks >= PARTIAL_CHUNKS_MAX
        add_one = ranges.add_one
        for position in positions:
            ledger_id, entry_id = position
            if ledger_id == mark_ledger:
                if entry_id <= mark_entry:
                    continue
                if entry_id == mark_entry + 1 and bound_ledger == ledger_id and entry_id <= bound:
                    mark_entry = entry_id
                    continue
            elif ledger_id < mark_ledger:
                continue
            if ledger_id != bound_ledger:
                bound_ledger, bound = self._bound(ledger_id)
            if not 0 <= entry_id <= bound:
                invalid.append(position)
            elif full and not ranges.has_chunk_of(ledger_id, entry_id):
                refused.append(position)
            elif add_one(ledger_id, entry_id):
                self._note(ledger_id, entry_id)
        self._advance(mark_ledger, mark_entry)
        if invalid:
            raise InvalidAckError(invalid)
        if refused:
            raise TooManyAcksError(refused, "too many acknowledged ranges above the mark-delete position")

    def ack_batch(self, position: Position, unacked: int) -> int:
        """Acknowledge part of a batch: only the messages in the bitmap `unacked` are still wanted by this consumer.

        Returns the remaining messages of the batch for all consumers; 0: the entry is acknowledged. Raises
        InvalidAckError, TooManyAcksError."""
        if self.is_acked(position):
            return 0
        self._check(position)
        self._check_room(position, unacked)
        remaining = self.batches.ack(position, unacked)
        if remaining:
            if not self.changes.replaced:
                self.changes.batches[position] = None
        else:
            self.ack_individual((position,))
        return remaining

    def ack_cumulative(self, position: Position, unacked: int | None = None) -> bool:
        """Acknowledge everything up to and including `position`; return False if nothing changed.

        With `unacked`, only the messages of that entry that are 0 in the bitmap. Raises InvalidAckError."""
        if position <= self.mark_delete:
            return False
        self._check(position)
        if unacked:
            before = self._log.previous_position(position)
            if before > self.mark_delete:
                self._advance(*before)
            if position > self.mark_delete and not self.ranges.contains(*position):
                self.ack_batch(position, unacked)
            return True
        self._advance(*position)
        return True

    def is_acked(self, position: Position) -> bool:
        return position <= self.mark_delete or self.ranges.contains(*position)

    def reset(self, mark_delete: Position) -> None:
        """Restart after `mark_delete`, which may be an earlier or a later place. Before the former one, everything is
        delivered as if for the first time."""
        if self.redeliveries is not None and mark_delete < self.mark_delete:
            self.redeliveries.clear()
        self.mark_delete = mark_delete
        self.ranges.clear()
        self.batches.clear()
        self.changes = _WHOLE

    def unacked_runs(self, first: Position, count: int) -> list[tuple[int, int]]:
        """Return the unacknowledged ones of the `count` entries of one ledger from `first` on, as (first entry,
        count)."""
        ledger_id, start = first
        end = start + count - 1
        if ledger_id <= self.mark_delete.ledger_id:
            if ledger_id < self.mark_delete.ledger_id:
                return []
            start = max(start, self.mark_delete.entry_id + 1)
        if not self.ranges:
            return [(start, end - start + 1)] if start <= end else []
        return self.ranges.missing_runs(ledger_id, start, end)

    def next_unacked(self, position: Position) -> Position:
        """Return the first place at or after `position` that is not acknowledged; it may not be written yet."""
        log = self._log
        position = max(position, self.mark_delete)
        if position == self.mark_delete:
            position = log.next_position(position)
        while self.ranges:
            ledger_id, entry_id = position
            found = self.ranges.first_missing(ledger_id, entry_id)
            last = log.last_entry_of(ledger_id)
            if found == entry_id or last is None or found <= last:
                return Position(ledger_id, found)
            position = log.next_position(Position(ledger_id, found - 1))
            if position.ledger_id == ledger_id:
                return position
        return position

    def backlog(self) -> int:
        """Return the exact number of confirmed entries that are not acknowledged."""
        return self._log.count_between(self.mark_delete, self._log.last_confirmed) - self.ranges.count

    def unacked_before(self, position: Position) -> int:
        """Return the exact number of confirmed entries before `position` that are not acknowledged."""
        before = self._log.count_between(self.mark_delete, self._log.previous_position(position))
        return max(0, before - self.ranges.count + self.ranges.count_from(*position))

    def nth_unacked(self, count: int) -> Position | None:
        """Return the `count`-th confirmed entry that is not acknowledged, at least 1; None if there are fewer.

        It costs by the chunks of acknowledged entries before it, not by the entries."""
        log, at, left = self._log, self.mark_delete, count
        for ledger_id in self.ranges.ledgers():
            last = log.last_entry_of(ledger_id)
            if last is None:
                continue
            for number, bitmap in self.ranges.chunks(ledger_id):
                first = number * CHUNK
                # Up to the chunk nothing is acknowledged above the mark-delete position.
                if at.ledger_id == ledger_id:
                    gap = max(0, min(first - 1, last) - at.entry_id)
                else:
                    gap = log.count_between(at, Position(ledger_id, first - 1))
                if left <= gap:
                    return log.position_after(at, left)
                left -= gap
                first = max(first, at.entry_id + 1) if at.ledger_id == ledger_id else first
                end = min(number * CHUNK + CHUNK - 1, last)
                if end < first:
                    continue
                wanted = ~bitmap >> (first - number * CHUNK) & ((1 << (end - first + 1)) - 1)
                if left <= wanted.bit_count():
                    return Position(ledger_id, first + _nth_bit(wanted, left))
                left -= wanted.bit_count()
                at = Position(ledger_id, end)
        return log.position_after(at, left) if left <= log.count_between(at, log.last_confirmed) else None

    def set_delayed_index(self, index: bytes) -> None:
        """Set the index of delayed messages, which goes into the next stored entry; empty: there is none."""
        self.delayed_index = index
        self.rewrite()

    def take_changes(self) -> Changes:
        """Return the changes since the last call. The caller writes them, or calls `rewrite`."""
        taken = Changes() if self.changes is _WHOLE else self.changes
        self.changes = Changes()
        self.changes.replaced = False
        if self.redeliveries is not None:
            taken.redelivered = self.redeliveries.take_changed()
        return taken

    def stored_redeliveries(self) -> list[Position]:
        """Return the entries whose redelivery counts are to be stored, and drop counts of acknowledged ones."""
        counts = self.redeliveries
        if counts is None:
            return []
        if counts.values:
            counts.forget_some(self.is_acked)
        return counts.to_store()

    def rewrite(self) -> None:
        """Make the next changes a whole state: the last ones were not written, or the next go to another ledger."""
        self.changes = _WHOLE

    def fit_to_log(self) -> None:
        """Move a recovered state to a place that the log has.

        A position above the last confirmed entry moves down to it; one in a trimmed ledger moves to the start of the
        next."""
        for _ in self.fitting_to_log():
            pass

    def fitting_to_log(self) -> Iterator[None]:
        """Do as `fit_to_log`, with at most RECOVERED_IN_STEP batches in each step."""
        log = self._log
        if self.mark_delete > log.last_confirmed and log.last_entry_of(self.mark_delete.ledger_id) != -1:
            self.mark_delete = log.last_confirmed
        last = log.last_entry_of(self.mark_delete.ledger_id)
        if last is None:
            following = log.next_position(self.mark_delete)
            self.mark_delete = Position(following.ledger_id, -1)
        elif self.mark_delete.entry_id > last:
            self.mark_delete = Position(self.mark_delete.ledger_id, last)
        kept = AckRanges()
        for ledger_id, first, end in self.ranges.ranges():
            _, bound = self._bound(ledger_id)
            kept.add(ledger_id, first, min(end, bound))
        self.ranges = kept
        self.ranges.forget_through(*self.mark_delete)
        self.batches.forget_through(self.mark_delete)
        for page in self.batches.pages():
            last = log.last_entry_of(page.ledger_id)
            for number, low in enumerate(list(page.unacked), 1):
                position = Position(page.ledger_id, page.first_entry_id + low)
                if last is None or position > log.last_confirmed or self.is_acked(position):
                    self.batches.forget(position)
                if not number % RECOVERED_IN_STEP:
                    yield
            yield
        self._advance(*self.mark_delete)

    def _bound(self, ledger_id: int) -> tuple[int, int]:
        """Return the ledger and its last entry that may be acknowledged, -1 if none."""
        last = self._log.last_entry_of(ledger_id)
        return ledger_id, -1 if last is None else last

    def _check(self, position: Position) -> None:
        if not 0 <= position.entry_id <= self._bound(position.ledger_id)[1]:
            raise InvalidAckError([position])

    def _check_room(self, position: Position, unacked: int) -> None:
        batches = self.batches
        if unacked.bit_length() > BATCH_SIZE_MAX:
            raise InvalidAckError([position], f"a batch has at most {BATCH_SIZE_MAX} messages")
        if not unacked or batches.unacked(position) is not None:
            return
        words = batches.words + word_count(unacked)
        size = 8 * words + len(batches) * _BYTES_PER_BATCH + batches.page_count * _BYTES_PER_PAGE
        if len(batches) >= BATCHES_MAX or words > BATCH_WORDS_MAX or size > BATCH_BYTES_MAX:
            raise TooManyAcksError([position], "too many partly acknowledged batches")

    def _note(self, ledger_id: int, entry_id: int) -> None:
        changed = self.changes.ranges
        if self.changes.replaced:
            pass  # the whole state has it
        elif changed and changed[-1] == entry_id - 1 and changed[-3] == ledger_id:
            changed[-1] = entry_id
        elif len(changed) < _CHANGES_MAX:
            changed += (ledger_id, entry_id, entry_id)
        else:
            self.changes = _WHOLE
        if self.batches:
            self.batches.forget(Position(ledger_id, entry_id))

    def _advance(self, ledger_id: int, entry_id: int) -> None:
        """Move the mark-delete position to (ledger_id, entry_id) and on over acknowledged entries behind it, across
        ledgers."""
        ranges = self.ranges
        if ranges:
            log = self._log
            while True:
                entry_id = ranges.first_missing(ledger_id, entry_id + 1) - 1
                last = log.last_entry_of(ledger_id)
                if last is not None and entry_id < last:
                    break
                following = log.next_position(Position(ledger_id, entry_id))
                if following.ledger_id == ledger_id or not ranges.contains(*following):
                    break
                ledger_id, entry_id = following.ledger_id, -1
        before = self.mark_delete
        if ledger_id == before.ledger_id and entry_id == before.entry_id:
            return
        self.mark_delete = Position(ledger_id, entry_id)
        if ranges:
            ranges.forget_through(ledger_id, entry_id, after=before.entry_id if before.ledger_id == ledger_id else -1)
        if self.batches:
            self.batches.forget_through(self.mark_delete)


def _nth_bit(bitmap: int, count: int) -> int:
    """Return the index of the `count`-th bit that is 1, from the lowest.

    >>> _nth_bit(0b10110, 1), _nth_bit(0b10110, 3)
    (1, 4)
    """
    for _ in range(count - 1):
        bitmap &= bitmap - 1
    return (bitmap & -bitmap).bit_length() - 1
