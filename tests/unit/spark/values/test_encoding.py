"""quire/spark/values/encoding.py: what the sink encodes, the source and the official client decode."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from quire.spark.errors import SinkError
from quire.spark.values.decoding import ValueDecoder, ValueSchema
from quire.spark.values.encoding import Encoding
from tests.support.refusals import refuses

UTC = datetime.UTC
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
INNER = StructType([StructField("at", TimestampType())])
ALL = StructType(
    [
        StructField("a", BooleanType()),
        StructField("b", ByteType()),
        StructField("c", ShortType()),
        StructField("d", IntegerType()),
        StructField("e", LongType()),
        StructField("f", FloatType()),
        StructField("g", DoubleType()),
        StructField("h", StringType()),
        StructField("j", BinaryType()),
        StructField("k", DateType()),
        StructField("l", TimestampType()),
        StructField("m", TimestampNTZType()),
        StructField("n", DecimalType(9, 2)),
        StructField("o", ArrayType(INNER)),
        StructField("p", MapType(StringType(), INNER)),
        StructField("q", INNER),
    ]
)
VALUE = {
    "a": False, "b": -1, "c": 300, "d": 7, "e": 1 << 40, "f": 0.5, "g": 0.1, "h": "ä", "j": b"\xff",
    "k": datetime.date(2026, 1, 2), "l": AT, "m": AT.replace(tzinfo=None), "n": Decimal("-1.20"),
    "o": [{"at": AT}, None], "p": [("k", {"at": AT}), ("none", None)], "q": {"at": None},
}  # fmt: skip


def column(data_type: Any, *values: object) -> pa.Array:
    return pa.array(values, to_arrow_type(data_type, timezone="UTC"))


def back(encoding: Encoding, payloads: list[bytes | None]) -> list[Any]:
    read = ValueSchema.from_wire(encoding.schema())
    found = ValueDecoder(read, lambda _: None).decode(payloads, [None] * len(payloads), [None] * len(payloads))
    assert found.problems == {}
    rows: list[Any] = found.values.to_pylist()
    return rows


@pytest.mark.parametrize("encode", ["avro", "json"])
def test_a_struct_of_every_type_comes_back_as_it_was(encode: str) -> None:
    encoding = pickle.loads(pickle.dumps(Encoding.plan(encode, ALL, "shop.Order")))
    nothing = dict.fromkeys(VALUE)
    payloads = encoding.encode(column(ALL, VALUE, nothing, None))
    assert payloads[2] is None, "a row without a value is a message without one"
    assert back(encoding, payloads) == [VALUE, nothing, None]
    assert pickle.loads(pickle.dumps(encoding)).encode(column(ALL, VALUE)) == payloads[:1], "also after it was used"


def test_the_definition_lets_every_field_be_absent() -> None:
    sent = Encoding.plan("avro", StructType([StructField("id", LongType(), nullable=False)]), "Order").schema()
    assert json.loads(sent.schema_data) == {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": ["null", "long"], "default": None}],
    }


class Order(Record):  # type: ignore[misc]
    id = Integer()
    name = String()


@pytest.mark.parametrize(("encode", "official"), [("avro", AvroSchema), ("json", JsonSchema)])
def test_the_official_client_decodes_what_is_encoded(encode: str, official: Any) -> None:
    data_type = StructType([StructField("id", IntegerType()), StructField("name", StringType())])
    (payload,) = Encoding.plan(encode, data_type, "Order").encode(column(data_type, {"id": 7, "name": "ä"}))
    found = official(Order).decode(payload)
    assert (found.id, found.name) == (7, "ä")


@pytest.mark.parametrize(
    ("data_type", "kind", "value"),
    [
        (BooleanType(), "Bool", True),
        (ByteType(), "Int8", -1),
        (ShortType(), "Int16", 300),
        (IntegerType(), "Int32", -7),
        (LongType(), "Int64", 1 << 40),
        (FloatType(), "Float", 0.5),
        (DoubleType(), "Double", 0.1),
        (StringType(), "String", "ä"),
        (DateType(), "LocalDate", datetime.date(1969, 12, 31)),
        (TimestampType(), "Instant", AT),
        (TimestampNTZType(), "LocalDateTime", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    ],
)
def test_a_primitive_value_comes_back_as_it_was(data_type: Any, kind: str, value: object) -> None:
    encoding = Encoding.plan("primitive", data_type, "")
    assert ValueSchema.from_wire(encoding.schema()).name == kind
    assert back(encoding, encoding.encode(column(data_type, value, None))) == [value, None]


@pytest.mark.parametrize(
    ("encode", "data_type", "why"),
    [
        ("avro", StringType(), "needs a struct: make one"),
        ("primitive", INNER, "use encode=avro or encode=json"),
        ("primitive", BinaryType(), "a cast, or encode=none"),
        ("json", StructType([]), "without fields"),
        ("avro", StructType([StructField("a b", LongType())]), "'a b' of column value has a name"),
        ("avro", StructType([StructField("m", MapType(LongType(), LongType()))]), "map<bigint,bigint>"),
    ],
)
def test_a_type_that_cannot_be_encoded_is_refused_when_the_write_is_planned(
    encode: str, data_type: Any, why: str
) -> None:
    refuses(SinkError, lambda: Encoding.plan(encode, data_type, "Record"), why)


def test_a_value_without_a_form_is_named() -> None:
    data_type = StructType([StructField("x", DoubleType())])
    encoding = Encoding.plan("json", data_type, "Record")
    refuses(SinkError, lambda: encoding.encode(column(data_type, {"x": float("nan")})), "{'x': nan} cannot be encoded")


PAIR = StructType([StructField("key", INNER), StructField("value", BooleanType())])


@pytest.mark.parametrize("encode", ["avro", "json"])
@pytest.mark.parametrize("pairs", ["inline", "separated"])
def test_pairs_come_back_as_they_were_with_the_key_in_the_payload_or_in_the_message(encode: str, pairs: str) -> None:
    encoding = Encoding.plan(encode, PAIR, "Order", pairs)
    rows: list[Any] = [
        {"key": {"at": AT}, "value": True},
        {"key": None, "value": False},
        {"key": {"at": None}, "value": None},
    ]
    payloads, keys = pickle.loads(pickle.dumps(encoding)).encode_rows(column(PAIR, *rows, None))
    if pairs == "inline":
        assert keys is None
        keys = [None] * len(payloads)
    assert (payloads[2] is None) == (pairs == "separated")  # (a pair without a value has a payload if that has its key)
    read = ValueSchema.from_wire(encoding.schema())
    assert (read.name, read.separated) == ("KeyValue", pairs == "separated")
    assert [part.name for part in read.parts] == [encode.capitalize(), "Bool"]
    found = ValueDecoder(read, lambda _: None).decode(payloads, keys, [None] * len(payloads))
    assert found.problems == {}
    nothing = {"key": None, "value": None} if pairs == "separated" else None
    assert found.values.to_pylist() == [*rows, nothing]


def test_the_schema_of_pairs_has_the_properties_of_the_official_clients() -> None:
    data_type = StructType([StructField("key", BinaryType()), StructField("value", TimestampNTZType())])
    sent = Encoding.plan("primitive", data_type, "", "inline").schema()
    properties: Any = sent.properties
    assert {each.key: each.value for each in properties} == {
        "kv.encoding.type": "INLINE",
        "key.schema.name": "key",
        "key.schema.type": "BYTES",
        "key.schema.properties": "{}",
        "value.schema.name": "value",
        "value.schema.type": "LOCAL_DATE_TIME",
        "value.schema.properties": "{}",
    }
    assert sent.schema_data == bytes(8)


@pytest.mark.parametrize(
    ("encode", "data_type", "why"),
    [
        ("avro", StringType(), "needs a struct of key and value"),
        (
            "avro",
            StructType([StructField("value", INNER), StructField("key", INNER)]),
            "needs a struct of key and value",
        ),
        ("primitive", PAIR, "use encode=avro or encode=json"),
    ],
)
def test_what_is_no_pair_is_refused_when_the_write_is_planned(encode: str, data_type: Any, why: str) -> None:
    refuses(SinkError, lambda: Encoding.plan(encode, data_type, "Record", "inline"), why)
