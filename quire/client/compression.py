"""The four codecs of message payloads, in the framing that the official clients use.

    LZ4      one raw block, no size before it
    ZLIB     a zlib stream (RFC 1950); Java ends it with a sync flush, so it may have neither end mark nor checksum
    ZSTD     one frame
    SNAPPY   raw, no framing

The size of the whole stands in the metadata (`uncompressed_size`). What comes out must have just that size, and it is
compared with the caller's bound before anything is allocated: an entry cannot make a reader swell.
Source: CompressionCodec*.java of Pulsar, CompressionCodec*.cc of its C++ client, internal/compression of its Go client.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam

from quire.client.errors import CorruptEntryError
from quire.wire.pulsar.PulsarApi_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD

KINDS = {"none": NONE, "lz4": LZ4, "zlib": ZLIB, "zstd": ZSTD, "snappy": SNAPPY}
"""Values of the option, and the wire's CompressionType."""

_ZSTD_LEVEL = 3  # same as the official clients


def decompress(kind: int, data: bytes, size: int, *, size_max: int) -> bytes:
    """Decompress a payload.

    Args:
        data: the compressed bytes.
        kind: the wire's CompressionType.
        size: uncompressed size in bytes, according to the metadata.
        size_max: upper bound of `size`.

    Returns:
        The payload, of exactly `size` bytes.

    Raises:
        CorruptEntryError: `size` is above `size_max`, or `data` does not decompress to exactly `size` bytes.
    """
    if kind == NONE:
        return data
    codec = _DECOMPRESSORS.get(kind)
    if codec is None:
        raise CorruptEntryError(f"unknown compression {kind}")
    if size > size_max:
        raise CorruptEntryError(f"{len(data)} compressed bytes stand for {size}, and the limit is {size_max}")
    try:
        payload = codec(data, size)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptEntryError(f"{len(data)} compressed bytes do not give {size}: {error}") from None
    if len(payload) != size:
        more = "more than that come" if len(payload) > size else f"{len(payload)} come"
        raise CorruptEntryError(f"{len(data)} compressed bytes stand for {size}, but {more} out")
    return payload


def compress(kind: int, data: bytes) -> bytes:
    """Compress `data` in the form that `decompress` and the official clients read."""
    return data if kind == NONE else _COMPRESSORS[kind](data)


def _into(codec: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], bytes]:
    """Decompressor into a buffer of the promised size, which fails if that is too small."""

    def decompress_into(data: bytes, size: int) -> bytes:
        buffer = bytearray(size)
        written = codec(data, buffer)
        return bytes(buffer if written == size else buffer[:written])

    return decompress_into


def _inflate(data: bytes, size: int) -> bytes:
    """Decompress zlib. One byte more than promised is allowed for, to detect a longer stream."""
    return zlib.decompressobj().decompress(data, size + 1)


_DECOMPRESSORS: dict[int, Callable[[bytes, int], bytes]] = {
    LZ4: _into(cramjam.lz4.decompress_block_into),
    ZLIB: _inflate,
    ZSTD: _into(cramjam.zstd.decompress_into),
    SNAPPY: _into(cramjam.snappy.decompress_raw_into),
}

_COMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    LZ4: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    ZLIB: zlib.compress,
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL)),
    SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}
