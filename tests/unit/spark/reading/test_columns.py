"""Messages to record batches: exact types, exact ids, and batches that Spark can take."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    StringType,
    StructField,
    StructType,
)

from quire.client.message_id import MessageId
from quire.client.unpacking import Messages
from quire.spark.errors import OptionError
from quire.spark.options.parse import COLUMN_NAMES, ON_REQUEST
from quire.spark.reading import columns as columns_module
from quire.spark.reading.columns import (
    BYTES_TARGET,
    ROWS_MAX,
    TYPES,
    Columns,
    cuts,
    message_ids,
)
from quire.spark.reading.schema import NAMES, SCHEMA, ddl, names_of_schema
from tests.support.refusals import refuses
from tests.unit.spark.struct import SPARK_TYPES, struct

TOPIC = "persistent://public/default/x"


def messages(count: int = 1, **changed: list[Any]) -> Messages:
    made = Messages(
        values=[b"v%d" % number for number in range(count)],
        keys=[None] * count,
        ledger_ids=[5] * count,
        entry_ids=list(range(count)),
        batch_indexes=[-1] * count,
        batch_sizes=[0] * count,
        publish_ms=[1_700_000_000_000] * count,
        event_ms=[0] * count,
        properties=[[]] * count,
    )
    for name, column in changed.items():
        setattr(made, name, column)
    made.size_bytes = sum(len(value) for value in made.values if value is not None)
    return made


def rows(made: Messages, names=NAMES, topic: str = TOPIC) -> list[Any]:
    batch = Columns(names, topic).batch(made, 0, len(made))
    batch.validate(full=True)
    found: list[Any] = batch.to_pylist()
    return found


def test_the_types_are_exactly_those_that_spark_makes_of_the_schema():
    assert Columns(NAMES, TOPIC).schema == to_arrow_schema(struct(*NAMES), timezone="UTC")
    assert ", ".join(f"{name} {SPARK_TYPES[name].simpleString()}" for name in NAMES) == SCHEMA.lower().replace(
        "string, string", "string,string"
    ).replace("__messageid", "__messageId").replace("__publishtime", "__publishTime").replace(
        "__eventtime", "__eventTime"
    )


def test_the_columns_are_those_that_the_option_knows():
    assert NAMES == COLUMN_NAMES
    assert TYPES.keys() - set(NAMES) == set(ON_REQUEST)


def test_a_plain_message_has_nulls_where_it_has_nothing():
    (row,) = rows(messages())
    assert row["value"] == b"v0"
    assert (row["__topic"], row["__partition"]) == (TOPIC, None)
    assert (row["__key"], row["__batch"], row["__eventTime"], row["__properties"]) == (None, None, None, [])
    assert row["__publishTime"].isoformat() == "2023-11-14T22:13:20+00:00"


def test_a_partition_is_told_from_its_topic():
    (row,) = rows(messages(), topic=f"{TOPIC}-partition-7")
    assert (row["__topic"], row["__partition"]) == (TOPIC, 7)


def test_tombstones_are_null_and_empty_values_are_not():
    assert [row["value"] for row in rows(messages(2, values=[None, b""]))] == [None, b""]


def test_of_a_property_that_comes_twice_the_last_counts():
    made = messages(3, properties=[[("a", "1"), ("b", "2"), ("a", "3")], [], [("c", "")]])
    assert [row["__properties"] for row in rows(made)] == [[("a", "3"), ("b", "2")], [], [("c", "")]]


def test_rows_of_batches_and_others_stand_beside_each_other():
    made = messages(3, batch_indexes=[0, -1, 1], batch_sizes=[2, 0, 2])
    assert [row["__batch"] for row in rows(made)] == [0, None, 1]


def test_times_keep_their_milliseconds_and_impossible_ones_are_null():
    made = messages(3, publish_ms=[1, 2**64 - 1, 0], event_ms=[1_700_000_000_123, 0, 2**63])
    found = rows(made)
    assert [row["__publishTime"] and row["__publishTime"].microsecond for row in found] == [1000, None, 0]
    assert [row["__eventTime"] and row["__eventTime"].microsecond for row in found] == [123_000, None, None]


@pytest.mark.parametrize("partition", [-1, 0, 300])
def test_message_ids_are_those_of_the_official_clients(partition: int):
    places = [
        (ledger, entry, index, size)
        for ledger in (0, 127, 128, 2**40)
        for entry in (0, 1, 127, 128, 16383, 16384, 2**33)
        for index, size in ((-1, 0), (0, 1), (0, 200), (127, 200), (199, 200))
    ]
    places += [(1, 0, -1, 0), (2, 0, -1, 0), (3, 0, 0, 2), (4, 0, 1, 2)]
    columns = [list(column) for column in zip(*places, strict=True)]
    made = messages(
        len(places), ledger_ids=columns[0], entry_ids=columns[1], batch_indexes=columns[2], batch_sizes=columns[3]
    )
    assert message_ids(made, 0, len(places), partition) == [
        MessageId(ledger, entry, partition, index).to_bytes(size) for ledger, entry, index, size in places
    ]


def test_a_slice_of_the_rows_is_that_slice():
    batch = Columns(NAMES, TOPIC).batch(messages(10, properties=[[("n", str(n))] for n in range(10)]), 3, 5)
    assert [row["__entry"] for row in batch.to_pylist()] == [3, 4]
    assert [row["__properties"] for row in batch.to_pylist()] == [[("n", "3")], [("n", "4")]]


def test_batches_are_cut_at_ten_thousand_rows_evenly():
    made = messages(ROWS_MAX + 2)
    assert cuts(made) == [(0, ROWS_MAX // 2 + 1), (ROWS_MAX // 2 + 1, ROWS_MAX + 2)]
    assert cuts(messages(ROWS_MAX)) == [(0, ROWS_MAX)]
    assert cuts(messages(0)) == []
    assert sum(batch.num_rows for batch in Columns(["value"], TOPIC).batches(made)) == ROWS_MAX + 2


def test_batches_are_cut_at_their_bytes_and_one_row_may_be_larger():
    mib = bytes(1 << 20)
    made = messages(40, values=[mib] * 40)
    found = cuts(made)
    assert [first for first, _ in found[1:]] == [stop for _, stop in found[:-1]]
    assert (found[0][0], found[-1][1]) == (0, 40)
    assert all(BYTES_TARGET <= (stop - first) << 20 <= 2 * BYTES_TARGET for first, stop in found[:-1])
    large = bytes(3 * BYTES_TARGET)
    assert cuts(messages(4, values=[b"a", large, b"b", large])) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_keys_and_properties_weigh_too():
    heavy = [[("name", "x" * (BYTES_TARGET + 1))]] * 4
    made = messages(4, properties=heavy)
    made.size_bytes = 4 * BYTES_TARGET
    assert cuts(made) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_rows_are_never_left_out_when_a_batch_is_cut_by_rows_and_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(columns_module, "ROWS_MAX", 3)
    monkeypatch.setattr(columns_module, "BYTES_TARGET", 10)
    sizes = [0, 4, 30, 0, 0, 0, 0, 9, 9, 9, 21, 1]
    made = messages(len(sizes), values=[bytes(size) for size in sizes])
    found = cuts(made)
    assert [row for first, stop in found for row in range(first, stop)] == list(range(len(sizes)))
    assert all(stop - first <= 3 for first, stop in found)
    assert all(stop - first == 1 or sum(sizes[first:stop]) <= 20 for first, stop in found)


def test_the_schema_has_the_chosen_columns_in_their_order():
    assert ddl(["__properties", "value"]) == "__properties MAP<STRING, STRING>, value BINARY"


def test_a_schema_version_is_the_number_of_its_eight_bytes_and_null_without_one():
    versions = [(7).to_bytes(8, "big"), b"", b"abc", (7).to_bytes(8, "big") + b"old"]
    found = rows(messages(4, schema_versions=versions), ["__schemaVersion"])
    assert [row["__schemaVersion"] for row in found] == [7, None, None, 7]


def test_an_ordering_key_is_a_column_on_request():
    found = rows(messages(3, ordering_keys=[b"o", None, b""]), ["value", "__orderingKey"])
    assert [row["__orderingKey"] for row in found] == [b"o", None, b""]


def test_columns_can_be_chosen_by_schema_with_their_own_types_only():
    assert names_of_schema(struct("__entry", "value")) == ("__entry", "value")
    assert names_of_schema(struct(*NAMES)) == NAMES
    for field, remedy in (
        (StructField("value", StringType()), "value has type BINARY: read it with that type and cast it"),
        (StructField("key", BinaryType()), "there is no such column"),
        (StructField("value", BinaryType(), nullable=False), "nullable"),
    ):
        with pytest.raises(OptionError, match=remedy):
            names_of_schema(StructType([field]))
    refuses(OptionError, lambda: names_of_schema(StructType([])), "no columns")


def test_chosen_columns_come_in_the_order_they_were_chosen_in():
    batch = Columns(["__entry", "value"], TOPIC).batch(messages(2), 0, 2)
    assert batch.schema.names == ["__entry", "value"]
    assert batch.schema == to_arrow_schema(struct("__entry", "value"), timezone="UTC")


def test_batches_pickle_as_plain_arrow():
    batch = Columns(NAMES, TOPIC).batch(messages(3), 0, 3)
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert isinstance(batch, pa.RecordBatch)
