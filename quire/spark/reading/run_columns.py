"""Columns of a run of rows (row_run.py), the same as columns.py makes of single messages. Pure.

Arrow's binary columns have their bytes without gaps, and those of the rows are apart from each other. So the bytes of
the entries are taken for an array of texts and of what is between them, of which Arrow copies the texts: each byte is
copied once, without an object for a row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from quire.spark.reading.field_walk import Numbers, Octets, TextSpans
from quire.spark.reading.row_run import RowRun

MS_MAX = (1 << 63) // 1000 - 1
"""The latest time, in ms, that fits microseconds in 64 bits."""
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MAP = pa.map_(pa.string(), pa.string())


class UnusualRunError(ValueError):
    """Rows have something that only columns.py converts. Not for users: they are opened one by one then."""


def is_convertible(run: RowRun) -> bool:
    """Return whether all times fit, and all names of properties are different within each row."""
    times = (run.publish_ms, *(() if run.event_ms is None else (run.event_ms,)))
    if any(int(each.min()) < 0 or int(each.max()) > MS_MAX for each in times):
        return False
    if len(run.properties) < 2:
        return True
    names = [_common_name(run.data, pairs.names) for pairs in run.properties]
    return None not in names and len(set(names)) == len(names)


def _common_name(data: Octets, names: TextSpans) -> bytes | None:
    """Return the name that all rows have; None: they have different ones."""
    size = int(names.sizes[0])
    if (names.sizes != size).any():
        return None
    block = data[names.starts[:, None] + np.arange(size)]
    return bytes(block[0]) if (block == block[0]).all() else None


def binaries(run: RowRun, texts: TextSpans | None) -> pa.Array:
    """Return texts as a column; null: a row has none."""
    if texts is None:
        return pa.nulls(run.rows, pa.binary())
    if int(texts.sizes.min()) >= 0:
        return _gathered(run.packed, texts, pa.binary())
    has = texts.sizes >= 0
    rows = np.flatnonzero(has)
    found = _gathered(run.packed, TextSpans(texts.starts[rows], texts.sizes[rows]), pa.binary())
    return found.take(pa.array(np.cumsum(has) - 1, pa.int64(), mask=~has))


def _gathered(packed: bytes, texts: TextSpans, kind: pa.DataType) -> pa.Array:
    """Return texts, which are in order in `packed`, as an array."""
    count = len(texts.starts)
    if not count:
        return pa.array([], kind)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = texts.starts
    edges[1::2] = texts.starts + texts.sizes
    apart = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(packed)])
    return apart.take(pa.array(np.arange(0, 2 * count, 2)))


def maps(run: RowRun) -> pa.Array:
    """Return the properties as a column. Raises UnusualRunError: they are no UTF-8."""
    if not run.properties:
        empty = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.array(np.zeros(run.rows + 1, np.int32)), empty, empty, _MAP)
    rows = np.concatenate([pairs.rows for pairs in run.properties])
    names, values = (
        TextSpans(*(np.concatenate([getattr(each, part)[field] for each in run.properties]) for field in (0, 1)))
        for part in ("names", "values")
    )
    if len(run.properties) > 1:
        order = np.argsort(rows, kind="stable")
        names, values = (TextSpans(each.starts[order], each.sizes[order]) for each in (names, values))
    counts = np.bincount(rows, minlength=run.rows)
    offsets = np.zeros(run.rows + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    texts = [_gathered(run.packed, each, pa.string()) for each in (names, values)]
    try:
        for each in texts:
            each.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UnusualRunError(str(error)) from None
    return pa.MapArray.from_arrays(pa.array(offsets), *texts, _MAP)


def versions(run: RowRun) -> pa.Array:
    """Return schema versions as numbers; see columns.py."""
    known = [int.from_bytes(each[:8], "big", signed=True) if len(each) >= 8 else None for each in run.versions]
    return pa.array(known, pa.int64()).take(pa.array(run.version_rows))


def times(times_ms: Numbers | None, rows: int) -> pa.Array:
    """Return times as a column; null: 0."""
    if times_ms is None:
        return pa.nulls(rows, _TIMESTAMP)
    return pa.array(times_ms * 1000, pa.int64(), mask=times_ms == 0).view(_TIMESTAMP)


def message_ids(run: RowRun, partition: int) -> pa.Array:
    """Return the serialized id of each row; see columns.py."""
    rows = run.rows
    parts = [_constant(b"\x08" + _varint(run.ledger_id) + b"\x10", rows), _varints(run.entry_ids)]
    if partition >= 0:
        parts.append(_constant(b"\x18" + _varint(partition), rows))
    if run.batch_indexes is not None and run.batch_sizes is not None:
        parts += [_constant(b"\x20", rows), _varints(run.batch_indexes)]
        parts += [_constant(b"\x30", rows), _varints(run.batch_sizes)]
    octets = np.concatenate([octets for octets, _ in parts], axis=1)
    used = np.concatenate([used for _, used in parts], axis=1)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.count_nonzero(used, axis=1), out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(octets[used])])


def _constant(octets: bytes, rows: int) -> tuple[Octets, np.typing.NDArray[np.bool_]]:
    return np.tile(np.frombuffer(octets, np.uint8), (rows, 1)), np.ones((rows, len(octets)), np.bool_)


def _varints(numbers: Numbers) -> tuple[Octets, np.typing.NDArray[np.bool_]]:
    """Return the bytes of the varint of each number, and which of them are used."""
    width = max(1, -(-int(numbers.max()).bit_length() // 7))
    rest = numbers[:, None] >> (7 * np.arange(width))
    used = rest > 0
    used[:, 0] = True
    octets = (rest & 0x7F).astype(np.uint8)
    octets[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
    return octets, used


def _varint(number: int) -> bytes:
    octets, _ = _varints(np.array([number], np.int64))
    return octets.tobytes()


MAKERS: dict[str, Callable[[RowRun], pa.Array]] = {
    "__key": lambda run: binaries(run, run.keys),
    "value": lambda run: binaries(run, run.values),
    "__ledger": lambda run: pa.array(np.full(run.rows, run.ledger_id, np.int64)),
    "__entry": lambda run: pa.array(run.entry_ids, pa.int64()),
    "__batch": lambda run: (
        pa.nulls(run.rows, pa.int32()) if run.batch_indexes is None else pa.array(run.batch_indexes.astype(np.int32))
    ),
    "__publishTime": lambda run: pa.array(run.publish_ms * 1000, pa.int64()).view(_TIMESTAMP),
    "__eventTime": lambda run: times(run.event_ms, run.rows),
    "__properties": maps,
    "__orderingKey": lambda run: binaries(run, run.ordering_keys),
    "__schemaVersion": versions,
}
"""Makers of the columns that need nothing but the run."""
