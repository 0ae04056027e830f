"""Encoding of values: columns of Spark to payloads, and the schema that says what they are. Pure.

    avro, json     a struct: its type becomes the definition of a record, in which every field may be null
    primitive      text, numbers, booleans, dates and times: Pulsar's schema of that type
    pairs          a struct of key and value, each in one of these ways; binary as it is

A schema whose fields may all be null, with null as default, is compatible with its earlier and later forms in both
directions, so that a column can be added or removed while consumers run.

Source: the Avro specification, 1.11; Pulsar's AvroSchema, JSONSchema, primitive schemas, KeyValueSchema,
KeyValueSchemaInfo.
"""

from __future__ import annotations

import base64
import io
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import fastavro
import pyarrow as pa

from quire.spark.errors import SinkError
from quire.spark.values.shapes import without_logical_types
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.schema_values import ENCODING_PROPERTY, INLINE, NUMBERS, SEPARATED, joined

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_AVRO: dict[str, Any] = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
"""Avro's type by the first word of Spark's simple name."""

_K = pb.Schema
_PRIMITIVES: dict[str, int] = {
    "boolean": int(_K.Bool),
    "tinyint": int(_K.Int8),
    "smallint": int(_K.Int16),
    "int": int(_K.Int32),
    "bigint": int(_K.Int64),
    "float": int(_K.Float),
    "double": int(_K.Double),
    "string": int(_K.String),
    "date": int(_K.LocalDate),
    "timestamp": int(_K.Instant),
    "timestamp_ntz": int(_K.LocalDateTime),
}
_BYTES = int(_K.Type.Value("None"))
_SPELT = {"None": "BYTES", "Bool": "BOOLEAN", "LocalDate": "LOCAL_DATE", "LocalDateTime": "LOCAL_DATE_TIME"}
"""Names that types have in properties, where they are not those of the protocol in capitals."""
_SECOND_US, _DAY_US = 1_000_000, 86_400_000_000


@dataclass(frozen=True)
class Encoding:
    """Encoding of a column of values. Plain data: travels to the tasks."""

    kind: int
    """Type of the schema, as pb.Schema has it."""
    definition: str = ""
    separated: bool = False
    """True: the keys of pairs are those of the messages."""
    parts: tuple[Encoding, ...] = ()
    """Encodings of the keys and of the values of pairs; empty: the values are no pairs."""

    @classmethod
    def plan(cls, encode: str, data_type: Any, record_name: str, pairs: str = "none") -> Encoding:
        """Plan the encoding of a type of pyspark. `pairs`: the option keyValueEncoding. Raises SinkError: it cannot be
        encoded."""
        name = _simple(data_type)
        if pairs != "none":
            if name != "struct" or data_type.fieldNames() != ["key", "value"]:
                raise SinkError(
                    f"column value is {data_type.simpleString()}, and keyValueEncoding={pairs} needs a struct of key"
                    " and value: make one with struct(... as key, ... as value)"
                )
            names = (f"{record_name}Key", record_name)
            parts = tuple(
                cls._part(encode, field.dataType, part) for field, part in zip(data_type.fields, names, strict=True)
            )
            return cls(int(_K.KeyValue), "", pairs == "separated", parts)
        if encode == "primitive":
            if name not in _PRIMITIVES:
                remedy = "encode=avro or encode=json" if name == "struct" else "a cast, or encode=none"
                raise SinkError(
                    f"column value is {data_type.simpleString()}, which is no primitive value: use {remedy}"
                )
            return cls(_PRIMITIVES[name])
        if name != "struct":
            raise SinkError(
                f"column value is {data_type.simpleString()}, and encode={encode} needs a struct: make one with"
                " struct(...), or set encode=primitive"
            )
        definition = _record(data_type, record_name)
        return cls(int(_K.Avro if encode == "avro" else _K.Json), json.dumps(definition))

    @classmethod
    def _part(cls, encode: str, data_type: Any, record_name: str) -> Encoding:
        name = _simple(data_type)
        if name == "binary":
            return cls(_BYTES)
        return cls.plan(encode if name == "struct" else "primitive", data_type, record_name)

    def schema(self) -> pb.Schema:
        """Return the schema that producers register."""
        if self.parts:
            return self._schema_of_pairs()
        return pb.Schema(name="value", type=pb.Schema.Type.Name(self.kind), schema_data=self.definition.encode())

    def _schema_of_pairs(self) -> pb.Schema:
        properties = {ENCODING_PROPERTY: SEPARATED if self.separated else INLINE}
        for what, part in zip(("key", "value"), self.parts, strict=True):
            name = pb.Schema.Type.Name(part.kind)
            properties[f"{what}.schema.name"] = what
            properties[f"{what}.schema.type"] = _SPELT.get(name, name.upper())
            properties[f"{what}.schema.properties"] = "{}"
        return pb.Schema(
            name="value",
            type=pb.Schema.KeyValue,
            schema_data=joined(*(part.definition.encode() for part in self.parts)),
            properties=[{"key": key, "value": value} for key, value in properties.items()],
        )

    def encode(self, column: Any) -> list[bytes | None]:
        """Return the payload of each value of a column of Arrow. Raises SinkError: a value cannot be encoded."""
        return self.encode_rows(column)[0]

    def encode_rows(self, column: Any) -> tuple[list[bytes | None], list[bytes | None] | None]:
        """Return the payloads of a column of Arrow, and the keys of its messages; None: the values say nothing of them.

        Raises SinkError: a value cannot be encoded."""
        rows = column.cast(_stored(column.type)).to_pylist(maps_as_pydicts="strict")
        made: list[bytes | None] = []
        keys: list[bytes | None] | None = [] if self.separated else None
        for row in rows:
            try:
                if not self.parts:
                    made.append(None if row is None else self._encoder(row))
                    continue
                key, value = (None, None) if row is None else self._pair(row)
                if keys is not None:
                    keys.append(key)
                    made.append(value)
                else:
                    made.append(None if row is None else joined(key, value))
            except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
                shown = repr(row)
                shown = shown if len(shown) <= 100 else shown[:100] + "..."
                raise SinkError(f"column value: {shown} cannot be encoded: {error}") from error
        return made, keys

    def _pair(self, row: Any) -> list[bytes | None]:
        return [
            None if row[name] is None else part._encoder(row[name])
            for name, part in zip(("key", "value"), self.parts, strict=True)
        ]

    @cached_property
    def _encoder(self) -> Callable[[Any], bytes]:
        if self.kind == _K.Json:
            return _to_json
        if self.kind != _K.Avro:
            return _TO_BYTES[self.kind]
        parsed = fastavro.parse_schema(without_logical_types(json.loads(self.definition)))

        def encode(row: Any) -> bytes:
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, parsed, row)
            return stream.getvalue()

        return encode

    def __getstate__(self) -> dict[str, Any]:
        # (the encoder does not travel)
        return {name: getattr(self, name) for name in ("kind", "definition", "separated", "parts")}


def _simple(data_type: Any) -> str:
    """Return the first word of a type's name: `varchar(3)` and `string collate X` are texts, a struct is `struct`."""
    word = re.split(r"[(<\s]", str(data_type.simpleString()), maxsplit=1)[0]
    return "string" if word in ("varchar", "char") else word


def _record(data_type: Any, name: str) -> dict[str, Any]:
    fields = []
    for field in data_type.fields:
        if not _NAME.fullmatch(field.name):
            raise SinkError(f"field {field.name!r} of column value has a name that schemas do not have: rename it")
        kind = _avro_type(field.dataType, f"{name}_{field.name}")
        fields.append({"name": field.name, "type": ["null", kind], "default": None})
    if not fields:
        raise SinkError("column value is a struct without fields")
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(data_type: Any, name: str) -> Any:
    """Return Avro's type of a field; `name` is for a record in it."""
    word = _simple(data_type)
    if word in _AVRO:
        return _AVRO[word]
    if word == "decimal":
        digits, scale = data_type.precision, data_type.scale
        return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
    if word == "struct":
        return _record(data_type, name)
    if word == "array":
        return {"type": "array", "items": ["null", _avro_type(data_type.elementType, name)]}
    if word == "map" and _simple(data_type.keyType) == "string":
        return {"type": "map", "values": ["null", _avro_type(data_type.valueType, name)]}
    raise SinkError(f"a field of column value is {data_type.simpleString()}, which a schema cannot have: cast it")


def _stored(kind: Any) -> Any:
    """Return the type of Arrow in which dates and times are numbers."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _stored(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_stored(kind.value_type))
    return kind


def _to_json(row: Any) -> bytes:
    return json.dumps(row, default=_json_of, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()


def _json_of(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _instant(value: int) -> bytes:
    seconds, micros = divmod(value, _SECOND_US)
    return struct.pack(">qi", seconds, micros * 1000)


def _local_date_time(value: int) -> bytes:
    days, micros = divmod(value, _DAY_US)
    return struct.pack(">qq", days, micros * 1000)


_TO_BYTES: dict[int, Callable[[Any], bytes]] = {
    **{kind: struct.Struct(form).pack for kind, form in NUMBERS.items()},
    _BYTES: bytes,
    int(_K.String): str.encode,
    int(_K.Bool): lambda value: b"\1" if value else b"\0",
    int(_K.LocalDate): lambda value: struct.pack(">q", value),
    int(_K.Instant): _instant,
    int(_K.LocalDateTime): _local_date_time,
}
