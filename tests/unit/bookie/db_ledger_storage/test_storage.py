from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from struct import unpack_from
from typing import TypeVar

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import LedgerInLimboError, NoEntryError, NoLedgerError, StorageDamagedError, WriteCacheFullError
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run
from quire.world.doors import World
from quire.world.real import real_world
from simulation.machines.disk import SimFile
from simulation.machines.host import Host
from simulation.machines.world import Universe, in_world
from tests.support.effort import effort
from tests.support.refusals import raises, refuses
from tests.unit.bookie.build import open_storage

T = TypeVar("T")
BIG = 1 << 30
LOG = "/b/current/0.log"


def ids_of(parts: list[Buffer]) -> list[int]:
    """Return the entry ids in the result of a read; its parts must be whole records, end to end."""
    data = b"".join(map(bytes, parts))
    ids = []
    at = 0
    while at < len(data):
        size, _, entry_id = unpack_from("!iqq", data, at)
        ids.append(entry_id)
        at += 4 + size
    assert at == len(data)
    return ids


@pytest.fixture
async def storage(host: Host) -> DbLedgerStorage:
    return await with_ledger(host)


async def with_ledger(host: Host, options: StorageOptions | None = None) -> DbLedgerStorage:
    """Return a storage that knows ledger 1."""
    storage = await open_storage(host.world(), options)
    storage.set_master_key(1, b"k")
    return storage


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 25), st.integers(1, 12), st.integers(32, 90)),
        st.tuples(st.just("flush")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("read"), st.integers(1, 3), st.integers(0, 40), st.integers(1, 12), st.integers(1, 900)),
        st.tuples(st.just("delete"), st.integers(1, 3)),
    ),
    max_size=30,
)


@pytest.mark.seeded
@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(STEPS, st.sampled_from([400, 2000, BIG]), st.sampled_from([1, 100]))
async def test_reads_give_the_newest_version_of_each_entry_whatever_came_before(steps, log_size, ahead):
    options = StorageOptions(log_size_max=log_size + 1024, read_ahead_entries=ahead) if log_size < BIG else None
    model: dict[int, dict[int, bytes]] = {1: {}, 2: {}, 3: {}}

    async with in_world(1) as world:
        storage = await open_storage(world, options)
        for version, (step, *arguments) in enumerate(steps):
            if step == "add":
                ledger, first, count, size = arguments
                entries = [
                    (each, (ledger.to_bytes(8, "big") + each.to_bytes(8, "big") + b"%08d" % version).ljust(size, b"."))
                    for each in range(first, first + count)
                ]
                storage.set_master_key(ledger, b"k")
                storage.add(Run.of(ledger, entries))
                model[ledger].update(entries)
            elif step == "flush":
                await storage.flush()
            elif step == "restart":
                await storage.flush()
                await storage.close()
                storage = await open_storage(world, options)
            elif step == "delete":
                await storage.delete_ledger(*arguments)
                model[arguments[0]].clear()
            else:
                check_read(storage, model[arguments[0]], *arguments)
        for ledger, kept in model.items():
            for first in range(45):
                check_read(storage, kept, ledger, first, 50, BIG)
            if kept:
                assert storage.reader.last_entry_id(ledger) == max(kept)
        await storage.close()


def check_read(
    storage: DbLedgerStorage, entries: dict[int, bytes], ledger: int, first: int, count_max: int, size_max: int
) -> None:
    expected = b""
    for entry_id in range(first, first + count_max):
        entry = entries.get(entry_id)
        if entry is None or (expected and len(expected) + 4 + len(entry) > size_max):
            break
        expected += len(entry).to_bytes(4, "big") + entry
    cached = storage.reader.get_cached(ledger, first)
    assert cached is None or bytes(cached) == entries[first]
    cached_ones = storage.reader.read_cached(ledger, first, count_max, size_max)
    assert expected.startswith(b"".join(map(bytes, cached_ones.parts)))
    if expected:
        read = storage.reader.read_run(ledger, first, count_max, size_max)
        assert ids_of(read)[0] == first
        data = b"".join(map(bytes, read))
        if cached_ones.entries:
            behind = storage.reader.read_run(ledger, first, count_max, size_max, cached_ones)
            assert b"".join(map(bytes, behind)) == data or size_max < BIG
        # A bound in bytes may end the read before an entry that would still have fitted.
        assert expected.startswith(data) if size_max < BIG else data == expected
    else:
        refuses((NoEntryError, NoLedgerError), lambda: storage.reader.read_run(ledger, first, count_max, size_max))


async def test_one_read_goes_through_disk_and_both_caches(run_of, records_of, storage):
    storage.add(run_of(1, range(5)))
    await storage.flush()
    storage.add(run_of(1, range(5, 10)))
    storage._cache.begin_flush()
    storage.add(run_of(1, range(10, 15)))
    assert b"".join(map(bytes, storage.reader.read_run(1, 0, 100, BIG))) == records_of(1, range(15))
    assert storage.reader.last_entry_id(1) == 14


async def test_one_region_costs_one_disk_read_and_what_follows_is_read_ahead(run_of, storage):
    storage.add(run_of(1, range(250)))
    await storage.flush()
    assert ids_of(storage.reader.read_run(1, 0, 200, BIG)) == list(range(200))
    assert storage.stats.disk_reads == 1
    assert ids_of(storage.reader.read_run(1, 200, 1, BIG)) == [200]
    assert storage.stats.disk_reads == 2
    assert all(storage.reader.get_cached(1, each) is not None for each in range(201, 250))
    assert ids_of(storage.reader.read_cached(1, 201, 100, BIG).parts) == list(range(201, 250))
    assert storage.stats.disk_reads == 2


async def test_a_flush_leaves_pages_only_after_entries_were_read_from_the_logs(run_of, storage, monkeypatch):
    bypassed: list[int] = []
    write = SimFile.pwritev_past_cache

    def watch(file: SimFile, parts: Sequence[Buffer], offset: int) -> int:
        bypassed.append(offset)
        return write(file, parts, offset)

    monkeypatch.setattr(SimFile, "pwritev_past_cache", watch)
    storage.add(run_of(1, range(5)))
    await storage.flush()
    assert bypassed == [1024]
    storage.reader.read_run(1, 0, 5, BIG)
    storage.add(run_of(1, range(5, 10)))
    await storage.flush()
    assert bypassed == [1024], "the log is read now"


async def test_reading_entry_by_entry_meets_the_disk_once_per_read_ahead(run_of, storage):
    storage.add(run_of(1, range(1000)))
    await storage.flush()
    for entry_id in range(1000):
        parts = storage.reader.read_cached(1, entry_id, 1, BIG).parts or storage.reader.read_run(1, entry_id, 1, BIG)
        assert ids_of(parts) == [entry_id]
    assert storage.stats.disk_reads == 10


async def test_who_reads_in_large_batches_gets_full_ones_only(run_of, host):
    storage = await with_ledger(host, StorageOptions(read_ahead_bytes=100_000))
    storage.add(run_of(1, range(1000), 1000))
    await storage.flush()
    for size_max in (70_000, 128 << 10, 300_000):
        first = 0
        counts = []
        while first < 1000:
            parts = storage.reader.read_cached(1, first, 1000, size_max).parts or storage.reader.read_run(
                1, first, 1000, size_max
            )
            counts.append(len(ids_of(parts)))
            first += counts[-1]
        assert set(counts[:-1]) == {size_max // 1004}, counts


async def test_who_reads_a_number_of_entries_at_a_time_gets_full_batches_from_what_was_read_ahead(run_of, host):
    storage = await with_ledger(host, StorageOptions(read_ahead_entries=1000, read_ahead_bytes=256_000))
    storage.add(run_of(1, range(1000), 1000))
    await storage.flush()
    counts: list[int] = []
    while sum(counts) < 1000:
        given = (1, sum(counts), 100, 5 << 20)
        counts.append(len(ids_of(storage.reader.read_cached(*given).parts or storage.reader.read_run(*given))))
    assert counts == [100] * 10
    assert storage.stats.disk_reads == 5


async def test_who_reads_a_ledger_in_order_gets_larger_pieces_read_ahead_and_who_jumps_does_not(run_of, host):
    options = StorageOptions(read_ahead_entries=1000, read_ahead_bytes=64_000, sequential_ahead_bytes=512_000)
    storage = await with_ledger(host, options)
    storage.add(run_of(1, range(2000), 1000))
    await storage.flush()
    sizes: list[int] = []
    for first in (0, 60, 60 + 500, 1500, 300, 1200):
        before = storage.stats.disk_read_bytes
        parts = storage.reader.read_run(1, first, 10, BIG)
        assert ids_of(parts) == list(range(first, first + 10))
        sizes.append(storage.stats.disk_read_bytes - before)
    small, large = 60 * 1004, 500 * 1004
    assert sizes == [small, large, large, small, small, small]


async def test_keys_of_the_index_are_not_read_for_who_reads_in_order_or_in_batches(run_of, host, monkeypatch):
    storage = await with_ledger(host)
    storage.add(run_of(1, range(1000)))
    await storage.flush()
    assert ids_of(storage.reader.read_run(1, 0, 1, BIG)) == [0]
    with monkeypatch.context() as patched:
        patched.setattr(type(storage._locations._rows), "scan", None)
        assert ids_of(storage.reader.read_run(1, 100, 1, BIG)) == [100], "in order: behind what was read ahead"
        assert ids_of(storage.reader.read_run(1, 500, 100, BIG)) == list(range(500, 600))
        with pytest.raises(TypeError):
            storage.reader.read_run(1, 50, 1, BIG)


async def test_more_ledgers_than_the_read_cache_has_room_for_are_read_in_small_pieces(run_of, host):
    options = StorageOptions(
        read_ahead_entries=1000,
        read_ahead_bytes=64_000,
        sequential_ahead_bytes=512_000,
        read_cache_bytes_max=1 << 20,
    )
    storage = await with_ledger(host, options)
    for ledger_id in (1, 2, 3):
        storage.set_master_key(ledger_id, b"key")
        storage.add(run_of(ledger_id, range(2000), 1000))
    await storage.flush()
    for ledgers, most in (((1, 2), 500), ((1, 2, 3), 60)):
        for first in (600, 660):
            for ledger_id in ledgers:
                before = storage.stats.disk_read_bytes
                storage.reader.read_run(ledger_id, first, 10, BIG)
                read = storage.stats.disk_read_bytes - before
        assert read == most * 1004


async def test_reading_ahead_takes_no_more_bytes_than_it_may(run_of, host):
    storage = await with_ledger(host, StorageOptions(read_ahead_bytes=50_000))
    storage.add(run_of(1, range(100), 10_000))
    await storage.flush()
    storage.reader.read_run(1, 0, 1, BIG)
    assert storage.stats.disk_read_bytes <= 50_000 + 10_004


async def test_what_is_read_ahead_does_not_keep_the_region_that_it_was_read_with(run_of, records_of, storage):
    storage.add(run_of(1, range(10)))
    storage.add(run_of(2, range(1), 100_000))
    await storage.flush()
    storage.reader.read_run(1, 0, 1, BIG)
    [kept] = storage._read_cache.arrived
    assert b"".join(map(bytes, kept.parts)) == records_of(1, range(1, 10))
    pinned = (memoryview(part.obj).nbytes if isinstance(part, memoryview) else len(part) for part in kept.parts)
    assert sum(pinned) == kept.size


async def test_no_ledger_no_entry_and_limbo_are_told_apart(run_of, storage):
    storage.set_master_key(2, b"k")
    storage.add(run_of(1, [3]))
    for flushed in (False, True):
        if flushed:
            await storage.flush()
        for first in (2, 4):
            with pytest.raises(NoEntryError):
                storage.reader.read_run(1, first, 10, BIG)
        refuses(NoEntryError, lambda: storage.reader.last_entry_id(2))
        refuses(NoLedgerError, lambda: storage.reader.read_run(9, 0, 1, BIG))
        refuses(NoLedgerError, lambda: storage.reader.last_entry_id(9))
    storage._ledgers._states[2] = LedgerRow(limbo=True)
    refuses(LedgerInLimboError, lambda: storage.reader.read_run(2, 0, 1, BIG), "limbo")


async def test_damage_is_an_error_and_never_absence_and_what_comes_before_it_is_still_given(run_of, host, storage):
    storage.add(run_of(1, range(10)))
    await storage.flush()
    host.disk.flip(LOG, 1024 + 44 * 6 + 15, 2)
    assert ids_of(storage.reader.read_run(1, 0, 100, BIG)) == list(range(6))
    refuses(StorageDamagedError, lambda: storage.reader.read_run(1, 6, 100, BIG))
    assert ids_of(storage.reader.read_run(1, 7, 100, BIG)) == [7, 8, 9]
    host.disk.cut(LOG, 0)
    refuses(StorageDamagedError, lambda: storage.reader.read_run(1, 0, 1, BIG))


async def test_facts_of_ledgers_reach_the_disk_though_no_entry_waits(run_of, host, storage):
    # bookkeeper#4843: a checkpoint that skips an empty cache moves the mark past a fence that is only in the journal.
    await storage.flush()
    storage.set_fenced(1)
    storage.set_fenced(77)
    storage.set_explicit_lac(1, b"lac")
    await storage.flush()
    host.cut_power()
    storage = await open_storage(host.world())
    assert storage.ledgers() == [1, 77]
    assert storage.is_fenced(1)
    assert storage.is_fenced(77)
    assert not storage.is_fenced(78)
    assert storage.explicit_lac(1) == b"lac"
    assert storage.explicit_lac(77) is None
    assert (storage.master_key(1), storage.master_key(77), storage.master_key(78)) == (b"k", b"", None)
    assert storage.ledger(78) is None


@pytest.mark.parametrize("trouble", ["sync", "full"])
async def test_after_a_failed_flush_everything_stays_readable_and_the_next_one_writes_it(
    run_of, records_of, trouble, host, storage
):
    storage.add(run_of(1, range(3)))
    await storage.flush()
    storage.add(run_of(1, range(3, 6), 500))
    storage.set_fenced(1)
    for _ in range(3):
        if trouble == "sync":
            host.disk.fail_syncs(1)
        else:
            host.disk.limit(200)
        await raises(OSError, storage.flush(), r"Input/output|No space")
        assert storage.flush_due
        assert ids_of(storage.reader.read_run(1, 0, 100, BIG)) == list(range(6))
    host.disk.limit(None)
    storage.add(run_of(1, range(6, 9)))
    await storage.flush()
    assert not storage.flush_due
    assert storage.write_cache_bytes == 0
    host.cut_power()
    storage = await open_storage(host.world())
    data = records_of(1, range(3)) + records_of(1, range(3, 6), 500) + records_of(1, range(6, 9))
    assert b"".join(map(bytes, storage.reader.read_run(1, 0, 100, BIG))) == data
    assert storage.is_fenced(1)


async def test_when_the_cache_fills_a_flush_is_asked_for_once_and_at_the_bound_adds_are_refused(run_of, host):
    storage = await with_ledger(host, StorageOptions(write_cache_bytes_max=50_000, flush_at_bytes=20_000))
    asked: list[int] = []
    storage.on_flush_due = lambda: asked.append(storage.write_cache_bytes)
    added = 0
    while storage.write_cache_bytes + 1004 <= 50_000:
        storage.add(run_of(1, [added], 1000))
        added += 1
    refuses(WriteCacheFullError, lambda: storage.add(run_of(1, [added], 1000)))
    assert len(asked) == 1
    assert 20_000 <= asked[0] < 22_000
    assert storage.write_cache_bytes <= 52_000
    assert storage.flush_due
    refuses(NoEntryError, lambda: storage.reader.read_run(1, added, 1, BIG))
    await storage.flush()
    assert not storage.flush_due
    storage.add(run_of(1, [added], 1000))
    assert len(asked) == 1
    assert ids_of(storage.reader.read_run(1, 0, 1000, BIG)) == list(range(added + 1))


@pytest.mark.seeded(3)
async def test_what_is_added_while_a_flush_runs_is_kept_for_the_next(run_of, universe: Universe, host, storage):
    storage.add(run_of(1, range(5)))
    universe.nursery.start_soon(storage.flush, name="flush")
    while storage._cache.flushing is None:
        await trio.lowlevel.checkpoint()
    storage.add(run_of(1, range(5, 8)))
    storage.set_fenced(1)
    assert ids_of(storage.reader.read_run(1, 0, 100, BIG)) == list(range(8))
    await storage.flush()
    assert storage.write_cache_bytes == 0
    host.cut_power()
    storage = await open_storage(host.world())
    assert ids_of(storage.reader.read_run(1, 0, 100, BIG)) == list(range(8))
    assert storage.is_fenced(1)


async def test_a_deleted_ledger_is_gone_for_good_even_if_its_entries_were_not_flushed(run_of, host, storage):
    storage.set_master_key(2, b"k")
    storage.add(run_of(1, range(5)))
    storage.add(run_of(2, range(5)))
    await storage.flush()
    storage.reader.read_run(1, 0, 1, BIG)
    storage.add(run_of(1, range(5, 9)))
    await storage.delete_ledger(1)
    assert storage.reader.get_cached(1, 2) is None
    refuses(NoLedgerError, lambda: storage.reader.read_run(1, 0, 1, BIG))
    assert storage.ledgers() == [2]
    await storage.flush()
    host.cut_power()
    storage = await open_storage(host.world())
    assert await storage.local_ledgers() == {2}
    assert ids_of(storage.reader.read_run(2, 0, 10, BIG)) == list(range(5))


async def test_an_entry_written_again_is_not_read_from_the_read_cache(run_of, entry_of, storage):
    storage.add(run_of(1, range(10), version=1))
    await storage.flush()
    storage.reader.read_run(1, 0, 1, BIG)
    storage.add(run_of(1, [4, 5, 6], version=2))
    await storage.flush()
    for entry_id in (5, 4, 6, 3, 7, 0, 9):
        parts = storage.reader.read_cached(1, entry_id, 1, BIG).parts or storage.reader.read_run(1, entry_id, 1, BIG)
        version = 2 if entry_id in (4, 5, 6) else 1
        assert b"".join(map(bytes, parts))[4:] == entry_of(1, entry_id, version=version)


async def test_entries_written_again_while_the_old_ones_are_flushed_are_read_in_their_new_version(
    run_of, records_of, storage
):
    storage.add(run_of(1, range(10), version=1))
    storage._cache.begin_flush()
    storage.add(run_of(1, range(4, 7), version=2))
    expected = records_of(1, range(4), version=1) + records_of(1, range(4, 7), version=2)
    expected += records_of(1, range(7, 10), version=1)
    assert b"".join(map(bytes, storage.reader.read_run(1, 0, 100, BIG))) == expected
    cached = storage.reader.read_cached(1, 2, 100, BIG).parts
    assert b"".join(map(bytes, cached)) == expected[2 * 44 :]
    await storage.flush()
    assert b"".join(map(bytes, storage.reader.read_run(1, 0, 100, BIG))) == expected


@pytest.mark.parametrize("seed", range(10))
async def test_a_ledger_deleted_while_a_flush_runs_leaves_no_rows(run_of, host, seed):
    storage = await open_storage(host.world())
    for ledger in (1, 2):
        storage.set_master_key(ledger, b"k")
        storage.add(run_of(ledger, range(5)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(storage.flush, name="flush")
        while storage._cache.flushing is None:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(storage.delete_ledger, 1, name="delete")
    await storage.flush()
    assert await storage.local_ledgers() == {2}
    refuses(NoLedgerError, lambda: storage.reader.read_run(1, 0, 1, BIG))


async def test_a_ledger_is_not_deleted_under_a_flush_that_writes_it(run_of, storage):
    storage.add(run_of(1, range(5)))
    # The lock is held as by a flush whose worker iterates over the table.
    async with trio.open_nursery() as nursery, storage._flush_lock:
        table = storage._cache.begin_flush()
        nursery.start_soon(storage.delete_ledger, 1, name="delete")
        await trio.sleep(10)
        assert table.entries == 5
    assert table.entries == 0


async def test_indexes_may_lie_in_a_folder_of_their_own(run_of, world: World):
    storage = DbLedgerStorage(world, "/b", index_directory="/i")
    await storage.open()
    storage.set_master_key(1, b"k")
    storage.add(run_of(1, [0]))
    await storage.flush()
    await storage.close()
    assert world.disk.names("/b/current") == ["0.log", "forgottenFences", "lastId"]
    assert world.disk.names("/i/current") == ["ledgers", "locations"]


async def test_ids_beyond_32_bits_and_ledger_0_are_ordinary(run_of, records_of, storage):
    far = (1 << 40) + 5
    for ledger in (0, 1 << 41):
        storage.set_master_key(ledger, b"k")
        storage.add(run_of(ledger, range(far, far + 3)))
    await storage.flush()
    for ledger in (0, 1 << 41):
        assert b"".join(map(bytes, storage.reader.read_run(ledger, far, 9, BIG))) == records_of(
            ledger, range(far, far + 3)
        )
        assert storage.reader.last_entry_id(ledger) == far + 2


async def test_bisect_of_sizes_is_exact(run_of, storage):
    storage.add(run_of(1, range(20)))
    ends = [44 * each for each in range(1, 21)]
    for flushed in (False, True):
        if flushed:
            await storage.flush()
        for size_max in range(1, 44 * 20 + 2):
            fits = max(1, bisect_left(ends, size_max + 1))
            assert len(ids_of(storage.reader.read_run(1, 0, 100, size_max))) == fits, size_max


@pytest.mark.real_clock
async def test_workers_read_every_entry_while_the_loop_adds_and_flushes(run_of, tmp_path):
    """Real threads and RocksDB: an entry added before a read began is found, at every stage of its way to the disk."""
    world = real_world(1)
    storage = DbLedgerStorage(world, str(tmp_path), StorageOptions(log_size_max=200_000, read_ahead_entries=3))
    await storage.open()
    added = {1: 0, 2: 0}
    for ledger in added:
        storage.set_master_key(ledger, b"k")
    done = False
    reads = 0

    async def write() -> None:
        nonlocal done
        for _ in range(150):
            for ledger, first in added.items():
                storage.add(run_of(ledger, range(first, first + 20), 60))
                added[ledger] = first + 20
            await trio.lowlevel.checkpoint()
            if added[1] % 100 == 0:
                await storage.flush()
        done = True

    async def read(number: int) -> None:
        nonlocal reads
        rng = random.Random(number)
        while not done:
            ledger = rng.choice((1, 2))
            if added[ledger]:
                first = rng.randrange(added[ledger])
                reach = added[ledger]
                parts = await world.offload.run(partial(storage.reader.read_run, ledger, first, 50, BIG), name="read")
                ids = ids_of(parts)
                assert ids == list(range(first, first + len(ids)))
                assert len(ids) == 50 or ids[-1] >= reach - 1
                reads += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(read, number)
        nursery.start_soon(write)
    assert reads > 20
    await storage.close()
