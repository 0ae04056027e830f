"""A schema as clients send it and as it is stored (pure).

Source: Pulsar's SchemaType, Commands.getSchemaType, SchemaData.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from quire.wire.pulsar import PulsarApi_pb2 as pb

SCHEMA_BYTES_MAX: Final = 500_000
"""Largest definition that is accepted, in bytes: a command has at most 512 KiB. Checks of one of that size take up to
some 100 ms of a worker."""
PROPERTIES_MAX: Final = 1_000
"""Properties of one schema."""


class SchemaType(IntEnum):
    """Type of a schema, with Pulsar's names and numbers."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    EXTERNAL = 21
    BYTES = -1
    AUTO = -2
    AUTO_CONSUME = -3
    AUTO_PUBLISH = -4


DEFINED_IN_AVRO: Final = frozenset((SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF))
"""Types whose definition is written as an Avro schema."""
PRIMITIVE: Final = frozenset(
    each
    for each in SchemaType
    if SchemaType.BOOLEAN <= each <= SchemaType.LOCAL_DATE_TIME and each is not SchemaType.KEY_VALUE
)
"""Types that need no definition."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema of one type. Its text or descriptor is `data`, empty for the primitive types."""

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> bytes:
        """SHA-256 of the definition, as it is stored."""
        return hashlib.sha256(self.data).digest()

    def is_same(self, other: Schema) -> bool:
        """Return whether type and definition are the same, byte for byte."""
        return self.type is other.type and self.data == other.data


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the schemas of a topic."""

    number: int
    schema: Schema
    timestamp_ms: int
    deleted: bool = False
    """True if it is a tombstone: the versions before it no longer count."""
    user: str = ""


def why_too_large(sent: pb.Schema) -> str:
    """Return why the schema of a command is not looked at, which would take long; "" if it is."""
    if len(sent.schema_data) > SCHEMA_BYTES_MAX:
        return f"the definition has {len(sent.schema_data)} bytes; at most {SCHEMA_BYTES_MAX} are accepted"
    if len(sent.properties) > PROPERTIES_MAX:
        return f"the schema has {len(sent.properties)} properties; at most {PROPERTIES_MAX} are accepted"
    return ""


def from_wire(sent: pb.Schema) -> Schema:
    """Return the schema that a command holds. Look at `why_too_large` first."""
    if sent.type == pb.Schema.AutoConsume:
        kind = SchemaType.AUTO_CONSUME
    elif sent.type == pb.Schema.External:
        kind = SchemaType.EXTERNAL
    else:
        kind = SchemaType(sent.type)
    properties: Iterable[pb.KeyValue] = sent.properties
    return Schema(kind, sent.schema_data, {each.key: each.value for each in properties})


def to_wire(found: Version, name: str) -> pb.Schema:
    """Return a stored schema as a command holds it, under the name of its topic."""
    kind = found.schema.type
    number = pb.Schema.External if kind is SchemaType.EXTERNAL else max(kind, 0)
    sent = pb.Schema(name=name, schema_data=found.schema.data, type=pb.Schema.Type.Name(number))
    for key, value in found.schema.properties.items():
        sent.properties.add(key=key, value=value)
    return sent


def version_bytes(number: int) -> bytes:
    """Return a version as clients keep it: eight bytes, the highest first.

    >>> version_bytes(1).hex()
    '0000000000000001'
    """
    return number.to_bytes(8, "big", signed=True)


def version_number(sent: bytes) -> int:
    """Return the number of a version that a client sends; -1 if it is none.

    Clients of Pulsar before 2.4 sent more than eight bytes, of which the first eight count.
    Source: BookkeeperSchemaStorage.versionFromBytes.
    """
    return int.from_bytes(sent[:8], "big", signed=True) if len(sent) >= 8 else -1
