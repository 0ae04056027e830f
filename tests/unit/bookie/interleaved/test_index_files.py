"""Index files of single ledgers: bookie/interleaved/index_file.py, index_files.py."""

from __future__ import annotations

import pytest

from bookie.errors import StorageDamagedError
from bookie.interleaved.index_file import INDEX_HEADER_LENGTH, IndexHeader, index_path, ledger_of
from bookie.interleaved.index_files import (
    FoundIndex,
    delete_index_files,
    find_index_files,
    has_index_files,
    open_index,
    write_index,
)
from quire.world.doors import Disk
from simulation import Universe

CURRENT = "/data/current"
LAC = bytes(8) + (5).to_bytes(8, "big") + b"sum!"


@pytest.fixture
def disk() -> Disk:
    found = Universe(1).host("host").world().disk
    found.make_dirs(CURRENT)
    return found


@pytest.mark.parametrize("lac", [None, LAC])
@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("key", [b"", b"k" * 20])
def test_a_header_is_read_as_it_was_written(key: bytes, fenced: bool, lac: bytes | None) -> None:
    header = IndexHeader(master_key=key, fenced=fenced, explicit_lac=lac)
    assert len(header.encode()) == INDEX_HEADER_LENGTH
    assert IndexHeader.decode(header.encode()) == header


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends after 0 bytes"),
        (b"BKLO" + bytes(1020), "begins with b'BKLO'"),
        (b"BKLE\0\0\0\2" + bytes(1016), "version 2"),
        (b"BKLE\0\0\0\0\x7f\xff\xff\xff" + bytes(1012), "master key of an index file has 2147483647 bytes"),
        (b"BKLE\0\0\0\0\xff\xff\xff\xff" + bytes(1012), "master key of an index file has -1 bytes"),
        (b"BKLE\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\5" + bytes(1004), "explicit LAC of an index file has 5 bytes"),
    ],
)
def test_what_is_no_header_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(StorageDamagedError, match=why):
        IndexHeader.decode(data)


def test_a_key_that_does_not_fit_is_refused() -> None:
    with pytest.raises(StorageDamagedError, match="do not fit"):
        IndexHeader(master_key=bytes(2000)).encode()


@pytest.mark.parametrize("ledger_id", [0, 255, 256, 0x1234, (1 << 63) - 1])
def test_the_path_of_an_index_file_has_its_ledger(ledger_id: int) -> None:
    folders, _, name = index_path(ledger_id).rpartition("/")
    assert ledger_of(folders, name) == ledger_id
    assert ledger_of("7/7", name) == -1


def test_locations_with_gaps_are_read_as_they_were_written(disk: Disk) -> None:
    entries = [(0, 1028), (1, 2048), (5, 1 << 40 | 7), (9000, 5), (9001, 6)]
    found = FoundIndex(0x1234, CURRENT)
    assert write_index(disk, found, IndexHeader(), iter([entries[:2], entries[2:]])) == 5
    assert list(find_index_files(disk, [CURRENT])) == [found]
    index = open_index(disk, found)
    assert [each for part in index.locations() for each in part] == entries
    assert (index.file.size() - INDEX_HEADER_LENGTH) % 8192 == 0, "the original's pages are whole"


def test_a_file_without_a_header_has_no_locations_and_one_with_them_is_damaged(disk: Disk) -> None:
    found = FoundIndex(7, CURRENT)
    disk.make_dirs(f"{CURRENT}/0/7")
    for size in (0, 10, 1024, 5000):
        disk.write_atomic(found.path, bytes(size))
        assert open_index(disk, found).header is None
    disk.write_atomic(found.path, bytes(1024) + bytes(7) + b"\x05")
    with pytest.raises(StorageDamagedError, match=r"0/7/7.idx: an index file begins with"):
        open_index(disk, found)


def test_deletion_leaves_other_files_and_no_empty_folder(disk: Disk) -> None:
    for ledger_id in (1, 257, 1 << 40):
        write_index(disk, FoundIndex(ledger_id, CURRENT), IndexHeader(), iter([]))
    disk.write_atomic(f"{CURRENT}/0/1/1.idx.tmp", b"half")
    disk.write_atomic(f"{CURRENT}/0/0/notes", b"mine")
    disk.write_atomic(f"{CURRENT}/0.log", b"log")
    assert has_index_files(disk, CURRENT)
    assert delete_index_files(disk, CURRENT) == 4
    assert not has_index_files(disk, CURRENT)
    assert disk.names(CURRENT) == ["0", "0.log"]
    assert disk.names(f"{CURRENT}/0") == ["0"]
    assert disk.read(f"{CURRENT}/0/0/notes") == b"mine"
