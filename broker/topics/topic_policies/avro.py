"""Avro's binary form of values (pure): records are dictionaries by field, enums are texts.

A union is null or one other type, as Pulsar's own records have it. Source: the Avro specification, "Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from broker.topics.schemas.avro_schema import AvroType

ITEMS_MAX: Final = 100_000
"""Items of one array or map, fields of all records, and types within types, which a value may have: a damaged one is
found out before it takes much memory."""


class AvroValueError(ValueError):
    """A value that is not of its schema, or bytes that are none."""


def encode(kind: AvroType, value: Any) -> bytes:
    """Return the bytes of a value. What a record lacks is null, 0, false or empty. Raises AvroValueError."""
    out = bytearray()
    try:
        _encode(kind, value, out)
    except (TypeError, AttributeError, ValueError, struct.error) as error:
        raise AvroValueError(f"not a value of {kind.name or kind.kind}: {error}") from error
    return bytes(out)


def decode(kind: AvroType, data: bytes, *, parts_max: int = ITEMS_MAX) -> Any:
    """Return the value that the bytes stand for; more bytes behind it are passed over. Raises AvroValueError."""
    try:
        return _Reader(data, parts_max).value(kind)
    except (IndexError, struct.error, UnicodeDecodeError, RecursionError) as error:
        raise AvroValueError(f"not a {kind.name or kind.kind}: {error}") from error


def has_room_for(kind: AvroType, value: Any) -> bool:
    """Return whether the schema has a place for all that a value says."""
    if value is None:
        return True
    match kind.kind:
        case "union":
            return any(has_room_for(each, value) for each in kind.parts if each.kind != "null")
        case "record":
            known = kind.by_name
            return isinstance(value, Mapping) and all(
                each is None or (key in known and has_room_for(known[key].type, each)) for key, each in value.items()
            )
        case "map":
            return isinstance(value, Mapping) and all(has_room_for(kind.parts[0], each) for each in value.values())
        case "array":
            return isinstance(value, list) and all(has_room_for(kind.parts[0], each) for each in value)
        case "enum":
            return value in kind.symbols
        case _:
            return True


def _encode(kind: AvroType, value: Any, out: bytearray) -> None:
    match kind.kind:
        case "null":
            return
        case "union":
            index, chosen = _branch(kind, value)
            _encode_long(index, out)
            _encode(chosen, value, out)
        case "record":
            for each in kind.fields:
                _encode(each.type, ({} if value is None else value).get(each.name), out)
        case "enum":
            _encode_long(kind.symbols.index(value), out)
        case "array":
            _encode_items(kind, [(b"", each) for each in value or ()], out)
        case "map":
            _encode_items(kind, [(_text(key), each) for key, each in (value or {}).items()], out)
        case "boolean":
            out.append(1 if value else 0)
        case "int" | "long":
            _encode_long(int(value or 0), out)
        case "float":
            out += struct.pack("<f", value or 0.0)
        case "double":
            out += struct.pack("<d", value or 0.0)
        case "string":
            out += _text(value or "")
        case "bytes":
            _encode_long(len(value or b""), out)
            out += value or b""
        case _:
            raise AvroValueError(f"{kind.kind} is not used in policies")


def _branch(kind: AvroType, value: Any) -> tuple[int, AvroType]:
    for index, each in enumerate(kind.parts):
        if (each.kind == "null") is (value is None):
            return index, each
    raise AvroValueError("a union without a branch for the value")


def _encode_items(kind: AvroType, items: list[tuple[bytes, Any]], out: bytearray) -> None:
    if items:
        _encode_long(len(items), out)
        for key, each in items:
            out += key
            _encode(kind.parts[0], each, out)
    out.append(0)


def _text(value: str) -> bytes:
    data = value.encode()
    out = bytearray()
    _encode_long(len(data), out)
    return bytes(out + data)


def _encode_long(value: int, out: bytearray) -> None:
    if not -(1 << 63) <= value < 1 << 63:
        raise AvroValueError(f"{value} does not fit in 64 bits")
    rest = (value << 1) ^ (value >> 63)
    rest &= (1 << 64) - 1
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


class _Reader:
    """Reader of one value."""

    def __init__(self, data: bytes, parts_max: int) -> None:
        self._data = data
        self._at = 0
        self._left = parts_max

    def value(self, kind: AvroType) -> Any:
        self._count(1)
        match kind.kind:
            case "null":
                return None
            case "union":
                return self.value(self._chosen(kind.parts))
            case "record":
                return {each.name: self.value(each.type) for each in kind.fields}
            case "enum":
                return self._chosen(kind.symbols)
            case "array":
                return [self.value(kind.parts[0]) for _ in self._items()]
            case "map":
                return {self._bytes().decode(): self.value(kind.parts[0]) for _ in self._items()}
            case "boolean":
                return self._take(1) == b"\x01"
            case "int" | "long":
                return self._long()
            case "float":
                return struct.unpack("<f", self._take(4))[0]
            case "double":
                return struct.unpack("<d", self._take(8))[0]
            case "string":
                return self._bytes().decode()
            case "bytes":
                return self._bytes()
            case "fixed":
                return self._take(kind.size)
            case _:
                raise AvroValueError(f"{kind.kind or 'an undeclared type'} is not used in policies")

    def _chosen(self, choices: tuple[Any, ...]) -> Any:
        index = self._long()
        if not 0 <= index < len(choices):
            raise AvroValueError(f"choice {index} of {len(choices)}")
        return choices[index]

    def _items(self) -> Any:
        """Yield once for each item of an array or map, before it is read."""
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # bytes of the block
            self._count(count)
            for _ in range(count):
                yield None

    def _count(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise AvroValueError("too many parts")

    def _bytes(self) -> bytes:
        return self._take(self._long())

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise AvroValueError("it ends too early")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _long(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > 63:
                raise AvroValueError("a number of more than 64 bits")
