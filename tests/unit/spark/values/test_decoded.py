"""quire/spark/values/decoded.py and registry.py: record batches, bad values, schemas of brokers, without a broker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from quire.client.unpacking import Messages
from quire.spark import cluster as cluster_module
from quire.spark.errors import OptionError, SchemaError, UndecodableError
from quire.spark.options.parse import Options
from quire.spark.readers import QuireReader, QuireStreamReader, RefusedStreamReader
from quire.spark.reading.columns import Columns
from quire.spark.source import QuireDataSource
from quire.spark.values import registry as registry_module
from quire.spark.values.decoded import DecodedBatches, Decoding, dead_letters
from quire.spark.values.decoding import ValueSchema
from quire.spark.values.registry import ReadSchema, Registry
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.refusals import refuses
from tests.unit.spark.fake_cluster import FakeTopics

PUBLIC = "persistent://public/default/"
TOPIC = f"{PUBLIC}x"
JSON = ValueSchema(int(pb.Schema.Json), b'{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}')
ONE = (1).to_bytes(8, "big")


class FakeVersions:
    def version(self, topic: str, number: int) -> ValueSchema | None:
        assert topic == f"{TOPIC}-partition-3"
        return JSON if number == 1 else None


def raw(decoding: Decoding, *values: bytes | None, version: bytes = ONE) -> pa.RecordBatch:
    count = len(values)
    messages = Messages(
        values=list(values),
        keys=[b"k"] * count,
        ledger_ids=[5] * count,
        entry_ids=list(range(count)),
        batch_indexes=[0, *[-1] * (count - 1)],
        batch_sizes=[2] * count,
        publish_ms=[1] * count,
        event_ms=[7] * count,
        properties=[[("a", "1")]] * count,
        schema_versions=[version] * count,
    )
    return Columns(decoding.raw_names, f"{TOPIC}-partition-3").batch(messages, 0, count)


def decoded(on_error: str, *names: str) -> tuple[Decoding, DecodedBatches, list[pa.RecordBatch]]:
    letters: list[pa.RecordBatch] = []
    decoding = Decoding(ReadSchema(1, JSON), names, on_error)
    return decoding, DecodedBatches(decoding, f"{TOPIC}-partition-3", FakeVersions(), letters.append), letters


def test_the_batch_has_the_columns_of_the_query_in_their_order() -> None:
    decoding, batches, _ = decoded("fail", "__entry", "value", "__rawValue", "__schemaVersion", "__decodeError")
    found = batches.batch(raw(decoding, b'{"id": 7}', None))
    assert found.to_pylist() == [
        {"__entry": 0, "value": {"id": 7}, "__rawValue": b'{"id": 7}', "__schemaVersion": 1, "__decodeError": None},
        {"__entry": 1, "value": None, "__rawValue": None, "__schemaVersion": 1, "__decodeError": None},
    ]
    assert decoded("fail", "__entry")[0].raw_names == ("__entry", "__ledger", "__schemaVersion", "value")


def test_a_bad_value_fails_the_task_with_its_place_versions_and_remedies() -> None:
    decoding, batches, letters = decoded("fail", "value")
    with pytest.raises(UndecodableError) as info:
        batches.batch(raw(decoding, b'{"id": 7}', b"{"))
    text = str(info.value)
    assert f"{TOPIC}-partition-3: message 5:1, published with schema version 1, is no value of schema version 1" in text
    assert "onDecodeError=null or onDecodeError=deadLetter, or read with decode=none" in text
    assert "{'" not in text
    assert "JSONDecodeError" in text
    with pytest.raises(UndecodableError, match="published without a schema"):
        batches.batch(raw(decoding, b"{", version=b""))
    assert letters == []


def test_a_bad_value_is_null_beside_its_reason_and_its_bytes() -> None:
    decoding, batches, letters = decoded("null", "value", "__decodeError", "__rawValue")
    found = batches.batch(raw(decoding, b"{", b'{"id": 7}')).to_pylist()
    assert [row["value"] for row in found] == [None, {"id": 7}]
    assert "JSONDecodeError" in found[0].pop("__decodeError")
    assert found[0] == {"value": None, "__rawValue": b"{"}
    assert (batches.undecodable, letters) == (1, [])


def test_a_bad_value_leaves_the_batch_for_the_dead_letters_before_the_others_go_on() -> None:
    decoding, batches, letters = decoded("deadLetter", "value", "__entry")
    assert batches.batch(raw(decoding, b'{"id": 1}')).num_rows == 1
    assert letters == []
    found = batches.batch(raw(decoding, b"{", b'{"id": 7}', b"["))
    assert found.to_pylist() == [{"value": {"id": 7}, "__entry": 1}]
    (letter,) = letters
    first, second = letter.to_pylist()
    assert (first["value"], second["value"], first["__key"]) == (b"{", b"[", b"k")
    assert int(first["__eventTime"].timestamp() * 1000) == 7
    properties = dict(first["__properties"])
    assert properties.pop("DECODE_ERROR").startswith("JSONDecodeError")
    assert properties == {
        "a": "1",
        "REAL_TOPIC": f"{TOPIC}-partition-3",
        "ORIGIN_MESSAGE_ID": "5:0:3:0",
        "SCHEMA_VERSION": "1",
    }
    assert dict(second["__properties"])["ORIGIN_MESSAGE_ID"] == "5:2:3:-1"


def test_letters_that_are_not_written_fail_the_task() -> None:
    decoding, _, _ = decoded("deadLetter", "value")

    def fail(_: pa.RecordBatch) -> None:
        raise OSError("the broker is away")

    batches = DecodedBatches(decoding, f"{TOPIC}-partition-3", FakeVersions(), fail)
    with pytest.raises(OSError, match="away"):
        batches.batch(raw(decoding, b"{"))


def test_a_letter_of_a_topic_without_partitions_names_it() -> None:
    decoding, _, _ = decoded("deadLetter", "value")
    whole = raw(decoding, b"{")
    at = whole.schema.get_field_index("__partition")
    whole = whole.set_column(at, "__partition", pa.nulls(1, pa.int32()))
    (letter,) = dead_letters(whole, {0: "why"}).to_pylist()
    assert dict(letter["__properties"])["REAL_TOPIC"] == TOPIC


# Schemas of brokers


def sent(kind: str, definition: bytes = b"") -> pb.Schema:
    return pb.Schema(name="x", type=kind, schema_data=definition)


def record(*fields: str) -> pb.Schema:
    parts = ", ".join(f'{{"name": "{name}", "type": "long"}}' for name in fields)
    return sent("Json", f'{{"type": "record", "name": "R", "fields": [{parts}]}}'.encode())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTopics]:
    made = FakeTopics()
    made.schemas = {TOPIC: [record("a"), record("a", "b")], f"{PUBLIC}y": [record("a", "b")]}
    made.logs = {f"{PUBLIC}x": [], f"{PUBLIC}y": []}
    monkeypatch.setattr(cluster_module, "runtime", made)
    registry_module._known.clear()
    yield made
    registry_module._known.clear()


def registry(**options: str) -> Registry:
    return Registry(Options.for_schema({"topic": "x", "decode": "schema", **options}))


def many(**options: str) -> Registry:
    return Registry(Options.for_schema({"decode": "schema", **options}))


def test_the_newest_schema_is_read_or_the_one_that_is_asked_for(cluster: FakeTopics) -> None:
    assert registry().read_schema().version == 1
    assert registry().read_schema().ddl == "STRUCT<`a`: BIGINT, `b`: BIGINT>"
    assert registry(schemaVersion="0").read_schema().ddl == "STRUCT<`a`: BIGINT>"
    refuses(OptionError, lambda: registry(schemaVersion="7").read_schema(), "no schema of that version")


def test_a_query_keeps_the_type_it_was_loaded_with(cluster: FakeTopics) -> None:
    """A newer schema may be registered between schema() and reader()."""
    assert registry().read_schema("struct<a:bigint,b:bigint>").version == 1
    assert registry().read_schema("struct<a:bigint>").version == 0
    refuses(SchemaError, lambda: registry().read_schema("string"), "declared as string, and no schema .* has that type")
    refuses(SchemaError, lambda: registry(schemaVersion="0").read_schema("string"), "the one of version 0 has STRUCT")


def test_topics_of_one_query_have_one_type(cluster: FakeTopics) -> None:
    assert many(topics="x,y").read_schema().version == 1
    assert many(topicsPattern="[xy]").read_schema().version == 1
    cluster.schemas[f"{PUBLIC}y"].append(sent("String"))
    refuses(SchemaError, lambda: many(topics="x,y").read_schema(), r"values of .*/y are STRING \(String\), those of")
    refuses(SchemaError, lambda: many(topicsPattern="z").read_schema(), "no topic matches")
    refuses(SchemaError, lambda: many(topic="z").read_schema(), "has no schema .*decode=none")
    cluster.schemas[TOPIC] = [sent("Protobuf")]
    refuses(SchemaError, lambda: registry().read_schema(), "x, schema version 0: values of schemas of type Protobuf")


def test_a_version_is_requested_once_per_process_and_a_partition_has_those_of_its_topic(cluster: FakeTopics) -> None:
    for topic in (TOPIC, f"{TOPIC}-partition-3", TOPIC):
        assert registry().version(topic, 0) == ValueSchema.from_wire(record("a"))
        assert registry().version(topic, 9) is None
    assert [call for call in cluster.calls if call[0] == "schema"] == [
        ("schema", TOPIC, bytes(8)),
        ("schema", TOPIC, (9).to_bytes(8, "big")),
    ]


def test_the_source_declares_the_type_and_its_readers_travel_with_the_schema(cluster: FakeTopics) -> None:
    options = {"topic": "x", "decode": "schema", "columns": "value,__entry,__decodeError"}
    made = QuireDataSource(options)
    assert made.schema() == "value STRUCT<`a`: BIGINT, `b`: BIGINT>, __entry BIGINT, __decodeError STRING"
    value = StructType([StructField("a", LongType())])
    schema = StructType([StructField("value", value), StructField("__decodeError", StringType())])
    reader = made.reader(schema=schema)
    assert isinstance(reader, QuireReader)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._decoding == Decoding(
        ReadSchema(0, ValueSchema.from_wire(record("a"))), ("value", "__decodeError"), "fail"
    )
    stream = QuireDataSource({**options, "subscription": "s"}).streamReader(schema=schema)
    assert isinstance(stream, QuireStreamReader)
    wrong = StructType([StructField("value", StringType())])
    refuses(SchemaError, lambda: made.reader(schema=wrong), "declared as string")
    refused = QuireDataSource({**options, "subscription": "s"}).streamReader(schema=wrong)
    assert isinstance(refused, RefusedStreamReader)
    refuses(SchemaError, refused.initialOffset, "declared as string")
    for name, kind, why in (
        ("__decodeError", LongType(), "it is BINARY or STRING"),
        ("__entry", StringType(), "has type BIGINT"),
        ("x", LongType(), "no such column"),
    ):
        bad = StructType([StructField(name, kind)])
        with pytest.raises(OptionError, match=why):
            made.reader(schema=bad)


def test_without_decoding_no_broker_is_asked(cluster: FakeTopics) -> None:
    assert QuireDataSource({"topic": "x", "includeHeaders": "false"}).schema().endswith("__eventTime TIMESTAMP")
    assert QuireDataSource({"columns": "value, __batch"}).schema() == "value BINARY, __batch INT"
    assert cluster.calls == []
