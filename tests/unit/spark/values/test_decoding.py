"""quire/spark/values/shapes.py and decoding.py: schemas to types, bytes to columns."""

from __future__ import annotations

import base64
import datetime
import io
import json
import pickle
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pulsar.schema import Array, AvroSchema, Boolean, Double, Integer, JsonSchema, Long, Map, Record, String

from quire.spark.errors import SchemaError
from quire.spark.values.decoding import Decoded, ValueDecoder, ValueSchema, shape_of
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.schema_values import joined
from tests.support.refusals import refuses

UTC = datetime.UTC


def schema(kind: str, definition: Any = None) -> ValueSchema:
    data = b"" if definition is None else json.dumps(definition).encode()
    return ValueSchema(int(pb.Schema.Type.Value(kind)), data)


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields],
    }


def avro(definition: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(definition), value)
    return stream.getvalue()


def decode(
    read: ValueSchema, *values: bytes | None, written: dict[int, ValueSchema] | None = None, version: int | None = None
) -> Decoded:
    decoder = ValueDecoder(read, (written or {}).get)
    return decoder.decode(values, [b"key"] * len(values), [version] * len(values))


ALL = record(
    ("a", "boolean"),
    ("b", ["null", "int"]),
    ("c", ["int", "long"]),
    ("d", {"type": "enum", "name": "E", "symbols": ["X", "Y"]}),
    ("e", {"type": "fixed", "name": "F", "size": 2}),
    ("f", {"type": "array", "items": ["null", "string"]}),
    ("g", {"type": "map", "values": "double"}),
    ("h", {"type": "record", "name": "Inner", "fields": [{"name": "i", "type": "bytes"}]}),
    ("j", {"type": "long", "logicalType": "timestamp-millis"}),
    ("k", {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}}),
    ("l", {"type": "int", "logicalType": "date"}),
    ("m", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("n", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("o", {"type": "string", "logicalType": "uuid"}),
    ("p", "Inner"),
    ("q", {"type": "int", "logicalType": "time-millis"}),
)
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
VALUE = {
    "a": True, "b": None, "c": 1 << 40, "d": "Y", "e": b"ab", "f": ["x", None], "g": {"k": 0.5}, "h": {"i": b"\0"},
    "j": AT, "k": [AT], "l": datetime.date(2026, 1, 2), "m": Decimal("-12.34"), "n": AT.replace(tzinfo=None), "o": "u",
    "p": {"i": b"z"}, "q": 7,
}  # fmt: skip


def test_every_type_of_avro_has_its_column() -> None:
    shape = shape_of(schema("Avro", ALL))
    assert shape.ddl == (
        "STRUCT<`a`: BOOLEAN, `b`: INT, `c`: BIGINT, `d`: STRING, `e`: BINARY, `f`: ARRAY<STRING>,"
        " `g`: MAP<STRING, DOUBLE>, `h`: STRUCT<`i`: BINARY>, `j`: TIMESTAMP, `k`: ARRAY<TIMESTAMP>, `l`: DATE,"
        " `m`: DECIMAL(9,2), `n`: TIMESTAMP_NTZ, `o`: STRING, `p`: STRUCT<`i`: BINARY>, `q`: INT>"
    )
    written = fastavro.parse_schema(json.loads(json.dumps(ALL).replace('"logicalType": "uuid"', '"x": 1')))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, written, {**VALUE, "q": 7} | {"q": datetime.time(0, 0, 0, 7000)})
    found = decode(schema("Avro", ALL), stream.getvalue(), None)
    assert found.problems == {}
    assert found.values.type == shape.arrow
    assert found.values.to_pylist() == [{**VALUE, "g": [("k", 0.5)]}, None]


def test_json_is_decoded_by_the_same_types_and_what_is_missing_is_null() -> None:
    ms = int(AT.timestamp() * 1000)
    plain = {
        **VALUE, "e": base64.b64encode(b"ab").decode(), "h": {"i": "AA=="}, "j": ms, "k": [ms * 1000], "l": 20455,
        "m": -12.34, "n": ms, "p": {"i": "eg=="}, "unknown": [1],
    }  # fmt: skip
    found = decode(schema("Json", ALL), json.dumps(plain).encode(), b'{"a": true}', b"null")
    assert found.problems == {}
    assert found.values.to_pylist() == [
        {**VALUE, "g": [("k", 0.5)]},
        {name: True if name == "a" else None for name in VALUE},
        None,
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "JSONDecodeError"),
        (b"\xff", "UnicodeDecodeError"),
        (b"[1]", "of another type"),
        (b'{"a": 1}', "of another type"),
        (b'{"b": "x"}', "of another type"),
        (b'{"b": true}', "of another type"),
        (b'{"b": 3000000000}', "3000000000"),
        (b'{"d": "Z"}', "no symbol"),
        (b'{"e": "*"}', "not base64"),
        (b'{"m": "x"}', "no decimal"),
        (b'{"l": 99999999999}', "too large for date32"),
        (b"[" * 100_000, "RecursionError"),
    ],
)
def test_a_value_of_json_that_is_none_of_its_schema_is_null_with_its_reason(value: bytes, why: str) -> None:
    found = decode(schema("Json", ALL), b'{"b": 1}', value, b'{"b": 2}')
    assert why in found.problems[1]
    assert list(found.problems) == [1]
    assert [row and row["b"] for row in found.values.to_pylist()] == [1, None, 2]


def test_a_value_of_avro_that_is_none_of_its_schema_is_null_with_its_reason() -> None:
    read = schema("Avro", record(("a", "int"), ("b", "string")))
    good = avro(record(("a", "int"), ("b", "string")), {"a": 1, "b": "x"})
    bad = [good[:-1], good + b"\0", b"", b"\xfe\xff\xff\xff\xff\x0f\x02x", b"\x02\x02\xff", b"\x02\x13xx"]
    found = decode(read, good, *bad, good)
    assert sorted(found.problems) == list(range(1, len(bad) + 1))
    assert "left behind the value" in found.problems[2]
    assert [row and row["a"] for row in found.values.to_pylist()] == [1, *[None] * len(bad), 1]


def test_each_message_is_decoded_by_its_own_version_into_the_type_that_is_read() -> None:
    """A field that was added has its default, one that was removed is gone, an int became a long."""
    old = record(("id", "int"), ("gone", "string"))
    new = record(("id", "long"), ("note", ["null", "string"], None), ("count", "int", 7))
    read, before = schema("Avro", new), schema("Avro", old)
    decoder = ValueDecoder(read, {0: before, 1: read}.get)
    values = [avro(old, {"id": 1, "gone": "x"}), avro(new, {"id": 1 << 40, "note": "n", "count": 8})]
    found = decoder.decode([*values, values[1]], [None] * 3, [0, 1, None])
    assert found.problems == {}
    assert found.values.to_pylist() == [
        {"id": 1, "note": None, "count": 7},
        {"id": 1 << 40, "note": "n", "count": 8},
        {"id": 1 << 40, "note": "n", "count": 8},
    ]


def test_a_version_that_cannot_be_had_or_converted_is_the_reason_of_its_messages_only() -> None:
    read = schema("Avro", record(("id", "long")))
    value = avro(record(("id", "long")), {"id": 1})
    found = ValueDecoder(read, {1: schema("String"), 2: schema("Avro", record(("id", "string")))}.get)
    decoded = found.decode([value] * 4, [None] * 4, [None, 1, 2, 9])
    assert decoded.values.to_pylist() == [{"id": 1}, None, None, None]
    assert "written as String" in decoded.problems[1]
    assert "SchemaResolutionError" in decoded.problems[2]
    assert decoded.problems[3] == "the topic has no schema of version 9"


@pytest.mark.parametrize(
    ("kind", "value", "ddl", "expected"),
    [
        ("String", "ä".encode(), "STRING", "ä"),
        ("Bool", b"\1", "BOOLEAN", True),
        ("Int8", b"\xff", "TINYINT", -1),
        ("Int16", b"\1\0", "SMALLINT", 256),
        ("Int32", b"\0\0\0\7", "INT", 7),
        ("Int64", (1 << 40).to_bytes(8, "big"), "BIGINT", 1 << 40),
        ("Float", struct.pack(">f", 0.5), "FLOAT", 0.5),
        ("Double", struct.pack(">d", 0.1), "DOUBLE", 0.1),
        ("None", b"\xff", "BINARY", b"\xff"),
        ("Date", struct.pack(">q", 1500), "TIMESTAMP", datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
        ("Timestamp", struct.pack(">q", -500), "TIMESTAMP", datetime.datetime(1969, 12, 31, 23, 59, 59, 500000, UTC)),
        ("Instant", struct.pack(">qi", 1, 2500), "TIMESTAMP", datetime.datetime(1970, 1, 1, 0, 0, 1, 2, UTC)),
        ("LocalDate", struct.pack(">q", 1), "DATE", datetime.date(1970, 1, 2)),
        ("LocalTime", struct.pack(">q", 5), "BIGINT", 5),
        ("LocalDateTime", struct.pack(">qq", 1, 3000), "TIMESTAMP_NTZ", datetime.datetime(1970, 1, 2, 0, 0, 0, 3)),
    ],
)
def test_a_primitive_value_has_its_type(kind: str, value: bytes, ddl: str, expected: object) -> None:
    assert shape_of(schema(kind)).ddl == ddl
    found = decode(schema(kind), value, value + b"\xff", None)
    assert found.values.to_pylist()[::2] == [expected, None]
    assert list(found.problems) == ([] if kind == "None" else [1])


def pairs(encoding: str, key: str = "STRING", value: str = "AVRO", definition: Any = None) -> ValueSchema:
    data = b"" if definition is None else json.dumps(definition).encode()
    sent = pb.Schema(name="kv", type=pb.Schema.KeyValue, schema_data=joined(b"", data))
    texts = {"key.schema.type": key, "value.schema.type": value, "kv.encoding.type": encoding}
    for name, text in texts.items():
        sent.properties.add(key=name, value=text)
    return ValueSchema.from_wire(sent)


def test_pairs_are_structs_of_key_and_value_wherever_the_key_is() -> None:
    definition = record(("id", "int"))
    value = avro(definition, {"id": 7})
    inline, separated = (pairs(each, definition=definition) for each in ("INLINE", "SEPARATED"))
    assert shape_of(inline).ddl == "STRUCT<`key`: STRING, `value`: STRUCT<`id`: INT>>"
    found = decode(inline, joined(b"k", value), joined(None, None), joined(b"k", value)[:-1], b"", None)
    assert found.values.to_pylist()[:2] == [{"key": "k", "value": {"id": 7}}, {"key": None, "value": None}]
    assert list(found.problems) == [2, 3]
    found = decode(separated, value, None)
    assert found.values.to_pylist() == [{"key": "key", "value": {"id": 7}}, {"key": "key", "value": None}]
    moved = ValueDecoder(separated, {0: inline, 1: separated}.get)
    decoded = moved.decode([joined(b"k", value), value], [None, b"mine"], [0, 1])
    assert [row["key"] for row in decoded.values.to_pylist()] == ["k", "mine"], "each by its own version's encoding"


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        (record(("next", ["null", "R"])), "refers to itself"),
        ({"type": "array", "items": "null"}, "any number"),
        ({"type": "map", "values": {"type": "fixed", "name": "F", "size": 0}}, "any number"),
        (record(("a", ["int", "string"])), "a union of 2 types"),
        (record(("a", "nothing")), "is no type"),
        (record(), "without fields"),
        (record(("a", "int"), ("A", "int")), "differ in case"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "Spark has 38"),
        ([["null", "int"]] * 1, None),
        ("x", "is no type"),
        ({}, "is no type"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "cannot be followed"),
    ],
)
def test_a_schema_that_no_column_can_have_is_refused_before_a_value_is_read(definition: Any, why: str | None) -> None:
    if why is None:
        assert shape_of(schema("Avro", definition)).ddl == "INT"
    else:
        refuses(SchemaError, lambda: shape_of(schema("Avro", definition)), why)


def test_a_definition_that_nests_without_end_or_is_no_json_is_refused() -> None:
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    refuses(SchemaError, lambda: shape_of(schema("Avro", deep)), "deeper than")
    refuses(SchemaError, lambda: shape_of(ValueSchema(int(pb.Schema.Avro), b"{")), "not JSON")
    refuses(SchemaError, lambda: shape_of(schema("Protobuf")), "type Protobuf are not decoded here")
    refuses(SchemaError, lambda: pairs("INLINE", key="KEY_VALUE"), "is no type of a part")
    refuses(
        SchemaError,
        lambda: ValueSchema.from_wire(pb.Schema(name="", type=pb.Schema.KeyValue, schema_data=b"\0")),
        "invalid",
    )


class Order(Record):  # type: ignore[misc]
    id = Integer()
    total = Double()
    paid = Boolean()
    at = Long()
    names = Array(String())
    counts = Map(Integer())


@pytest.mark.parametrize(("official", "kind"), [(AvroSchema, "Avro"), (JsonSchema, "Json")])
def test_what_the_official_client_encodes_is_decoded(official: Any, kind: str) -> None:
    made = official(Order)
    sent = Order(id=1, total=0.5, paid=True, at=1 << 40, names=["a", "b"], counts={"x": 2})
    definition = made.schema_info().schema()
    read = ValueSchema(int(pb.Schema.Type.Value(kind)), definition.encode())
    found = decode(read, made.encode(sent), made.encode(Order()))
    assert found.problems == {}
    assert found.values.to_pylist()[0] == {
        "id": 1, "total": 0.5, "paid": True, "at": 1 << 40, "names": ["a", "b"], "counts": [("x", 2)],
    }  # fmt: skip


def test_schemas_travel() -> None:
    read = pairs("SEPARATED", definition=record(("id", "int")))
    assert pickle.loads(pickle.dumps(read)) == read


def test_columns_have_exactly_the_types_that_spark_expects() -> None:
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import ArrayType, LongType, StructField, StructType, TimestampType

    wanted = StructType([StructField("a", ArrayType(TimestampType())), StructField("b", LongType())])
    at = {"type": "long", "logicalType": "timestamp-millis"}
    definition = record(("a", {"type": "array", "items": at}), ("b", "long"))
    found = shape_of(schema("Avro", definition)).arrow
    assert isinstance(found, pa.StructType)
    assert to_arrow_type(wanted, timezone="UTC") == found
