"""bookie/journal/seal.py: the start of replay, from lastMark, its sealed copy and the journal's files."""

from __future__ import annotations

import pytest

from bookie.journal.format import NO_MARK, LogMark
from bookie.journal.seal import SECTOR, JournalSeal, ReplayPlan, Sealed, decode_seal, plan_replay, read_seal
from quire.world.doors import Disk
from simulation import Universe
from simulation.machines.host import Host

MARK = LogMark(8, 4096)
END = LogMark(9, 1024)
SEALED = Sealed(MARK, END, 1, 1)
PATH = "/l/lastMark.sealed"


@pytest.fixture
def host() -> Host:
    host = Universe(1).host("host")
    host.world().disk.make_dirs("/l")
    host.end()
    return host


def found(disk: Disk) -> tuple[LogMark | None, LogMark | None]:
    """Return mark and end of the seal."""
    seal = read_seal(disk, PATH)
    assert seal is not None
    return seal.mark, seal.end


def plan(last_mark: LogMark | None, sealed: Sealed | None, *ids: int) -> ReplayPlan:
    return plan_replay(last_mark, sealed, ids, last_mark_path="/l/lastMark", seal_path=PATH)


def test_a_mark_that_agrees_with_its_seal_is_where_replay_begins():
    assert plan(MARK, SEALED, 7, 8, 9) == ReplayPlan(MARK, 8, END)


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_bit_of_the_mark_changes_nothing_but_the_log(bit):
    found = plan(LogMark(8, 4096 ^ 1 << bit), SEALED, 7, 8, 9)
    assert (found.mark, found.promised) == (MARK, END)
    assert [finding.file for finding in found.findings] == ["/l/lastMark"]


@pytest.mark.parametrize("last_mark", [None, NO_MARK])
def test_a_damaged_or_missing_mark_is_taken_from_its_seal(last_mark):
    assert plan(last_mark, SEALED, 8, 9).mark == MARK


def test_without_a_seal_the_whole_journal_is_replayed():
    found = plan(MARK, None, 7, 8, 9)
    assert (found.mark, found.named, found.promised) == (NO_MARK, 8, None)
    assert found.findings


def test_a_new_bookie_has_nothing_to_tell():
    assert plan(NO_MARK, None) == ReplayPlan(NO_MARK)


def test_a_seal_that_another_program_left_behind_is_not_believed():
    """BookKeeper has served the folder in the meantime: there is a journal file that the seal does not name."""
    found = plan(LogMark(12, 512), SEALED, 9, 12)
    assert (found.mark, found.named, found.promised) == (NO_MARK, 12, None)


def test_each_mark_and_each_end_goes_to_the_other_sector_and_the_newer_counts(host):
    disk = host.world().disk
    seal = JournalSeal.open(disk, PATH)
    for number in range(1, 4):
        seal.write_mark(LogMark(1, 512 * number))
        seal.reached(LogMark(2, 512 * number))
        assert found(disk) == (LogMark(1, 512 * number), LogMark(2, 512 * number))


def test_a_damaged_sector_leaves_the_one_before_it(host):
    disk = host.world().disk
    seal = JournalSeal.open(disk, PATH)
    for number in (1, 2):
        seal.write_mark(LogMark(1, number))
        seal.reached(LogMark(2, number))
    data = disk.read(PATH)
    for sector in range(4):
        for at in range(36):
            flipped = bytearray(data)
            flipped[sector * SECTOR + at] ^= 1
            sealed = decode_seal(bytes(flipped))
            assert sealed.damaged == 1
            assert sealed.mark in (LogMark(1, 1), LogMark(1, 2))
            assert sealed.end in (LogMark(2, 1), LogMark(2, 2))
    assert decode_seal(b"") == Sealed(damaged=4)


def test_a_seal_goes_on_where_it_was_and_survives_a_cut(host):
    disk = host.world().disk
    JournalSeal.open(disk, PATH).write_mark(LogMark(1, 1))
    again = JournalSeal.open(disk, PATH)
    again.write_mark(LogMark(1, 2))
    again.reached(LogMark(1, 3))
    host.disk.cut(PATH, 2 * SECTOR)
    assert found(disk) == (LogMark(1, 2), None)
    JournalSeal.open(disk, PATH).reached(LogMark(1, 4))
    assert found(disk) == (LogMark(1, 2), LogMark(1, 4))
