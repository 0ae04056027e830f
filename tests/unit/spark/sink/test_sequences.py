"""quire/spark/sink/sequences.py and sorting.py"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from quire.client.deduplicated.sequenced import SEQUENCE_ID_MAX, Numbered
from quire.client.packing import pack
from quire.spark.errors import SinkError
from quire.spark.sink.columns import Rows, SinkColumns
from quire.spark.sink.sequences import (
    BATCH_MAX,
    ROWS_MAX,
    TargetSequence,
    lowest_id,
    split_id,
)
from quire.spark.sink.sorting import sorted_rows
from tests.support.refusals import refuses

T = "persistent://public/default/t"
BATCH = 5


def rows_of(*values: bytes, keys: Sequence[bytes | None] | None = None) -> Rows:
    return Rows(list(values), None if keys is None else list(keys))


VALUES = [b"%d" % number for number in range(20)]


def write(sequence: TargetSequence, rows: Rows, last_id: int = -1, *, batch: bool = True) -> list[Numbered]:
    """Number rows as the writer does: packed, and cut where the broker's ids end."""
    cut = sequence.begin(rows, last_id)
    entries = pack(rows.values[:cut], batch=batch) + pack(rows.values[cut:], batch=batch, batch_messages_max=7)
    return sequence.numbered(entries)


class Broker:
    """Deduplication as a broker has it: values by the ids of their entries."""

    def __init__(self) -> None:
        self.last_id = -1
        self.entries: list[Numbered] = []

    def send(self, entries: Sequence[Numbered]) -> None:
        for entry in entries:
            if entry.lowest_id > self.last_id:
                self.entries.append(entry)
                self.last_id = entry.highest_id

    @property
    def messages(self) -> int:
        return sum(entry.count for entry in self.entries)


def test_ids_ascend_over_rows_entries_and_batches_and_fit_into_a_signed_number():
    ids = []
    for batch_id in (0, 1, BATCH_MAX):
        sequence = TargetSequence(T, batch_id)
        for _ in range(3):
            for entry in write(sequence, rows_of(*VALUES)):
                ids += [entry.lowest_id, entry.highest_id]
    assert ids == sorted(ids)
    assert ids[0] == 0
    assert lowest_id(BATCH_MAX, ROWS_MAX - 1) | 1023 == SEQUENCE_ID_MAX
    assert split_id(lowest_id(7, 9) + 3) == (7, 9, 3)


@pytest.mark.parametrize("stored", range(len(VALUES) + 1))
@pytest.mark.parametrize("batch", [True, False])
def test_a_repetition_in_other_entries_stores_each_row_once_wherever_the_first_one_ended(stored: int, batch: bool):
    broker = Broker()
    first = TargetSequence(T, BATCH)
    first.begin(rows_of(*VALUES[:stored]), -1)
    broker.send(first.numbered(pack(VALUES[:stored])))
    second = TargetSequence(T, BATCH)
    half = rows_of(*VALUES[:11]), rows_of(*VALUES[11:])
    opened_at = broker.last_id
    for rows in half:
        broker.send(write(second, rows, opened_at, batch=batch))
    second.finish()
    assert broker.messages == len(VALUES)


@pytest.mark.parametrize(
    "others",
    [VALUES[::-1], VALUES[:3], [*VALUES[:5], b"x", *VALUES[5:]], [None, *VALUES[1:]], [b"", b"01", *VALUES[2:]]],
)
def test_a_repetition_with_other_rows_is_refused(others: list[bytes]):
    broker = Broker()
    broker.send(write(TargetSequence(T, BATCH), rows_of(*VALUES[:9])))
    second = TargetSequence(T, BATCH)

    def repeat() -> None:
        write(second, rows_of(*others), broker.last_id)
        second.finish()

    refuses(SinkError, repeat, "has other rows of batch 5 than this repetition")


def test_rows_that_differ_in_any_column_are_other_rows():
    def check(rows: Rows) -> int:
        sequence = TargetSequence(T, BATCH)
        sequence.begin(rows, -1)
        return sequence.numbered(pack(rows.values))[-1].highest_id

    same = Rows([b"v"], [b"k"], properties=[[("a", "1"), ("b", "2")]], event_ms=[5])
    assert check(same) == check(Rows([b"v"], [b"k"], properties=[[("b", "2"), ("a", "1")]], event_ms=[5]))
    others = [
        Rows([b"w"], [b"k"], properties=[[("a", "1"), ("b", "2")]], event_ms=[5]),
        Rows([None], [b"k"], properties=[[("a", "1"), ("b", "2")]], event_ms=[5]),
        Rows([b"v"], [None], properties=[[("a", "1"), ("b", "2")]], event_ms=[5]),
        Rows([b"v"], [b"k"], properties=[[("a", "1"), ("b", "3")]], event_ms=[5]),
        Rows([b"v"], [b"k"], properties=[[("a", "1"), ("b", "2")]], event_ms=[6]),
        Rows([b"kv"], [b""], properties=[[("a", "1"), ("b", "2")]], event_ms=[5]),
    ]
    assert len({check(each) for each in (same, *others)}) == len(others) + 1


def test_a_batch_before_the_one_that_is_stored_is_refused_and_one_behind_it_is_new():
    stored = lowest_id(BATCH, 3) | 77
    refuses(
        SinkError,
        lambda: TargetSequence(T, BATCH - 1).begin(rows_of(b"a"), stored),
        "has rows of batch 5 of this writer, and this is batch 4",
    )
    later = TargetSequence(T, BATCH + 1)
    assert write(later, rows_of(b"a"), stored)[0].lowest_id > stored
    later.finish()


def test_more_rows_than_ids_are_refused():
    class Many(Rows):
        def __len__(self) -> int:
            return ROWS_MAX + 1

    refuses(SinkError, lambda: TargetSequence(T, 0).begin(Many([]), -1), "more than 33554432 rows")


SORTED = SinkColumns(value=0, key=1, partition=2, event_time=3, properties=4)


def test_the_order_of_sorted_rows_depends_on_nothing_but_their_content():
    columns = {
        "value": pa.array([b"b", None, b"a", b"a", b"", b"a"], pa.binary()),
        "key": pa.array([b"k", b"k", None, b"k", b"k", b"k"], pa.binary()),
        "partition": pa.array([1, 1, 1, 1, None, 1], pa.int32()),
        "event": pa.array([2, 2, 0, 2, 2, 2], pa.int64()),
        "properties": pa.array([[], [], [], [("p", "2")], [], [("p", "1")]], pa.map_(pa.string(), pa.string())),
    }
    table = pa.table(columns)
    expected: list[object] = []
    for seed in range(5):
        order = random.Random(seed).sample(range(6), 6)
        shuffled = table.take(order).combine_chunks().to_batches(max_chunksize=1 + seed % 3)
        found = [row for part in sorted_rows(shuffled, SORTED) for row in part.to_pylist()]
        expected = expected or found
        assert found == expected
    assert len(expected) == 6
    refuses(SinkError, lambda: list(sorted_rows(table.to_batches(), SORTED, bytes_max=10)), "the most that sortRows")
    assert list(sorted_rows([], SORTED)) == []


def test_rows_of_another_ordering_key_or_time_of_delivery_are_other_rows():
    def last_id(**more: list[object]) -> int:
        rows = Rows([b"a"], **more)  # type: ignore[arg-type]
        return write(TargetSequence(T, BATCH), rows)[0].highest_id

    found = [last_id(), last_id(ordering_keys=[b"o"]), last_id(ordering_keys=[b"p"]), last_id(deliver_ms=[9])]
    assert len(set(found)) == 4
    assert last_id(ordering_keys=[None], deliver_ms=[0]) == found[0], "as written before there were such columns"


def test_rows_are_sorted_by_ordering_key_and_time_of_delivery_too():
    columns = SinkColumns(value=0, ordering_key=1, deliver_at=2)
    names = ["value", "__orderingKey", "__deliverAt"]
    made: list[list[object]] = [[b"a", b"o", 2], [b"a", b"o", 1], [b"a", None, None], [b"a", b"p", 0]]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        arrays = [pa.array([made[at][column] for at in order]) for column in range(3)]
        (found,) = sorted_rows([pa.RecordBatch.from_arrays(arrays, names)], columns)
        assert [list(row.values()) for row in found.to_pylist()] == [made[2], made[1], made[0], made[3]]
