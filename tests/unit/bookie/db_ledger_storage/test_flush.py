from __future__ import annotations

from collections.abc import Callable

import pytest

from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import NoEntryError, NoLedgerError
from simulation.machines.host import Host
from simulation.machines.world import Universe, run
from tests.unit.bookie.build import open_storage

BIG = 1 << 30
SMALL_LOGS = StorageOptions(log_size_max=2000, sync_every_bytes=500)


def entries_on_disk(storage: DbLedgerStorage, ledger: int, ids: range) -> dict[int, bytes]:
    found = {}
    for entry_id in ids:
        try:
            parts = storage.reader.read_run(ledger, entry_id, 1, BIG)
        except (NoEntryError, NoLedgerError):
            continue
        found[entry_id] = b"".join(map(bytes, parts))[4:]
    return found


def crash_in_flush(changes: int, seed: int, body: Callable[[DbLedgerStorage, bool], None], run_of) -> bool:
    """Flush once, then crash after `changes` changes of the second flush; return whether that had ended."""

    async def story(universe: Universe) -> bool:
        host = universe.host("bookie")
        storage = await open_storage(host.world(), SMALL_LOGS)
        storage.set_master_key(1, b"one")
        storage.add(run_of(1, range(20)))
        await storage.flush()
        storage.add(run_of(1, range(18, 60), version=2))
        storage.set_master_key(2, b"two")
        storage.set_fenced(1)
        storage.add(run_of(2, range(30), 100))
        host.crash_after(changes)
        over = False
        try:
            await storage.flush()
            over = True
        except BaseException:
            assert not host.running, "only the crash may end the flush"
        host.cut_power()
        body(await open_storage(host.world(), SMALL_LOGS), over)
        return over

    return run(seed, story)


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_any_step_of_a_flush_loses_nothing_older_and_shows_nothing_false(run_of, entry_of, seed):
    """Every surviving row points to the whole, right entry; all entries of an earlier flush are there."""

    def check(storage: DbLedgerStorage, over: bool) -> None:
        one = entries_on_disk(storage, 1, range(70))
        two = entries_on_disk(storage, 2, range(40))
        for entry_id, entry in one.items():
            versions = [0, 2] if 18 <= entry_id < 20 else [2] if entry_id >= 18 else [0]
            assert entry in [entry_of(1, entry_id, version=version) for version in versions]
        for entry_id, entry in two.items():
            assert entry == entry_of(2, entry_id, 100)
        assert set(one) >= set(range(20))
        assert storage.master_key(1) == b"one"
        if over:
            assert (set(one), set(two)) == (set(range(60)), set(range(30)))
            assert (storage.is_fenced(1), storage.master_key(2)) == (True, b"two")

    for changes in range(200):
        if crash_in_flush(changes, seed, check, run_of):
            assert changes > 15, "the flush took several steps, and each was tried"
            break
    else:
        raise AssertionError("the flush never came to its end")


@pytest.fixture
async def storage(host: Host) -> DbLedgerStorage:
    return await open_storage(host.world(), SMALL_LOGS)


async def test_rows_come_after_the_sync_of_the_entries_and_facts_of_ledgers_after_the_rows(run_of, universe, storage):
    storage.set_master_key(1, b"k")
    storage.add(run_of(1, range(10)))
    await storage.flush()
    steps = []
    for line in universe.trace.lines:
        for name in ("FileSynced", "MapSynced"):
            if name in line:
                path = next(part for part in line.split() if "/b/current/" in part)
                steps.append((name, path.rpartition("/")[2].strip("'\",")))
    assert steps[-3:] == [("FileSynced", "0.log"), ("MapSynced", "locations"), ("MapSynced", "ledgers")]


async def test_nothing_is_written_when_there_is_nothing_to_write(universe: Universe, storage: DbLedgerStorage) -> None:
    before = len(universe.trace.lines)
    await storage.flush()
    await storage.flush()
    assert (storage.stats.flushes, universe.trace.lines[before:]) == (0, [])


async def test_a_long_flush_is_synced_on_the_way(run_of, universe: Universe, host: Host):
    storage = await open_storage(host.world(), StorageOptions(sync_every_bytes=4 << 20))
    for first in range(0, 2000, 100):
        storage.add(run_of(1, range(first, first + 100), 10_000))
    await storage.flush()
    assert sum("FileSynced" in line and "0.log" in line for line in universe.trace.lines) in range(4, 8)
