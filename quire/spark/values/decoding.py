"""Decoding of values: bytes and schemas in, Arrow columns out. Pure.

The column has the type of one schema, the read schema, which is fixed when a query is loaded. A message has the version
of the schema with which it was written. Avro's rules of resolution lead from one to the other: a field that the writer
did not have gets its default, one that the reader does not have is skipped, an int becomes a long. JSON and primitive
values need no writer's schema.

Source: Pulsar's AvroSchema, JSONSchema, primitive schemas, KeyValueSchema; the Avro specification, 1.11.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from quire.spark.errors import SchemaError
from quire.spark.values.shapes import ValueShape, parsed_definition, shape_of_avro, without_logical_types
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.schema_values import ENCODING_PROPERTY, NUMBERS, SEPARATED, pair, taken

BAD_VALUE = (
    ArithmeticError,
    AssertionError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    SchemaResolutionError,
)
"""Errors of values that are not what their schema says."""
BAD_SCHEMA = (*BAD_VALUE, SchemaParseException, UnknownType)
"""Errors of definitions that fastavro cannot follow."""


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """One version of the schema of a topic. Plain data: travels to the workers."""

    kind: int
    """Type, as pb.Schema has it."""
    data: bytes = b""
    separated: bool | None = None
    """True: the key of a pair is the message's, False: it is in the payload, None: the values are no pairs."""
    parts: tuple[ValueSchema, ...] = ()
    """Schemas of the keys and of the values of pairs; empty: the values are no pairs."""

    @property
    def name(self) -> str:
        return pb.Schema.Type.Name(self.kind)

    @classmethod
    def from_wire(cls, sent: pb.Schema) -> ValueSchema:
        """Return a schema as a broker sends it. Raises SchemaError for an invalid one."""
        if sent.type != pb.Schema.KeyValue:
            return cls(int(sent.type), sent.schema_data)
        pairs: Iterable[pb.KeyValue] = sent.properties
        properties = {each.key: each.value for each in pairs}
        try:
            key, rest = taken(sent.schema_data)
            value, _ = taken(rest)
        except ValueError as error:
            raise SchemaError(f"the definition of pairs is invalid: {error}") from None
        parts = tuple(
            cls(_kind_of(properties.get(f"{what}.schema.type", "BYTES")), data or b"")
            for what, data in (("key", key), ("value", value))
        )
        return cls(int(sent.type), b"", properties.get(ENCODING_PROPERTY) == SEPARATED, parts)


_SPELT = {"BOOLEAN": "Bool", "KEY_VALUE": "KeyValue", "LOCAL_DATE": "LocalDate", "LOCAL_TIME": "LocalTime"}
_KINDS = frozenset(pb.Schema.Type.keys())
_SPELT |= {"LOCAL_DATE_TIME": "LocalDateTime", "PROTOBUF_NATIVE": "ProtobufNative"}


def _kind_of(name: str) -> int:
    """Return the number of a type by the name it has in properties. Raises SchemaError."""
    if name in ("BYTES", "NONE"):
        return int(pb.Schema.Type.Value("None"))
    spelt = _SPELT.get(name, name.capitalize())
    if spelt == "KeyValue" or spelt not in _KINDS:
        raise SchemaError(f"{name[:40]!r} is no type of a part of a pair")
    return int(pb.Schema.Type.Value(spelt))


# Primitive types

_UTC = pa.timestamp("us", "UTC")
_MS, _NTZ = pa.timestamp("ms", "UTC"), pa.timestamp("us")
_K = pb.Schema


def _plain(ddl: str, arrow: pa.DataType, stored: pa.DataType | None = None) -> ValueShape:
    return ValueShape(ddl, arrow, stored or arrow)


_PRIMITIVES: dict[int, ValueShape] = {
    int(_K.Type.Value("None")): _plain("BINARY", pa.binary()),
    int(_K.String): _plain("STRING", pa.string()),
    int(_K.Bool): _plain("BOOLEAN", pa.bool_()),
    int(_K.Int8): _plain("TINYINT", pa.int8()),
    int(_K.Int16): _plain("SMALLINT", pa.int16()),
    int(_K.Int32): _plain("INT", pa.int32()),
    int(_K.Int64): _plain("BIGINT", pa.int64()),
    int(_K.Float): _plain("FLOAT", pa.float32()),
    int(_K.Double): _plain("DOUBLE", pa.float64()),
    int(_K.Date): _plain("TIMESTAMP", _UTC, _MS),
    int(_K.Time): _plain("TIMESTAMP", _UTC, _MS),
    int(_K.Timestamp): _plain("TIMESTAMP", _UTC, _MS),
    int(_K.Instant): _plain("TIMESTAMP", _UTC),
    int(_K.LocalDate): _plain("DATE", pa.date32()),
    int(_K.LocalTime): _plain("BIGINT", pa.int64()),
    int(_K.LocalDateTime): _plain("TIMESTAMP_NTZ", _NTZ),
}
"""Shapes of primitive types. LocalTime is nanoseconds of the day."""

_DAY_US = 86_400_000_000


def _number(form: str) -> Callable[[bytes], Any]:
    unpack, size = struct.Struct(form).unpack, struct.calcsize(form)

    def decode(data: bytes) -> Any:
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes instead of {size}")
        found = unpack(data)
        return found[0] if len(found) == 1 else found

    return decode


def _boolean(data: bytes) -> bool:
    if len(data) != 1:
        raise ValueError(f"{len(data)} bytes instead of 1")
    return data != b"\0"


_long, _instant, _two = _number(">q"), _number(">qi"), _number(">qq")


def _instant_us(data: bytes) -> int:
    seconds, nanos = _instant(data)
    return int(seconds * 1_000_000 + nanos // 1000)


def _local_us(data: bytes) -> int:
    days, nanos = _two(data)
    return int(days * _DAY_US + nanos // 1000)


_DECODERS: dict[int, Callable[[bytes], Any]] = {
    **{kind: _number(form) for kind, form in NUMBERS.items()},
    int(_K.Type.Value("None")): lambda data: data,
    int(_K.String): bytes.decode,
    int(_K.Bool): _boolean,
    int(_K.Date): _long,
    int(_K.Time): _long,
    int(_K.Timestamp): _long,
    int(_K.LocalDate): _long,
    int(_K.LocalTime): _long,
    int(_K.Instant): _instant_us,
    int(_K.LocalDateTime): _local_us,
}

# All types


def shape_of(schema: ValueSchema) -> ValueShape:
    """Return the type of a schema's values. Raises SchemaError: they have no column."""
    if schema.parts:
        key, value = (shape_of(part) for part in schema.parts)
        return ValueShape(
            f"STRUCT<`key`: {key.ddl}, `value`: {value.ddl}>",
            pa.struct([("key", key.arrow), ("value", value.arrow)]),
            pa.struct([("key", key.stored), ("value", value.stored)]),
        )
    if schema.kind in (_K.Avro, _K.Json):
        return shape_of_avro(parsed_definition(schema.data))
    found = _PRIMITIVES.get(schema.kind)
    if found is None:
        raise SchemaError(f"values of schemas of type {schema.name} are not decoded here: read with decode=none")
    return found


Decode = Callable[[bytes], Any]
DecodeRow = Callable[[bytes | None, bytes | None], Any]
"""Payload and key of a message to its value."""


def decoder(read: ValueSchema, written: ValueSchema) -> Decode:
    """Return the function from the bytes of a value of one schema to the Python value for the shape of another.

    Not for pairs. The function raises one of BAD_VALUE. Raises SchemaError: no value can be read."""
    if read.kind != written.kind:
        raise SchemaError(f"it was written as {written.name}, and is read as {read.name}")
    if read.kind == _K.Json:
        return _json(shape_of(read))
    if read.kind == _K.Avro:
        return _avro(read, written)
    found = _DECODERS.get(read.kind)
    if found is None:
        raise SchemaError(f"values of type {read.name} are not decoded")
    return found


def _json(shape: ValueShape) -> Decode:
    convert = shape.from_json

    def decode(data: bytes) -> Any:
        value = json.loads(data)
        return None if value is None else convert(value)

    return decode


def _avro(read: ValueSchema, written: ValueSchema) -> Decode:
    shape_of(written)  # bounds what its values can become
    try:
        writer = fastavro.parse_schema(without_logical_types(parsed_definition(written.data)))
        same = read.data == written.data
        reader = None if same else fastavro.parse_schema(without_logical_types(parsed_definition(read.data)))
    except BAD_SCHEMA as error:
        raise SchemaError(f"the definition is invalid: {error!r}") from None

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = fastavro.schemaless_reader(stream, writer, reader)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left behind the value")
        return value

    return decode


def pair_decoder(read: ValueSchema, written: ValueSchema) -> DecodeRow:
    """Return the function from payload and key of a message to a pair. Raises SchemaError."""
    if not written.parts:
        raise SchemaError(f"it was written as {written.name}, and is read as {read.name}")
    key_of, value_of = (decoder(*parts) for parts in zip(read.parts, written.parts, strict=True))
    separated = written.separated

    def decode(data: bytes | None, message_key: bytes | None) -> dict[str, Any]:
        key, value = (message_key, data) if separated or data is None else pair(data)
        return {
            "key": None if key is None else key_of(key),
            "value": None if value is None else value_of(value),
        }

    return decode


@dataclass(slots=True)
class Decoded:
    """Values of some rows, and the reasons of those that could not be decoded, by row. Such a row is null."""

    values: pa.Array
    problems: dict[int, str]


Versions = Callable[[int], ValueSchema | None]
"""Return the schema of a version; None: there is none."""


class ValueDecoder:
    """Decoder of the values of one topic. Keeps a decoder for each version that it met."""

    def __init__(self, read: ValueSchema, versions: Versions) -> None:
        self._read = read
        self._versions = versions
        self._shape = shape_of(read)
        self._by_version: dict[int | None, DecodeRow | str] = {}

    def decode(
        self, values: Sequence[bytes | None], keys: Sequence[bytes | None], versions: Sequence[int | None]
    ) -> Decoded:
        """Return the values of some messages; a message without a version is read as one of the read schema."""
        problems: dict[int, str] = {}
        found: list[Any] = [None] * len(values)
        for row, (value, key, version) in enumerate(zip(values, keys, versions, strict=True)):
            if value is None and not self._read.separated:
                continue  # a message without a value; a pair has its key nevertheless
            decode = self._by_version.get(version) or self._learn(version)
            if isinstance(decode, str):
                problems[row] = decode
                continue
            try:
                found[row] = decode(value, key)
            except BAD_VALUE as error:
                problems[row] = _reason(error)
        return Decoded(self._array(found, problems), problems)

    def _array(self, found: list[Any], problems: dict[int, str]) -> pa.Array:
        try:
            return self._shape.array(found)
        except (pa.ArrowException, *BAD_VALUE):
            pass
        for row, value in enumerate(found):  # which of them it is
            try:
                self._shape.array([value])
            except (pa.ArrowException, *BAD_VALUE) as error:
                found[row], problems[row] = None, _reason(error)
        return self._shape.array(found)

    def _learn(self, version: int | None) -> DecodeRow | str:
        written = self._read if version is None else self._versions(version)
        made: DecodeRow | str
        if written is None:
            made = f"the topic has no schema of version {version}"
        else:
            try:
                made = self._made(written)
            except SchemaError as error:
                made = f"schema version {version}: {error}"
        self._by_version[version] = made
        return made

    def _made(self, written: ValueSchema) -> DecodeRow:
        if self._read.parts:
            return pair_decoder(self._read, written)
        decode = decoder(self._read, written)
        return lambda data, _: None if data is None else decode(data)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
