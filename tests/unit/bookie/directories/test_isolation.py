"""Covers bookie/directories with checkpoints.py: a directory that fails takes only its own ledgers with it."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
import trio

from bookie.bookie import Bookie
from bookie.errors import JournalFailedError, StorageFailedError
from quire.metadata.local.memory import MemoryTree
from quire.service.log import captured
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import NotSyncedError, World
from tests.unit.bookie.build import KEY, Client, add_frames, opened
from tests.unit.bookie.directories.rig import LEDGERS, SPREAD, break_flush, fill, holds
from tests.unit.bookie.machine import Machine

EIO = OSError(errno.EIO, "Input/output error")
FAILURES = [EIO, OSError(errno.ENOENT, "No such file or directory"), NotSyncedError(errno.EIO, "sync failed")]
FAILED = "ledger directory failed"
MINE = (1, 4)
"""Ledgers of directory 1."""
OTHERS = (0, 2, 3, 5)


@pytest.fixture
async def spread(world: World, tree: MemoryTree):
    async with opened(world, tree, SPREAD) as bookie:
        yield bookie


PACKAGE = (1).to_bytes(8, "big") + (0).to_bytes(8, "big") + b"digest"
"""An explicit LAC of ledger 1."""


async def refused(client: Client) -> None:
    """Check that everything about the ledgers of directory 1 is answered with IO, and others are served."""
    for ledger_id in MINE:
        assert await client.add(ledger_id, 90) == v2.AddAcks(Rc.IO, ledger_id, 90, 90)
        assert (await client.read(ledger_id, 0)).rc == Rc.IO
        assert (await client.read(ledger_id, -1)).rc == Rc.IO
        assert (await client.fence(ledger_id)).rc == Rc.IO
        (batch,) = await client.ask(v2.batch_read_request(ledger_id, 0, 1, 2, 1000))
        assert isinstance(batch, v2.BatchResponse)
        assert batch.rc == Rc.IO
    for ledger_id in OTHERS:
        assert await client.add(ledger_id, 90) == v2.AddAcks(Rc.OK, ledger_id, 90, 90)
        await client.holds(ledger_id, [0, 90])


@pytest.mark.expect_error(FAILED)
@pytest.mark.parametrize("failure", FAILURES, ids=["EIO", "ENOENT", "not synced"])
async def test_a_failed_directory_takes_only_its_own_ledgers_with_it(spread: Bookie, failure: OSError) -> None:
    client = Client(spread)
    await fill(client)
    break_flush(spread, 1, failure)
    await spread.checkpoint()
    assert spread.directories.usable == [0, 2]
    assert LEDGERS[1] in spread.directories.folders[1]
    await refused(client)
    assert spread.write_lac(1, KEY, PACKAGE, lambda _: None) is Rc.IO
    assert not spread.failed.is_set()


@pytest.mark.expect_error(FAILED)
async def test_what_a_failed_directory_had_not_flushed_is_replayed_at_the_next_start(machine: Machine) -> None:
    machine.config = SPREAD
    async with machine.life() as (bookie, client):
        await fill(client)
        break_flush(bookie, 1, EIO)
        await bookie.checkpoint()
        held = bookie.last_marks[:]
        for ledger_id in OTHERS:
            await client.add(ledger_id, 3, 3)
        await bookie.checkpoint()
        assert bookie.last_marks == held, "ledgers 1 and 4 hold back both journals"
    async with machine.life() as (_, client):
        await holds(client)
        for ledger_id in OTHERS:
            await client.holds(ledger_id, range(6))


@pytest.mark.expect_error(FAILED)
async def test_a_failed_directory_that_needs_nothing_of_a_journal_does_not_hold_back_its_mark(spread: Bookie) -> None:
    client = Client(spread)
    await client.add(1, 0)
    break_flush(spread, 1, EIO)
    await spread.checkpoint()
    for ledger_id in OTHERS:
        await client.add(ledger_id, 0)
    await spread.checkpoint()
    ends = [journal.mark() for journal in spread.journal.journals]
    assert spread.last_marks[0] == ends[0]
    assert spread.last_marks[1] < ends[1]


@pytest.mark.expect_error(FAILED)
async def test_a_journal_that_grows_behind_a_failed_directory_is_reported(world: World, tree: MemoryTree) -> None:
    config = replace(SPREAD, journal_size_max_mb=1, flush_interval_ms=1000, write_cache_mb=64)
    warning = "journal grows, its files cannot be deleted"
    with captured() as events:
        async with opened(world, tree, config) as bookie:
            client = Client(bookie)
            journal = bookie.journal.journals[1]
            for entry_id in range(12):
                await client.ask(add_frames(3, entry_id, 1, bytes(500_000)))
            await trio.sleep(5)
            assert journal.backlog_bytes < 1 << 20, "the marks move, and the files are deleted"
            assert not [each for each in events if each["event"] == warning]
            await client.add(1, 0)
            break_flush(bookie, 1, EIO)
            for entry_id in range(12, 24):
                await client.ask(add_frames(3, entry_id, 1, bytes(500_000)))
            await trio.sleep(60)
            assert bookie.directories.usable == [0, 2]
            assert 6_000_000 < journal.backlog_bytes < 7_000_000
            (told,) = [each for each in events if each["event"] == warning]  # once, until it has doubled
            assert told["held_by"] == LEDGERS[1]
            assert told["folder"] != "/data/journal0"
            assert bookie.journal.journals[0].backlog_bytes < 1 << 20, "that journal has nothing of the directory"


@pytest.mark.expect_error(FAILED, "flushes fail: refusing adds")
async def test_a_journal_behind_a_failed_directory_is_bounded_and_loses_nothing(machine: Machine) -> None:
    machine.config = replace(
        SPREAD, journal_size_max_mb=1, flush_interval_ms=1000, write_cache_mb=64, journal_backlog_mb=4
    )
    kept: list[int] = []
    async with machine.life(crash=True) as (bookie, client):
        await client.add(1, 0)
        break_flush(bookie, 1, EIO)
        for entry_id in range(40):
            (answer,) = await client.ask(add_frames(3, entry_id, 1, bytes(500_000)))
            if answer != v2.AddAcks(Rc.OK, 3, entry_id, entry_id):
                break
            kept.append(entry_id)
            await trio.sleep(2)
        assert bookie.read_only
        assert "/data/journal1 has 4 MB of journal" in bookie.disks.reason
        assert LEDGERS[1] in bookie.disks.reason
        assert 8 <= len(kept) <= 10
        assert (await client.read(3, 0)).rc == Rc.OK, "reads go on"
        await trio.sleep(60)
        assert bookie.journal.journals[1].backlog_bytes < 6 << 20
    async with machine.life() as (bookie, client):
        assert not bookie.read_only
        assert (await client.read(1, 0)).rc == Rc.OK, "what the directory had not stored is in the journal"
        for entry_id in kept:
            assert (await client.read(3, entry_id)).rc == Rc.OK
        await client.add(1, 1)


@pytest.mark.expect_error(FAILED)
async def test_a_failed_directory_stays_failed_until_a_restart(spread: Bookie) -> None:
    await fill(Client(spread))
    repair = break_flush(spread, 1, EIO)
    await spread.checkpoint()
    repair()
    await spread.checkpoint()
    await trio.sleep(60)
    await refused(Client(spread))


@pytest.mark.expect_error("ledger directory failed")
async def test_adds_that_wait_for_a_directory_are_refused_when_it_fails(world: World, tree: MemoryTree) -> None:
    config = replace(SPREAD, write_cache_mb=2, journal_memory_mb=64, flush_interval_ms=10_000_000)
    async with opened(world, tree, config) as bookie:
        client = Client(bookie)
        break_flush(bookie, 1, EIO)
        client.send(*[add_frames(1, entry_id, 1, bytes(400_000)) for entry_id in range(8)])
        answers: list[v2.AddAcks] = []
        while sum(answer.last - answer.first + 1 for answer in answers) < 8:
            (answer,) = await client.take()
            assert isinstance(answer, v2.AddAcks)
            answers.append(answer)
        assert {answer.rc for answer in answers} == {Rc.OK, Rc.IO}


@pytest.mark.expect_error("checkpoint failed", "no room")
async def test_a_directory_without_room_does_not_fail(spread: Bookie) -> None:
    client = Client(spread)
    await fill(client)
    repair = break_flush(spread, 1, OSError(errno.ENOSPC, "No space left on device"))
    spread.request_flush(1)
    await trio.sleep(5)
    assert not spread.directories.any_failed
    repair()
    await trio.sleep(60)
    assert not spread.read_only
    assert await client.add(7, 0) == v2.AddAcks(Rc.OK, 7, 0, 0)


@pytest.mark.expect_error(FAILED, "last checkpoint failed")
async def test_the_bookie_ends_when_its_last_directory_fails(world: World, tree: MemoryTree) -> None:
    async with opened(world, tree, SPREAD) as bookie:
        await fill(Client(bookie))
        for directory in range(3):
            break_flush(bookie, directory, StorageFailedError("an index cannot be synced"))
        with pytest.raises(StorageFailedError):
            await bookie.checkpoint()
        assert bookie.failed.is_set()
    assert all(world.disk.exists(f"{folder}/current/DIRTY") for folder in LEDGERS)


@pytest.mark.expect_error("journal failed", "journal directory failed")
async def test_a_failed_journal_takes_only_its_own_ledgers_with_it(machine: Machine) -> None:
    machine.config = SPREAD
    async with machine.life() as (bookie, client):
        await fill(client)
        bookie.journal.journals[1]._fail(JournalFailedError("the journal cannot be synced: EIO"))
        for ledger_id in (1, 3, 5):
            assert await client.add(ledger_id, 3) == v2.AddAcks(Rc.IO, ledger_id, 3, 3)
            assert (await client.read(ledger_id, 0)).rc == Rc.OK
        for ledger_id in (0, 2, 4):
            assert await client.add(ledger_id, 3) == v2.AddAcks(Rc.OK, ledger_id, 3, 3)
        await bookie.checkpoint()
        assert not bookie.failed.is_set()
        assert (await client.fence(3)).rc == Rc.IO
    async with machine.life() as (_, client):
        await holds(client)
        for ledger_id in (0, 2, 4):
            await client.holds(ledger_id, range(4))


# --- a disk that hangs


@pytest.mark.expect_error("ledger directory does not answer")
async def test_a_disk_that_hangs_for_a_minute_holds_up_no_other(spread: Bookie) -> None:
    client = Client(spread)
    await fill(client)
    storage = spread.storage.directories[1]
    flush = storage.flush

    async def hang() -> None:
        storage.flush = flush  # type: ignore[method-assign]
        await trio.sleep(60)
        await flush()

    storage.flush = hang  # type: ignore[method-assign]
    spread.request_flush(1)
    await trio.sleep(25)
    flushes = [each.stats.flushes for each in spread.storage.directories]
    assert flushes[0] >= 1
    assert flushes[1] == 0
    assert await client.add(1, 3) == v2.AddAcks(Rc.OK, 1, 3, 3), "its write cache still takes entries"
    await trio.sleep(10)
    await refused(client)
    held = spread.last_marks[:]
    await trio.sleep(20)
    assert spread.last_marks == held
    await trio.sleep(20)
    await client.holds(1, range(4))
    assert await client.add(1, 4) == v2.AddAcks(Rc.OK, 1, 4, 4)
    await spread.checkpoint()
    assert spread.last_marks == [journal.mark() for journal in spread.journal.journals]


@pytest.mark.expect_error("ledger directory does not answer")
async def test_a_flush_that_hangs_is_noticed_though_another_job_on_the_directory_ends(spread: Bookie) -> None:
    client = Client(spread)
    await fill(client)
    storage = spread.storage.directories[1]
    flush = storage.flush

    async def hang() -> None:
        storage.flush = flush  # type: ignore[method-assign]
        await trio.sleep(60)
        await flush()

    storage.flush = hang  # type: ignore[method-assign]
    spread.request_flush(1)
    await trio.sleep(10)
    await spread._checkpoints._detached.busy(1, trio.lowlevel.checkpoint)
    await trio.sleep(25)
    assert spread.directories.usable == [0, 2]
    await spread._checkpoints._detached.busy(1, trio.lowlevel.checkpoint)
    assert spread.directories.usable == [0, 2], "the flush still hangs"
    await trio.sleep(30)
    assert spread.directories.usable == [0, 1, 2]


@pytest.mark.expect_error("ledger directory does not answer")
async def test_a_disk_that_hangs_while_a_mark_is_written_holds_up_no_flush_and_no_other_mark(spread: Bookie) -> None:
    client = Client(spread)
    await fill(client)
    checkpoints = spread._checkpoints
    write = checkpoints._write_mark
    hung: list[int] = []

    async def hang(directory: int, *rest: object) -> None:
        if directory == 1 and not hung:
            hung.append(directory)
            await trio.sleep(60)
        await write(directory, *rest)  # type: ignore[arg-type]

    checkpoints._write_mark = hang  # type: ignore[method-assign,assignment]
    begun = spread.last_marks[:]
    spread.request_flush()
    await trio.sleep(5)
    assert hung
    assert [each.stats.flushes for each in spread.storage.directories] == [1, 1, 1]
    assert spread.last_marks == begun
    await trio.sleep(40)
    assert all(mark > before for mark, before in zip(spread.last_marks, begun, strict=True))
    await trio.sleep(30)
    assert spread.directories.usable == [0, 1, 2]
    await holds(client)
