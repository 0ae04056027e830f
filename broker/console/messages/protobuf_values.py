"""Values of Protocol Buffers, as JSON. Pure.

    PROTOBUF_NATIVE    the schema has the descriptors of all files, so each field has its name and type
    PROTOBUF           the property __PARSING_INFO__ has number, name and type of the outer fields only: an enum is
                       shown by its number, and an inner message by the numbers of its fields

    {"number": 7, "state": "PAID", "unknown 9": "text"}

A field that the type does not have is shown as `unknown <number>`: an integer by its unsigned value, bytes as text if
they are printable, else in hexadecimal. A value is what a producer sent, which may not be what its schema says, so the
number of values and the depth are bounded.
Source: Pulsar's ProtobufSchema and ProtobufNativeSchema; the encoding of Protocol Buffers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor, descriptor_pb2, descriptor_pool, empty_pb2
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from broker.topics.schemas.protobuf_native import message_type
from broker.topics.schemas.schema import Schema, SchemaType

VALUES_MAX: Final = 20_000
DEPTH_MAX: Final = 40
TYPES_KEPT: Final = 16
"""Message types whose descriptors are kept: messages of one page mostly have the same."""
PARSING_INFO: Final = "__PARSING_INFO__"
_Field = descriptor_pb2.FieldDescriptorProto
_LENGTH_DELIMITED: Final = 2
_GROUP: Final = 3


class UnreadableProtobufError(ValueError):
    """Bytes that are no message of the schema, or a value that is too large to be shown."""


def decode(schema: Schema, data: bytes) -> Any:
    """Return the message of a schema of type PROTOBUF or PROTOBUF_NATIVE. Raises UnreadableProtobufError."""
    native = schema.type is SchemaType.PROTOBUF_NATIVE
    found = _known(native, schema.data if native else schema.properties.get(PARSING_INFO, "").encode())
    if isinstance(found, str):
        raise UnreadableProtobufError(found)
    kind, inner = found
    message = _parsed(GetMessageClass(kind)(), data)
    return _Walk(inner).message(message, 0)


@lru_cache(maxsize=TYPES_KEPT)
def _known(native: bool, definition: bytes) -> tuple[descriptor.Descriptor, frozenset[str]] | str:
    """Return the message type and the names of fields that are inner messages kept as bytes, or why there is none."""
    try:
        return (message_type(definition), frozenset()) if native else _from_parsing_info(definition)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return f"the schema cannot be followed: {error}"


def _from_parsing_info(text: bytes) -> tuple[descriptor.Descriptor, frozenset[str]]:
    """Return a message type of outer fields. Raises ValueError, TypeError, KeyError."""
    if not text:
        raise ValueError(f"it has no property {PARSING_INFO}, so the numbers of its fields are not known")
    file = descriptor_pb2.FileDescriptorProto(name="message.proto", syntax="proto2")
    made = file.message_type.add(name="Message")
    inner = set[str]()
    for each in json.loads(text):
        name, kind = each["name"], each["type"]
        if kind == "GROUP":
            continue
        if kind == "MESSAGE":
            inner.add(name)
        plain = {"MESSAGE": _Field.TYPE_BYTES, "ENUM": _Field.TYPE_INT32}.get(kind) or _Field.Type.Value(f"TYPE_{kind}")
        repeated = each.get("label") == "LABEL_REPEATED"
        label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        made.field.add(name=name, number=each["number"], type=plain, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName("Message"), frozenset(inner)


def _parsed(message: Message, data: bytes) -> Message:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise UnreadableProtobufError(str(error)) from error
    return message


class _Walk:
    """Reads one message; counts its values."""

    def __init__(self, inner: frozenset[str]) -> None:
        self._inner = inner
        self._left = VALUES_MAX

    def message(self, message: Message, depth: int) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        self._enter(depth)
        found: dict[str, Any] = {}
        for field, value in message.ListFields():
            name = field.full_name if field.is_extension else field.name
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                found[name] = self._map(field, value, depth)
            elif field.is_repeated:
                found[name] = [self._value(field, each, depth) for each in value]
            else:
                found[name] = self._value(field, value, depth)
        return {**found, **self._unknown(UnknownFieldSet(message), "unknown ", depth)}

    def _map(self, field: descriptor.FieldDescriptor, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        assert field.message_type is not None
        entry = field.message_type.fields_by_name["value"]
        return {str(key): self._value(entry, value[key], depth) for key in value}

    def _value(self, field: descriptor.FieldDescriptor, value: Any, depth: int) -> Any:
        if isinstance(value, Message):
            return self.message(value, depth + 1)
        self._enter(depth)
        if isinstance(value, bytes):
            return self._raw(value, depth + 1) if depth == 0 and field.name in self._inner else value.hex()
        if isinstance(value, float):
            return value if value - value == 0 else str(value)
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            return value if named is None else named.name
        return value

    def _raw(self, data: bytes, depth: int) -> Any:
        """Return the fields of a message of unknown type by number; bytes that are none in hexadecimal."""
        try:
            message = _parsed(empty_pb2.Empty(), data)
        except UnreadableProtobufError:
            return data.hex()
        return self._unknown(UnknownFieldSet(message), "", depth)

    def _unknown(self, fields: UnknownFieldSet, prefix: str, depth: int) -> dict[str, Any]:
        """Return fields by number, those that come more than once as lists."""
        found: dict[str, list[Any]] = {}
        for place in range(len(fields)):
            field = fields[place]
            self._enter(depth)
            value = field.data
            if field.wire_type == _GROUP:
                value = self._unknown(value, prefix, depth + 1)
            elif field.wire_type == _LENGTH_DELIMITED:
                value = _text(value)
            found.setdefault(f"{prefix}{field.field_number}", []).append(value)
        return {name: values[0] if len(values) == 1 else values for name, values in found.items()}

    def _enter(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise UnreadableProtobufError(f"more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise UnreadableProtobufError(f"deeper than {DEPTH_MAX}")


def _text(data: bytes) -> str:
    """Return bytes as text if they are printable, else in hexadecimal."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex()
    return text if text.isprintable() else data.hex()
