"""Covers bookie/journal/spares.py with group_writer.py and replay.py: journal files written over old ones."""

from __future__ import annotations

import random

import pytest

from bookie.errors import JournalFailedError, JournalWriteError
from bookie.journal.config import JournalConfig
from bookie.journal.format import HEADER_SIZE, NO_MARK, LogMark, decode_header, file_name
from bookie.journal.group_writer import GroupWriter
from bookie.journal.replay import Replay, journal_ids, written_ids
from bookie.journal.spares import next_id, spare_ids, trim
from quire.cli.shell.local.journal_scan import JournalScan
from quire.wire.bookkeeper.run import Run
from quire.world.doors import Disk
from simulation.machines.power import PowerCut
from tests.unit.bookie.build import run_of
from tests.unit.bookie.journal.bench import FOLDER, Bench, items

REUSING = JournalConfig(preallocate=4096, file_size_max=16 << 10, reuse=True)


def trimmed(bench: Bench, *, backups: int = 0, spare_size_min: int | None = 8 << 10) -> None:
    trim(bench.world.disk, FOLDER, bench.writer.mark, backups=backups, spare_size_min=spare_size_min)


def reused(bench: Bench) -> list[int]:
    """Return the ids of the files that were written over others."""
    disk = bench.world.disk
    found = []
    for file_id in journal_ids(disk, FOLDER):
        header = decode_header(bench.image.read(f"{FOLDER}/{file_name(file_id)}")[:HEADER_SIZE], file_id)
        if header is not None and header.reused:
            found.append(file_id)
    return found


def fill(bench: Bench, first: int, count: int, size: int = 1000) -> None:
    for entry_id in range(first, first + count):
        assert bench.write(run_of(1, entry_id, 1, b"%c" % (65 + entry_id % 26) * size)).error is None
        trimmed(bench)


def test_a_file_that_is_no_longer_needed_is_written_again_under_the_next_id() -> None:
    bench = Bench(REUSING)
    fill(bench, 0, 42)
    assert reused(bench) == journal_ids(bench.world.disk, FOLDER) == [bench.writer.mark.file_id]
    mark = bench.writer.mark
    assert b"QUIREGRP" in bench.image.read(f"{FOLDER}/{file_name(mark.file_id)}")[mark.offset :]
    assert bench.image.used <= 3 * REUSING.file_size_max


def test_backups_are_kept_and_one_spare() -> None:
    bench = Bench(REUSING)
    for entry_id in range(100):
        bench.write(run_of(1, entry_id, 1, b"x" * 1000))
        trimmed(bench, backups=2)
        assert len(spare_ids(bench.world.disk, FOLDER)) <= 1
    last = bench.writer.mark.file_id
    assert journal_ids(bench.world.disk, FOLDER) == [last - 2, last - 1, last]
    assert reused(bench) == [last - 2, last - 1, last]


def test_short_files_are_deleted_and_without_the_option_spares_too() -> None:
    bench = Bench(REUSING)
    bench.write(run_of(1, 0, 1))
    bench.writer.roll_wanted = True
    bench.write(run_of(1, 1, 1))
    trimmed(bench)
    assert spare_ids(bench.world.disk, FOLDER) == []
    for entry_id in range(2, 20):
        bench.write(run_of(1, entry_id, 1, b"x" * 1000))
    trimmed(bench)
    assert len(spare_ids(bench.world.disk, FOLDER)) == 1
    trimmed(bench, spare_size_min=None)
    assert spare_ids(bench.world.disk, FOLDER) == []


def test_an_id_is_above_those_of_spares() -> None:
    disk = Bench(REUSING).world.disk
    disk.unlink(f"{FOLDER}/9.txn")
    disk.open(f"{FOLDER}/ab.spare", create=True)
    assert next_id(disk, FOLDER, 5) == 0xAC
    disk.unlink(f"{FOLDER}/ab.spare")
    assert next_id(disk, FOLDER, 5) == 6


def test_a_file_with_the_highest_id_is_named() -> None:
    disk = Bench(REUSING).world.disk
    disk.open(f"{FOLDER}/7fffffffffffffff.txn", create=True)
    with pytest.raises(JournalFailedError, match=r"7fffffffffffffff\.txn: move it away"):
        next_id(disk, FOLDER, 5)


def test_a_spare_that_cannot_be_begun_is_given_up() -> None:
    bench = Bench(REUSING)
    for entry_id in range(13):
        bench.write(run_of(1, entry_id, 1, b"x" * 1000))
    bench.writer.roll_wanted = True
    bench.write(run_of(1, 13, 1))
    trimmed(bench)
    assert spare_ids(bench.world.disk, FOLDER) == [9]
    for entry_id in range(14, 22):
        bench.write(run_of(1, entry_id, 1, b"x" * 1000))
    bench.image.fail_syncs()
    bench.writer.roll_wanted = False
    failed = bench.write(run_of(1, 22, 8, b"x" * 1000))
    assert isinstance(failed.error, JournalWriteError)
    assert spare_ids(bench.world.disk, FOLDER) == []
    assert bench.write(run_of(1, 22, 8, b"x" * 1000)).error is None
    assert reused(bench) == []


def as_the_original_reads(disk: Disk, file_id: int) -> list[int]:
    """Return the entry ids that the original's rules find in a file."""
    file = disk.open(f"{FOLDER}/{file_name(file_id)}", writable=False)
    header = decode_header(file.pread(HEADER_SIZE, 0), file_id)
    assert header is not None
    scan = JournalScan(file.pread, file.size(), header)
    found = [record.entry_id for record in scan]
    assert not scan.stopped
    return found


def test_the_original_reads_no_old_record_either() -> None:
    bench = Bench(REUSING)
    for entry_id in range(45):
        bench.write(run_of(1, entry_id, 1, b"x" * (300 + 97 * (entry_id % 9))))
        trimmed(bench)
        file_id = bench.writer.mark.file_id
        found = as_the_original_reads(bench.world.disk, file_id)
        assert found == list(range(entry_id - len(found) + 1, entry_id + 1))
    assert reused(bench)


def test_a_file_is_cut_behind_its_end_when_it_is_left() -> None:
    bench = Bench(REUSING)
    fill(bench, 0, 30)
    mark = bench.writer.mark
    bench.writer.close()
    assert len(bench.image.read(f"{FOLDER}/{file_name(mark.file_id)}")) == mark.offset


class Seal:
    """Facts that a seal would know."""

    def __init__(self) -> None:
        self.begun_id = 9

    def reached(self, end: LogMark) -> None: ...

    def begun(self, end: LogMark) -> None:
        self.begun_id = end.file_id


class Life:
    """One life of a journal that ends in a crash: what was acknowledged, and from where a start replays."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.bench = Bench(REUSING, seed=seed)
        self.next = 0
        """The next entry."""
        self.from_mark = LogMark(9, HEADER_SIZE), 0
        """A position, and the entry that it begins with."""
        self.seal = self.bench.writer.seal = Seal()
        self.synced = 0
        """The entry behind the last one of which a sync was reported."""

    def work(self, deferred_share: float) -> None:
        bench = self.bench
        while True:
            count = self.rng.randint(1, 4)
            run = run_of(1, self.next, count, b"%c" % (65 + self.next % 26) * self.rng.randint(1, 1500))
            deferred = self.rng.random() < deferred_share
            result = bench.write(run, deferred=deferred)
            assert result.error is None
            self.next += count
            if not deferred:
                self.synced = self.next
            if self.rng.random() < 0.3 and not deferred:
                assert result.mark is not None
                self.from_mark = result.mark, self.next
                trim(bench.world.disk, FOLDER, result.mark, backups=self.rng.randint(0, 1), spare_size_min=8 << 10)

    def entries(self, mark: LogMark) -> list[int]:
        replay = Replay(self.bench.world.disk, FOLDER, mark)
        runs = [record for batch in replay.batches() for record in batch]
        self.end = replay.end
        return [e for run in runs if isinstance(run, Run) for e in range(run.first, run.last + 1)]


@pytest.mark.parametrize("deferred_share", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(12))
def test_no_crash_at_any_step_loses_a_synced_entry_or_brings_an_old_one_back(seed: int, deferred_share: float) -> None:
    life = Life(seed)
    was_reused = False
    for fuse in range(1 + seed, 160 + seed, 13):
        life.synced = life.next
        life.bench.host.crash_after(fuse)
        with pytest.raises(PowerCut):
            life.work(deferred_share)
        life.bench.world = life.bench.host.world()
        disk = life.bench.world.disk
        assert written_ids(disk, FOLDER, life.seal.begun_id)[-1] <= life.seal.begun_id
        everything = life.entries(NO_MARK)  # as without a seal
        found = life.entries(life.from_mark[0])
        assert everything == list(range(everything[0], everything[-1] + 1)) if everything else not found
        assert everything[len(everything) - len(found) :] == found
        first = life.from_mark[1]
        assert found == list(range(first, first + len(found)))
        assert first + len(found) >= life.synced
        was_reused = was_reused or bool(reused(life.bench))
        # The next start begins a file behind what it has found.
        life.next = first + len(found)
        file_id = next_id(disk, FOLDER, 1)
        life.bench.writer = GroupWriter(disk, FOLDER, REUSING)
        life.bench.writer.seal = life.seal
        life.bench.writer.create(file_id, life.end if life.end.file_id == file_id - 1 else None)
    assert was_reused


def test_the_zeros_behind_a_group_are_overwritten_by_the_next() -> None:
    bench = Bench(REUSING)
    fill(bench, 0, 20)
    before = bench.writer.mark
    (result,) = bench.writer.write(items([run_of(1, 20, 1)]))
    image = bench.image.read(f"{FOLDER}/{file_name(before.file_id)}")
    assert result.mark is not None
    assert result.mark.file_id == before.file_id
    assert any(image[before.offset : before.offset + 512])
    assert not any(image[result.mark.offset : result.mark.offset + 512])
