"""Messages to Arrow record batches: the columns of the source, which schema.py names. Pure.

Spark compares the first batch's schema with its own, exactly: types (no large_binary, no milliseconds), order,
nullability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, pairwise

import pyarrow as pa

from quire.client.unpacking import Messages
from quire.spark.reading import run_columns
from quire.spark.reading.row_run import RowRun
from quire.spark.reading.run_columns import MS_MAX as _MS_MAX
from quire.spark.reading.schema import NOTATION, SCHEMA_VERSION
from quire.wire.pulsar.names import TopicName

ROWS_MAX = 10_000
"""Maximum rows of one record batch, the same as Spark's own batches."""
BYTES_TARGET = 8 << 20
"""Bytes of keys, values and properties at which a record batch ends.

A batch has at most twice as much, or one row, which may be larger. Spark cannot take more than 2 GiB in one column."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_MAP = pa.map_(pa.string(), pa.string())

_ARROW: dict[str, pa.DataType] = {
    "__key": pa.binary(),
    "value": pa.binary(),
    "__topic": pa.string(),
    "__partition": pa.int32(),
    "__messageId": pa.binary(),
    "__ledger": pa.int64(),
    "__entry": pa.int64(),
    "__batch": pa.int32(),
    "__publishTime": _TIMESTAMP,
    "__eventTime": _TIMESTAMP,
    "__properties": _MAP,
    "__orderingKey": pa.binary(),
    SCHEMA_VERSION: pa.int64(),
}
TYPES: dict[str, tuple[str, pa.DataType]] = {name: (kind, _ARROW[name]) for name, kind in NOTATION.items()}
"""Name to type, in Spark's and in Arrow's notation."""


class Columns:
    """Builder of record batches of chosen columns, for the messages of one partition."""

    def __init__(self, names: Sequence[str], partition_topic: str) -> None:
        topic = TopicName.parse(partition_topic)
        self._topic = topic.partitioned.full
        self._partition = topic.partition
        self.schema = pa.schema([pa.field(name, TYPES[name][1]) for name in names])
        makers: dict[str, Callable[[Messages, int, int], pa.Array]] = {
            "__key": lambda messages, first, stop: pa.array(messages.keys[first:stop], pa.binary()),
            "value": lambda messages, first, stop: pa.array(messages.values[first:stop], pa.binary()),
            "__topic": self._topics,
            "__partition": self._partitions,
            "__messageId": self._message_ids,
            "__ledger": lambda messages, first, stop: pa.array(messages.ledger_ids[first:stop], pa.int64()),
            "__entry": lambda messages, first, stop: pa.array(messages.entry_ids[first:stop], pa.int64()),
            "__batch": _batch_indexes,
            "__publishTime": lambda messages, first, stop: _times(messages.publish_ms[first:stop]),
            "__eventTime": lambda messages, first, stop: _event_times(messages.event_ms[first:stop]),
            "__properties": lambda messages, first, stop: _maps(messages.properties[first:stop]),
            "__orderingKey": lambda messages, first, stop: pa.array(messages.ordering_keys[first:stop], pa.binary()),
            SCHEMA_VERSION: lambda messages, first, stop: _versions(messages.schema_versions[first:stop]),
        }
        self._makers = [makers[name] for name in names]
        of_runs: dict[str, Callable[[RowRun], pa.Array]] = {
            **run_columns.MAKERS,
            "__topic": lambda run: self._topics_of(run.rows),
            "__partition": lambda run: self._partitions_of(run.rows),
            "__messageId": lambda run: run_columns.message_ids(run, self._partition),
        }
        self._makers_of_runs = [of_runs[name] for name in names]

    def batch(self, messages: Messages, first: int, stop: int) -> pa.RecordBatch:
        """Return rows `first` to `stop` (exclusive)."""
        return pa.RecordBatch.from_arrays([make(messages, first, stop) for make in self._makers], schema=self.schema)

    def batches(self, messages: Messages) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in batches of at most ROWS_MAX rows and about BYTES_TARGET bytes."""
        for first, stop in cuts(messages):
            yield self.batch(messages, first, stop)

    def batches_of_run(self, run: RowRun) -> list[pa.RecordBatch] | None:
        """Return all rows of a run, in batches of at most ROWS_MAX rows; None: they must be opened one by one."""
        if not run_columns.is_convertible(run):
            return None
        try:
            arrays = [make(run) for make in self._makers_of_runs]
        except run_columns.UnusualRunError:
            return None
        whole = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        parts = -(-run.rows // ROWS_MAX)
        edges = [run.rows * part // parts for part in range(parts + 1)]
        return [whole.slice(first, stop - first) for first, stop in pairwise(edges)]

    def _topics(self, messages: Messages, first: int, stop: int) -> pa.Array:
        return self._topics_of(stop - first)

    def _topics_of(self, rows: int) -> pa.Array:
        return pa.repeat(pa.scalar(self._topic, pa.string()), rows)

    def _partitions(self, messages: Messages, first: int, stop: int) -> pa.Array:
        return self._partitions_of(stop - first)

    def _partitions_of(self, rows: int) -> pa.Array:
        if self._partition < 0:
            return pa.nulls(rows, pa.int32())
        return pa.repeat(pa.scalar(self._partition, pa.int32()), rows)

    def _message_ids(self, messages: Messages, first: int, stop: int) -> pa.Array:
        return pa.array(message_ids(messages, first, stop, self._partition), pa.binary())


def weights(messages: Messages) -> list[int]:
    """Return the bytes of each row: value, key, properties."""
    sizes = [
        (0 if value is None else len(value)) + (0 if key is None else len(key))
        for value, key in zip(messages.values, messages.keys, strict=True)
    ]
    for row, pairs in enumerate(messages.properties):
        if pairs:
            sizes[row] += sum(len(name) + len(text) for name, text in pairs)
    return sizes


def cuts(messages: Messages) -> list[tuple[int, int]]:
    """Yield the cuts of the rows: pairs (first, stop), even in rows if rows are the reason."""
    rows = len(messages.values)
    if not rows:
        return []
    parts = -(-rows // ROWS_MAX)
    if messages.size_bytes <= BYTES_TARGET * 2:
        bounds = [rows * part // parts for part in range(parts + 1)]
        return list(pairwise(bounds))
    found = []
    first = 0
    base = 0
    sizes = weights(messages)
    for row, total in enumerate(accumulate(sizes), 1):
        # Cut behind the row that reaches the target, or before it if it is large itself.
        if total - base > BYTES_TARGET * 2 and row - first > 1:
            found.append((first, row - 1))
            first, base = row - 1, total - sizes[row - 1]
        if total - base >= BYTES_TARGET or row - first == ROWS_MAX:
            found.append((first, row))
            first, base = row, total
    if first < rows:
        found.append((first, rows))
    return found


def _batch_indexes(messages: Messages, first: int, stop: int) -> pa.Array:
    indexes = messages.batch_indexes[first:stop]
    if max(indexes, default=-1) < 0:
        return pa.nulls(stop - first, pa.int32())
    if min(indexes) < 0:
        return pa.array([index if index >= 0 else None for index in indexes], pa.int32())
    return pa.array(indexes, pa.int32())


def _times(times_ms: list[int]) -> pa.Array:
    """Convert milliseconds to Spark's microseconds. A time that does not fit (producers may write any) is null."""
    if times_ms and (max(times_ms) > _MS_MAX or min(times_ms) < -_MS_MAX):
        within = [time if -_MS_MAX <= time <= _MS_MAX else None for time in times_ms]
        return pa.array(within, _MILLISECONDS).cast(_TIMESTAMP)
    return pa.array(times_ms, _MILLISECONDS).cast(_TIMESTAMP)


def _event_times(times_ms: list[int]) -> pa.Array:
    if not any(times_ms):
        return pa.nulls(len(times_ms), _TIMESTAMP)
    return pa.array([time if 0 < time <= _MS_MAX else None for time in times_ms], _MILLISECONDS).cast(_TIMESTAMP)


def _maps(properties: list[list[tuple[str, str]]]) -> pa.Array:
    """Convert properties to a map. The last value of a repeated name counts: Spark's maps have each key once."""
    if not any(properties):
        return pa.MapArray.from_arrays(_ZERO_OFFSETS[: len(properties) + 1], _NO_TEXTS, _NO_TEXTS, _MAP)
    pairs = [_unique(row) if len(row) > 1 else row for row in properties]
    offsets = pa.array(list(accumulate(map(len, pairs), initial=0)), pa.int32())
    names = pa.array([name for name, _ in chain.from_iterable(pairs)], pa.string())
    texts = pa.array([text for _, text in chain.from_iterable(pairs)], pa.string())
    return pa.MapArray.from_arrays(offsets, names, texts, _MAP)


def _versions(versions: list[bytes]) -> pa.Array:
    """Convert versions to numbers: the first eight bytes, the highest first. Source: BookkeeperSchemaStorage."""
    numbers = {each: int.from_bytes(each[:8], "big", signed=True) if len(each) >= 8 else None for each in set(versions)}
    return pa.array([numbers[each] for each in versions], pa.int64())


def _unique(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    found = dict(pairs)
    return pairs if len(found) == len(pairs) else list(found.items())


_ZERO_OFFSETS = pa.array([0] * (ROWS_MAX + 1), pa.int32())
_NO_TEXTS = pa.array([], pa.string())


# Message ids, by hand: protobuf's objects would cost more than all other columns together.
#
# 0x08 varint ledgerId   0x10 varint entryId   [0x18 varint partition]   [0x20 varint batch_index  0x30 varint
# batch_size]


def message_ids(messages: Messages, first: int, stop: int, partition: int) -> list[bytes]:
    """Return the serialized id of each row, the same bytes as `MessageId.to_bytes`. `partition` -1: not partitioned."""
    tail = b"" if partition < 0 else b"\x18" + _varint(partition)
    found: list[bytes] = []
    append = found.append
    ledger_id, entry_id, head = -1, -1, b""
    ledger = b""
    batch_size, suffixes = 0, [b""]
    for row_ledger, row_entry, index, size in zip(
        messages.ledger_ids[first:stop],
        messages.entry_ids[first:stop],
        messages.batch_indexes[first:stop],
        messages.batch_sizes[first:stop],
        strict=True,
    ):
        if row_entry != entry_id or row_ledger != ledger_id:
            if row_ledger != ledger_id:
                ledger_id = row_ledger
                ledger = b"\x08" + _varint(ledger_id) + b"\x10"
            entry_id = row_entry
            if entry_id < 128:
                head = ledger + _BYTES[entry_id] + tail
            elif entry_id < 16384:
                head = ledger + _BYTES[entry_id & 127 | 128] + _BYTES[entry_id >> 7] + tail
            else:
                head = ledger + _varint(entry_id) + tail
        if index < 0:
            append(head)
            continue
        if size != batch_size or index >= len(suffixes):
            batch_size = size
            suffixes = _batch_suffixes(max(size, index + 1), size)
        append(head + suffixes[index])
    return found


_BYTES = [bytes([value]) for value in range(256)]


def _batch_suffixes(count: int, size: int) -> list[bytes]:
    end = b"\x30" + _varint(size) if size > 0 else b""
    return [b"\x20" + _varint(index) + end for index in range(count)]


def _varint(value: int) -> bytes:
    if value < 128:
        return _BYTES[value]
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
