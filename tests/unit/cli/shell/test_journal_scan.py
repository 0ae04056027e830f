from __future__ import annotations

from struct import pack

import pytest

from bookie.journal.format import FENCE_ID, PADDING_MASK, Fence, FileHeader, LedgerKey, record_bytes
from quire.cli.shell.local.journal_scan import JournalRecord, JournalScan
from tests.unit.bookie.build import KEY, run_of

HEADER = FileHeader(6, 512, True, None)


def journal(*parts: bytes) -> bytes:
    return bytes(512) + b"".join(parts)


def entries(first: int, count: int, payload: bytes = b"") -> bytes:
    return b"".join(record_bytes([run_of(7, first, count, payload)])[0])


def padding(size: int) -> bytes:
    return pack("!ii", PADDING_MASK, size - 8).ljust(size, b"x")


def scanned(data: bytes, header: FileHeader = HEADER, chunk_size: int = 1 << 20) -> tuple[list[JournalRecord], str]:
    scan = JournalScan(lambda size, offset: data[offset : offset + size], len(data), header, chunk_size=chunk_size)
    return list(scan), scan.stopped


@pytest.mark.parametrize("chunk_size", [16, 64, 100, 1 << 20])
def test_every_record_comes_with_its_offset_however_the_file_is_read(chunk_size: int) -> None:
    key, fence = LedgerKey(7, KEY).encode(), Fence(7).encode()
    data = journal(key, entries(0, 3), padding(40), entries(3, 1, b"big" * 100), fence, bytes(100))
    found, stopped = scanned(data, chunk_size=chunk_size)
    assert stopped == ""
    assert [record.entry_id for record in found] == [-0x1000, 0, 1, 2, 3, FENCE_ID]
    for record in found:
        assert data[record.offset + 4 : record.offset + 4 + len(record.body)] == record.body
    assert found[0].offset == 512
    assert found[4].offset == found[3].offset + 4 + len(found[3].body) + 40


def test_the_zeros_of_reserved_space_end_it() -> None:
    found, stopped = scanned(journal(entries(0, 1), bytes(2048), entries(1, 1)))
    assert ([record.entry_id for record in found], stopped) == ([0], "")


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (pack("!i", -7) + bytes(20), "a record of -7 bytes at offset"),
        (pack("!i", 15) + bytes(20), "a record of 15 bytes at offset"),
        (pack("!ii", PADDING_MASK, -1), "padding of -1 bytes at offset"),
        (pack("!i", 1000) + bytes(20), "beyond the end of the file"),
    ],
)
def test_what_cannot_be_followed_stops_it_with_the_place(tail: bytes, why: str) -> None:
    data = journal(entries(0, 2), tail)
    found, stopped = scanned(data)
    assert len(found) == 2
    assert why in stopped
    assert f"offset {len(data) - len(tail)}" in stopped


def test_old_files_know_no_padding() -> None:
    data = entries(0, 1) + padding(64)
    found, stopped = scanned(data, FileHeader(4, 0, False, None))
    assert len(found) == 1
    assert "a record of -256 bytes" in stopped
