"""Types of values: from the schemas of topics to those of Spark and Arrow. Pure.

    boolean, int, long, float, double       the same        date                        DATE
    bytes, fixed                            BINARY          timestamp-millis, -micros   TIMESTAMP
    string, enum, uuid                      STRING          local-timestamp-...         TIMESTAMP_NTZ
    array, map, record                      the same        decimal                     DECIMAL(p, s)
    [null, X], [X], [int, long], [float, double]            other logical types         as they are stored

Why this is hard: a schema is what a producer sent. It may refer to itself, which no column can, or let a few bytes
stand for any number of values: both are refused before a value is read. Logical types are taken off the definition, so
that a time of any size is a number which Arrow checks, and not an object of Python that cannot be made.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from quire.spark.errors import SchemaError

DEPTH_MAX = 40
DECIMAL_DIGITS_MAX = 38
_PRIMITIVES: dict[str, tuple[str, pa.DataType, int]] = {
    "null": ("VOID", pa.null(), 0),
    "boolean": ("BOOLEAN", pa.bool_(), 1),
    "int": ("INT", pa.int32(), 1),
    "long": ("BIGINT", pa.int64(), 1),
    "float": ("FLOAT", pa.float32(), 4),
    "double": ("DOUBLE", pa.float64(), 8),
    "bytes": ("BINARY", pa.binary(), 1),
    "string": ("STRING", pa.string(), 1),
}
"""Spark's and Arrow's type, and the fewest bytes of a value."""
_UTC = "UTC"
_LOGICAL: dict[tuple[str, str], tuple[str, pa.DataType, pa.DataType]] = {
    ("int", "date"): ("DATE", pa.date32(), pa.date32()),
    ("long", "timestamp-millis"): ("TIMESTAMP", pa.timestamp("us", _UTC), pa.timestamp("ms", _UTC)),
    ("long", "timestamp-micros"): ("TIMESTAMP", pa.timestamp("us", _UTC), pa.timestamp("us", _UTC)),
    ("long", "local-timestamp-millis"): ("TIMESTAMP_NTZ", pa.timestamp("us"), pa.timestamp("ms")),
    ("long", "local-timestamp-micros"): ("TIMESTAMP_NTZ", pa.timestamp("us"), pa.timestamp("us")),
}
"""Spark's and Arrow's type, and the one in which the number is."""

FromJson = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ValueShape:
    """Type of a value in the notations that reading it needs."""

    ddl: str
    """Spark's notation, with names in backticks."""
    arrow: pa.DataType
    """Arrow's type of the column that Spark gets."""
    stored: pa.DataType
    """Arrow's type of the Python values that a decoder gives; it is cast to `arrow`."""
    bytes_min: int = 0
    """Fewest bytes of a value in Avro's encoding."""
    from_json: FromJson = lambda value: value
    """Conversion of the parsed JSON of a value. Raises ValueError, TypeError."""

    def array(self, values: list[Any]) -> pa.Array:
        """Return the column of some values. Raises pa.ArrowException, OverflowError, TypeError, ValueError."""
        made = pa.array(values, self.stored)
        return made if self.stored.equals(self.arrow) else made.cast(self.arrow)


def shape_of_avro(definition: Any) -> ValueShape:
    """Return the shape of a parsed definition. Raises SchemaError."""
    return _Builder().shape(definition, "", 0)


def without_logical_types(definition: Any, depth: int = 0) -> Any:
    """Return a definition whose values are read as they are stored; decimals stay."""
    if depth > DEPTH_MAX:
        raise SchemaError(f"the definition is deeper than {DEPTH_MAX}")
    if isinstance(definition, list):
        return [without_logical_types(each, depth + 1) for each in definition]
    if not isinstance(definition, dict):
        return definition
    keep_logical = definition.get("logicalType") == "decimal"
    found = {}
    for name, value in definition.items():
        if name == "logicalType" and not keep_logical:
            continue
        if name == "fields" and isinstance(value, list):
            value = [
                {**each, "type": without_logical_types(each["type"], depth + 1)} if isinstance(each, dict) else each
                for each in value
            ]
        elif name in ("type", "items", "values"):
            value = without_logical_types(value, depth + 1)
        found[name] = value
    return found


def parsed_definition(data: bytes) -> Any:
    """Return the JSON of a definition. Raises SchemaError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the definition is not JSON: {error}") from None


class _Builder:
    """Walk through one definition; knows the names defined so far."""

    def __init__(self) -> None:
        self._named: dict[str, ValueShape] = {}
        self._open: set[str] = set()

    def shape(self, schema: Any, space: str, depth: int) -> ValueShape:
        if depth > DEPTH_MAX:
            raise SchemaError(f"the definition is deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if isinstance(schema, str):
            return self._primitive_or_name(schema, space)
        if not isinstance(schema, dict) or "type" not in schema:
            raise SchemaError(f"{str(schema)[:100]!r} is no type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.shape(kind, space, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, schema, space, depth)
        if kind == "array":
            return self._array(schema, space, depth)
        if kind == "map":
            return self._map(schema, space, depth)
        return self._logical(kind, schema, 1) or self._primitive_or_name(kind, space)

    def _primitive_or_name(self, kind: str, space: str) -> ValueShape:
        if kind in _PRIMITIVES:
            ddl, arrow, least = _PRIMITIVES[kind]
            return ValueShape(ddl, arrow, arrow, least, _JSON[kind])
        name = _full(kind, space)
        for each in (name, kind):
            if each in self._open:
                raise SchemaError(f"the type {each} refers to itself, which no column can")
            if each in self._named:
                return self._named[each]
        raise SchemaError(f"{kind[:100]!r} is no type")

    def _logical(self, kind: str, schema: Mapping[str, Any], least: int) -> ValueShape | None:
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            digits, scale = schema.get("precision"), schema.get("scale", 0)
            if type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits <= DECIMAL_DIGITS_MAX:
                raise SchemaError(f"a decimal of {digits} digits, {scale} of them behind the point: Spark has 38")
            arrow = pa.decimal128(digits, scale)
            return ValueShape(f"DECIMAL({digits},{scale})", arrow, arrow, least, _decimal(scale))
        found = _LOGICAL.get((kind, str(logical)))
        return None if found is None else ValueShape(*found, least, _JSON[kind])

    def _define(self, kind: str, schema: Mapping[str, Any], space: str, depth: int) -> ValueShape:
        try:
            given = str(schema["name"])
            space = given.rpartition(".")[0] if "." in given else str(schema.get("namespace", space))
            name = _full(given, space)
            if kind == "enum":
                found = ValueShape("STRING", pa.string(), pa.string(), 1, _symbol(frozenset(schema["symbols"])))
            elif kind == "fixed":
                size = int(schema["size"])
                found = self._logical("fixed", schema, size) or ValueShape(
                    "BINARY", pa.binary(), pa.binary(), size, _JSON["bytes"]
                )
            else:
                self._open.add(name)
                found = self._record(schema["fields"], space, depth)
                self._open.discard(name)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"the definition cannot be followed: {error!r}") from None
        self._named[name] = found
        return found

    def _record(self, fields: Any, space: str, depth: int) -> ValueShape:
        if not fields:
            raise SchemaError("a record without fields, which Spark has no column for")
        shapes = {str(each["name"]): self.shape(each["type"], space, depth + 1) for each in fields}
        if len({name.lower() for name in shapes}) < len(fields):
            raise SchemaError(f"fields whose names differ in case only, or not at all: {', '.join(shapes)}")
        return ValueShape(
            "STRUCT<" + ", ".join(f"{_quoted(name)}: {each.ddl}" for name, each in shapes.items()) + ">",
            pa.struct([pa.field(name, each.arrow) for name, each in shapes.items()]),
            pa.struct([pa.field(name, each.stored) for name, each in shapes.items()]),
            sum(each.bytes_min for each in shapes.values()),
            _record_from_json({name: each.from_json for name, each in shapes.items()}),
        )

    def _array(self, schema: Mapping[str, Any], space: str, depth: int) -> ValueShape:
        item = self._item(schema.get("items"), "an array", space, depth)

        def from_json(value: Any) -> Any:
            return [None if each is None else item.from_json(each) for each in _checked(value, list)]

        return ValueShape(f"ARRAY<{item.ddl}>", pa.list_(item.arrow), pa.list_(item.stored), 1, from_json)

    def _map(self, schema: Mapping[str, Any], space: str, depth: int) -> ValueShape:
        item = self._item(schema.get("values"), "a map", space, depth)

        def from_json(value: Any) -> Any:
            pairs = _checked(value, dict).items()
            return {name: None if each is None else item.from_json(each) for name, each in pairs}

        arrow, stored = (pa.map_(pa.string(), each) for each in (item.arrow, item.stored))
        return ValueShape(f"MAP<STRING, {item.ddl}>", arrow, stored, 1, from_json)

    def _item(self, schema: Any, what: str, space: str, depth: int) -> ValueShape:
        item = self.shape(schema, space, depth + 1)
        if not item.bytes_min:
            raise SchemaError(f"{what} of values without bytes, of which a few bytes may be any number")
        return item

    def _union(self, branches: list[Any], space: str, depth: int) -> ValueShape:
        named = [each for each in branches if each != "null"]
        if sorted(map(str, named)) == ["int", "long"]:
            return self.shape("long", space, depth)
        if sorted(map(str, named)) == ["double", "float"]:
            return self.shape("double", space, depth)
        if len(named) != 1:
            raise SchemaError(f"a union of {len(named)} types, which no column can have: {str(named)[:100]}")
        found = self.shape(named[0], space, depth + 1)
        return replace(found, bytes_min=1)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Values in JSON, as the official clients' JSON schemas write them


def _checked(value: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{str(value)[:40]!r} is of another type")
    return value


def _bytes_from_json(value: Any) -> bytes:
    try:
        return base64.b64decode(_checked(value, str), validate=True)
    except binascii.Error as error:
        raise ValueError(f"bytes that are not base64: {error}") from None


def _decimal(scale: int) -> FromJson:
    def from_json(value: Any) -> Decimal:
        try:
            return Decimal(str(_checked(value, (int, float, str)))).quantize(Decimal(1).scaleb(-scale))
        except InvalidOperation:
            raise ValueError(f"{str(value)[:40]!r} is no decimal of this type") from None

    return from_json


def _symbol(symbols: frozenset[str]) -> FromJson:
    def from_json(value: Any) -> Any:
        if value not in symbols:
            raise ValueError(f"{str(value)[:40]!r} is no symbol of the enum")
        return value

    return from_json


def _record_from_json(fields: Mapping[str, FromJson]) -> FromJson:
    """Return the conversion of an object; a field that is missing, or unknown, is null, or left out."""

    def from_json(value: Any) -> dict[str, Any]:
        found = _checked(value, dict)
        return {name: convert(found[name]) for name, convert in fields.items() if found.get(name) is not None}

    return from_json


_JSON: dict[str, FromJson] = {
    "null": lambda _: None,
    "boolean": lambda value: _checked(value, bool),
    "int": lambda value: _checked(value, int),
    "long": lambda value: _checked(value, int),
    "float": lambda value: float(_checked(value, (int, float))),
    "double": lambda value: float(_checked(value, (int, float))),
    "bytes": _bytes_from_json,
    "string": lambda value: _checked(value, str),
}
