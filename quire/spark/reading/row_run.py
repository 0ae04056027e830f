"""Runs of rows, read from the bytes of their entries all at once (field_walk.py), before they are columns. Pure.

Two kinds of entries make a run: plain ones of one message each, and batches. Each message must have only the usual
fields; otherwise there is no run, and the entries are opened one by one (quire.client.unpacking), with the same rows.
Nothing of an entry is taken that was not checked: its checksum, and that its messages fill it exactly.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from crc32c import crc32c
from google.protobuf.message import DecodeError

from quire.client.batches import varint_at, varints
from quire.client.deliveries import Deliveries
from quire.client.errors import CorruptEntryError, EncryptedEntryError
from quire.client.unpacking import Opener
from quire.spark.reading.field_walk import PAD, FieldWalk, Numbers, Octets, Pairs, TextSpans
from quire.wire.pulsar.frames import MAGIC
from quire.wire.pulsar.metadata import Buffer
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata

ROWS_MIN = 16
"""Rows below which a run costs more than their opening one by one ..."""
FEW_ROWS = 256
FEW_BYTES = 256 << 10
"""... and below which it must have so many bytes, because it becomes a record batch of its own."""
BYTES_MAX = 16 << 20
"""Maximum uncompressed bytes of a run."""
_HEAD_BYTES = 10  # 0x0e01, checksum, size of the metadata
_MAGIC = MAGIC.to_bytes(2, "big")
_SIZE = struct.Struct("!I")
_STRIDE_ROWS_MIN = 8
"""Messages of one size at which the rest of their batch is examined for more of it at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRun:
    """Rows of consecutive entries of one ledger."""

    packed: bytes
    """Bytes in which the texts are, behind them PAD."""
    data: Octets
    """The same."""
    ledger_id: int
    first: int
    """Id of the first entry."""
    entries: int
    entry_ids: Numbers
    values: TextSpans
    keys: TextSpans | None
    ordering_keys: TextSpans | None
    properties: list[Pairs]
    publish_ms: Numbers
    event_ms: Numbers | None
    """0: none."""
    versions: list[bytes]
    """Schema versions of the entries in `version_rows`; empty: none."""
    version_rows: Numbers
    """For each row, the number of its version in `versions`."""
    batch_indexes: Numbers | None = None
    """None: no entry is a batch."""
    batch_sizes: Numbers | None = None
    bounds: tuple[list[int], list[int]] = ([], [])
    """Begin and end of each plain entry in `packed`."""

    @property
    def rows(self) -> int:
        return len(self.entry_ids)

    def deliveries(self) -> Deliveries:
        """Return the plain entries, to be opened one by one."""
        packed = self.packed
        return Deliveries(
            [self.ledger_id] * self.entries,
            list(range(self.first, self.first + self.entries)),
            [packed[start:stop] for start, stop in zip(*self.bounds, strict=True)],
        )


def plain_run(ledger_id: int, first: int, entries: Sequence[Buffer]) -> RowRun | None:
    """Return the rows of entries from `first` on, if every one is a plain message: not compressed, no batch, no chunk,
    no marker, not encrypted, not of a transaction."""
    count = len(entries)
    if count < ROWS_MIN or not _may_be_plain(bytes(entries[0])):
        return None
    sizes = np.fromiter(map(len, entries), np.int64, count)
    total = int(sizes.sum())
    if sizes.min() < _HEAD_BYTES or not _is_worth_it(count, total):
        return None
    packed = b"".join([*entries, PAD])
    data = np.frombuffer(packed, np.uint8)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    stops = starts + _HEAD_BYTES + _big_endian(data, starts + 6)
    if (data[starts] != _MAGIC[0]).any() or (data[starts + 1] != _MAGIC[1]).any() or (stops > ends).any():
        return None
    walk = FieldWalk(data, starts + _HEAD_BYTES, stops)
    walk.require(0x0A)  # producer_name
    walk.text(0x0A)
    walk.require(0x10)  # sequence_id
    walk.skip_number(0x10)
    walk.require(0x18)
    publish_ms = walk.number(0x18)
    properties = walk.pairs(0x22)
    keys = walk.text(0x32)
    walk.skip_number(0x48)  # uncompressed_size, which Java writes always
    event_ms = walk.number(0x60)
    versions = walk.text(0x82, 0x01)
    encoded = walk.number(0x88, 0x01)
    ordering_keys = walk.text(0x92, 0x01)
    if publish_ms is None or not walk.usual or _has_encoded_keys(encoded):
        return None
    checksums = np.fromiter([crc32c(entry[6:]) for entry in entries], np.int64, count)
    if (checksums != _big_endian(data, starts + 2)).any():
        return None
    texts, rows = _distinct(packed, versions, count)
    return RowRun(
        packed=packed,
        data=data,
        ledger_id=ledger_id,
        first=first,
        entries=count,
        entry_ids=np.arange(first, first + count),
        values=TextSpans(stops, ends - stops),
        keys=keys,
        ordering_keys=ordering_keys,
        properties=properties,
        publish_ms=publish_ms,
        event_ms=event_ms,
        versions=texts,
        version_rows=rows,
        bounds=(starts.tolist(), ends.tolist()),
    )


def batch_run(ledger_id: int, first: int, entries: Sequence[bytes], opener: Opener) -> RowRun | None:
    """Return the rows of entries from `first` on, if every one is a batch of usual messages."""
    opened: list[MessageMetadata] = []
    payloads: list[bytes] = []
    try:
        for entry in entries:
            found = opener.batch_of(entry)
            if found is None:
                return None
            opened.append(found[0])
            payloads.append(found[1])
    except (CorruptEntryError, EncryptedEntryError):
        return None  # opened one by one, the error names the entry
    counts = np.array([each.num_messages_in_batch for each in opened], np.int64)
    rows = int(counts.sum())
    if counts.min() < 1 or not _is_worth_it(rows, sum(map(len, payloads))):
        return None
    packed = b"".join([*payloads, PAD])
    data = np.frombuffer(packed, np.uint8)
    bounds = _bounds(packed, data, [len(each) for each in payloads], counts.tolist())
    if bounds is None:
        return None
    starts, stops, ends = bounds
    walk = FieldWalk(data, starts, stops)
    properties = walk.pairs(0x0A)
    keys = walk.text(0x12)
    walk.require(0x18)  # payload_size
    sizes = walk.number(0x18)
    event_ms = walk.number(0x28)
    encoded = walk.number(0x30)
    ordering_keys = walk.text(0x3A)
    walk.skip_number(0x40)  # sequence_id
    if sizes is None or not walk.usual or (sizes != ends - stops).any() or _has_encoded_keys(encoded):
        return None
    number = np.repeat(np.arange(len(entries)), counts)
    return RowRun(
        packed=packed,
        data=data,
        ledger_id=ledger_id,
        first=first,
        entries=len(entries),
        entry_ids=first + number,
        values=TextSpans(stops, sizes),
        keys=keys,
        ordering_keys=ordering_keys,
        properties=properties,
        publish_ms=np.array([each.publish_time for each in opened], np.uint64).astype(np.int64)[number],
        event_ms=event_ms,
        versions=[each.schema_version for each in opened],
        version_rows=number,
        batch_indexes=np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts),
        batch_sizes=counts[number],
    )


def _is_worth_it(rows: int, size: int) -> bool:
    return rows >= ROWS_MIN and size <= BYTES_MAX and (rows >= FEW_ROWS or size >= FEW_BYTES)


def _may_be_plain(entry: bytes) -> bool:
    """Return whether an entry has the beginning of a plain one, and the metadata no field of a batch."""
    try:
        if entry[:2] != _MAGIC or entry[10] != 0x0A:
            return False
        metadata = MessageMetadata.FromString(entry[_HEAD_BYTES : _HEAD_BYTES + _SIZE.unpack_from(entry, 6)[0]])
    except (IndexError, struct.error, DecodeError):
        return False
    return not metadata.HasField("num_messages_in_batch")


def _has_encoded_keys(encoded: Numbers | None) -> bool:
    return encoded is not None and bool(encoded.any())


def _big_endian(data: Octets, at: Numbers) -> Numbers:
    """Return numbers of four bytes."""
    found = data[at].astype(np.int64)
    for step in range(1, 4):
        found <<= 8
        found |= data[at + step]
    return found


def _distinct(packed: bytes, texts: TextSpans | None, count: int) -> tuple[list[bytes], Numbers]:
    """Return the different texts of rows, and the number of each row's."""
    if texts is None:
        return [b""], np.zeros(count, np.int64)
    numbers: dict[bytes, int] = {}
    rows = [
        numbers.setdefault(packed[start : start + max(size, 0)], len(numbers))
        for start, size in zip(texts.starts.tolist(), texts.sizes.tolist(), strict=True)
    ]
    return list(numbers), np.array(rows, np.int64)


def _bounds(
    packed: bytes, data: Octets, sizes: Sequence[int], counts: Sequence[int]
) -> tuple[Numbers, Numbers, Numbers] | None:
    """Return where the metadata of each message begin and end, and where its value ends; None: a message is unusual, or
    the messages do not fill their batch.

    Where a message begins is known only from the one before it. Messages of a batch often have the same size, though:
    after two of them the rest is compared with them at once. The caller checks what is found here against the sizes
    that it reads."""
    begins: list[int] = []
    heads: list[int] = []
    strides: list[int] = []
    repeats: list[int] = []
    unpack = _SIZE.unpack_from
    start = 0
    try:
        for size, count in zip(sizes, counts, strict=True):
            end = start + size
            left = count
            stride = 0
            patience = 0
            while left:
                at = start + 4
                stop = at + unpack(packed, start)[0]
                tag = packed[at]
                while tag == 0x0A or tag == 0x12:  # properties and key
                    at += 2 + packed[at + 1]
                    tag = packed[at]
                found = varint_at(packed, at + 1, stop) if tag == 0x18 else None
                if found is None:
                    return None
                before, stride = stride, stop - start + varints[found[0]]
                repeat = 1
                patience -= 1
                if stride == before and left >= _STRIDE_ROWS_MIN and patience < 0:
                    repeat = _repeats(data, start, stride, min(left, (end - start) // stride), at, found.end())
                    patience = 0 if repeat >= _STRIDE_ROWS_MIN else _STRIDE_ROWS_MIN
                begins.append(start)
                heads.append(stop - start)
                strides.append(stride)
                repeats.append(repeat)
                left -= repeat
                start += stride * repeat
                if start > end:
                    return None
            if start != end:
                return None
    except (IndexError, struct.error):
        return None
    times = np.array(repeats, np.int64)
    each = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    strides_of = np.repeat(np.array(strides, np.int64), times)
    starts = np.repeat(np.array(begins, np.int64), times) + each * strides_of
    stops = starts + np.repeat(np.array(heads, np.int64), times)
    return starts + 4, stops, starts + strides_of


def _repeats(data: Octets, start: int, stride: int, rows: int, at: int, stop: int) -> int:
    """Return how many messages from `start` on follow each other at this stride, by the sizes of their metadata and
    values: 1 at least. `at`, `stop`: the field with the value's size of the first."""
    if rows < 2:
        return 1
    block = data[start : start + rows * stride].reshape(rows, stride)
    same = (block[:, :4] == block[0, :4]).all(axis=1)
    same &= (block[:, at - start : stop - start] == block[0, at - start : stop - start]).all(axis=1)
    return rows if same.all() else int(same.argmin())
