"""Compressed metadata values, as Pulsar may write them above a size.

    0x4778 (2)  size of the head (int32)  head: compression type, uncompressed size  compressed value

A value that does not begin so is taken as it is. We write none. Source: Pulsar's managedLedgerInfoCompressionType.
"""

from __future__ import annotations

import zlib

from google.protobuf.message import DecodeError

from quire.wire.pulsar import MLDataFormats_pb2 as pb

_MAGIC = b"\x47\x78"
_SIZE_MAX = 256 << 20


class CompressedValueError(ValueError):
    """The value cannot be uncompressed here. Final: set Pulsar's compression type to NONE or ZLIB and rewrite it."""


def plain(value: bytes) -> bytes:
    """The value without its compression; CompressedValueError."""
    if not value.startswith(_MAGIC):
        return value
    size = int.from_bytes(value[2:6], "big", signed=True)
    try:
        head = pb.ManagedLedgerInfoMetadata.FromString(value[6 : 6 + size])
    except DecodeError as error:
        raise CompressedValueError("the head of a compressed value cannot be parsed") from error
    if size < 0 or not head.IsInitialized():
        raise CompressedValueError("the head of a compressed value is cut off")
    body = value[6 + size :]
    if not 0 <= head.uncompressedSize <= _SIZE_MAX:
        raise CompressedValueError(f"a compressed value claims {head.uncompressedSize} bytes")
    if head.compressionType == pb.NONE:
        return body
    if head.compressionType != pb.ZLIB:
        raise CompressedValueError(
            f"{pb.CompressionType.Name(head.compressionType)} is not read here, only NONE and ZLIB"
        )
    try:
        found = zlib.decompressobj().decompress(body, head.uncompressedSize + 1)
    except zlib.error as error:
        raise CompressedValueError(f"a compressed value is damaged: {error}") from error
    if len(found) != head.uncompressedSize:
        raise CompressedValueError(f"a compressed value has another size than {head.uncompressedSize} bytes")
    return found
