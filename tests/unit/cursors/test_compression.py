from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from cursors.compression import CompressedValueError, plain
from cursors.position_info import decode_node
from managed_ledger.ledger_list import LedgerInfo, LedgerList, decode, encode
from quire.ledger.position import Position
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.support.refusals import refuses


def compressed(kind: Any, body: bytes, size: int) -> bytes:
    head = pb.ManagedLedgerInfoMetadata(compressionType=kind, uncompressedSize=size).SerializeToString()
    return b"\x47\x78" + len(head).to_bytes(4, "big") + head + body


def test_a_value_without_the_magic_is_taken_as_it_is() -> None:
    assert plain(b"\x0a\x04") == b"\x0a\x04"
    assert plain(b"") == b""


COMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    pb.NONE: bytes,
    pb.LZ4: lambda value: bytes(cramjam.lz4.compress_block(value, store_size=False)),
    pb.ZLIB: zlib.compress,
    pb.ZSTD: lambda value: bytes(cramjam.zstd.compress(value)),
    pb.SNAPPY: lambda value: bytes(cramjam.snappy.compress_raw(value)),
}
VALUE = b"ledgers " * 4000


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_what_pulsar_compressed_is_read(kind: int) -> None:
    for value in (VALUE, b"", bytes(range(256)) * 300):
        assert plain(compressed(kind, COMPRESSORS[kind](value), len(value))) == value


def test_an_lz4_block_as_the_original_writes_it_is_read() -> None:
    """A value written by hand from the format: 8 literals, a match of 16 at offset 8, 5 literals at the end."""
    block = b"\x8c" + b"ledgers " + b"\x08\x00" + b"\x50" + b"tail!"
    assert plain(compressed(pb.LZ4, block, 29)) == b"ledgers " * 3 + b"tail!"


@pytest.mark.parametrize("kind", [kind for kind in COMPRESSORS if kind != pb.NONE])
@pytest.mark.parametrize("size", [0, 31_999, 32_001, -1, 1 << 30])
def test_a_wrong_size_is_an_error_and_no_memory_is_spent(kind: int, size: int) -> None:
    refuses(CompressedValueError, lambda: plain(compressed(kind, COMPRESSORS[kind](VALUE), size)))


@pytest.mark.parametrize("kind", [kind for kind in COMPRESSORS if kind != pb.NONE])
def test_a_cut_or_damaged_value_is_an_error(kind: int) -> None:
    whole = compressed(kind, COMPRESSORS[kind](VALUE), len(VALUE))
    for cut in (2, 5, 6, 8, 11, len(whole) // 2):
        with pytest.raises(CompressedValueError):
            plain(whole[:cut])
    refuses(CompressedValueError, lambda: plain(compressed(kind, b"not compressed at all", 8)))


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_lists_and_cursors_that_pulsar_compressed_are_opened(kind: int) -> None:
    ledgers = tuple(LedgerInfo(ledger_id=number, entries=5, size=50, closed_ms=7) for number in range(1, 900))
    value = encode(LedgerList(ledgers=ledgers))
    assert decode(compressed(kind, COMPRESSORS[kind](value), len(value))).ledgers == ledgers
    info = pb.ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=4)
    cursor = info.SerializeToString()
    _, stored = decode_node(compressed(kind, COMPRESSORS[kind](cursor), len(cursor)))
    assert stored.mark_delete == Position(3, 4)
