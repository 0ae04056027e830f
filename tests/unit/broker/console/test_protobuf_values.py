"""Messages of Protocol Buffers in the message viewer: broker/console/messages/protobuf_values.py."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from broker.console.messages.protobuf_values import DEPTH_MAX, VALUES_MAX, UnreadableProtobufError, decode
from broker.console.messages.values import is_slow, shown
from broker.topics.schemas.schema import Schema, SchemaType

Field = descriptor_pb2.FieldDescriptorProto


def described() -> descriptor_pb2.FileDescriptorSet:
    """Return a file with a message type that has fields of many kinds."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    states = file.enum_type.add(name="State")
    states.value.add(name="OPEN", number=0)
    states.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    for number, (name, kind, label, of) in enumerate(
        (
            ("id", Field.TYPE_INT64, Field.LABEL_OPTIONAL, ""),
            ("customer", Field.TYPE_STRING, Field.LABEL_OPTIONAL, ""),
            ("state", Field.TYPE_ENUM, Field.LABEL_OPTIONAL, ".shop.State"),
            ("parts", Field.TYPE_MESSAGE, Field.LABEL_REPEATED, ".shop.Order"),
            ("tags", Field.TYPE_MESSAGE, Field.LABEL_REPEATED, ".shop.Order.TagsEntry"),
            ("raw", Field.TYPE_BYTES, Field.LABEL_OPTIONAL, ""),
            ("price", Field.TYPE_DOUBLE, Field.LABEL_OPTIONAL, ""),
            ("deltas", Field.TYPE_SINT32, Field.LABEL_REPEATED, ""),
        ),
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    return files


def order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described().file[0])
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


ORDER = order_class()
NATIVE = Schema(
    SchemaType.PROTOBUF_NATIVE,
    json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(described().SerializeToString()).decode(),
            "rootMessageTypeName": "shop.Order",
            "rootFileDescriptorName": "shop.proto",
        }
    ).encode(),
)
_NAMES = {value: name.removeprefix("TYPE_") for name, value in Field.Type.items()}
OUTER = Schema(
    SchemaType.PROTOBUF,
    b'{"type":"record","name":"Order","fields":[]}',
    {
        "__PARSING_INFO__": json.dumps(
            [
                {
                    "number": each.number,
                    "name": each.name,
                    "type": _NAMES[each.type],
                    "label": Field.Label.Name(each.label),
                    "definition": None,
                }
                for each in described().file[0].message_type[0].field
            ]
        )
    },
)


def order() -> Any:
    made = ORDER(id=-7, customer="grün", state=1, raw=b"\0\xff", price=float("nan"), deltas=[-1, 2])
    made.parts.add(id=8, customer="inner")
    made.tags["a"] = 1 << 40
    return made


def test_a_message_of_the_native_type_has_names_and_types_of_all_fields():
    found = shown(order().SerializeToString(), NATIVE, 1000)
    assert (found["kind"], found["schema"], "problem" in found) == ("json", "PROTOBUF_NATIVE", False)
    assert json.loads(found["text"]) == {
        "id": -7,
        "customer": "grün",
        "state": "PAID",
        "parts": [{"id": 8, "customer": "inner"}],
        "tags": {"a": 1 << 40},
        "raw": "00ff",
        "price": "nan",
        "deltas": [-1, 2],
    }


def test_a_message_of_the_older_type_has_the_names_of_its_outer_fields():
    found = shown(order().SerializeToString(), OUTER, 1000)
    assert (found["kind"], "problem" in found) == ("json", False)
    assert json.loads(found["text"]) == {
        "id": -7,
        "customer": "grün",
        "state": 1,
        "parts": [{"1": 8, "2": "inner"}],
        "tags": [{"1": "a", "2": 1 << 40}],
        "raw": "00ff",
        "price": "nan",
        "deltas": [-1, 2],
    }


def test_a_field_that_the_type_does_not_have_is_shown_by_its_number():
    data = ORDER(id=1).SerializeToString() + b"\x98\x06\x05" + b"\xa2\x06\x02hi" + b"\xa2\x06\x02\0\1"
    assert decode(NATIVE, data) == {"id": 1, "unknown 99": 5, "unknown 100": ["hi", "0001"]}


def test_a_schema_that_describes_nothing_is_said_and_the_bytes_are_shown():
    for schema, why in (
        (Schema(SchemaType.PROTOBUF, b"{}"), "no property __PARSING_INFO__"),
        (Schema(SchemaType.PROTOBUF, b"{}", {"__PARSING_INFO__": '[{"number":0,"name":"a","type":"INT32"}]'}), ""),
        (Schema(SchemaType.PROTOBUF, b"{}", {"__PARSING_INFO__": '[{"number":1,"name":"a","type":"?"}]'}), ""),
        (Schema(SchemaType.PROTOBUF, b"{}", {"__PARSING_INFO__": "7"}), ""),
        (Schema(SchemaType.PROTOBUF_NATIVE, b"{}"), "rootFileDescriptorName"),
    ):
        found = shown(b"\x08\x01", schema, 1000)
        assert (found["kind"], found["text"]) == ("hex", "08 01")
        assert "the schema cannot be followed" in found["problem"], found
        assert why in found["problem"]


def test_a_message_of_protocol_buffers_is_for_a_worker():
    assert is_slow(b"\0", NATIVE)
    assert is_slow(b"\0", OUTER)


def test_a_short_message_cannot_ask_for_much():
    with pytest.raises(UnreadableProtobufError, match=f"more than {VALUES_MAX}"):
        decode(NATIVE, b"\x22\x00" * (VALUES_MAX + 1))
    with pytest.raises(UnreadableProtobufError, match=f"more than {VALUES_MAX}"):
        decode(NATIVE, b"\x98\x06\x05" * (VALUES_MAX + 1))
    deep = b""
    for _ in range(DEPTH_MAX + 2):
        deep = ORDER(parts=[ORDER.FromString(deep)]).SerializeToString()
    with pytest.raises(UnreadableProtobufError, match="deeper"):
        decode(NATIVE, deep)


@given(st.binary(max_size=60), st.sampled_from([NATIVE, OUTER]))
def test_any_bytes_are_a_message_or_refused(data: bytes, schema: Schema):
    try:
        json.dumps(decode(schema, data), allow_nan=False)
    except UnreadableProtobufError:
        pass
