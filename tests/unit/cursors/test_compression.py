from __future__ import annotations

import zlib

import pytest

from cursors.compression import CompressedValueError, plain
from quire.wire.pulsar import MLDataFormats_pb2 as pb


def compressed(kind: int, body: bytes, size: int) -> bytes:
    head = pb.ManagedLedgerInfoMetadata(compressionType=kind, uncompressedSize=size).SerializeToString()  # type: ignore[arg-type]
    return b"\x47\x78" + len(head).to_bytes(4, "big") + head + body


def test_a_value_without_the_magic_is_taken_as_it_is() -> None:
    assert plain(b"\x0a\x04") == b"\x0a\x04"
    assert plain(b"") == b""


def test_what_pulsar_compressed_with_zlib_or_not_at_all_is_read() -> None:
    value = b"ledgers " * 1000
    assert plain(compressed(pb.ZLIB, zlib.compress(value), len(value))) == value
    assert plain(compressed(pb.NONE, value, len(value))) == value


@pytest.mark.parametrize("size", [0, 7999, 8001, -1, 1 << 30])
def test_a_wrong_size_is_an_error_and_no_memory_is_spent(size: int) -> None:
    with pytest.raises(CompressedValueError):
        plain(compressed(pb.ZLIB, zlib.compress(bytes(8000)), size))


def test_a_damaged_value_and_an_unknown_compression_are_errors() -> None:
    with pytest.raises(CompressedValueError, match="LZ4"):
        plain(compressed(pb.LZ4, b"x", 1))
    with pytest.raises(CompressedValueError):
        plain(compressed(pb.ZLIB, b"not zlib", 8))
