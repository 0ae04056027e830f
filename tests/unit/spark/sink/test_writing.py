"""quire/spark/sink/task_writer.py and writing.py, without Spark's session and without a broker"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
import trio
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from quire.client.client import Client
from quire.client.deliveries import Deliveries
from quire.client.errors import NotAllowedError
from quire.client.packing import Packed, pack
from quire.client.routing import partition_of
from quire.client.unpacking import Messages, Opener
from quire.spark.errors import OptionError, SinkError
from quire.spark.options.parse import Options
from quire.spark.sink import producers as producers_module
from quire.spark.sink import writing
from quire.spark.sink.attempts import Attempt, Written
from quire.spark.sink.columns import SinkColumns
from quire.spark.sink.producers import Producers
from quire.spark.sink.task_writer import TaskWriter
from quire.spark.sink.writing import QuireStreamWriter, QuireWriter
from quire.spark.values.encoding import Encoding
from quire.wire.pulsar.metadata import read_metadata
from tests.support.refusals import refuses

T = "persistent://public/default/t"
ATTEMPT = Attempt("", -1, 0, 7)
SCHEMA = StructType([StructField("__key", StringType()), StructField("value", BinaryType())])


class FakeDoor:
    """A sink that accepts everything and records the calls and the names under which it was opened."""

    def __init__(self, partitions: int = 0) -> None:
        self.count = partitions
        self.names: list[str] = []
        self.calls: list[str] = []
        self.runs: dict[str, list[Packed]] = {}
        self.failure: Exception | None = None

    def open(self, options: Options, name: str) -> FakeDoor:
        self.names.append(name)
        return self

    def partitions(self, topics: Sequence[str]) -> list[int]:
        self.calls.append("partitions")
        return [self.count] * len(topics)

    def last_id(self, target: str) -> int:
        raise AssertionError("only exactlyOnce needs it")

    def schema_version(self, target: str) -> bytes:
        self.calls.append("schema_version")
        return b"\0" * 7 + b"\3"

    def send(self, runs: Sequence[tuple[str, Sequence[Packed]]]) -> None:
        self.calls.append("send")
        if self.failure is not None:
            raise self.failure
        for target, packed in runs:
            self.runs.setdefault(target, []).extend(packed)

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


def batch(*values: bytes | None, keys: Sequence[str | None] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(keys or [None] * len(values), pa.string()), pa.array(values, pa.binary())], names=["__key", "value"]
    )


def task(door: FakeDoor, attempt: Attempt = ATTEMPT, **options: str) -> TaskWriter:
    parsed = Options.parse({"topic": "t", **options}, use="write")
    return TaskWriter(parsed, SinkColumns(value=1, key=0), attempt, door.open)


def test_an_empty_task_opens_nothing_and_still_has_a_message():
    door = FakeDoor()
    assert task(door).write(iter([])) == Written(ATTEMPT)
    assert task(door).write(iter([batch()])) == Written(ATTEMPT)
    assert (door.names, door.calls) == ([], [])


def test_rows_are_sent_then_waited_for_then_the_producers_are_closed():
    door = FakeDoor()
    written = task(door).write(iter([batch(b"a", b"bc"), batch(b"d", None)]))
    assert written == Written(ATTEMPT, rows=4, size_bytes=4, topics=1)
    assert door.calls == ["partitions", "send", "send", "flush", "close"]
    assert [packed.count for packed in door.runs[T]] == [2, 2]
    assert len(door.names) == 1


def test_without_batching_each_row_is_an_entry():
    door = FakeDoor()
    task(door, batching="false").write(iter([batch(b"a", b"b", b"c")]))
    assert [packed.payload for packed in door.runs[T]] == [b"a", b"b", b"c"]


def test_rows_are_split_between_partitions_and_a_key_stays_on_one_in_order():
    door = FakeDoor(partitions=3)
    keys = [f"k{number % 5}" for number in range(50)]
    values = [b"%d" % number for number in range(50)]
    task(door, batching="false").write(iter([batch(*values, keys=keys)]))
    assert set(door.runs) <= {f"{T}-partition-{number}" for number in range(3)}
    where: dict[str, set[str]] = {}
    for target, packed in door.runs.items():
        numbers = [int(each.payload) for each in packed]
        for key in set(keys):
            of_key = [number for number in numbers if keys[number] == key]
            assert of_key == sorted(of_key)
            if of_key:
                where.setdefault(key, set()).add(target)
    assert all(len(targets) == 1 for targets in where.values())
    assert sum(map(len, door.runs.values())) == 50


def test_what_fails_in_the_middle_fails_the_task_and_closes_what_was_opened():
    door = FakeDoor()
    door.failure = SinkError("the topic is fenced")
    refuses(SinkError, lambda: task(door).write(iter([batch(b"a")])), "the topic is fenced")
    assert door.calls == ["partitions", "send", "close"]


def test_a_row_that_is_too_large_for_the_broker_is_named_by_column_size_and_key():
    door = FakeDoor()
    door.failure = SinkError(
        f"rows could not be written to {T}: a message of 6000 bytes is above the broker's limit of 5000"
    )
    door.failure.__cause__ = NotAllowedError("too large")
    with pytest.raises(
        SinkError, match=r"broker's limit of 5000; .* column value of 50 bytes, b'x+' \(50 long\) \(key b'b'\)"
    ):
        task(door).write(iter([batch(b"a", b"x" * 50, b"c", keys=["a", "b", "c"])]))


def test_large_batches_are_taken_apart_before_they_are_packed():
    door = FakeDoor()
    written = task(door).write(iter([batch(*[b"x" * (1 << 20)] * 20)]))
    assert written.rows == 20
    assert door.calls.count("send") >= 2


def test_each_attempt_has_a_name_of_its_own_and_says_where_it_comes_from():
    streaming = Attempt("1b2c", 5, 3, 99)
    first, second = streaming.producer_name(), streaming.producer_name()
    assert first != second
    assert first.startswith("quire-spark-1b2c-5-3-99-")
    assert ATTEMPT.producer_name().startswith("quire-spark-batch-0-7-")


def test_outside_a_task_there_is_an_attempt_without_a_query():
    assert Attempt.current() == Attempt("", -1, 0, 0)


def test_tasks_begin_their_turns_at_different_partitions():
    targets = set()
    for number in range(3):
        door = FakeDoor(partitions=3)
        task(door, Attempt("", -1, number, number)).write(iter([batch(b"a")]))
        targets |= set(door.runs)
    assert len(targets) == 3


def test_overwrite_and_complete_are_refused_with_the_remedy():
    refuses(SinkError, lambda: QuireWriter({"topic": "t"}, SCHEMA, overwrite=True), r"use \.mode\('append'\)")
    refuses(SinkError, lambda: QuireStreamWriter({"topic": "t"}, SCHEMA, overwrite=True), r"use outputMode\('append'\)")


@pytest.mark.parametrize("kind", [QuireWriter, QuireStreamWriter])
def test_what_cannot_be_written_is_refused_when_planned(kind: Callable[..., Any]):
    with pytest.raises(SinkError, match="column count"):
        kind({"topic": "t"}, StructType([*SCHEMA.fields, StructField("count", IntegerType())]), overwrite=False)
    refuses(SinkError, lambda: kind({}, SCHEMA, overwrite=False), "no topic to write to")
    with pytest.raises(OptionError, match="startingOffsets"):
        kind({"topic": "t", "startingOffsets": "earliest"}, SCHEMA, overwrite=False)


def test_writers_and_messages_travel_as_plain_data():
    for writer in (QuireWriter({"topic": "t"}, SCHEMA, False), QuireStreamWriter({"topic": "t"}, SCHEMA, False)):
        assert vars(pickle.loads(pickle.dumps(writer))) == vars(writer)
    message = Written(Attempt("q", 1, 2, 3), 4, 5, 6)
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_commit_says_what_was_written_and_that_it_is_at_least_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, writing.__name__)
    QuireWriter({"topic": "t"}, SCHEMA, False).commit([Written(ATTEMPT, 3, 30, 1), Written(ATTEMPT)])
    QuireStreamWriter({"topic": "t"}, SCHEMA, False).commit([Written(ATTEMPT, 3, 30, 1)], 9)
    first, second = caplog.messages
    assert "wrote 3 rows, 30 bytes of values, in 2 tasks" in first
    assert "at least once" in first
    assert second.startswith("batch 9 wrote 3 rows")


def test_an_abort_says_what_stays_in_the_topics_whatever_tasks_failed(caplog: pytest.LogCaptureFixture):
    QuireWriter({"topic": "t"}, SCHEMA, False).abort([Written(ATTEMPT, 3, 30, 1), None])
    QuireStreamWriter({"topic": "t"}, SCHEMA, False).abort([None], 4)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "at least 3 rows, of 1 of its 2 tasks, are in their topics and stay there" in caplog.messages[0]
    assert caplog.messages[1].startswith("batch 4 was aborted: at least 0 rows")


def test_values_are_encoded_and_their_messages_have_the_version_of_the_schema():
    door = FakeDoor()
    value = StructType([StructField("id", IntegerType())])
    encoding = Encoding.plan("avro", value, "Order")
    parsed = Options.parse({"topic": "t", "encode": "avro"}, use="write")
    rows = pa.RecordBatch.from_arrays([pa.array([{"id": 1}, None], pa.struct([("id", pa.int32())]))], ["value"])
    written = TaskWriter(parsed, SinkColumns(value=0), ATTEMPT, door.open, encoding).write(iter([rows]))
    assert (written.rows, written.size_bytes) == (2, 2)
    entries = [each.encode("p", number, 1) for number, each in enumerate(door.runs[T])]
    into = Messages()
    Opener().open(Deliveries([1] * len(entries), list(range(len(entries))), entries), into)
    assert into.values == [b"\x02\x02", None]
    assert into.schema_versions == [b"\0" * 7 + b"\3"] * 2


def test_without_encoding_no_version_is_asked_for():
    door = FakeDoor()
    task(door).write(iter([batch(b"v")]))
    assert "schema_version" not in door.calls


def test_ordering_keys_and_times_of_delivery_are_in_the_messages():
    door = FakeDoor()
    parsed = Options.parse({"topic": "t"}, use="write")
    columns = SinkColumns(value=0, ordering_key=1, deliver_at=2)
    arrays = [pa.array([b"a", b"b", b"c"]), pa.array([b"o", b"o", None]), pa.array([None, 0, 1763737000123])]
    rows = pa.RecordBatch.from_arrays(arrays, ["value", "__orderingKey", "__deliverAt"])
    TaskWriter(parsed, columns, ATTEMPT, door.open).write(iter([rows]))
    found = [read_metadata(each.encode("p", 0, 1)) for each in door.runs[T]]
    assert [(each.ordering_key, each.deliver_at_time) for each in found] == [(b"o", 0), (b"", 1763737000123)]


def test_a_writer_that_encodes_plans_it_from_the_type_and_travels():
    schema = StructType([StructField("value", StructType([StructField("id", IntegerType())]))])
    for made in (
        QuireWriter({"topic": "t", "encode": "avro", "recordName": "Order"}, schema, overwrite=False),
        QuireStreamWriter({"topic": "t", "encode": "avro", "recordName": "Order"}, schema, overwrite=False),
    ):
        assert pickle.loads(pickle.dumps(made))._encoding == Encoding.plan("avro", schema.fields[0].dataType, "Order")
    refuses(SinkError, lambda: QuireWriter({"topic": "t", "encode": "json"}, SCHEMA, overwrite=False), "needs a struct")
    refuses(SinkError, lambda: QuireWriter({"topic": "t"}, schema, overwrite=False), "to_json")


def test_the_key_of_a_separated_pair_is_that_of_the_message_and_routes_it_as_official_clients_do() -> None:
    data_type = StructType([StructField("key", StringType()), StructField("value", IntegerType())])
    door = FakeDoor(partitions=16)
    options = Options.parse({"topic": "t", "encode": "primitive", "keyValueEncoding": "separated"}, use="write")
    encoding = Encoding.plan("primitive", data_type, "", "separated")
    rows = pa.array([{"key": "k", "value": 7}], pa.struct([("key", pa.string()), ("value", pa.int32())]))
    writer = TaskWriter(options, SinkColumns(value=0), ATTEMPT, door.open, encoding)
    writer.write(iter([pa.RecordBatch.from_arrays([rows], ["value"])]))
    ((target, (sent,)),) = door.runs.items()
    assert target == f"{T}-partition-{partition_of('aw==', 16)}" != f"{T}-partition-{partition_of('k', 16)}"
    metadata = read_metadata(sent.encode("p", 0, 0))
    assert (metadata.partition_key, metadata.partition_key_b64_encoded) == ("aw==", True)
    assert sent.payload == b"\0\0\0\7"


def test_a_column_of_keys_beside_separated_pairs_is_refused() -> None:
    pair = StructType([StructField("key", StringType()), StructField("value", IntegerType())])
    schema = StructType([StructField("__key", StringType()), StructField("value", pair)])
    options = {"topic": "t", "encode": "primitive", "keyValueEncoding": "separated"}
    refuses(SinkError, lambda: QuireWriter(options, schema, False), "drop this column, or set keyValueEncoding=inline")
    QuireWriter({**options, "keyValueEncoding": "inline"}, schema, False)


class FakeProducer:
    """A client, and its producer, for a broker that accepts messages of 1000 bytes."""

    message_size_max = 1000

    def __init__(self) -> None:
        self.sent: list[Packed] = []

    async def producer(self, _target: str, **_: object) -> FakeProducer:
        await trio.lowlevel.checkpoint()
        return self

    async def send(self, packed: Sequence[Packed]) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += packed


@pytest.mark.parametrize(("chunking", "pieces"), [(True, 4), (False, 1)])
def test_a_large_message_is_sent_in_pieces_if_that_is_asked_for(
    chunking: bool, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = FakeProducer()
    producers = Producers(cast(Client, client), "name", chunking=chunking)
    small, large = pack([b"small", bytes(2500)], batch=False, message_size_max=1 << 20)
    trio.run(producers.send, [(T, [small, large])])
    assert client.sent[0] is small
    assert len(client.sent) == 1 + pieces
    assert b"".join(each.payload for each in client.sent[1:]) == bytes(2500)
    failing = pack([bytes(900)], properties=[[("p", "x" * 900)]], message_size_max=1 << 20)
    if chunking:
        refuses(SinkError, lambda: trio.run(producers.send, [(T, failing)]), "not be written to .*leave no room")
        monkeypatch.setattr(producers_module, "CHUNKED_MAX", 2499)
        refuses(SinkError, lambda: trio.run(producers.send, [(T, [large])]), "2500 bytes, and sources read only up to")
