"""A scrub leaves the machine's memory and the other directories alone. Covers cold_reads.py, directory_reads.py."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.errors import LogMissingError
from bookie.scrubber.cold_reads import PAGE, PIECE, ColdFile, ColdLogs
from quire.world.real_disk import RealDisk
from simulation.machines.world import Universe
from tests.support.waiting import until
from tests.unit.bookie.integrity.rig import IntegrityCluster, integrity_cluster
from tests.unit.bookie.scrubber.rig import FAST, scrub, scrubber

HANGS = "scrub of a directory stopped, its disk does not answer a read"


class CachedFile:
    """File of `size` bytes, of which some pages are in memory; a read brings the others there."""

    def __init__(self, size: int, cached: set[int]) -> None:
        self.data = bytes(range(251)) * (size // 251 + 1)
        self.data = self.data[:size]
        self.cached = cached
        self.sectors = 0

    def size(self) -> int:
        return len(self.data)

    def pread(self, size: int, offset: int) -> bytes:
        data = self.data[offset : offset + size]
        pages = set(range(offset // PAGE, -(-(offset + len(data)) // PAGE)))
        self.sectors += len(pages - self.cached) * PAGE // 512
        self.cached |= pages
        return data

    def forget(self, offset: int, size: int) -> None:
        assert offset % PAGE == size % PAGE == 0
        self.cached -= set(range(offset // PAGE, (offset + size) // PAGE))


def read(file: Any, size: int, offset: int, *, counts: bool = True) -> None:
    data = ColdFile(file, lambda: file.sectors if counts else None).pread(size, offset)
    assert data == file.data[offset : offset + size]


@pytest.mark.parametrize(("size", "offset"), [(300_000, 0), (5000, 100), (4, 70_000), (PIECE, PIECE - 3), (9, 299_995)])
def test_pages_that_only_the_scrub_has_read_are_dropped(size: int, offset: int) -> None:
    file = CachedFile(300_000, set())
    read(file, size, offset)
    assert file.cached == set()


def test_pages_that_were_in_memory_stay_there() -> None:
    hot = {20, 40}
    file = CachedFile(300_000, set(hot))
    read(file, 300_000, 0)
    assert hot <= file.cached
    assert len(file.cached) <= 2 * PIECE // PAGE, "only the pieces with such pages stay"
    whole = set(range(-(-300_000 // PAGE)))
    file = CachedFile(300_000, set(whole))
    read(file, 300_000, 0)
    assert file.cached == whole


def test_without_counts_of_sectors_nothing_is_dropped() -> None:
    file = CachedFile(PIECE, set())
    read(file, PIECE, 0, counts=False)
    assert len(file.cached) == PIECE // PAGE


def test_a_log_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    disk = RealDisk()
    logs = ColdLogs(disk, str(tmp_path), EntryLogs(disk, str(tmp_path)))
    with pytest.raises(LogMissingError), logs.readers.reading(3):
        pass


def test_without_a_descriptor_an_open_log_is_read(tmp_path: Path) -> None:
    class FullDisk(RealDisk):
        full = False

        def open(self, path: str, **options: Any) -> Any:
            if self.full:
                raise OSError(errno.EMFILE, "too many open files")
            return super().open(path, **options)

    (tmp_path / "3.log").write_bytes(b"abc")
    disk = FullDisk()
    shared = EntryLogs(disk, str(tmp_path))
    with shared.readers.reading(3) as file:
        assert file.pread(1, 0) == b"a"
    disk.full = True
    with ColdLogs(disk, str(tmp_path), shared).readers.reading(3) as found:
        assert found.pread(3, 0) == b"abc"
    shared.readers.close()


# --- a disk that hangs


@pytest.fixture
async def cluster(universe: Universe) -> AsyncIterator[IntegrityCluster]:
    async with integrity_cluster(universe) as cluster:
        yield cluster


@pytest.mark.expect_error(HANGS)
async def test_a_read_that_hangs_stops_the_scrub_of_its_directory_alone(cluster: IntegrityCluster) -> None:
    folders = ("/ledgers/0", "/ledgers/1")
    config = replace(FAST, ledger_directories=folders, flush_interval_ms=100_000_000)
    (a,) = await cluster.begin("a", config=config)
    for _ in range(8):
        await a.add(await cluster.ledger(a, ack_quorum=1), 5)
    await a.bookie.checkpoint()
    await scrub(a)
    made = scrubber(a)
    disk = a.host.disk
    path = next(path for path in disk.paths() if path.startswith("/ledgers/0") and path.endswith(".log"))
    disk.folders.hang(path)
    try:
        ended = made.records[1].round_ended_ms
        made.ask()
        await until(lambda: made.records[1].round_ended_ms > ended, "the other directory", within=120)
        assert "/ledgers/0: a read does not end" in made.counts.last_failure
        assert made.counts.rounds == 1
        await trio.sleep(100)
        assert (made.counts.rounds, made.counts.running) == (1, False)
    finally:
        disk.folders.mend(path)  # a stop would wait for the read
    await until(lambda: made.counts.rounds == 2, "it goes on when the disk answers", within=60)
    assert made.records[0].entries == made.records[1].entries == 20
