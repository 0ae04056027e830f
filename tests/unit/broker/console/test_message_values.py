"""Values of messages as people read them."""

from __future__ import annotations

import json
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.console.messages.avro_values import VALUES_MAX, UnreadableAvroError, decode
from broker.console.messages.values import PARSED_MAX, QUICK_BYTES, is_slow, key_shown, shown
from broker.topics.schemas.key_value import joined
from broker.topics.schemas.schema import Schema, SchemaType

NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "n",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "next", "type": ["null", "Node"]},
        {"name": "data", "type": {"type": "map", "values": "double"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "flags", "type": {"type": "array", "items": "boolean"}},
    ],
}


def text(data: bytes | None, kind: SchemaType, definition: bytes = b"", **more: Any) -> str:
    return str(shown(data, Schema(kind, definition), 1000, **more)["text"])


def test_a_record_of_avro_with_all_kinds_of_parts_is_decoded():
    leaf = b"\x02" + b"\0" + b"\0" + b"\xab\xcd" + b"\x04\x01\x00\0"
    data = b"\0" + b"\x02" + leaf + b"\x02\x02k" + struct.pack("<d", 1.5) + b"\0" + b"\0\1" + b"\0"
    inner: dict[str, Any] = {"kind": "B", "next": None, "data": {}, "raw": "abcd", "flags": [True, False]}
    assert decode(NODE, data) == {"kind": "A", "next": inner, "data": {"k": 1.5}, "raw": "0001", "flags": []}


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_of_avro_or_refused(data: bytes):
    try:
        json.dumps(decode(NODE, data), allow_nan=False)
    except UnreadableAvroError:
        pass


def test_a_short_text_of_avro_cannot_ask_for_much():
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    for schema in ({"type": "array", "items": "null"}, {"type": "map", "values": "null"}, "bytes"):
        with pytest.raises(UnreadableAvroError, match=f"more than {VALUES_MAX}|bytes are wanted"):
            decode(schema, many)
    endless = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]}
    with pytest.raises(UnreadableAvroError, match="deeper"):
        decode(endless, b"")


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (SchemaType.STRING, "grün".encode(), "grün"),
        (SchemaType.BOOLEAN, b"\1", "true"),
        (SchemaType.INT8, b"\xff", "-1"),
        (SchemaType.INT16, struct.pack(">h", -300), "-300"),
        (SchemaType.INT32, struct.pack(">i", 70000), "70000"),
        (SchemaType.INT64, struct.pack(">q", 1 << 40), str(1 << 40)),
        (SchemaType.FLOAT, struct.pack(">f", 0.5), "0.5"),
        (SchemaType.DOUBLE, struct.pack(">d", 0.25), "0.25"),
        (SchemaType.TIMESTAMP, struct.pack(">q", 1_700_000_000_123), "2023-11-14T22:13:20.123000Z"),
        (SchemaType.INSTANT, struct.pack(">qi", 1_700_000_000, 5_000), "2023-11-14T22:13:20.000005Z"),
        (SchemaType.LOCAL_DATE, struct.pack(">q", 1), "1970-01-02"),
        (SchemaType.LOCAL_TIME, struct.pack(">q", 3_600_000_000_000), "01:00:00.000000"),
        (SchemaType.LOCAL_DATE_TIME, struct.pack(">qq", 1, 0), "1970-01-02T00:00:00.000000"),
        (SchemaType.JSON, b'{"a":1}', '{\n  "a": 1\n}'),
    ],
)
def test_each_primitive_type_is_shown_as_text(kind: SchemaType, data: bytes, expected: str):
    assert text(data, kind) == expected


def test_pairs_are_shown_with_their_keys_inline_and_separate():
    types = {"key.schema.type": "STRING", "value.schema.type": "INT32"}
    inline = b"\0\0\0\1k" + b"\0\0\0\4" + struct.pack(">i", 7)
    schema = Schema(SchemaType.KEY_VALUE, joined(b"", b""), {**types, "kv.encoding.type": "INLINE"})
    assert json.loads(shown(inline, schema, 1000)["text"]) == {"key": "k", "value": 7}
    schema = Schema(SchemaType.KEY_VALUE, joined(b"", b""), {**types, "kv.encoding.type": "SEPARATED"})
    assert json.loads(shown(struct.pack(">i", 7), schema, 1000, key=b"k")["text"]) == {"key": "k", "value": 7}


def test_a_value_that_its_schema_does_not_fit_is_shown_as_bytes_with_the_reason():
    found = shown(b"\xff\xfe\xfd", Schema(SchemaType.INT32), 1000)
    assert (found["kind"], found["text"]) == ("hex", "ff fe fd")
    assert "not a value of the schema (INT32)" in found["problem"]


def test_without_a_schema_json_text_and_bytes_are_told_apart():
    assert [shown(each, None, 100)["kind"] for each in (b'{"a":1}', b"plain", b"\0\1", None)] == [
        "json",
        "text",
        "hex",
        "null",
    ]


def test_a_long_value_is_cut_and_a_very_long_one_is_not_parsed():
    found = shown(b"x" * 5000, None, 100)
    assert (len(found["text"]), found["cut"], found["bytes"]) == (100, True, 5000)
    large = shown(b'"' + b"x" * PARSED_MAX + b'"', Schema(SchemaType.JSON), 100)
    assert "not decoded" in large["problem"]


def test_a_text_with_a_lone_surrogate_does_not_spoil_the_answer():
    for found in (
        shown(b'{"a":"\\ud800"}', None, 1000),
        shown(b'{"a":"\\ud800"}', Schema(SchemaType.JSON), 1000),
        shown(b"\0", Schema(SchemaType.AVRO, b'{"type":"enum","name":"e","symbols":["\\ud800"]}'), 1000),
        shown(b"\0", Schema(SchemaType.AVRO, b'"\\ud800"'), 1000),
    ):
        json.dumps(found, ensure_ascii=False).encode()


def test_a_value_whose_text_would_be_much_longer_is_made_only_as_far_as_it_is_shown():
    deep = b"[" * 300 + b"1," * 60_000 + b"1" + b"]" * 300
    symbols = {"type": "array", "items": {"type": "enum", "name": "e", "symbols": ["x" * 10_000]}}
    many = Schema(SchemaType.AVRO, json.dumps(symbols).encode())
    for data, schema in ((deep, None), (b"\x80\x50" + b"\0" * 5121, many)):
        tracemalloc.start()
        found = shown(data, schema, 2000)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (len(found["text"]), found["cut"]) == (2000, True), found
        assert most < 8 << 20


def test_a_value_that_takes_long_is_for_a_worker():
    assert not is_slow(b"x" * QUICK_BYTES, None)
    assert is_slow(b"x" * (QUICK_BYTES + 1), Schema(SchemaType.STRING))
    assert is_slow(b"\0", Schema(SchemaType.AVRO, b'"null"'))
    assert not is_slow(None, None)


@given(st.binary(max_size=40), st.sampled_from(SchemaType))
def test_any_value_of_any_schema_is_shown(data: bytes, kind: SchemaType):
    json.dumps(shown(data, Schema(kind, data), 50), allow_nan=False)
    json.dumps(key_shown(data))
