"""Values written in Avro's binary encoding, as JSON. Pure.

    int, long        zigzag varint            array, map   blocks: count, [bytes if it is negative], items; 0 ends
    bytes, string    length, bytes            union        number of the branch, value
    enum             number of the symbol     record       its fields, in order
    float, double    4, 8 bytes, little end first          fixed        its bytes

A value is what a producer sent, which may not be what its schema says. So the number of values and the depth are
bounded, and every length is compared with what is left before anything is made of it. Logical types are shown as they
are written.
Source: the Avro specification, 1.11.
"""

from __future__ import annotations

import struct
from typing import Any, Final

VALUES_MAX: Final = 20_000
DEPTH_MAX: Final = 40
NAMED: Final = ("record", "error", "enum", "fixed")


class AvroValueError(ValueError):
    """Bytes that are no value of the schema, or a value that is too large to be shown."""


def decode(schema: Any, data: bytes) -> Any:
    r"""Return the value of a parsed schema (the JSON of its text). Raises AvroValueError.

    >>> decode({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "string"]}]}, b"\2\2x")
    {'a': 'x'}
    """
    reader = _Reader(data)
    try:
        _learn(schema, "", reader.named, 0)
        value = reader.value(schema, "", 0)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AvroValueError(f"the schema cannot be followed: {error!r}") from error
    if reader.at != len(data):
        raise AvroValueError(f"{len(data) - reader.at} bytes are left behind the value")
    return value


def _learn(schema: Any, space: str, named: dict[str, tuple[Any, str]], depth: int) -> None:
    """Note named types by full name, so that they can be referred to."""
    if depth > DEPTH_MAX:
        raise AvroValueError(f"the schema is deeper than {DEPTH_MAX}")
    if isinstance(schema, list):
        for each in schema:
            _learn(each, space, named, depth + 1)
    elif isinstance(schema, dict):
        kind = schema["type"]
        if kind in NAMED if isinstance(kind, str) else False:
            space = _space(schema, space)
            named[_full(schema["name"], space)] = (schema, space)
            for field in schema.get("fields", ()):
                _learn(field["type"], space, named, depth + 1)
        elif kind == "array":
            _learn(schema["items"], space, named, depth + 1)
        elif kind == "map":
            _learn(schema["values"], space, named, depth + 1)
        elif not isinstance(kind, str):
            _learn(kind, space, named, depth + 1)


def _space(schema: dict[str, Any], space: str) -> str:
    name = schema["name"]
    return str(name.rpartition(".")[0] if "." in name else schema.get("namespace", space))


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


class _Reader:
    """Position in the bytes of one value."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.named: dict[str, tuple[Any, str]] = {}
        self._left = VALUES_MAX

    def value(self, schema: Any, space: str, depth: int) -> Any:
        """Read a value."""
        self._left -= 1
        if self._left < 0:
            raise AvroValueError(f"more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise AvroValueError(f"deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            branch = self.long()
            if not 0 <= branch < len(schema):
                raise AvroValueError(f"branch {branch} of a union of {len(schema)}")
            return self.value(schema[branch], space, depth + 1)
        if isinstance(schema, dict):
            kind = schema["type"]
            if not isinstance(kind, str):
                return self.value(kind, space, depth + 1)
            return self._complex(kind, schema, space, depth)
        return self._named_or_primitive(schema, space, depth)

    def _complex(self, kind: str, schema: dict[str, Any], space: str, depth: int) -> Any:
        if kind in ("record", "error"):
            space = _space(schema, space)
            return {each["name"]: self.value(each["type"], space, depth + 1) for each in schema["fields"]}
        if kind == "enum":
            number = self.long()
            if not 0 <= number < len(schema["symbols"]):
                raise AvroValueError(f"symbol {number} of {len(schema['symbols'])}")
            return schema["symbols"][number]
        if kind == "fixed":
            return self.take(schema["size"]).hex()
        if kind == "array":
            return [self.value(schema["items"], space, depth + 1) for _ in self._blocks()]
        if kind == "map":
            return {self._string(): self.value(schema["values"], space, depth + 1) for _ in self._blocks()}
        return self._named_or_primitive(kind, space, depth)

    def _blocks(self) -> Any:
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            if count > self._left:
                raise AvroValueError(f"more than {VALUES_MAX} values")
            yield from range(count)

    def _named_or_primitive(self, kind: str, space: str, depth: int) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            return self.take(1) != b"\0"
        if kind in ("int", "long"):
            return self.long()
        if kind == "float":
            return _finite(struct.unpack("<f", self.take(4))[0])
        if kind == "double":
            return _finite(struct.unpack("<d", self.take(8))[0])
        if kind == "bytes":
            return self.take(self.long()).hex()
        if kind == "string":
            return self._string()
        found = self.named.get(_full(kind, space)) or self.named.get(kind)
        if found is None:
            raise AvroValueError(f"unknown type {kind[:100]!a}")
        return self.value(found[0], found[1], depth + 1)

    def _string(self) -> str:
        return self.take(self.long()).decode(errors="replace")

    def long(self) -> int:
        """Read a number."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 63:
                raise AvroValueError("a number of more than 64 bits")

    def take(self, size: int) -> bytes:
        """Read so many bytes."""
        if not 0 <= size <= len(self.data) - self.at:
            raise AvroValueError(f"{size} bytes are wanted, {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]


def _finite(value: float) -> float | str:
    return value if value - value == 0 else str(value)
