"""Values and keys of messages, decoded by their schema for people. Pure.

    {"kind": "json", "text": "..."}      JSON, Avro and Protocol Buffers, indented
    {"kind": "text", "text": "..."}      text, numbers, times
    {"kind": "hex", "text": "00 ff"}     bytes that are no text
    {"kind": "null", "text": ""}         there is no value

`schema` names the type that was decoded, `problem` says why a schema did not fit, `bytes` is the whole size, and
`cut` is true if only the begin is shown. Numbers are written big end first. Source: Pulsar's schemas (Int32Schema and
so on), KeyValue.encode.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from broker.console.messages.avro_values import UnreadableAvroError
from broker.console.messages.avro_values import decode as decode_avro
from broker.console.messages.protobuf_values import decode as decode_protobuf
from broker.topics.schemas import key_value
from broker.topics.schemas.key_value import KeyValueError
from broker.topics.schemas.schema import Schema, SchemaType
from quire.wire.pulsar.schema_values import ENCODING_PROPERTY, NUMBERS, SEPARATED, pair

PARSED_MAX: Final = 256 << 10
"""Maximum bytes of a value that is parsed: some 5 ms. A larger one is shown as text or bytes."""
_PROTOBUF: Final = (SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE)
_STRUCTURED: Final = (SchemaType.JSON, SchemaType.AVRO, *_PROTOBUF)
_UNBOUNDED: Final = (SchemaType.AVRO, SchemaType.KEY_VALUE, *_PROTOBUF)
"""Types of which a few bytes may be many values, or whose schemas take long to read."""
QUICK_BYTES: Final = 2048
"""Bytes of a value up to which it is shown in well under 1 ms."""
_ENCODER: Final = json.JSONEncoder(indent=2, ensure_ascii=False)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def shown(data: bytes | None, schema: Schema | None, shown_max: int, *, key: bytes | None = None) -> dict[str, Any]:
    """Return a value as JSON.

    Args:
        data: the bytes; None: there is no value.
        schema: None: it is not known.
        shown_max: characters of the text at most.
        key: key of the message, for pairs whose keys are separate.

    Takes up to 100 ms for a value that is hostile to it: run it in a worker (`is_slow`).
    """
    if data is None:
        return {"kind": "null", "text": "", "bytes": 0, "schema": None, "cut": False}
    problem = ""
    found: tuple[str, str] | None = None
    if schema is not None and len(data) <= PARSED_MAX:
        try:
            found = _decoded(data, schema, key, shown_max)
        except (ValueError, struct.error, OverflowError, RecursionError) as error:
            problem = _encodable(f"not a value of the schema ({schema.type.name}): {error}"[:300])
    elif schema is not None:
        problem = f"larger than {PARSED_MAX} bytes: not decoded by its schema"
    kind, text = found or _guessed(data, shown_max)
    text = _encodable(text)
    result = {
        "kind": kind,
        "text": text[:shown_max],
        "bytes": len(data),
        "schema": None if schema is None else schema.type.name,
        "cut": len(text) > shown_max or (kind == "hex" and len(data) * 3 > shown_max),
    }
    return {**result, "problem": problem} if problem else result


def is_slow(data: bytes | None, schema: Schema | None) -> bool:
    """Return whether `shown` may take longer than a step of the event loop has."""
    if schema is not None and schema.type in _UNBOUNDED:
        return True
    return data is not None and len(data) > QUICK_BYTES


def _decoded(data: bytes, schema: Schema, key: bytes | None, shown_max: int) -> tuple[str, str] | None:
    """Return kind and text; None: the schema says nothing. Raises ValueError and struct.error."""
    if schema.type is SchemaType.KEY_VALUE:
        value = _pair(data, schema, key)
        return "json", _indented(value, shown_max)
    found = _value(data, schema)
    if found is _NOTHING:
        return None
    return ("json", _indented(found, shown_max)) if schema.type in _STRUCTURED else ("text", str(found))


_NOTHING: Final = object()


def _value(data: bytes, schema: Schema) -> Any:
    kind = schema.type
    if kind is SchemaType.JSON:
        return json.loads(data)
    if kind is SchemaType.AVRO:
        try:
            return decode_avro(json.loads(schema.data), data)
        except UnreadableAvroError as error:
            raise ValueError(str(error)) from error
    if kind in _PROTOBUF:
        return decode_protobuf(schema, data)
    if kind is SchemaType.STRING:
        return data.decode()
    if kind is SchemaType.BOOLEAN:
        if len(data) != 1:
            raise ValueError(f"{len(data)} bytes")
        return "true" if data != b"\0" else "false"
    if (form := NUMBERS.get(kind)) is not None:
        return struct.unpack(form, data)[0]
    return _time(data, kind)


def _time(data: bytes, kind: SchemaType) -> Any:
    if kind in (SchemaType.DATE, SchemaType.TIME, SchemaType.TIMESTAMP):
        return _at(milliseconds=struct.unpack(">q", data)[0])
    if kind is SchemaType.INSTANT:
        seconds, nanos = struct.unpack(">qi", data)
        return _at(seconds=seconds, microseconds=nanos // 1000)
    if kind is SchemaType.LOCAL_DATE:
        return _at(days=struct.unpack(">q", data)[0])[:10]
    if kind is SchemaType.LOCAL_TIME:
        return _at(microseconds=struct.unpack(">q", data)[0] // 1000)[11:-1]
    if kind is SchemaType.LOCAL_DATE_TIME:
        days, nanos = struct.unpack(">qq", data)
        return _at(days=days, microseconds=nanos // 1000)[:-1]
    return _NOTHING


def _at(**units: int) -> str:
    found = _EPOCH + timedelta(**units)
    return found.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _pair(data: bytes, schema: Schema, key: bytes | None) -> dict[str, Any]:
    try:
        of_key, of_value = key_value.split(schema)
    except KeyValueError as error:
        raise ValueError(str(error)) from error
    separated = schema.properties.get(ENCODING_PROPERTY) == SEPARATED
    parts = (key, data) if separated else pair(data)
    names = ("key", "value")
    return {
        name: None if part is None else _plain(part, each)
        for name, part, each in zip(names, parts, (of_key, of_value), strict=True)
    }


def _plain(data: bytes, schema: Schema) -> Any:
    found = _value(data, schema)
    return _guessed(data, PARSED_MAX)[1] if found is _NOTHING else found


def _guessed(data: bytes, shown_max: int) -> tuple[str, str]:
    """Return kind and text of bytes without a schema: JSON, text, or hexadecimal numbers."""
    if data[:1] in (b"{", b"[") and len(data) <= PARSED_MAX:
        try:
            return "json", _indented(json.loads(data), shown_max)
        except (ValueError, RecursionError):
            pass
    part = data[: shown_max * 4]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if len(part) == len(data) or error.start < len(part) - 3:
            return "hex", data[: shown_max // 3 + 1].hex(" ")
        text = part[: error.start].decode()
    if any(each < " " and each not in "\n\r\t" for each in text[:2000]):
        return "hex", data[: shown_max // 3 + 1].hex(" ")
    return "text", text


def _indented(value: Any, shown_max: int) -> str:
    """Return the JSON of a value, as far as it is shown: with its indents, it may be 1000 times as long as the data."""
    parts: list[str] = []
    size = 0
    for part in _ENCODER.iterencode(value):
        # A part is at most a text of the schema, and the same one may come for each value.
        parts.append(part[: shown_max + 1])
        size += len(part)
        if size > shown_max:
            break
    return "".join(parts)


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which JSON can have and UTF-8 cannot: they become question marks."""
    return text.encode(errors="replace").decode()


def key_shown(key: bytes | None) -> dict[str, str] | None:
    """Return a key as text, or in base64 if it is none; None: there is no key.

    >>> key_shown(b"k"), key_shown(bytes((255,)))
    ({'text': 'k'}, {'base64': '/w=='})
    """
    if key is None:
        return None
    try:
        return {"text": key.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(key).decode()}
