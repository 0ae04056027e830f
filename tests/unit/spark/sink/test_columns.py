"""quire/spark/sink/columns.py"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from quire.spark.errors import SinkError
from quire.spark.sink.columns import IGNORED, SinkColumns, pieces
from tests.support.refusals import refuses

UTC = datetime.UTC
ALL = [
    ("__key", "string"),
    ("value", "binary"),
    ("__topic", "string"),
    ("__partition", "int"),
    ("__properties", "map<string,string>"),
    ("__eventTime", "timestamp"),
]


def rows(columns: SinkColumns, **arrays: pa.Array):
    return columns.rows(pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)))


def test_what_the_source_reads_can_be_written_as_it_is():
    fields = [*ALL, *((name, "bigint") for name in sorted(IGNORED))]
    planned = SinkColumns.plan(fields, None)
    assert (planned.key, planned.value, planned.topic, planned.partition) == (0, 1, 2, 3)
    assert (planned.properties, planned.event_time) == (4, 5)


def test_the_option_topic_wins_over_the_column():
    assert SinkColumns.plan(ALL, "orders").topic == -1


@pytest.mark.parametrize("kind", ["binary", "string", "varchar(10)", "char(3)", "string collate UTF8_LCASE"])
def test_a_payload_is_bytes_or_text(kind: str):
    assert SinkColumns.plan([("value", kind)], "t") == SinkColumns(value=0)


@pytest.mark.parametrize(
    ("fields", "topic", "told"),
    [
        ([("value", "binary")], None, "set the option topic, or add a column __topic"),
        ([("__key", "string")], "t", "column value, the payload"),
        ([("value", "struct<a:int>")], "t", r"column value is struct<a:int>: .*to_json"),
        ([("value", "bigint")], "t", "column value is bigint: a payload is binary or string"),
        ([("value", "binary"), ("__key", "int")], "t", "column __key is int: it must be binary or string"),
        ([("value", "binary"), ("__topic", "binary")], None, "column __topic is binary"),
        ([("value", "binary"), ("__partition", "string")], "t", "column __partition is string"),
        ([("value", "binary"), ("__properties", "map<string,int>")], "t", "must be map<string,string>"),
        ([("value", "binary"), ("__eventTime", "timestamp_ntz")], "t", "cast it to timestamp, which says the zone"),
        ([("value", "binary"), ("__eventTime", "date")], "t", "column __eventTime is date"),
        ([("value", "binary"), ("price", "int")], "t", r"column price has no place in a message: put it into value"),
        ([("value", "binary"), ("key", "binary")], "t", "did you mean __key"),
        ([("Value", "binary")], "t", "did you mean value"),
        ([("value", "binary"), ("value", "string")], "t", "column value exists twice"),
    ],
)
def test_a_column_that_cannot_be_written_is_refused_when_planned(fields, topic, told: str):
    with pytest.raises(SinkError, match=told):
        SinkColumns.plan(fields, topic)


def test_text_becomes_its_utf8_bytes_and_null_stays_null():
    made = rows(SinkColumns(value=0, key=1), value=pa.array(["ä", None]), key=pa.array([None, b"\xff"], pa.binary()))
    assert made.values == ["ä".encode(), None]
    assert made.keys == [None, b"\xff"]
    assert (made.topics, made.partitions, made.properties, made.event_ms) == (None, None, None, None)


def test_large_and_sliced_arrays_are_read_like_others():
    array = pa.array(["a", "bb", "ccc"], pa.large_string()).slice(1)
    assert rows(SinkColumns(value=0), value=array).values == [b"bb", b"ccc"]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1_700_000_000_123_999, None], pa.timestamp("us", "UTC")), [1_700_000_000_123, 0]),
        (pa.array([1_700_000_000_123, None], pa.timestamp("ms", "UTC")), [1_700_000_000_123, 0]),
        (pa.array([1_700_000_000, None], pa.timestamp("s", "UTC")), [1_700_000_000_000, 0]),
        (pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", "UTC")), [1_700_000_000_123, 0]),
        (pa.array([1_700_000_000_123, None], pa.int64()), [1_700_000_000_123, 0]),
    ],
)
def test_event_times_are_milliseconds(array: pa.Array, expected: list[int]):
    value = pa.array([b"", b""])
    assert rows(SinkColumns(value=0, event_time=1), value=value, time=array).event_ms == expected


def test_an_event_time_before_1970_is_refused_by_name_and_value():
    time = pa.array([datetime.datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    with pytest.raises(SinkError, match="column __eventTime: -1 ms is before 1970"):
        rows(SinkColumns(value=0, event_time=1), value=pa.array([b""]), time=time)


def test_properties_keep_their_order_and_null_is_none():
    kind = pa.map_(pa.string(), pa.string())
    array = pa.array([[("b", "1"), ("a", "2")], None, []], kind)
    made = rows(SinkColumns(value=0, properties=1), value=pa.array([b"", b"", b""]), properties=array)
    assert made.properties == [[("b", "1"), ("a", "2")], [], []]


def test_a_property_without_value_is_refused_by_its_name():
    array = pa.array([[("b", None)]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(SinkError, match=r"column __properties: .* has no value for 'b'"):
        rows(SinkColumns(value=0, properties=1), value=pa.array([b""]), properties=array)


def test_a_batch_is_cut_by_bytes_without_losing_a_row():
    batch = pa.RecordBatch.from_arrays([pa.array([bytes([n]) * 1000 for n in range(100)])], names=["value"])
    cut = list(pieces(batch, 10_000))
    assert len(cut) > 5
    assert all(piece.nbytes <= 11_000 for piece in cut)
    assert pa.Table.from_batches(cut).column(0).to_pylist() == batch.column(0).to_pylist()
    assert list(pieces(batch.slice(0, 0))) == []
    assert [piece.num_rows for piece in pieces(batch.slice(0, 2), 1)] == [1, 1]


def test_taking_rows_takes_every_column():
    columns = SinkColumns.plan(ALL, None)
    made = rows(
        columns,
        key=pa.array(["a", "b", "c"]),
        value=pa.array([b"0", b"1", b"2"]),
        topic=pa.array(["t", "u", "v"]),
        partition=pa.array([0, None, 2], pa.int32()),
        properties=pa.array([[("n", "0")], [], [("n", "2")]], pa.map_(pa.string(), pa.string())),
        time=pa.array([5000, None, 7000], pa.timestamp("us", "UTC")),
    ).take([2, 0])
    assert (made.values, made.keys, made.topics) == ([b"2", b"0"], [b"c", b"a"], ["v", "t"])
    assert (made.partitions, made.properties, made.event_ms) == ([2, 0], [[("n", "2")], [("n", "0")]], [7, 5])


def test_ordering_keys_and_times_of_delivery_are_columns_of_messages():
    fields = [*ALL, ("__orderingKey", "string"), ("__deliverAt", "timestamp")]
    planned = SinkColumns.plan(fields, "t")
    assert (planned.ordering_key, planned.deliver_at) == (6, 7)
    at = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    found = rows(
        SinkColumns(value=0, ordering_key=1, deliver_at=2),
        value=pa.array([b"a", b"b"]),
        ordering=pa.array(["o", None]),
        deliver=pa.array([at, None], pa.timestamp("us", "UTC")),
    )
    assert (found.ordering_keys, found.deliver_ms) == ([b"o", None], [int(at.timestamp() * 1000), 0])
    assert found.take([1]).more_of(0) == (None, 0)
    assert found.more_of(0) == (b"o", int(at.timestamp() * 1000))


def test_columns_without_a_value_in_them_are_as_if_they_were_not_there():
    """Otherwise messages of different keys would share no batch."""
    found = rows(
        SinkColumns(value=0, ordering_key=1, deliver_at=2),
        value=pa.array([b"a"]),
        ordering=pa.array([None], pa.string()),
        deliver=pa.array([None], pa.int64()),
    )
    assert (found.ordering_keys, found.deliver_ms) == (None, None)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (("__orderingKey", "int"), "must be binary or string"),
        (("__deliverAt", "string"), "it must be timestamp"),
        (("__deliverAt", "timestamp_ntz"), "says the zone"),
    ],
)
def test_an_ordering_key_or_time_of_another_type_is_refused(field: tuple[str, str], told: str):
    refuses(SinkError, lambda: SinkColumns.plan([("value", "binary"), field], "t"), told)


def test_a_time_of_delivery_before_1970_is_refused_by_its_column():
    columns = SinkColumns(value=0, deliver_at=1)
    refuses(
        SinkError,
        lambda: rows(columns, value=pa.array([b"a"]), deliver=pa.array([-1])),
        "column __deliverAt: -1 ms is before 1970",
    )


def test_a_value_of_any_type_is_for_encoding():
    assert SinkColumns.plan([("value", "struct<a:int>")], "t", encoded=True) == SinkColumns(value=0)
    found = SinkColumns(value=0).rows(
        pa.RecordBatch.from_arrays([pa.array([1])], ["value"]), lambda _: ([b"encoded"], None)
    )
    assert found.values == [b"encoded"]
