"""The journal's writer: records reported as durable are on the disk, and a failure is reported as a failure."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest
import trio

from bookie.errors import BookieError, JournalFailedError, JournalWriteError
from bookie.journal import group_writer as writer_module
from bookie.journal.config import JournalConfig
from bookie.journal.format import Fence, LedgerKey, LogMark, decode_header
from bookie.journal.replay import Replay, journal_ids
from bookie.journal.writer import ITEM_OVERHEAD, Journal
from quire.world.doors import File, World
from simulation.machines.world import Universe
from tests.unit.bookie.build import KEY, run_of
from tests.unit.bookie.journal.bench import FOLDER, Bench, items, replayed

T = TypeVar("T")


def test_what_is_told_durable_survives_every_crash() -> None:
    for seed in range(40):
        bench = Bench(seed=seed)
        assert bench.write(run_of(1, 0, 5), Fence(1)).error is None
        bench.crash()
        assert bench.replayed() == [(1, 0, 4), Fence(1)]


def test_groups_begin_and_end_at_multiples_of_512() -> None:
    bench = Bench()
    for first in range(10):
        result = bench.write(run_of(1, first, 1))
        assert result.mark is not None
        assert result.mark.offset % 512 == 0
    assert bench.replayed() == [(1, first, first) for first in range(10)]


def test_the_key_is_written_once_and_before_the_first_entry() -> None:
    bench = Bench()
    bench.write(run_of(1, 0, 1), run_of(2, 0, 1), run_of(1, 1, 1), key=KEY)
    bench.write(run_of(1, 2, 1), key=KEY)
    assert bench.replayed() == [
        LedgerKey(1, KEY), (1, 0, 0), LedgerKey(2, KEY), (2, 0, 0), (1, 1, 1), (1, 2, 2),
    ]  # fmt: skip


def test_a_full_disk_fails_its_group_alone_and_the_next_takes_its_place() -> None:
    bench = Bench()
    before = bench.write(run_of(1, 0, 1)).mark
    bench.image.limit(600)
    failed = bench.write(run_of(2, 0, 100), key=KEY)
    assert isinstance(failed.error, JournalWriteError)
    assert failed.mark is None
    assert bench.writer.mark == before
    bench.image.limit(None)
    assert bench.write(run_of(2, 1, 1), key=KEY).error is None
    bench.crash()
    assert bench.replayed() == [(1, 0, 0), LedgerKey(2, KEY), (2, 1, 1)]


def test_a_failed_sync_is_final() -> None:
    bench = Bench()
    bench.image.fail_syncs()
    assert isinstance(bench.write(run_of(1, 0, 1)).error, JournalFailedError)
    assert isinstance(bench.write(run_of(1, 1, 1)).error, JournalFailedError)


class Uncuttable:
    """A file whose length cannot be changed."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def truncate(self, size: int) -> None:
        raise OSError(errno.EIO, "no")


def test_a_write_that_cannot_be_cut_back_is_final() -> None:
    bench = Bench()
    file = bench.writer._file
    assert file is not None
    bench.writer._file = Uncuttable(file)
    bench.image.limit(100)
    assert isinstance(bench.write(run_of(1, 0, 100)).error, JournalFailedError)
    bench.image.limit(None)
    assert isinstance(bench.write(run_of(1, 0, 1)).error, JournalFailedError)


def test_a_new_file_begins_before_the_limit_and_knows_where_the_old_one_ended() -> None:
    bench = Bench(JournalConfig(preallocate=0, file_size_max=4096))
    marks = [bench.write(run_of(1, first, 1, b"x" * 1000)).mark for first in range(6)]
    ids = [mark.file_id for mark in marks if mark is not None]
    assert ids == [9, 9, 10, 10, 11, 11]
    header = decode_header(bench.image.read(f"{FOLDER}/a.txn")[:512], 10)
    assert header is not None
    assert header.previous == marks[1]
    bench.crash()
    assert bench.replayed() == [(1, first, first) for first in range(6)]


def test_a_group_bigger_than_a_file_gets_a_file_of_its_own() -> None:
    bench = Bench(JournalConfig(preallocate=0, file_size_max=4096))
    assert bench.write(run_of(1, 0, 10, b"x" * 1000)).error is None
    assert bench.write(run_of(1, 10, 1)).mark == LogMark(10, 1024)


def test_a_new_file_that_cannot_be_begun_fails_the_group_and_is_tried_again() -> None:
    bench = Bench(JournalConfig(preallocate=0, file_size_max=2048))
    bench.write(run_of(1, 0, 1, b"x" * 1000))
    bench.image.limit(0)
    assert isinstance(bench.write(run_of(1, 1, 1, b"x" * 1000)).error, JournalWriteError)
    bench.image.limit(None)
    assert bench.write(run_of(1, 2, 1, b"x" * 1000)).error is None
    assert bench.replayed() == [(1, 0, 0), (1, 2, 2)]


def test_a_long_queue_is_several_groups_each_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "GROUP_SIZE_MAX", 3000)
    bench = Bench()
    results = bench.writer.write(items([run_of(1, first, 1, b"x" * 1000) for first in range(8)]))
    assert [result.items for result in results] == [3, 3, 2]
    assert [result.mark is not None and result.mark.offset for result in results] == sorted(
        {result.mark.offset for result in results if result.mark}
    )
    bench.crash()
    assert bench.replayed() == [(1, 0, 2), (1, 3, 5), (1, 6, 7)]


def test_space_that_cannot_be_reserved_is_no_failure_if_the_group_fits() -> None:
    bench = Bench(JournalConfig(preallocate=1 << 20))
    bench.image.limit(100_000)
    assert bench.write(run_of(1, 0, 5)).error is None
    assert bench.write(run_of(1, 5, 5)).error is None


def test_closing_gives_reserved_space_back() -> None:
    bench = Bench(JournalConfig(preallocate=1 << 20))
    mark = bench.write(run_of(1, 0, 5)).mark
    assert mark is not None
    assert len(bench.image.read(f"{FOLDER}/9.txn")) > 1 << 20
    bench.writer.close()
    assert len(bench.image.read(f"{FOLDER}/9.txn")) == mark.offset


# --- the half on the loop


class Told:
    """Records the calls of callbacks."""

    def __init__(self) -> None:
        self.all: list[tuple[str, BookieError | None]] = []
        self._news = trio.Event()

    def __call__(self, name: str) -> Callable[[BookieError | None], None]:
        return partial(self._told, name)

    def _told(self, name: str, error: BookieError | None) -> None:
        self.all.append((name, error))
        self._news.set()

    async def wait(self, count: int) -> None:
        with trio.fail_after(10):
            while len(self.all) < count:
                self._news = trio.Event()
                await self._news.wait()


@pytest.fixture
async def told() -> Told:
    return Told()


@pytest.fixture
async def journal(request: pytest.FixtureRequest, world: World) -> Journal:
    marker = request.node.get_closest_marker("journal")
    world.disk.make_dirs(FOLDER)
    journal = Journal(world, FOLDER, JournalConfig(preallocate=0, **(marker.kwargs if marker is not None else {})))
    await journal.open(None)
    return journal


async def test_callbacks_come_in_order_after_the_sync_and_then_the_end_of_the_pass(journal, world, told):
    passes: list[int] = []
    journal.on_pass = lambda: passes.append(len(told.all))
    journal.append(run_of(1, 0, 2), told("a"), KEY)
    journal.append(Fence(1), told("b"), KEY)
    assert told.all == []
    assert journal.queued_bytes > 0
    await told.wait(2)
    assert told.all == [("a", None), ("b", None)]
    assert passes == [2]
    assert journal.queued_bytes == 0
    assert replayed(world) == [LedgerKey(1, KEY), (1, 0, 1), Fence(1)]


async def test_what_queues_during_a_sync_is_one_group(journal: Journal, told: Told) -> None:
    for first in range(50):
        journal.append(run_of(1, first, 1), told(str(first)))
        if first == 0:
            await trio.lowlevel.checkpoint()
    await told.wait(50)
    assert journal.groups <= 2


async def test_the_mark_covers_what_is_durable_and_nothing_else(journal: Journal, world: World, told: Told) -> None:
    start = journal.mark()
    journal.append(run_of(1, 0, 1), told("a"))
    assert journal.mark() == start
    await told.wait(1)
    assert journal.mark() == LogMark(start.file_id, start.offset + 512)
    assert list(Replay(world.disk, FOLDER, journal.mark()).batches()) == []


@pytest.mark.seeded(3)
async def test_a_start_begins_a_new_file_behind_all_there_are(world: World, told: Told) -> None:
    world.disk.make_dirs(FOLDER)
    first = Journal(world, FOLDER, JournalConfig(preallocate=0))
    await first.open(None)
    first.append(run_of(1, 0, 1), told("a"))
    await told.wait(1)
    end = first.mark()
    await first.aclose()
    second = Journal(world, FOLDER, JournalConfig(preallocate=0))
    await second.open(end)
    ids = journal_ids(world.disk, FOLDER)
    assert ids == [end.file_id, end.file_id + 1]
    assert second.mark() == LogMark(end.file_id + 1, 512)
    header = decode_header(world.disk.read(f"{FOLDER}/{ids[1]:x}.txn"), ids[1])
    assert header is not None
    assert header.previous == end
    await second.aclose()


@pytest.mark.expect_error("journal failed")
async def test_after_a_failed_sync_nothing_is_told_durable(journal: Journal, universe: Universe, told: Told) -> None:
    failures: list[JournalFailedError] = []
    journal.on_failed = failures.append
    universe.host("host").disk.fail_syncs()
    journal.append(run_of(1, 0, 1), told("a"))
    await told.wait(1)
    assert isinstance(told.all[0][1], JournalFailedError)
    assert failures == [journal.failed]
    with pytest.raises(JournalFailedError):
        journal.append(run_of(1, 1, 1), told("b"))
    assert len(told.all) == 1
    assert journal.mark().offset == 512


@pytest.mark.expect_error("journal group not written")
async def test_a_full_disk_is_told_and_logged_and_later_groups_go_on(journal: Journal, universe: Universe, told: Told):
    universe.host("host").disk.limit(100)
    journal.append(run_of(1, 0, 10), told("a"), KEY)
    await told.wait(1)
    assert isinstance(told.all[0][1], JournalWriteError)
    universe.host("host").disk.limit(None)
    journal.append(run_of(1, 10, 10), told("b"), KEY)
    await told.wait(2)
    assert told.all[1] == ("b", None)
    assert journal.write_failures == 1


@pytest.mark.journal(queue_size_max=1000 + ITEM_OVERHEAD)
async def test_more_than_the_bound_has_no_room_but_one_record_always_has(journal: Journal, told: Told) -> None:
    assert journal.has_room(5000)
    journal.append(run_of(1, 0, 1, b"x" * 600), told("a"))
    assert not journal.has_room(500)
    assert journal.has_room(100)
    await told.wait(1)
    assert journal.has_room(500)


@pytest.mark.journal(file_size_max=2048, backups=2)
async def test_old_files_go_when_the_mark_has_passed_them_but_the_backups(journal: Journal, world: World, told: Told):
    for first in range(8):
        journal.append(run_of(1, first, 1, b"x" * 1000), told("a"))
        await told.wait(first + 1)
    ids = journal_ids(world.disk, FOLDER)
    assert len(ids) == 8
    await journal.checkpoint_complete(LogMark(ids[5], 512))
    assert journal_ids(world.disk, FOLDER) == ids[3:]
    await journal.checkpoint_complete(LogMark(ids[0], 512))
    assert journal_ids(world.disk, FOLDER) == ids[3:]


async def test_closing_writes_what_is_queued(journal: Journal, world: World, told: Told) -> None:
    journal.append(run_of(1, 0, 1), told("a"))
    await journal.aclose()
    assert told.all == [("a", None)]
    assert replayed(world) == [(1, 0, 0)]


@pytest.mark.journal(group_wait_s=2.0)
async def test_a_group_wait_gathers_what_comes_meanwhile(nursery: trio.Nursery, journal: Journal, told: Told) -> None:
    nursery.start_soon(journal.run, name="groups")
    begin = trio.current_time()
    for first in range(5):
        journal.append(run_of(1, first, 1), told("a"))
        await trio.sleep(0.3)
    await told.wait(5)
    assert journal.groups == 1
    assert trio.current_time() - begin >= 2
    nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint()
    await journal.aclose()


@pytest.mark.journal(group_wait_s=2.0)
async def test_half_a_megabyte_ends_the_group_wait(nursery: trio.Nursery, journal: Journal, told: Told) -> None:
    nursery.start_soon(journal.run, name="groups")
    begin = trio.current_time()
    journal.append(run_of(1, 0, 1, bytes(600_000)), told("a"))
    await told.wait(1)
    assert trio.current_time() - begin < 2
    nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint()
    await journal.aclose()


async def test_what_is_appended_while_held_is_one_group_that_begins_when_it_is_let_go(journal: Journal, told: Told):
    journal.hold()
    for first in range(0, 50, 10):
        journal.append(run_of(1, first, 10), told(str(first)))
    await trio.sleep(1)
    assert told.all == []
    journal.let_go()
    await told.wait(5)
    assert [error for _, error in told.all[:5]] == [None] * 5
    assert journal.groups == 1
    journal.append(run_of(1, 50, 1), told("after"))
    await told.wait(6)
