"""Order of a task's rows by their content, which is the same however a shuffle delivers them. Pure.

Equal rows are the same message, so their order makes no difference, and no unique key is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from quire.spark.errors import SinkError
from quire.spark.sink.columns import Encode, Rows, SinkColumns

SORT_BYTES_MAX = 256 << 20
"""Maximum bytes of one task's rows, as Arrow has them."""


def sorted_rows(
    batches: Iterable[pa.RecordBatch],
    columns: SinkColumns,
    bytes_max: int = SORT_BYTES_MAX,
    encode: Encode | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in the order of their content. Raises SinkError: they are too many to hold."""
    held: list[pa.RecordBatch] = []
    keys: list[tuple[object, ...]] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        size += batch.nbytes
        if size > bytes_max:
            raise SinkError(
                f"a task has more than {bytes_max} bytes of rows, the most that sortRows holds in memory: use smaller"
                " batches (maxBytesPerTrigger), or repartition the rows into more tasks"
            )
        held.append(batch)
        keys += _keys(columns.rows(batch, encode))
    if held:
        order = sorted(range(len(keys)), key=keys.__getitem__)
        yield from pa.Table.from_batches(held).take(order).combine_chunks().to_batches()


def _keys(rows: Rows) -> Iterator[tuple[object, ...]]:
    """Yield what each row is ordered by; None is below every value."""
    for at, value in enumerate(rows.values):
        ordering, deliver_ms = rows.more_of(at)
        topic = rows.topics[at] if rows.topics is not None else None
        partition = rows.partitions[at] if rows.partitions is not None else None
        key = rows.keys[at] if rows.keys is not None else None
        yield (
            topic or "",
            -1 if partition is None else partition,
            key is not None,
            key or b"",
            rows.event_ms[at] if rows.event_ms is not None else 0,
            value is not None,
            value or b"",
            sorted(rows.properties[at]) if rows.properties is not None else [],
            ordering is not None,
            ordering or b"",
            deliver_ms,
        )
