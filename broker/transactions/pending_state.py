"""State of the acknowledgements of a subscription in transactions that are not over (pure core of `pending_acks`).

Why this is hard: a message acknowledged in an open transaction is neither delivered nor acknowledged; two transactions
must not both acknowledge it, though a batch may be shared between them message by message; and the log of it has to
give the same answer after a restart, when the cursor may or may not know of a commit.

What holds after every call:
- OneHolder: a message is acknowledged in at most one open transaction.
- HeldIsNotDelivered: `wanted_runs` and `wanted_words` have nothing that is held.
- EndIsIdempotent: to commit or abort once more changes nothing.

Source: Pulsar's PendingAckHandleImpl.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from broker.dispatch.wanted import HeldSummary
from broker.transactions.errors import ConflictError, InvalidStatusError
from broker.transactions.records import CUMULATIVE
from broker.transactions.txn_id import TxnId
from cursors.batch_acks import to_bits, to_words
from quire.ledger.position import Position
from quire.wire.pulsar import TransactionFormats_pb2 as formats
from quire.wire.pulsar.TransactionFormats_pb2 import PendingAckMetadataEntry

ENTRIES_IN_STEP = 1000
"""Entries of a transaction that are let go before other tasks run, when it is ended."""
ENDED_MAX = 10_000
"""Transactions that are over, which are remembered to refuse late acknowledgements in them."""


class Acked(Protocol):
    """Interface of the cursor: entries acknowledged for good."""

    @property
    def mark_delete(self) -> Position: ...

    def is_acked(self, position: Position) -> bool: ...

    def ack_set(self, position: Position) -> list[int] | None: ...


class Ack(NamedTuple):
    """An acknowledgement of one entry, or of a part of it."""

    position: Position
    words: tuple[int, ...]
    """Bitmap of the messages of the batch that are not acknowledged; (): the whole entry is."""
    batch_size: int
    """Messages of the batch; 0: not known."""


class HeldAcks:
    """Acknowledgements of one open transaction."""

    __slots__ = ("cumulative", "entries", "records")

    def __init__(self) -> None:
        self.entries: dict[Position, int] = {}
        """Bitmap of the messages that are not acknowledged in it; 0: the whole entry is."""
        self.cumulative: Ack | None = None
        self.records: list[Position] = []
        """Its records in the log."""


class Result(NamedTuple):
    """Result of an end: the entries that a commit acknowledges."""

    whole: list[Position]
    parts: list[tuple[Position, list[int]]]
    cumulative: Ack | None
    records: list[Position]


class PendingState:
    """Acknowledgements of one subscription in open transactions."""

    def __init__(self) -> None:
        self.open: dict[TxnId, HeldAcks] = {}
        """In the order of their first acknowledgement."""
        self.low_watermarks: dict[int, int] = {}
        self._entries: dict[Position, int] = {}
        """Bitmap of the messages that no open transaction acknowledged, by entry; 0: the whole entry is."""
        self._sizes: dict[Position, int] = {}
        """Messages of the batches in `_entries`, where they are known."""
        self._ended: OrderedDict[TxnId, None] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is held, so that everything can be delivered."""
        return not self._entries

    # Acknowledging

    def check(self, txn: TxnId, acks: Sequence[Ack], ack_type: int, cursor: Acked) -> None:
        """Raise ConflictError, InvalidStatusError if `txn` cannot acknowledge these."""
        if txn in self._ended or txn.least <= self.low_watermarks.get(txn.most, -1):
            raise InvalidStatusError(f"transaction {txn} has been ended: it acknowledges nothing more")
        if ack_type == CUMULATIVE:
            self._check_cumulative(txn, acks[0], cursor)
        else:
            for ack in acks:
                self._check_one(txn, ack, cursor)

    def _check_one(self, txn: TxnId, ack: Ack, cursor: Acked) -> None:
        position = ack.position
        if cursor.is_acked(position):
            raise ConflictError(f"transaction {txn}: message {position} is acknowledged already")
        held = self._entries.get(position)
        if held is None and not ack.words:
            return
        overlap = held is not None and (not ack.words or not held)
        if not overlap:
            taken = _taken(to_bits(ack.words), ack)
            known = cursor.ack_set(position)
            overlap = (held is not None and taken & ~held != 0) or (known is not None and taken & ~to_bits(known) != 0)
        if overlap:
            raise ConflictError(f"transaction {txn}: message {position} is acknowledged in another one, or already")

    def _check_cumulative(self, txn: TxnId, ack: Ack, cursor: Acked) -> None:
        if ack.position <= cursor.mark_delete:
            raise ConflictError(f"transaction {txn}: everything up to {ack.position} is acknowledged already")
        for other, held in self.open.items():
            if held.cumulative is None:
                continue
            if other != txn:
                raise ConflictError(f"transaction {txn}: transaction {other} acknowledges cumulatively")
            if not _is_further(ack, held.cumulative):
                raise ConflictError(f"transaction {txn} acknowledged up to {held.cumulative.position} already")

    def hold(self, txn: TxnId, acks: Iterable[Ack], ack_type: int) -> None:
        """Hold what was checked."""
        held = self.open.get(txn)
        if held is None:
            held = self.open[txn] = HeldAcks()
        for ack in acks:
            if ack_type == CUMULATIVE:
                if held.cumulative is None or _is_further(ack, held.cumulative):
                    held.cumulative = ack
                continue
            position, bits = ack.position, to_bits(ack.words)
            if ack.batch_size:
                self._sizes[position] = ack.batch_size
            held.entries[position] = held.entries[position] & bits if position in held.entries else bits
            self._entries[position] = self._entries[position] & bits if position in self._entries else bits

    def recorded(self, txn: TxnId, record: Position) -> None:
        """Note where a record of an open transaction is."""
        if (held := self.open.get(txn)) is not None:
            held.records.append(record)

    # Ends

    def commit(self, txn: TxnId) -> Result:
        """End a transaction; return what it acknowledges for good."""
        return _joined(self.committing(txn))

    def abort(self, txn: TxnId) -> Result:
        """End a transaction; return what is to be delivered again."""
        return _joined(self.aborting(txn))

    def committing(self, txn: TxnId) -> Iterator[Result]:
        """End a transaction in steps: yield what each acknowledges for good, of at most ENTRIES_IN_STEP entries. The
        rest is held. Its records are in the last one, when it is over."""
        for taken, cumulative, records in self._taken(txn):
            whole = [position for position, bits in taken if not bits]
            parts = [(position, to_words(bits)) for position, bits in taken if bits]
            yield Result(whole, parts, cumulative, records)

    def aborting(self, txn: TxnId) -> Iterator[Result]:
        """As `committing`: yield what is to be delivered again."""
        for taken, cumulative, records in self._taken(txn):
            yield Result([position for position, _ in taken], [], cumulative, records)

    def _taken(self, txn: TxnId) -> Iterator[tuple[list[tuple[Position, int]], Ack | None, list[Position]]]:
        """Let go of the entries of a transaction in steps, and of itself in the last one. Yields entries with their
        bitmaps, what it acknowledged cumulatively (once), and its records (at the end)."""
        self._ended[txn] = None
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
        held = self.open.get(txn) or HeldAcks()
        cumulative = held.cumulative
        while True:
            taken = list(islice(held.entries.items(), ENTRIES_IN_STEP))
            for position, _ in taken:
                del held.entries[position]
                self._recompute(position)
            if not held.entries:
                self.open.pop(txn, None)
                yield taken, cumulative, held.records
                return
            yield taken, cumulative, []
            cumulative = None

    def _recompute(self, position: Position) -> None:
        """Learn what is held of an entry by the transactions that are left."""
        left = [held.entries[position] for held in self.open.values() if position in held.entries]
        if not left:
            self._entries.pop(position, None)
            self._sizes.pop(position, None)
            return
        bits = left[0]
        for each in left[1:]:
            bits &= each
        self._entries[position] = bits

    def raise_watermark(self, coordinator_id: int, low_watermark: int) -> list[TxnId]:
        """See `BufferState.raise_watermark`."""
        if low_watermark > self.low_watermarks.get(coordinator_id, -1):
            self.low_watermarks[coordinator_id] = low_watermark
        mark = self.low_watermarks.get(coordinator_id, -1)
        return [txn for txn in self.open if txn.most == coordinator_id and txn.least <= mark]

    # What is delivered

    def summary(self) -> HeldSummary | None:
        """Return what is held, for operators; None: nothing is."""
        oldest = next(iter(self.open), None)
        if oldest is None:
            return None
        upto = [held.cumulative.position for held in self.open.values() if held.cumulative is not None]
        return HeldSummary(len(self._entries), max(upto, default=None), len(self.open), oldest)

    def state_of(self, position: Position, index: int | None) -> str:
        """Return whether an entry, or one message of a batch, is acknowledged in an open transaction, by the original's
        names. Source: PositionInPendingAckStats."""
        held = self._entries.get(position)
        if held is None:
            return "NotInPendingAck"
        if index is None:
            return "PendingAck"
        if position in self._sizes and index >= self._sizes[position]:
            return "InvalidPosition"
        return "NotInPendingAck" if held >> index & 1 else "PendingAck"

    def wanted_runs(self, ledger_id: int, runs: Sequence[tuple[int, int]], cursor: Acked) -> list[tuple[int, int]]:
        """Return `runs` (first entry, count) without entries of which nothing is left to deliver."""
        found: list[tuple[int, int]] = []
        for start, count in runs:
            first = start
            for entry_id in range(start, start + count):
                if self.is_held(Position(ledger_id, entry_id), cursor):
                    if first < entry_id:
                        found.append((first, entry_id - first))
                    first = entry_id + 1
            if first < start + count:
                found.append((first, start + count - first))
        return found

    def is_held(self, position: Position, cursor: Acked) -> bool:
        """Return whether nothing is left to deliver of an entry."""
        held = self._entries.get(position)
        if held is None:
            return False
        known = cursor.ack_set(position) if held else None
        return not held or (known is not None and not held & to_bits(known))

    def wanted_words(self, position: Position, cursor: Acked) -> list[int] | None:
        """Return the messages of a batch to be delivered, as `Cursor.ack_set`."""
        known = cursor.ack_set(position)
        held = self._entries.get(position)
        if held is None:
            return known
        return to_words(held if known is None else held & to_bits(known))

    # The log

    def replay(self, record: Position, entry: PendingAckMetadataEntry, txn: TxnId) -> Result | None:
        """Learn from a record of the log. Return what it ends: of a commit, what is acknowledged for good."""
        if entry.pending_ack_op == formats.ACK:
            acks = [
                Ack(Position(each.ledgerId, each.entryId), tuple(each.ack_set), each.batch_size)
                for each in entry.pending_ack_metadata
            ]
            self.hold(txn, acks, entry.ack_type)
            self.recorded(txn, record)
            return None
        self.recorded(txn, record)
        result = self.commit(txn) if entry.pending_ack_op == formats.COMMIT else self.abort(txn)
        if not result.records:
            return Result([], [], None, [record])
        return result if entry.pending_ack_op == formats.COMMIT else Result([], [], None, result.records)


def _joined(results: Iterable[Result]) -> Result:
    """Return what all steps of an end say."""
    found = Result([], [], None, [])
    for whole, parts, cumulative, records in results:
        found.whole.extend(whole)
        found.parts.extend(parts)
        found = found._replace(cumulative=found.cumulative or cumulative, records=records)
    return found


def _taken(bits: int, ack: Ack) -> int:
    """Return the messages that a partial acknowledgement takes: the zeros of its bitmap."""
    size = ack.batch_size or 64 * len(ack.words)
    return ((1 << size) - 1) & ~bits


def _is_further(ack: Ack, other: Ack) -> bool:
    """Return whether a cumulative acknowledgement goes beyond another one."""
    if ack.position != other.position or not other.words:
        return ack.position > other.position
    return not ack.words or to_bits(ack.words) & to_bits(other.words) != to_bits(other.words)
