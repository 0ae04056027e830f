"""Bytes of values whose schema has no definition, and of pairs (pure).

    number      big end first                            pair        length, 4 bytes | key | length, 4 bytes | value
    boolean     one byte                                             a length of -1: there is none

A definition of pairs holds those of key and value in the same form.
Source: Pulsar's Int32Schema and so on, KeyValue.encode, KeyValueSchemaInfo.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from quire.wire.pulsar import PulsarApi_pb2 as pb

NUMBERS: Final[Mapping[int, str]] = {
    int(pb.Schema.Int8): ">b",
    int(pb.Schema.Int16): ">h",
    int(pb.Schema.Int32): ">i",
    int(pb.Schema.Int64): ">q",
    int(pb.Schema.Float): ">f",
    int(pb.Schema.Double): ">d",
}
"""Form of a number by the type of its schema, as `struct` has it."""

ENCODING_PROPERTY: Final = "kv.encoding.type"
SEPARATED: Final = "SEPARATED"
INLINE: Final = "INLINE"
"""Property of a schema of pairs, and its values: the key of a pair is the message's, or both are in the payload."""

_LENGTH: Final = struct.Struct(">i")


def taken(data: bytes) -> tuple[bytes | None, bytes]:
    r"""Return the part at the beginning, None if its length is negative, and what is behind it.

    Raises:
        ValueError: the data end within the part.

    >>> taken(b"\0\0\0\1kabc")
    (b'k', b'abc')
    """
    if len(data) < _LENGTH.size:
        raise ValueError("the pair is cut off")
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + max(length, 0)
    if end > len(data):
        raise ValueError("the pair is cut off")
    return (None if length < 0 else data[_LENGTH.size : end]), data[end:]


def pair(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return key and value of an inline pair. Raises ValueError."""
    key, rest = taken(data)
    value, rest = taken(rest)
    if rest:
        raise ValueError(f"{len(rest)} bytes behind the pair")
    return key, value


def joined(key: bytes | None, value: bytes | None) -> bytes:
    """Return the bytes of a pair.

    >>> joined(b"k", None).hex()
    '000000016bffffffff'
    """
    return _part(key) + _part(value)


def _part(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data
