"""Compressed metadata values, as Pulsar writes them above a size (LZ4 above 16 KiB is the default of 5.0).

    0x4778 (2)  size of the head (int32)  head: compression type, uncompressed size  compressed value

A value without this beginning is not compressed. Quire writes none. Source: Pulsar's managedLedgerInfoCompressionType
and managedCursorInfoCompressionType; its codecs: an LZ4 block and a raw Snappy block without a size, a ZSTD frame, a
zlib stream.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam
from google.protobuf.message import DecodeError

from quire.wire.pulsar import MLDataFormats_pb2 as pb

_MAGIC = b"\x47\x78"
_SIZE_MAX = 64 << 20
"""Maximum uncompressed size of a value: metadata services refuse compressed values of one megabyte."""


class CompressedValueError(ValueError):
    """The value cannot be uncompressed. Permanent: it is damaged, or of a type that no Pulsar up to 5.0 writes."""


def plain(value: bytes) -> bytes:
    """Return the uncompressed value. Raises CompressedValueError."""
    if not value.startswith(_MAGIC):
        return value
    size = int.from_bytes(value[2:6], "big", signed=True)
    if not 0 <= size <= len(value) - 6:
        raise CompressedValueError("the head of a compressed value is cut off")
    try:
        head = pb.ManagedLedgerInfoMetadata.FromString(value[6 : 6 + size])
    except DecodeError as error:
        raise CompressedValueError("the head of a compressed value cannot be parsed") from error
    if not head.IsInitialized():
        raise CompressedValueError("the head of a compressed value lacks a required field")
    body = value[6 + size :]
    if head.compressionType == pb.NONE:
        return body
    if not 0 <= head.uncompressedSize <= _SIZE_MAX:
        raise CompressedValueError(
            f"a compressed value has {head.uncompressedSize} bytes, above the limit of {_SIZE_MAX}"
        )
    try:
        found = _DECOMPRESSORS[head.compressionType](body, head.uncompressedSize)
    except (cramjam.DecompressionError, zlib.error) as error:
        name = pb.CompressionType.Name(head.compressionType)
        raise CompressedValueError(f"a value compressed with {name} is damaged: {error}") from error
    if len(found) != head.uncompressedSize:
        raise CompressedValueError(
            f"the size of a compressed value is not the {head.uncompressedSize} bytes in its head"
        )
    return found


def _into(codec: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], bytes]:
    """Decompressor into a buffer of the size in the head, which fails if that is too small."""

    def decompress(body: bytes, size: int) -> bytes:
        buffer = bytearray(size)
        written = codec(body, buffer)
        return bytes(buffer[:written])

    return decompress


def _inflate(body: bytes, size: int) -> bytes:
    """Decompress zlib. One byte more than in the head is allowed for, to detect a longer stream."""
    return zlib.decompressobj().decompress(body, size + 1)


_DECOMPRESSORS: dict[int, Callable[[bytes, int], bytes]] = {
    pb.LZ4: _into(cramjam.lz4.decompress_block_into),
    pb.ZLIB: _inflate,
    pb.ZSTD: _into(cramjam.zstd.decompress_into),
    pb.SNAPPY: _into(cramjam.snappy.decompress_raw_into),
}
