"""Schemas of pairs: one definition for keys, one for values (pure).

    length of the key's definition, 4 bytes | definition | length of the value's, 4 bytes | definition
    properties: key.schema.name, key.schema.type, key.schema.properties (JSON), the same of value, kv.encoding.type

Source: Pulsar's KeyValueSchemaInfo, KeyValue.decode, SchemaUtils.
"""

from __future__ import annotations

import json
from typing import Any

from broker.topics.schemas.schema import PRIMITIVE, Schema, SchemaType
from quire.wire.pulsar import schema_values


class KeyValueError(ValueError):
    """Not a schema of pairs."""


def split(schema: Schema) -> tuple[Schema, Schema]:
    """Return the schemas of keys and of values. Raises KeyValueError."""
    key, rest = _taken(schema.data)
    value, rest = _taken(rest)
    if rest:
        raise KeyValueError(f"{len(rest)} bytes behind the definition of values")
    return _part(schema, "key", key), _part(schema, "value", value)


def joined(key: bytes, value: bytes) -> bytes:
    """Return the definition that holds those of keys and values.

    >>> joined(b"k", b"").hex()
    '000000016b00000000'
    """
    return schema_values.joined(key, value)


def from_text(text: str) -> bytes:
    """Return the definition for its form in the admin API, {"key":...,"value":...}. Raises KeyValueError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KeyValueError(f"not JSON: {error}") from error
    if not isinstance(found, dict) or not {"key", "value"} <= found.keys():
        raise KeyValueError("a schema of pairs is an object with key and value")
    return joined(_definition(found["key"]), _definition(found["value"]))


def to_text(schema: Schema) -> str:
    """Return the form of the admin API. Raises KeyValueError."""
    key, value = split(schema)
    return json.dumps({"key": _shown(key), "value": _shown(value)}, separators=(",", ":"), ensure_ascii=False)


def _taken(data: bytes) -> tuple[bytes, bytes]:
    """Return the definition at the beginning, and what is behind it."""
    try:
        part, rest = schema_values.taken(data)
    except ValueError:
        raise KeyValueError("the definition is cut off") from None
    return part or b"", rest  # None: there is none


def _part(schema: Schema, what: str, data: bytes) -> Schema:
    name = schema.properties.get(f"{what}.schema.type", SchemaType.BYTES.name)
    try:
        kind = SchemaType[name]
    except KeyError as error:
        raise KeyValueError(f"{name[:100]!a} is no type of a schema") from error
    if kind is SchemaType.KEY_VALUE:
        raise KeyValueError(f"the {what} of a pair cannot be a pair")
    return Schema(kind, data)


def _definition(value: object) -> bytes:
    if value == "" or value is None:
        return b""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _shown(part: Schema) -> Any:
    if part.type in PRIMITIVE or part.type in (SchemaType.STRING, SchemaType.BYTES, SchemaType.NONE) or not part.data:
        return ""
    try:
        return json.loads(part.data)
    except (ValueError, RecursionError) as error:
        raise KeyValueError(f"a definition that is not JSON: {error}") from error
