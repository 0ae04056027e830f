"""Every codec returns its input, in the framing of the official clients, and never more than the limit."""

from __future__ import annotations

import zlib
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.compression import KINDS, compress, decompress
from quire.client.errors import CorruptEntryError
from quire.wire.pulsar.frames import encode_varint
from tests.support.refusals import refuses

CODECS = [kind for kind in KINDS.values() if kind]
TEXT = b"the quick brown fox jumps over the lazy dog. " * 50
MIB = 1 << 20
BOMB = 256 * MIB


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=20).map(lambda part: part * 100)))
def test_what_is_compressed_comes_back(kind: int, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data), size_max=1 << 16) == data


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("wrong", [-1, 1, -len(TEXT), 1000])
def test_another_size_than_promised_is_refused(kind: int, wrong: int) -> None:
    refuses(CorruptEntryError, lambda: decompress(kind, compress(kind, TEXT), len(TEXT) + wrong, size_max=MIB))


@pytest.mark.parametrize("kind", CODECS)
def test_a_size_above_the_bound_is_refused_whatever_the_bytes_are(kind: int) -> None:
    with pytest.raises(CorruptEntryError, match="the limit is 100"):
        decompress(kind, compress(kind, TEXT), len(TEXT), size_max=100)
    assert decompress(kind, compress(kind, TEXT), len(TEXT), size_max=len(TEXT)) == TEXT


def zeros_as_lz4() -> bytes:
    """Return slightly more than 256 MiB of zeros, encoded without having them in memory: one literal, repeated, and the
    five literals that end a block."""
    return b"\x1f\x00\x01\x00" + b"\xff" * (BOMB // 255) + b"\x00" + b"\x50" + bytes(5)


def zeros_as_zlib() -> bytes:
    deflater = zlib.compressobj()
    return b"".join([deflater.compress(bytes(MIB)) for _ in range(BOMB // MIB)]) + deflater.flush()


def zeros_as_zstd() -> bytes:
    compressor = cramjam.zstd.Compressor(level=1)
    for _ in range(BOMB // MIB):
        compressor.compress(bytes(MIB))
    return bytes(compressor.finish())


def zeros_as_snappy() -> bytes:
    """Return the same zeros as Snappy: their size, one literal, and copies of up to 64 bytes."""
    return encode_varint(1 + 64 * (BOMB // 64)) + b"\x00\x00" + b"\xfe\x01\x00" * (BOMB // 64)


def resident(line: str) -> int:
    """Return the bytes of VmRSS, or of VmHWM, its maximum since the last reset."""
    (found,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(line)]
    return int(found.split()[1]) << 10


@pytest.mark.parametrize("kind", CODECS)
def test_a_bomb_that_promises_little_gets_no_memory(kind: int) -> None:
    bomb = [zeros_as_lz4, zeros_as_zlib, zeros_as_zstd, zeros_as_snappy][kind - 1]()
    assert len(bomb) < 16 * MIB
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    refuses(CorruptEntryError, lambda: decompress(kind, bomb, 1000, size_max=MIB))
    assert resident("VmHWM") - before < 64 * MIB


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("damaged", [b"", b"junk junk junk", lambda data: data[: len(data) // 2]])
def test_bytes_that_cannot_be_decompressed_are_corrupt(kind: int, damaged) -> None:
    data = damaged(compress(kind, TEXT)) if callable(damaged) else damaged
    refuses(CorruptEntryError, lambda: decompress(kind, data, len(TEXT), size_max=MIB))


def test_a_zlib_stream_without_an_end_is_read_for_java_writes_them() -> None:
    deflater = zlib.compressobj()
    stream = deflater.compress(TEXT) + deflater.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(KINDS["zlib"], stream, len(TEXT), size_max=MIB) == TEXT


def test_a_zstd_frame_that_does_not_tell_its_size_is_read() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(TEXT)
    assert decompress(KINDS["zstd"], bytes(compressor.finish()), len(TEXT), size_max=MIB) == TEXT


def test_lz4_and_snappy_have_no_framing() -> None:
    assert compress(KINDS["lz4"], b"hello") == b"\x50hello"
    assert compress(KINDS["snappy"], b"hello") == b"\x05\x10hello"
    assert decompress(KINDS["lz4"], b"\x50hello", 5, size_max=9) == b"hello"
    assert decompress(KINDS["snappy"], b"\x05\x10hello", 5, size_max=9) == b"hello"


def test_a_codec_nobody_knows_is_corrupt() -> None:
    refuses(CorruptEntryError, lambda: decompress(5, b"x", 1, size_max=9), "unknown compression 5")


def test_without_compression_the_bytes_are_the_payload_whatever_size_is_told() -> None:
    assert decompress(0, b"abc", 0, size_max=1) == b"abc"
