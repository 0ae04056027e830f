"""The stored forms of a cursor and their codecs. Pure.

An entry of a cursor ledger is always a PositionInfo that Pulsar reads, with the right mark-delete position and
properties. It is one of

    small   everything in Pulsar's own fields: ack bitmaps (field 6) and batch bitmaps (field 5)
    base    the bitmaps would be larger than PUBLIC_BYTES_MAX: Pulsar's fields hold the first PUBLIC_RANGES_MAX ranges,
            our field (16001) the whole set in chunks. Of more than PUBLIC_BATCHES_MAX batches Pulsar's field has the
          first PUBLIC_RANGES_MAX, our field all of them in pages
    delta   Pulsar's fields hold the mark-delete position and the batches that changed; our field holds the ranges added
            since the entry before, and the id of the base (or small) entry that the chain begins with

The state of an entry is that of its base united with every delta from there to it: acknowledgements only grow, and a
change that takes some back (a seek) is written as a base. So a Pulsar that reads such a ledger finds the right
mark-delete position, and may deliver again what was acknowledged above it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import iter_unpack
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from cursors.ack_ranges import CHUNK_BYTES, FULL, AckRanges
from cursors.ack_state import AckState, Changes
from cursors.batch_acks import RECOVERED_IN_STEP, BatchAcks, BatchPage, to_bits, to_words, word_count
from cursors.batch_fields import batch_field, batch_fields
from cursors.compression import CompressedValueError, plain
from cursors.errors import CursorDamagedError, CursorTooLargeError
from cursors.redelivery_counts import STORED_MAX
from cursors.unknown_fields import unknown_fields
from quire.ledger.position import Position
from quire.wire.pulsar import MLDataFormats_pb2 as pb

NODE_BYTES_MAX = 60 * 1024
"""Maximum size of the snapshot in a node: every read of a topic's cursors reads it. What does not fit stays in the
cursor ledger."""
_RANGE_BYTES = 40
_BATCH_BYTES = 40
_COUNT_BYTES = 18
"""Approximate maximum bytes of a redelivery count: 8 of a ledger id, 5 of an entry id, 5 of the count."""
PUBLIC_BYTES_MAX = 64 * 1024
PUBLIC_RANGES_MAX = 1000
PUBLIC_BATCHES_MAX = 10_000
"""Pulsar stores as many: managedLedgerMaxBatchDeletedIndexToPersist."""
PUBLIC_BATCH_BYTES_MAX = 1024 * 1024
ENTRY_BYTES_MAX = 4_718_592
"""Bookies take entries of 5 MiB, less the frame."""
_BYTES_PER_WORD = 11
"""Maximum size of a word of a bitmap on the wire: tag and ten bytes of a negative varint."""

_BATCHES_AT_ONCE = 256
"""Number of batches above which they follow the other fields, encoded when they change instead of each time."""

NO_LEDGER = -1

MessageT = TypeVar("MessageT", bound=Message)


@dataclass(slots=True)
class Stored:
    """State of a cursor as read."""

    mark_delete: Position
    ranges: AckRanges = field(default_factory=AckRanges)
    batches: BatchAcks = field(default_factory=BatchAcks)
    properties: dict[str, int] = field(default_factory=dict)
    redeliveries: dict[Position, int] = field(default_factory=dict)
    """Redelivery counts of entries that are not acknowledged."""
    delayed_index: bytes = b""
    delayed_entry_id: int | None = None
    """Entry of the same ledger that has the index of delayed messages, if this one has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorNode:
    """Value of a cursor's node."""

    ledger_id: int = NO_LEDGER
    """The cursor ledger, or NO_LEDGER: the node holds the state."""
    previous_ledger_id: int = NO_LEDGER
    """The state while the cursor ledger is empty."""
    deleting: tuple[int, ...] = ()
    """Ledgers that may remain to be deleted."""
    last_active_ms: int = 0
    cursor_properties: tuple[tuple[str, str], ...] = ()
    """Properties given by the user with the subscription."""
    unknown: bytes = b""
    """Fields of a newer schema, serialised."""


def estimate(state: AckState) -> int:
    """Return the approximate maximum bytes of the state in Pulsar's own fields."""
    size = 64 + state.ranges.word_count() * _BYTES_PER_WORD + _batch_bytes(state)
    return size if state.redeliveries is None else size + _redelivered(state) * _COUNT_BYTES


def node_takes(state: AckState, count_max: int) -> bool:
    """Return whether the whole state fits a cursor's node: at most `count_max` ranges and as many batches,
    NODE_BYTES_MAX, and no index of delayed messages."""
    if state.delayed_index:
        return False
    ranges = state.ranges.range_count
    size = ranges * _RANGE_BYTES + _batch_bytes(state) + _redelivered(state) * _COUNT_BYTES
    return max(ranges, len(state.batches), _redelivered(state)) <= count_max and size <= NODE_BYTES_MAX


def page_codec(state: AckState) -> Callable[[BatchPage], bytes]:
    """Return what encodes the pages of batches of a whole entry, if there are many."""
    return _public_page if _is_public(state) else _own_page


def _is_public(state: AckState) -> bool:
    return len(state.batches) <= PUBLIC_BATCHES_MAX and _batch_bytes(state) <= PUBLIC_BATCH_BYTES_MAX


def encode_whole(state: AckState) -> bytes:
    """Encode a small or a base entry. Raises CursorTooLargeError."""
    info = _head(state)
    batches = state.batches
    public = _is_public(state)
    few = len(batches) <= _BATCHES_AT_ONCE and public
    if few:
        _put_batches(info.batchedEntryDeletionIndexInfo, state, None)
    if state.ranges.word_count() * _BYTES_PER_WORD <= PUBLIC_BYTES_MAX:
        for ledger_id in state.ranges.ledgers():
            # The original writes an additional zero word.
            info.individualDeletedMessageRanges.add(key=ledger_id, values=[*state.ranges.words(ledger_id), 0])
    else:
        _put_ranges(info.individualDeletedMessages, state.ranges, PUBLIC_RANGES_MAX)
        for ledger_id in state.ranges.ledgers():
            _put_chunks(info.quireAcks.ledgers.add(ledgerId=ledger_id), state.ranges.chunks(ledger_id))
    if state.redeliveries is not None and (redelivered := state.stored_redeliveries()):
        info.quireAcks.redeliveries.extend(state.redeliveries.flat(redelivered))
    data = info.SerializeToString()
    if not few and public:
        data += batches.encoded(_public_page)
    elif not public:
        first = _first_batches(state, PUBLIC_RANGES_MAX, PUBLIC_BYTES_MAX)
        data += b"".join([batch_field(*each) for each in first])
        data += batches.encoded(_own_page)
    if len(data) > ENTRY_BYTES_MAX:
        raise CursorTooLargeError(f"{len(data)} bytes of acknowledged ranges do not fit an entry ({ENTRY_BYTES_MAX})")
    return data


def delayed_index_field(index: bytes) -> bytes:
    """Return the field of a whole entry with an index of delayed messages."""
    return pb.PositionInfo(quireDelayed=pb.QuireDelayed(index=index)).SerializePartialToString()


def delayed_place_field(entry_id: int) -> bytes:
    """Return the field of a whole entry that names the entry with the index of delayed messages."""
    return pb.PositionInfo(quireDelayed=pb.QuireDelayed(entryId=entry_id)).SerializePartialToString()


def encode_delta(state: AckState, changes: Changes, base_entry_id: int) -> bytes:
    """Encode an entry that adds `changes` to those from `base_entry_id` on."""
    info = _head(state)
    batches: list[bytes] = []
    for position in changes.batches:
        unacked = state.batches.unacked(position)
        if unacked is not None:
            batches.append(batch_field(position, unacked))
    info.quireAcks.baseEntryId = base_entry_id
    info.quireAcks.ranges.extend(changes.ranges)
    if state.redeliveries is not None:
        info.quireAcks.redeliveries.extend(state.redeliveries.flat(changes.redelivered))
    return info.SerializeToString() + b"".join(batches)


def delayed_index_of(data: bytes) -> bytes:
    """Return the index of delayed messages in an entry; empty if it has none. Raises CursorDamagedError."""
    index: bytes = _parse(pb.PositionInfo, data).quireDelayed.index
    return index


def base_of(data: bytes) -> int | None:
    """Return the id of the first entry of this one's chain; None if it stands alone. Raises CursorDamagedError."""
    acks = _parse(pb.PositionInfo, data).quireAcks
    return acks.baseEntryId if acks.HasField("baseEntryId") else None


def decode_chain(entries: Sequence[bytes]) -> Stored:
    """Decode the state in a base (or small) entry and its deltas, in order. Raises CursorDamagedError."""
    steps = decoding(entries)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            stored: Stored = done.value
            return stored


def decoding(entries: Sequence[bytes]) -> Generator[None, None, Stored]:
    """Decode as `decode_chain`, in steps of at most an entry's own fields or RECOVERED_IN_STEP batches."""
    infos: list[pb.PositionInfo] = []
    for data in entries:
        infos.append(_parse(pb.PositionInfo, data))
        yield
    stored = Stored(Position(infos[-1].ledgerId, infos[-1].entryId))
    stored.properties = {found.name: found.value for found in infos[-1].properties}
    delayed = infos[0].quireDelayed
    stored.delayed_index = delayed.index
    stored.delayed_entry_id = delayed.entryId if delayed.HasField("entryId") else None
    for info in infos:
        _take_ranges(stored.ranges, info.individualDeletedMessages)
        for longs in info.individualDeletedMessageRanges:
            stored.ranges.add_words(longs.key, list(longs.values))
        for at in range(0, len(info.batchedEntryDeletionIndexInfo), PUBLIC_RANGES_MAX):
            _take_batches(stored.batches, info.batchedEntryDeletionIndexInfo[at : at + PUBLIC_RANGES_MAX])
            yield
        for page in info.quireAcks.batches:
            yield from _take_page(stored.batches, page)
            yield
        for chunks in info.quireAcks.ledgers:
            _take_chunks(stored.ranges, chunks)
            yield
        flat = list(info.quireAcks.ranges)
        if len(flat) % 3:
            raise CursorDamagedError(f"{len(flat)} numbers do not form ranges")
        for at in range(0, len(flat), 3):
            stored.ranges.add(*flat[at : at + 3])
        _take_redeliveries(stored, info.quireAcks.redeliveries)
        yield
    stored.ranges.forget_through(*stored.mark_delete)
    _forget_acked(stored)
    return stored


def encode_node(node: CursorNode, state: AckState, *, count_max: int | None) -> bytes:
    """Encode a cursor's node, with the state as its snapshot.

    The snapshot has the whole state if `node_takes` it or `count_max` is None; otherwise at most `count_max` ranges and
    as many batches, the first ones, in NODE_BYTES_MAX."""
    if count_max is not None and node_takes(state, count_max):
        count_max = None
    info = pb.ManagedCursorInfo(
        cursorsLedgerId=node.ledger_id,
        markDeleteLedgerId=state.mark_delete.ledger_id,
        markDeleteEntryId=state.mark_delete.entry_id,
        lastActive=node.last_active_ms,
    )
    ranges_max = None if count_max is None else min(count_max, NODE_BYTES_MAX // (2 * _RANGE_BYTES))
    _put_ranges(info.individualDeletedMessages, state.ranges, ranges_max)
    for name, number in state.properties.items():
        info.properties.add(name=name, value=number)
    _put_batches(info.batchedEntryDeletionIndexInfo, state, count_max)
    for key, text in node.cursor_properties:
        info.cursorProperties.add(name=key, value=text)
    if node.previous_ledger_id != NO_LEDGER:
        info.quirePreviousLedgerId = node.previous_ledger_id
    info.quireDeletingLedgerIds.extend(node.deleting)
    if state.redeliveries is not None and count_max is None:
        info.quireRedeliveries.extend(state.redeliveries.flat(state.stored_redeliveries()))
    info.MergeFromString(node.unknown)
    return info.SerializeToString()


def decode_node(value: bytes) -> tuple[CursorNode, Stored]:
    """Decode a cursor's node and the snapshot in it. Raises CursorDamagedError."""
    try:
        info = _parse(pb.ManagedCursorInfo, plain(value))
    except CompressedValueError as error:
        raise CursorDamagedError(str(error)) from error
    if info.cursorsLedgerId == NO_LEDGER and not info.HasField("markDeleteLedgerId"):
        raise CursorDamagedError("a cursor's node names neither a ledger nor a position")
    stored = Stored(Position(info.markDeleteLedgerId, info.markDeleteEntryId))
    _take_ranges(stored.ranges, info.individualDeletedMessages)
    _take_batches(stored.batches, info.batchedEntryDeletionIndexInfo)
    stored.ranges.forget_through(*stored.mark_delete)
    stored.properties = {found.name: found.value for found in info.properties}
    _take_redeliveries(stored, info.quireRedeliveries)
    _forget_acked(stored)
    node = CursorNode(
        ledger_id=info.cursorsLedgerId,
        previous_ledger_id=info.quirePreviousLedgerId if info.HasField("quirePreviousLedgerId") else NO_LEDGER,
        deleting=tuple(info.quireDeletingLedgerIds),
        last_active_ms=info.lastActive,
        cursor_properties=tuple((found.name, found.value) for found in info.cursorProperties),
        unknown=unknown_fields(info),
    )
    return node, stored


def _parse(kind: type[MessageT], data: bytes) -> MessageT:
    try:
        found = kind.FromString(data)
    except DecodeError as error:
        raise CursorDamagedError(f"not a {kind.DESCRIPTOR.name}: {error}") from error
    if not found.IsInitialized():
        raise CursorDamagedError(f"not a {kind.DESCRIPTOR.name}: a required field is missing")
    return found


def _head(state: AckState) -> pb.PositionInfo:
    info = pb.PositionInfo(ledgerId=state.mark_delete.ledger_id, entryId=state.mark_delete.entry_id)
    for name, number in state.properties.items():
        added = info.properties.add()  # with keyword arguments it takes three times as long
        added.name = name
        added.value = number
    return info


def _put_batch(target: Any, position: Position, unacked: int) -> None:
    added = target.add(deleteSet=to_words(unacked))
    added.position.ledgerId, added.position.entryId = position


def _put_batches(target: Any, state: AckState, count_max: int | None) -> None:
    """Encode the first batches, in at most NODE_BYTES_MAX / 2; None: all of them."""
    for position, unacked in _first_batches(state, count_max, NODE_BYTES_MAX // 2):
        _put_batch(target, position, unacked)


def _first_batches(state: AckState, count_max: int | None, bytes_max: int) -> Iterator[tuple[Position, int]]:
    """Return the first batches, at most `count_max` and as many as take at most `bytes_max`; None: all of them."""
    left = bytes_max
    for position, unacked in state.batches.first(count_max):
        left -= _BATCH_BYTES + word_count(unacked) * _BYTES_PER_WORD
        if left < 0 and count_max is not None:
            break
        yield position, unacked


def _batch_bytes(state: AckState) -> int:
    """Return the approximate maximum bytes of all batches in Pulsar's own field."""
    return len(state.batches) * _BATCH_BYTES + state.batches.words * _BYTES_PER_WORD


def _public_page(page: BatchPage) -> bytes:
    """Return the batches of a page in Pulsar's own field."""
    return batch_fields(page.ledger_id, page.first_entry_id, page.unacked)


def _own_page(page: BatchPage) -> bytes:
    """Return the batches of a page in our own field, one more occurrence of it: occurrences are united."""
    entries, sizes, bitmaps = page.columns()
    info = pb.PositionInfo()
    info.quireAcks.batches.add(
        ledgerId=page.ledger_id,
        firstEntryId=page.first_entry_id,
        entries=entries,
        sizes=sizes,
        bitmaps=bitmaps,
    )
    return info.SerializePartialToString()


def _take_page(batches: BatchAcks, source: pb.QuirePartialBatches) -> Iterator[None]:
    entries, sizes, bitmaps = source.entries, source.sizes, source.bitmaps
    if len(entries) != len(sizes) or len(entries) % 2:
        raise CursorDamagedError(f"the partly acknowledged batches of ledger {source.ledgerId} have inconsistent sizes")
    at = 0
    lengths = iter_unpack("<H", sizes)
    for number, ((low,), (length,)) in enumerate(zip(iter_unpack("<H", entries), lengths, strict=True), 1):
        if not length or at + length > len(bitmaps):
            raise CursorDamagedError(f"a bitmap of a batch of ledger {source.ledgerId} is missing")
        unacked = int.from_bytes(bitmaps[at : at + length], "little")
        batches.ack(Position(source.ledgerId, source.firstEntryId + low), unacked)
        at += length
        if not number % RECOVERED_IN_STEP:
            yield


def _take_batches(batches: BatchAcks, source: Iterable[pb.BatchedEntryDeletionIndexInfo]) -> None:
    for found in source:
        position = Position(found.position.ledgerId, found.position.entryId)
        batches.ack(position, to_bits(found.deleteSet))


def _put_ranges(target: Any, ranges: AckRanges, limit: int | None) -> None:
    """Encode ranges as (lower, upper]: the lower endpoint is the place before the first entry."""
    for count, (ledger_id, first, last) in enumerate(ranges.ranges()):
        if count == limit:
            break
        added = target.add()
        added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = ledger_id, first - 1
        added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = ledger_id, last


def _take_ranges(ranges: AckRanges, source: Iterable[pb.MessageRange]) -> None:
    """Decode ranges. Of a range over two ledgers only the certain part in the upper one is used: its entries from 0
    on."""
    for found in source:
        lower, upper = found.lowerEndpoint, found.upperEndpoint
        first = lower.entryId + 1 if lower.ledgerId == upper.ledgerId else 0
        ranges.add(upper.ledgerId, first, upper.entryId)


def _redelivered(state: AckState) -> int:
    return 0 if state.redeliveries is None else min(len(state.redeliveries.values), STORED_MAX)


def _take_redeliveries(stored: Stored, flat: Sequence[int]) -> None:
    if len(flat) % 3:
        raise CursorDamagedError(f"{len(flat)} numbers do not form redelivery counts")
    for at in range(0, len(flat), 3):
        ledger_id, entry_id, count = flat[at : at + 3]
        if count <= 0:
            raise CursorDamagedError(f"entry {ledger_id}:{entry_id} was delivered again {count} times")
        stored.redeliveries[Position(ledger_id, entry_id)] = count


def _forget_acked(stored: Stored) -> None:
    for position in list(stored.redeliveries):
        if position <= stored.mark_delete or stored.ranges.contains(*position):
            del stored.redeliveries[position]


def _put_chunks(target: pb.QuireLedgerAcks, chunks: Sequence[tuple[int, int]]) -> None:
    full: list[int] = []
    bitmaps: list[bytes] = []
    for number, bitmap in chunks:
        if bitmap != FULL:
            target.partial.append(number)
            bitmaps.append(bitmap.to_bytes(CHUNK_BYTES, "little"))
        elif full and full[-2] + full[-1] == number:
            full[-1] += 1
        else:
            full += (number, 1)
    target.full.extend(full)
    target.bitmaps = b"".join(bitmaps)


def _take_chunks(ranges: AckRanges, source: pb.QuireLedgerAcks) -> None:
    bitmaps = source.bitmaps
    if len(bitmaps) != len(source.partial) * CHUNK_BYTES or len(source.full) % 2:
        raise CursorDamagedError(f"the acknowledged chunks of ledger {source.ledgerId} have inconsistent sizes")
    for at, number in enumerate(source.partial):
        ranges.add_chunk(
            source.ledgerId, number, int.from_bytes(bitmaps[at * CHUNK_BYTES : (at + 1) * CHUNK_BYTES], "little")
        )
    for at in range(0, len(source.full), 2):
        for number in range(source.full[at], source.full[at] + source.full[at + 1]):
            ranges.add_chunk(source.ledgerId, number, FULL)
