"""Recovery of a journal that is larger than one part: read once, flushed meanwhile, and crashed at every step."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from bookie import recovery
from bookie.bookie import Bookie
from bookie.db_ledger_storage.log_writing.flush import FlushJob
from bookie.errors import JournalDamagedError
from bookie.journal import replay
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from simulation.machines.disk import SimFile
from simulation.machines.offload import SimOffload
from tests.support.refusals import raises
from tests.unit.bookie.build import CONFIG, Client, add_frames
from tests.unit.bookie.machine import Machine

pytestmark = pytest.mark.seeded

SIZE = 40_000
ENTRIES = 60
"""2.4 MB, in a write cache of 1 MB."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PART_BYTES", 100_000)
    monkeypatch.setattr(recovery, "RECORDS_PER_TURN", 2)


@pytest.fixture
async def killed(machine: Machine) -> Machine:
    """A machine whose journal has entries that nothing was flushed of."""
    machine.config = replace(CONFIG, write_cache_mb=64, flush_interval_ms=10_000_000)
    async with machine.life(crash=True) as (_, client):
        for first in range(0, ENTRIES, 2):
            assert await client.ask(add_frames(7, first, 2, bytes(SIZE))) == [v2.AddAcks(Rc.OK, 7, first, first + 1)]
    machine.config = replace(machine.config, write_cache_mb=1)
    return machine


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the jobs of workers, in the order in which they were begun."""
    names: list[str] = []
    run = SimOffload.run

    def counted(offload: SimOffload, job: Callable[[], object], *, name: str = "") -> Awaitable[object]:
        names.append(name)
        return run(offload, job, name=name)

    monkeypatch.setattr(SimOffload, "run", counted)
    return names


async def nothing(_: Bookie) -> None: ...


async def has_all(bookie: Bookie) -> None:
    await Client(bookie).holds(7, range(ENTRIES), bytes(SIZE))


def journal_file(machine: Machine) -> str:
    (path,) = [path for path in machine.host.disk.paths() if path.endswith(".txn")]
    return path


def data_of(machine: Machine) -> dict[str, bytes]:
    """Return the contents of the files besides those of locks."""
    return {path: machine.host.disk.read(path) for path in machine.host.disk.paths() if "lock" not in path.lower()}


async def test_the_journal_is_read_once_and_its_pages_are_given_back(killed: Machine, monkeypatch) -> None:
    monkeypatch.setattr(replay, "_BLOCK", 1 << 20)
    monkeypatch.setattr(replay, "_FORGOTTEN", 1 << 20)
    journal = journal_file(killed)
    read = 0
    forgotten: list[tuple[int, int]] = []
    pread, forget = SimFile.pread, SimFile.forget

    def counted(file: SimFile, size: int, offset: int) -> bytes:
        nonlocal read
        data = pread(file, size, offset)
        if file._path == journal and any(data):
            read += len(data.rstrip(b"\0"))
        return data

    def noted(file: SimFile, offset: int, size: int) -> None:
        if file._path == journal:
            forgotten.append((offset, offset + size))
        forget(file, offset, size)

    monkeypatch.setattr(SimFile, "pread", counted)
    monkeypatch.setattr(SimFile, "forget", noted)
    await killed.live(has_all, crash=True)
    assert ENTRIES * SIZE < read < 1.2 * ENTRIES * SIZE  # a group that spans two blocks is read again
    assert forgotten[0][0] == 0
    assert forgotten[-1][1] > ENTRIES * SIZE
    assert [end for _, end in forgotten[:-1]] == [start for start, _ in forgotten[1:]]
    assert len(forgotten) > 1


async def test_many_small_groups_take_few_steps_of_a_worker(machine: Machine, steps: list[str]) -> None:
    async with machine.life(crash=True) as (_, client):
        for entry_id in range(100):
            await client.add(7, entry_id)
    steps.clear()
    async with machine.life() as (_, client):
        assert steps.count("journal replay") == 1
        await client.holds(7, range(100))


async def test_the_write_cache_is_flushed_while_the_next_part_is_read(killed: Machine, monkeypatch) -> None:
    active: set[str] = set()
    together: list[set[str]] = []
    run = SimOffload.run

    async def watched(offload: SimOffload, job: Callable[[], object], *, name: str = "") -> object:
        active.add(name)
        together.append(set(active))
        try:
            return await run(offload, job, name=name)
        finally:
            active.discard(name)

    monkeypatch.setattr(SimOffload, "run", watched)
    killed.config = replace(killed.config, write_cache_mb=8)
    await killed.live(has_all, crash=True)
    assert {"flush", "journal replay"} in together


async def test_other_tasks_have_turns_while_a_part_goes_into_the_write_cache(killed: Machine, monkeypatch) -> None:
    monkeypatch.setattr(recovery, "PART_BYTES", 1 << 30)
    monkeypatch.setattr(recovery, "RECORDS_PER_TURN", 4)
    events = ""
    checkpoint, add = trio.lowlevel.checkpoint, recovery._Replaying._add

    async def turned() -> None:
        nonlocal events
        events += "."
        await checkpoint()

    async def added(replaying: recovery._Replaying, run: Run) -> None:
        nonlocal events
        events += "a"
        await add(replaying, run)

    monkeypatch.setattr(trio.lowlevel, "checkpoint", turned)
    monkeypatch.setattr(recovery._Replaying, "_add", added)
    killed.config = replace(killed.config, write_cache_mb=8)
    await killed.live(nothing, crash=True)
    assert max(map(len, events.split("."))) == 4
    assert events.count("a") == ENTRIES // 2


async def test_a_crash_at_any_change_of_a_large_replay_loses_nothing(killed: Machine) -> None:
    for changes in range(1, 60, 4):
        await killed.live(nothing, crash=True, crash_after=changes)
    await killed.live(has_all)


async def test_damage_behind_what_was_flushed_refuses_the_start_and_the_mark_has_not_moved(killed: Machine) -> None:
    journal = journal_file(killed)
    place = ENTRIES * SIZE * 3 // 4
    marks = {path: killed.host.disk.read(path) for path in killed.host.disk.paths() if "/lastMark" in path}
    killed.host.disk.flip(journal, place, 3)
    await raises(JournalDamagedError, killed.live(nothing), f"{journal} is damaged at offset")
    logs = [path for path in killed.host.disk.paths() if path.endswith(".log")]
    assert sum(len(killed.host.disk.read(path)) for path in logs) > ENTRIES * SIZE // 4, "a part was flushed"
    assert {path: killed.host.disk.read(path) for path in marks} == marks
    killed.host.disk.flip(journal, place, 3)
    await killed.live(has_all)


async def test_a_file_that_is_missing_is_found_before_anything_is_changed(killed: Machine, steps: list[str]) -> None:
    before = data_of(killed)
    journal = journal_file(killed)
    killed.host.disk.remove(journal)
    steps.clear()
    await raises(JournalDamagedError, killed.live(nothing), f"{journal} is damaged at offset 0")
    assert "open storage" not in steps
    assert data_of(killed) == {path: data for path, data in before.items() if path != journal}


@pytest.mark.expect_error("damaged part of the journal skipped")
async def test_with_the_skip_key_damage_is_known_before_the_storage_is_opened(killed: Machine) -> None:
    """After a loss the indexes may be missing, so the whole journal is examined before they are opened."""
    journal = journal_file(killed)
    killed.host.disk.flip(journal, ENTRIES * SIZE * 3 // 4, 3)
    killed.config = replace(killed.config, skip_invalid_records=True, integrity_check=True)
    async with killed.life() as (bookie, client):
        assert bookie.storage.limbo.needs_check()
        lost = [each for each in range(ENTRIES) if (await client.read(7, each)).rc != Rc.OK]
        assert 0 < len(lost) < ENTRIES


@pytest.mark.expect_error("no room")
async def test_a_flush_beside_the_replay_that_finds_no_room_does_not_fail_the_start(killed: Machine, monkeypatch):
    """The write cache has room for all, so the start goes on and serves from memory."""
    killed.config = replace(killed.config, write_cache_mb=8)
    flushed = FlushJob.run
    refused: list[int] = []

    def full(job: FlushJob) -> None:
        refused.append(job.table.entries)
        raise OSError(errno.ENOSPC, "No space left on device")

    async def serve(bookie: Bookie) -> None:
        await has_all(bookie)
        assert bookie.read_only
        monkeypatch.setattr(FlushJob, "run", flushed)

    monkeypatch.setattr(FlushJob, "run", full)
    await killed.live(serve)
    assert refused[0] < ENTRIES, "a flush was begun before all was replayed"
    assert refused[1] == refused[0], "none was tried again before the end"
    await killed.live(has_all)


async def test_a_flush_beside_the_replay_that_fails_otherwise_ends_the_start(killed: Machine, monkeypatch) -> None:
    flush = FlushJob.run

    def broken(job: FlushJob) -> None:
        monkeypatch.setattr(FlushJob, "run", flush)
        raise OSError(errno.EIO, "Input/output error")

    killed.config = replace(killed.config, write_cache_mb=8)
    monkeypatch.setattr(FlushJob, "run", broken)
    await raises(OSError, killed.live(nothing), "Input/output error")
    await killed.live(has_all)
