"""Schemas as clients send them, pairs, message types of Protocol Buffers, and which strategy holds."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from broker.topics.schemas import key_value
from broker.topics.schemas.checks import why_incompatible, why_invalid
from broker.topics.schemas.key_value import KeyValueError
from broker.topics.schemas.schema import Schema, SchemaType, Version, from_wire, to_wire, version_bytes, version_number
from broker.topics.schemas.strategies import SchemaDefaults, SchemaRules, Strategy, is_system_topic
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName

INT = b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
LONG = INT.replace(b'"int"', b'"long"')
TOPIC = TopicName.parse("persistent://public/default/orders")
DEFAULTS = SchemaDefaults(
    strategy=Strategy.FULL, system_strategy=Strategy.ALWAYS_COMPATIBLE, auto_update=True, enforced=False
)


def pairs(key: bytes, value: bytes, *, value_type: str = "AVRO") -> Schema:
    properties = {"key.schema.type": "STRING", "value.schema.type": value_type, "kv.encoding.type": "SEPARATED"}
    return Schema(SchemaType.KEY_VALUE, key_value.joined(key, value), properties)


def native(name: str, *, root: str = "", needs: str = "") -> Schema:
    """Return a schema of a message type `a.<name>`, in a file that needs another one."""
    files = descriptor_pb2.FileDescriptorSet()
    made = files.file.add(name="a.proto", package="a", dependency=[needs] if needs else [])
    made.message_type.add(name=name)
    files.file.add(name="b.proto", package="b").message_type.add(name="Other")
    value = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": root or f"a.{name}",
        "rootFileDescriptorName": "a.proto",
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(value).encode())


@pytest.mark.parametrize("kind", [each for each in pb.Schema.Type.values() if each != pb.Schema.AutoConsume])
def test_every_type_of_a_command_comes_back_as_it_was(kind: Any) -> None:
    sent = pb.Schema(name="n", schema_data=b"d", type=kind)
    sent.properties.add(key="k", value="v")
    assert to_wire(Version(0, from_wire(sent), 1), "n") == sent


def test_a_version_is_eight_bytes_and_more_are_cut() -> None:
    assert version_bytes(258) == bytes((0, 0, 0, 0, 0, 0, 1, 2))
    assert version_number(version_bytes(258) + b"x" * 56) == 258
    assert version_number(b"short") == -1


def test_a_schema_of_pairs_is_split_shown_and_compared_by_its_parts() -> None:
    schema = pairs(b"", INT)
    assert why_invalid(schema) == ""
    key, value = key_value.split(schema)
    assert (key.type, key.data, value.type, value.data) == (SchemaType.STRING, b"", SchemaType.AVRO, INT)
    text = key_value.to_text(schema)
    assert json.loads(text) == {"key": "", "value": json.loads(INT)}
    assert key_value.from_text(text) == schema.data
    version = Version(0, schema, 0)
    assert why_incompatible([version], pairs(b"", LONG), Strategy.BACKWARD) == ""
    assert "value" in why_incompatible([version], pairs(b"", LONG), Strategy.FORWARD)
    assert "type of the value" in why_incompatible([version], pairs(b"", LONG, value_type="JSON"), Strategy.BACKWARD)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key":1}', "[" * 100_000])
def test_a_text_that_is_no_schema_of_pairs_is_refused(text: str) -> None:
    with pytest.raises(KeyValueError):
        key_value.from_text(text)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\2a", b"\0\0\0\0\0\0\0\0x", b"\0\0\0\0"])
def test_bytes_that_are_no_schema_of_pairs_are_refused(data: bytes) -> None:
    assert why_invalid(Schema(SchemaType.KEY_VALUE, data))


def test_a_message_type_may_change_and_keeps_its_name() -> None:
    assert why_invalid(native("Order")) == ""
    version = [Version(0, native("Order"), 0)]
    assert "a.Order" in why_incompatible(version, native("Purchase"), Strategy.FULL)
    assert why_incompatible(version, native("Purchase"), Strategy.ALWAYS_COMPATIBLE) == ""
    larger = Schema(SchemaType.PROTOBUF_NATIVE, native("Order").data + b" ")
    assert why_incompatible(version, larger, Strategy.FULL) == ""


@pytest.mark.parametrize(
    "schema",
    [native("A", root="a.B"), native("A", root="b.Other"), native("A", needs="c.proto"), native("A", needs="a.proto")],
)
def test_a_message_type_that_is_not_described_is_refused(schema: Schema) -> None:
    assert "PROTOBUF_NATIVE" in why_invalid(schema)


@pytest.mark.parametrize(
    ("topic", "namespace", "own", "expected"),
    [
        ("orders", None, None, SchemaRules()),
        ("orders", {"schema_compatibility_strategy": "FORWARD"}, None, SchemaRules(strategy=Strategy.FORWARD)),
        ("orders", {"schema_compatibility_strategy": "UNDEFINED"}, None, SchemaRules()),
        (
            "orders",
            {"schema_compatibility_strategy": "UNDEFINED", "schema_auto_update_compatibility_strategy": "Backward"},
            None,
            SchemaRules(strategy=Strategy.BACKWARD),
        ),
        (
            "orders",
            {"schema_compatibility_strategy": "FORWARD"},
            {"schemaCompatibilityStrategy": "BACKWARD_TRANSITIVE"},
            SchemaRules(strategy=Strategy.BACKWARD_TRANSITIVE),
        ),
        ("orders", {"schema_compatibility_strategy": "NONSENSE"}, None, SchemaRules()),
        ("orders", {"is_allow_auto_update_schema": False}, None, SchemaRules(auto_update=False)),
        ("orders", {"schema_validation_enforced": True}, None, SchemaRules(enforced=True)),
        ("orders", {"schema_validation_enforced": True}, {"schemaValidationEnforced": False}, SchemaRules()),
        (
            "__change_events",
            {"schema_compatibility_strategy": "FORWARD", "is_allow_auto_update_schema": False},
            None,
            SchemaRules(strategy=Strategy.ALWAYS_COMPATIBLE),
        ),
    ],
)
def test_the_topic_counts_before_the_namespace_and_that_before_the_configuration(
    topic: str, namespace: dict[str, Any] | None, own: dict[str, Any] | None, expected: SchemaRules
) -> None:
    name = TopicName.parse(f"persistent://public/default/{topic}")
    assert DEFAULTS.rules(name, namespace, own) == expected


def test_the_topics_of_the_system_are_known() -> None:
    for name in ("a/b/__change_events-partition-1", "pulsar/system/x", "a/b/x-s__transaction_pending_ack"):
        assert is_system_topic(TopicName.parse(f"persistent://{name}"))
    assert not is_system_topic(TOPIC)
