"""A bookie through starts, stops, crashes and full disks, on a simulated host."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from struct import pack
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie, open_bookie
from bookie.cookie import check_storage
from bookie.db_ledger_storage.ledger_index import LedgerIndex, LedgerRow
from bookie.db_ledger_storage.location_index import LocationIndex
from bookie.disks.room import SPARE_PART
from bookie.errors import CookieMismatchError, DirectoryInUseError, JournalDamagedError, StorageFailedError
from bookie.journal.format import LogMark, decode_last_mark, file_name
from bookie.journal.replay import journal_ids
from quire.metadata.bookies import read_cookie
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from simulation.machines.disk import SimDisk
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.bookie.build import (
    CONFIG,
    JOURNAL,
    KEY,
    LEDGERS,
    Client,
    add_frames,
    cluster,
    entry,
    opened,
    with_bookie,
)
from tests.unit.bookie.machine import Machine

pytestmark = pytest.mark.seeded

RESERVE = "/data/ledgers/reserve"


def last_mark(world: World) -> LogMark:
    mark = decode_last_mark(world.disk.read(f"{LEDGERS}/lastMark"))
    assert mark is not None
    return mark


async def nothing(_: Bookie) -> None: ...


async def test_a_clean_stop_leaves_nothing_to_replay(world: World) -> None:
    tree = MemoryTree()
    async with opened(world, tree) as bookie:
        client = Client(bookie)
        await client.add(7, 0, 5)
        end = bookie.journal.of(0).mark()
        assert world.disk.exists(f"{LEDGERS}/DIRTY")
    assert last_mark(world) == end
    assert not world.disk.exists(f"{LEDGERS}/DIRTY")
    async with opened(world, tree) as bookie:
        client = Client(bookie)
        assert bytes((await client.read(7, 4)).entry) == entry(7, 4)
        assert bookie.stats.reads_cached == 0
        assert bookie.journal.of(0).mark().file_id == end.file_id + 1


async def test_a_stop_waits_for_the_reads_that_workers_have_begun(world: World) -> None:
    outcomes: list[Rc] = []
    async with opened(world, MemoryTree()) as bookie:
        await Client(bookie).add(7, 0, 5)
        await bookie.checkpoint()
        for entry_id in range(5):
            read = partial(bookie.storage.reader.read_run, 7, entry_id, 1, 1 << 20)
            assert bookie.read_by_worker(read, lambda parts, rc: outcomes.append(rc), 7, urgent=False)
    assert outcomes == [Rc.OK] * 5


@pytest.mark.parametrize("seed", range(25))
async def test_what_was_acknowledged_survives_a_crash_at_any_change_to_the_disk(machine: Machine, seed: int) -> None:
    acked: set[int] = set()
    fenced: set[int] = set()

    async def work(bookie: Bookie) -> None:
        client, owner = Client(bookie), Client(bookie)
        first = max(acked, default=-1) + 1
        for start in range(first, first + 90, 3):
            if start % 6:
                client.send(add_frames(7, start, 1))
                client.send(add_frames(7, start + 1, 2))
            else:
                client.send(add_frames(7, start, 3))
            for answer in await client.take():
                assert isinstance(answer, v2.AddAcks)
                assert answer.rc == Rc.OK
                acked.update(range(answer.first, answer.last + 1))
            if start % 9 == 0:
                await owner.fence(1000 + start)
                fenced.add(1000 + start)
                bookie.request_flush()

    machine.config = replace(CONFIG, journal_size_max_mb=1, journal_prealloc_mb=0)
    for round_ in range(3):
        await machine.live(work, crash_after=30 + (seed * 37 + round_ * 61) % 150)
        async with machine.life() as (_, client):
            await client.holds(7, sorted(acked))
            for ledger_id in sorted(fenced):
                assert await client.add(ledger_id, 0) == v2.AddAcks(Rc.FENCED, ledger_id, 0, 0)
    assert acked


async def test_a_crash_during_replay_starts_again_from_the_old_mark(machine: Machine) -> None:
    async with machine.life(crash=True) as (_, client):
        for first in range(0, 100, 10):
            await client.add(7, first, 10)
    for changes in range(1, 40, 3):
        await machine.live(nothing, crash=True, crash_after=changes)
    async with machine.life() as (_, client):
        for entry_id in range(100):
            assert (await client.read(7, entry_id)).rc == Rc.OK


async def test_bookkeeper_2087_a_start_moves_the_mark_past_what_it_replayed(machine: Machine) -> None:
    machine.config = replace(CONFIG, flush_interval_ms=10_000_000)
    async with machine.life(crash=True) as (bookie, client):
        await client.add(7, 0, 5)
        end = bookie.journal.of(0).mark()
        assert last_mark(bookie.world) < end
    async with machine.life(crash=True) as (bookie, _):
        assert last_mark(bookie.world) >= end, "another crash now must not replay the same again"
    async with machine.life() as (_, client):
        await client.holds(7, range(5))


async def test_the_write_cache_may_be_smaller_than_what_is_replayed(machine: Machine) -> None:
    machine.config = replace(CONFIG, write_cache_mb=16, flush_interval_ms=10_000_000)
    async with machine.life(crash=True) as (_, client):
        for entry_id in range(20):
            await client.ask(add_frames(7, entry_id, 1, bytes(500_000)))
    machine.config = replace(CONFIG, write_cache_mb=2)
    async with machine.life() as (_, client):
        for entry_id in range(20):
            assert len((await client.read(7, entry_id)).entry) > 500_000


@pytest.mark.bookie(journal_size_max_mb=1, journal_backups_max=1)
async def test_checkpoints_come_by_themselves_move_the_mark_and_delete_old_journals(bookie: Bookie, client: Client):
    for entry_id in range(10):
        await client.ask(add_frames(7, entry_id, 1, bytes(400_000)))
    await trio.sleep(25)
    assert bookie.stats.checkpoints >= 2
    assert last_mark(bookie.world) == bookie.journal.of(0).mark()
    ids = journal_ids(bookie.world.disk, JOURNAL)
    assert len(ids) == 2
    assert ids[-1] == bookie.journal.of(0).mark().file_id


async def test_the_mark_is_taken_before_the_flush_and_written_after_it(bookie, monkeypatch, client):
    start = last_mark(bookie.world)
    await client.add(7, 0)
    before = bookie.journal.of(0).mark()
    seen: list[LogMark] = []
    flush = bookie.storage.flush

    async def slow_flush() -> None:
        assert last_mark(bookie.world) == start
        await client.add(7, 1)
        seen.append(bookie.journal.of(0).mark())
        await flush()

    with monkeypatch.context() as patch:
        patch.setattr(bookie.storage, "flush", slow_flush)
        await bookie.checkpoint()
    assert last_mark(bookie.world) == before
    assert seen[0] > before


async def test_a_bookie_that_never_came_to_a_checkpoint_is_not_started_without_its_journal(machine: Machine) -> None:
    async def wipe(world: World, stop: trio.Event) -> None:
        for file_id in journal_ids(world.disk, JOURNAL):
            world.disk.unlink(f"{JOURNAL}/{file_name(file_id)}")

    async with machine.life(crash=True) as (_, client):
        await client.add(7, 0)
    machine.host.start(wipe)
    await machine.host.wait_down()
    await raises(JournalDamagedError, machine.live(nothing), "missing")


@pytest.mark.expect_error("checkpoint failed", "no room")
async def test_a_flush_that_fails_leaves_the_mark_where_it_was(machine: Machine) -> None:
    machine.config = replace(CONFIG, disk_reserve_mb=0)
    async with machine.life() as (bookie, client):
        start = last_mark(bookie.world)
        await client.add(7, 0)
        machine.host.disk.limit(0)
        bookie.request_flush()
        await trio.sleep(0.5)
        assert last_mark(bookie.world) == start
        assert bookie.read_only, "whose flushes fail takes no adds"
        assert await client.add(7, 1) == v2.AddAcks(Rc.READ_ONLY, 7, 1, 1)
        assert bytes((await client.read(7, 0)).entry) == entry(7, 0)
        machine.host.disk.limit(None)
        await trio.sleep(3)
        assert last_mark(bookie.world) == bookie.journal.of(0).mark()
        assert not bookie.read_only
        assert await client.add(7, 1) == v2.AddAcks(Rc.OK, 7, 1, 1)


@pytest.mark.expect_error("journal group not written", "no room")
async def test_on_a_full_disk_only_adds_of_high_priority_are_taken_out_of_the_reserve(machine: Machine) -> None:
    machine.config = replace(CONFIG, journal_prealloc_mb=0)
    async with machine.life() as (bookie, client):
        await until(lambda: bookie.world.disk.exists(RESERVE))
        await client.add(7, 0)
        machine.host.disk.limit(100)
        assert await client.add(7, 1, 20) == v2.AddAcks(Rc.IO, 7, 1, 20)
        await trio.sleep(1)
        assert not bookie.world.disk.exists(RESERVE)
        assert await client.add(7, 1, 20) == v2.AddAcks(Rc.READ_ONLY, 7, 1, 20)
        acked = await client.add(7, 1, 20, flags=v2.HIGH_PRIORITY)
        assert acked == v2.AddAcks(Rc.OK, 7, 1, 20)
        await bookie.checkpoint()
        assert journal_ids(bookie.world.disk, JOURNAL) == [bookie.journal.of(0).mark().file_id], (
            "the journal keeps its room"
        )
    async with machine.life() as (bookie, client):
        await client.holds(7, range(21))
        machine.host.disk.limit(None)
        await until(lambda: not bookie.read_only, within=5)
        await trio.sleep(2)
        assert bookie.world.disk.exists(RESERVE)
        assert await client.add(7, 21) == v2.AddAcks(Rc.OK, 7, 21, 21)


@pytest.mark.expect_error("journal group not written", "no room")
async def test_on_a_full_disk_the_reserve_is_released_before_a_checkpoint_needs_its_room(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.config = replace(CONFIG, journal_prealloc_mb=0)
    async with machine.life() as (bookie, client):
        await until(lambda: bookie.world.disk.exists(RESERVE))
        await client.add(7, 0)
        reserves: list[bool] = []
        request = bookie.request_flush

        def requested(directory: int | None = None) -> None:
            reserves.append(bookie.world.disk.exists(RESERVE))
            request(directory)

        monkeypatch.setattr(bookie, "request_flush", requested)
        machine.host.disk.limit(100)
        assert await client.add(7, 1, 20) == v2.AddAcks(Rc.IO, 7, 1, 20)
        assert bookie.read_only, "this does not wait for the reserve"
        await until(lambda: bool(reserves))
        assert reserves == [False]


@pytest.mark.expect_error("no room")
async def test_adds_end_before_the_disk_is_full(machine: Machine) -> None:
    machine.config = replace(CONFIG, journal_prealloc_mb=0)
    async with machine.life() as (bookie, client):
        await client.add(7, 0)
        await bookie.checkpoint()
        spare = (CONFIG.disk_reserve_mb << 20) // SPARE_PART
        machine.host.disk.limit(spare + (64 << 10))
        first = 1
        with trio.fail_after(60):
            while (answer := await client.add(7, first, 100)) == v2.AddAcks(Rc.OK, 7, first, first + 99):
                first += 100
                await trio.sleep(0.02)
        assert answer == v2.AddAcks(Rc.READ_ONLY, 7, first, first + 99)
        assert bookie.world.disk.free_bytes("/data") > spare // 2
        assert bookie.world.disk.exists(RESERVE), "it is not needed yet"


async def test_a_bookie_whose_disk_has_room_again_right_after_its_start_is_writable(machine: Machine) -> None:
    machine.config = replace(CONFIG, journal_prealloc_mb=0, disk_reserve_mb=2)
    async with machine.life(crash=True) as (_, client):
        assert await client.add(7, 0) == v2.AddAcks(Rc.OK, 7, 0, 0)
        machine.host.disk.limit(0)
    async with machine.life() as (bookie, client):
        assert bookie.read_only
        machine.host.disk.limit(None)  # before the first check of the disk
        await until(lambda: not bookie.read_only)
        assert await client.add(7, 1) == v2.AddAcks(Rc.OK, 7, 1, 1)


@pytest.mark.expect_error("no room")
async def test_a_start_without_room_for_the_mark_of_its_replay_keeps_the_older_one(machine, monkeypatch):
    async with machine.life(crash=True) as (_, client):
        assert await client.add(7, 0) == v2.AddAcks(Rc.OK, 7, 0, 0)
    write_atomic = SimDisk.write_atomic

    def full(disk: SimDisk, path: str, data: bytes) -> None:
        if path.endswith("/lastMark"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write_atomic(disk, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(SimDisk, "write_atomic", full)
        async with machine.life(crash=True) as (bookie, client):
            assert (await client.read(7, 0)).entry is not None
            assert bookie.read_only
    async with machine.life() as (bookie, client):
        assert await client.add(7, 1) == v2.AddAcks(Rc.OK, 7, 1, 1)
        await bookie.checkpoint()
        assert bookie.last_mark == bookie.journal.of(0).mark()


@pytest.mark.expect_error("no room", "checkpoint failed")
@pytest.mark.parametrize("free", [0, 200_000])
async def test_a_start_without_room_for_what_the_journal_has_serves_it_from_memory(free, log_events, machine):
    async def read(bookie: Bookie) -> None:
        await Client(bookie).holds(7, range(30), bytes(100_000))

    async def serve(bookie: Bookie) -> None:
        await read(bookie)
        await trio.sleep(3.5)
        assert bookie.read_only
        assert await Client(bookie).add(8, 0, flags=v2.HIGH_PRIORITY) == v2.AddAcks(Rc.OK, 8, 0, 0)

    machine.config = replace(CONFIG, journal_prealloc_mb=0, disk_reserve_mb=2)
    async with machine.life(crash=True) as (_, client):
        for first in range(30):
            assert await client.ask(add_frames(7, first, 1, bytes(100_000))) == [v2.AddAcks(Rc.OK, 7, first, first)]
        machine.host.disk.limit(free)
    await machine.live(serve, crash=True)
    errors = [event["event"] for event in log_events if event["level"] == "error"]
    assert len(errors) == 2, "a full disk does not fill the log"
    async with machine.life(crash=True) as (bookie, _):
        await serve(bookie)
        machine.host.disk.limit(None)
        await until(lambda: not bookie.read_only)
        await bookie.checkpoint()
        assert bookie.last_mark == bookie.journal.of(0).mark()
        await read(bookie)
    await machine.live(read)


@pytest.mark.expect_error("no room")
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_full_disk_is_emptied_of_the_log_that_was_written_when_its_ledgers_are_gone(restarted, machine):
    async def fill(bookie: Bookie) -> None:
        client = Client(bookie)
        for first in range(20):
            assert await client.ask(add_frames(7, first, 1, bytes(100_000))) == [v2.AddAcks(Rc.OK, 7, first, first)]
        spare = (machine.config.disk_reserve_mb << 20) // SPARE_PART
        machine.host.disk.limit(spare - 1)

    async def wait(bookie: Bookie) -> None:
        await until(lambda: bookie.read_only)
        with trio.fail_after(30):
            await until(lambda: not bookie.world.disk.exists(f"{LEDGERS}/0.log"))
            # Entries that are written to make room go to another log.
            assert await Client(bookie).add(8, 0, flags=v2.HIGH_PRIORITY) == v2.AddAcks(Rc.OK, 8, 0, 0)

    machine.config = replace(CONFIG, journal_prealloc_mb=0, disk_reserve_mb=8)
    if restarted:
        async with machine.life(crash=True, lose_unsynced=False) as (bookie, _):
            await fill(bookie)
        await machine.live(wait)
    else:
        async with machine.life() as (bookie, _):
            await fill(bookie)
            await wait(bookie)


@pytest.mark.expect_error("journal group not written", "no room")
async def test_a_full_disk_fails_adds_cleanly_and_the_bookie_goes_on_when_there_is_room(machine: Machine) -> None:
    machine.config = replace(CONFIG, journal_prealloc_mb=0)
    async with machine.life(crash=True) as (bookie, client):
        await client.add(7, 0)
        machine.host.disk.limit(100)
        assert await client.add(7, 1, 20) == v2.AddAcks(Rc.IO, 7, 1, 20)
        machine.host.disk.limit(None)
        await until(lambda: not bookie.read_only, within=5)
        assert await client.add(7, 1, 20) == v2.AddAcks(Rc.OK, 7, 1, 20)
    async with machine.life() as (_, client):
        await client.holds(7, range(21))


@pytest.mark.expect_error("journal failed")
async def test_a_failed_sync_stops_all_acknowledgements(machine: Machine) -> None:
    async with machine.life(crash=True) as (bookie, client):
        await client.add(7, 0)
        machine.host.disk.fail_syncs()
        assert await client.add(7, 1) == v2.AddAcks(Rc.IO, 7, 1, 1)
        assert await client.add(7, 2) == v2.AddAcks(Rc.IO, 7, 2, 2)
        assert (await client.fence(7)).rc == Rc.IO
        assert bookie.failed.is_set()


@pytest.mark.expect_error("the storage has failed")
@pytest.mark.parametrize("map_", ["locations", "ledgers"])
async def test_a_failed_sync_of_an_index_is_final_and_the_next_start_has_everything(map_, monkeypatch, machine):
    async with machine.life(crash=True) as (bookie, client):
        assert await client.add(7, 0, 3) == v2.AddAcks(Rc.OK, 7, 0, 2)
        mark = bookie.last_mark
        index: Any = LocationIndex if map_ == "locations" else LedgerIndex
        name = "put" if map_ == "locations" else "write"
        write = getattr(index, name)

        def fail_first(index: Any, rows: Any) -> None:
            machine.host.disk.fail_syncs()
            write(index, rows)

        monkeypatch.setattr(index, name, fail_first)
        await raises(StorageFailedError, bookie.checkpoint(), "an index cannot be synced")
        assert bookie.failed.is_set()
        monkeypatch.undo()
        await raises(StorageFailedError, bookie.checkpoint())
        assert bookie.last_mark == mark, "the journal keeps what the index may lack"
    async with machine.life() as (_, client):
        await client.holds(7, range(3))


@pytest.mark.expect_error("the storage has failed", "last checkpoint failed")
async def test_a_bookie_whose_index_cannot_be_synced_says_so_by_itself_and_ends_in_order(monkeypatch, machine):
    async with machine.life() as (bookie, client):
        assert await client.add(7, 0) == v2.AddAcks(Rc.OK, 7, 0, 0)
        write = LedgerIndex.write

        def fail(index: LedgerIndex, rows: Sequence[tuple[int, LedgerRow]]) -> None:
            machine.host.disk.fail_syncs()
            write(index, rows)

        monkeypatch.setattr(LedgerIndex, "write", fail)
        bookie.request_flush()
        await bookie.failed.wait()
        monkeypatch.undo()
        machine.host.disk.fail_syncs(0)
    async with machine.life() as (_, client):
        assert bytes((await client.read(7, 0)).entry) == entry(7, 0)


async def test_a_second_bookie_on_the_same_folders_is_refused(world: World) -> None:
    tree = MemoryTree()
    async with opened(world, tree):
        with pytest.raises(DirectoryInUseError, match="/data/journal"):
            async with opened(world, tree):
                pytest.fail("two bookies serve one folder")
    async with opened(world, tree):
        pass


async def test_a_wiped_folder_is_refused(world: World) -> None:
    tree = MemoryTree()
    async with opened(world, tree) as bookie:
        await Client(bookie).add(7, 0)
    for name in world.disk.names(JOURNAL):
        world.disk.unlink(f"{JOURNAL}/{name}")
    with pytest.raises(CookieMismatchError, match=f"{JOURNAL} is empty: it was wiped"):
        async with opened(world, tree):
            pytest.fail("a bookie serves wiped folders")


async def test_with_a_root_the_folders_may_move_together(world: World) -> None:
    store = await cluster(MemoryTree(), world)
    async with open_bookie(world, replace(CONFIG, root="/data"), store):
        pass
    assert b'journalDir: "journal"' in world.disk.read(f"{JOURNAL}/VERSION")


async def test_damage_in_the_journal_refuses_the_start_and_names_the_remedy_key(machine: Machine) -> None:
    async with machine.life(crash=True) as (_, client):
        await client.add(7, 0)
        await client.add(7, 1)
    (name,) = [path for path in machine.host.disk.paths() if path.endswith(".txn")]
    machine.host.disk.flip(name, 560, 3)
    await raises(JournalDamagedError, machine.live(nothing), f"{name} is damaged at offset 512")


@pytest.mark.expect_error("damaged part of the journal skipped")
async def test_bookkeeper_3949_with_the_skip_key_a_damaged_journal_starts(machine: Machine) -> None:
    async with machine.life(crash=True) as (_, client):
        await client.add(7, 0)
        await client.add(8, 0)
    (name,) = [path for path in machine.host.disk.paths() if path.endswith(".txn")]
    machine.host.disk.flip(name, 560, 3)
    machine.config = replace(CONFIG, skip_invalid_records=True)
    async with machine.life() as (_, client):
        assert (await client.read(7, 0)).rc == Rc.NO_LEDGER
        assert (await client.read(8, 0)).rc == Rc.OK


async def test_explicit_lac_and_fence_of_the_journal_reach_the_storage(machine: Machine) -> None:
    async def check(bookie: Bookie) -> None:
        assert bookie.storage.is_fenced(7)
        assert bookie.storage.master_key(7) == KEY

    async with machine.life(crash=True) as (_, client):
        await client.fence(7)
    await machine.live(check, crash=True)
    await machine.live(check)


async def test_garbage_of_ledgers_without_metadata_is_dropped(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0)
    await trio.sleep(bookie.config.gc_wait_ms / 1000 + 30)
    assert (await client.read(7, 0)).rc == Rc.NO_LEDGER


async def make_again_after_garbage(bookie: Bookie) -> None:
    """Write, flush, delete and collect ledger 7, and then write it again."""
    client = Client(bookie)
    await client.add(7, 0, 9)
    await bookie.checkpoint()
    await trio.sleep(bookie.config.gc_wait_ms / 1000 + 30)
    assert bookie.storage.ledgers() == []
    assert await client.ask(add_frames(7, 0, 5, b"anew")) == [v2.AddAcks(Rc.OK, 7, 0, 4)]


@pytest.mark.parametrize("how", ["power cut", "kill -9", "stop"])
async def test_a_ledger_whose_id_is_used_again_after_garbage_collection_survives_a_crash(how: str, machine: Machine):
    async with machine.life(crash=how != "stop", lose_unsynced=how == "power cut") as (bookie, _):
        await make_again_after_garbage(bookie)
    async with machine.life() as (_, client):
        await client.holds(7, range(5), b"anew")
        assert (await client.read(7, 5)).rc == Rc.NO_ENTRY, "of its former life nothing is left"


@pytest.mark.parametrize("seed", range(10))
async def test_what_the_journal_has_of_a_deleted_ledger_is_not_mixed_with_its_next_life(machine: Machine, seed: int):
    # Nothing is flushed before the collection: the journal has nine entries of the first life, and five of the second.
    machine.config = replace(CONFIG, flush_interval_ms=10**9, gc_wait_ms=200)
    async with machine.life(crash=True) as (bookie, client):
        client.send(add_frames(7, 0, 9))
        await until(lambda: bookie.storage.ledgers() == [] and bool(client.answers))
        await client.take()
        assert await client.ask(add_frames(7, 0, 5, b"anew")) == [v2.AddAcks(Rc.OK, 7, 0, 4)]
    async with machine.life() as (_, client):
        await client.holds(7, range(5), b"anew")
        assert (await client.read(7, 5)).rc == Rc.NO_ENTRY


@pytest.mark.parametrize("seed", range(5))
async def test_an_add_while_its_ledger_is_deleted_waits_and_is_readable_afterwards(bookie, seed, client):
    await client.add(7, 0, 9)
    await bookie.checkpoint()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bookie.storage.of(0).delete_ledgers, [7], name="delete")
        await until(lambda: bookie.storage.master_key(7) is None)
        client.send(add_frames(7, 0, 2, b"anew"))
        assert client.answers == []
    await bookie.checkpoint()
    assert await client.take() == [v2.AddAcks(Rc.OK, 7, 0, 1)]
    for _ in range(2):
        assert bytes((await client.read(7, 1)).entry) == entry(7, 1, b"anew")
        assert (await client.read(7, 2)).rc == Rc.NO_ENTRY
        await bookie.checkpoint()


@pytest.mark.parametrize("what", ["add", "fence", "explicit LAC"])
async def test_a_ledger_that_is_written_to_while_the_cluster_is_asked_for_it_is_not_deleted(what, bookie, client):
    for ledger_id in (7, 8):
        await client.add(ledger_id, 0, 9)

    async def are_gone(ledgers: list[int]) -> list[int]:
        if what == "add":
            await client.add(7, 9)
        elif what == "fence":
            await client.fence(7)
        else:
            assert bookie.write_lac(7, KEY, pack("!qq", 7, 3), lambda error: None) is Rc.OK
        return ledgers

    assert await bookie.storage.of(0).delete_ledgers([7, 8], are_gone) == [8]
    assert bookie.storage.ledgers() == [7]
    assert (await client.read(7, 0)).rc == Rc.OK


async def test_while_no_checkpoint_comes_about_a_deleted_ledger_takes_no_adds() -> None:
    config = replace(CONFIG, add_wait_ms=1000, flush_interval_ms=10**9)
    async with with_bookie(config=config) as bookie:
        client = Client(bookie)
        await client.add(7, 0, 9)
        await bookie.storage.of(0).delete_ledgers([7])
        assert await client.add(7, 0) == v2.AddAcks(Rc.TOO_MANY_REQUESTS, 7, 0, 0)
        await bookie.checkpoint()
        assert await client.add(7, 0) == v2.AddAcks(Rc.OK, 7, 0, 0)


async def test_a_writer_that_slept_while_its_ledger_was_recovered_and_deleted_adds_nothing_more(machine: Machine):
    async with machine.life(crash=True) as (bookie, _):
        writer, recovery = Client(bookie), Client(bookie)
        for ledger_id in (7, 8):
            await writer.add(ledger_id, 0)
        await recovery.fence(7)
        await recovery.fence(9)  # unknown here: its writer's first entry is still in transit
        await trio.sleep(bookie.config.gc_wait_ms / 1000 + 30)
        assert bookie.storage.ledgers() == []
    async with machine.life(crash=True) as (bookie, _):
        writer, recovery = Client(bookie), Client(bookie)
        assert await writer.add(7, 1) == v2.AddAcks(Rc.FENCED, 7, 1, 1)
        assert await writer.add(9, 0) == v2.AddAcks(Rc.FENCED, 9, 0, 0)
        assert (await recovery.fence(7)).rc == Rc.NO_LEDGER
        assert await recovery.add(7, 1, flags=v2.RECOVERY_ADD) == v2.AddAcks(Rc.OK, 7, 1, 1)
        assert await writer.add(7, 2) == v2.AddAcks(Rc.FENCED, 7, 2, 2)
        assert await writer.add(8, 1) == v2.AddAcks(Rc.OK, 8, 1, 1), "nobody fenced it: its id may be used again"
    async with machine.life() as (_, client):
        writer = client
        assert await writer.add(7, 3) == v2.AddAcks(Rc.FENCED, 7, 3, 3)
        assert (await writer.read(7, 1)).rc == Rc.OK


@pytest.mark.parametrize("what", ["gone", "another"])
async def test_a_metadata_store_that_is_not_the_clusters_collects_nothing(what: str, world: World) -> None:
    tree = MemoryTree()
    store = await cluster(tree, world)
    async with open_bookie(world, CONFIG, store) as bookie:
        client = Client(bookie)
        await client.add(7, 0)
        if what == "gone":
            await store.delete("/ledgers/INSTANCEID")
        else:
            await store.put("/ledgers/INSTANCEID", b"another", -1)
        await trio.sleep(CONFIG.gc_wait_ms / 1000 + 30)
        assert (await client.read(7, 0)).rc == Rc.OK


@pytest.mark.parametrize("flushed", [False, True], ids=["from the journal", "from the index"])
async def test_an_explicit_lac_survives_a_crash_and_the_newest_one_wins(flushed: bool, machine: Machine) -> None:
    def package(lac: int) -> bytes:
        return (7).to_bytes(8, "big") + lac.to_bytes(8, "big") + b"digest"

    async with machine.life(crash=True) as (bookie, _):
        told: list[object] = []
        news = trio.Event()

        def durable(error: object) -> None:
            told.append(error)
            if len(told) == 3:
                news.set()

        for lac in (1, 9, 4):
            assert bookie.write_lac(7, KEY, package(lac), durable) is Rc.OK
        await news.wait()
        assert told == [None] * 3
        if flushed:
            await bookie.checkpoint()

    async with machine.life() as (bookie, _):
        assert bookie.storage.explicit_lac(7) == package(9)
        assert bookie.storage.master_key(7) == KEY


async def test_two_checkpoints_at_once_are_done_one_after_the_other(bookie: Bookie) -> None:
    await Client(bookie).add(7, 0)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(bookie.checkpoint)
    assert bookie.last_mark == bookie.journal.of(0).mark()


async def test_the_folders_of_another_storage_of_the_originals_are_refused(world: World) -> None:
    world.disk.make_dirs(f"{LEDGERS}/1f/7")
    world.disk.write_atomic(f"{LEDGERS}/0.log", b"")
    check_storage(world.disk, ["/data/ledgers"])
    world.disk.write_atomic(f"{LEDGERS}/1f/7/1f07.idx", b"")
    with pytest.raises(CookieMismatchError, match=r"quire shell.* convert-to-db-storage"):
        check_storage(world.disk, ["/data/ledgers"])


async def test_the_index_may_have_a_folder_of_its_own_which_the_cookie_names(world: World) -> None:
    tree = MemoryTree()
    config = replace(CONFIG, index_directories=("/data/index",))
    async with opened(world, tree, config) as bookie:
        await Client(bookie).add(7, 0)
    assert world.disk.exists("/data/index/current/VERSION")
    stored = await read_cookie(MemoryStore(tree), CONFIG.bookie_id)
    assert stored is not None
    assert (stored.value.bookie_id, stored.value.index_directories) == (CONFIG.bookie_id, ("/data/index",))
    assert not world.disk.exists(f"{LEDGERS}/locations")
    async with opened(world, tree, config) as bookie:
        assert bytes((await Client(bookie).read(7, 0)).entry) == entry(7, 0)
    with pytest.raises(CookieMismatchError, match="index_directories"):
        async with opened(world, tree, CONFIG):
            pass
