"""Logs of single ledgers, and the log that is made ahead. Covers bookie/db_ledger_storage/log_writing."""

from __future__ import annotations

import errno

import pytest
import trio

from bookie.db_ledger_storage.log_writing.ledger_logs import LedgerLogOptions, LedgerLogStats, LogCounts
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from simulation.machines.host import Host
from simulation.machines.world import Universe, run
from tests.support.refusals import raises
from tests.unit.bookie.build import open_storage
from tests.unit.bookie.db_ledger_storage.compaction_rig import FOLDER, LOG_SIZE, fill, held, live, logs_of
from tests.unit.bookie.db_ledger_storage.conftest import entry_of, run_of

LOGS = LedgerLogOptions(active_max=3, idle_s=10, counted_factor=2)
EACH = StorageOptions(log_size_max=LOG_SIZE, ledger_logs=LOGS)
AHEAD = StorageOptions(log_size_max=LOG_SIZE, log_ahead=True)


def entries(ledger_id: int, ids: range) -> dict[int, bytes]:
    return {each: entry_of(ledger_id, each) for each in ids}


@pytest.fixture
async def storage(host: Host) -> DbLedgerStorage:
    return await open_storage(host.world(), EACH)


async def test_each_ledger_has_a_log_of_its_own_and_it_goes_with_the_ledger(host, storage):
    await fill(storage, {1: range(3), 2: range(3)})
    await fill(storage, {1: range(3, 5), 2: range(3, 5)})
    assert logs_of(host) == ["0.log", "1.log"]
    assert {storage._locations.get(1, each) >> 32 for each in range(5)} == {0}
    assert {storage._locations.get(2, each) >> 32 for each in range(5)} == {1}
    assert held(storage, 1, range(9)) == entries(1, range(5))
    await storage.close()
    host.end()
    storage = await open_storage(host.world(), EACH)
    assert (await storage.collect_garbage(live(2))).logs == (0,)
    assert held(storage, 2, range(9)) == entries(2, range(5))


async def test_a_full_log_is_followed_by_another_one_of_the_ledger(host, storage):
    await fill(storage, {1: range(12), 2: range(1)})
    assert logs_of(host) == ["0.log", "1.log", "2.log"]
    assert held(storage, 1, range(12)) == entries(1, range(12))
    assert storage._logs.ledger_stats.ledgers_with_several == 1


async def test_so_many_logs_are_written_at_the_same_time(host, storage):
    await fill(storage, {each: range(2) for each in range(1, 8)})
    stats = storage._logs.ledger_stats
    assert (stats.active, stats.ended_for_room) == (3, 4)
    assert storage._logs.inactive_ids() == [0, 1, 2, 3]
    for ledger_id in range(1, 8):
        assert held(storage, ledger_id, range(3)) == entries(ledger_id, range(2))


async def test_the_log_of_a_ledger_without_entries_is_ended_and_can_go(host, storage):
    await fill(storage, {1: range(2), 2: range(2)})
    await trio.sleep(6)
    await fill(storage, {2: range(2, 4)})
    await trio.sleep(6)
    assert (await storage.collect_garbage(live(2))).logs == (0,)
    stats = storage._logs.ledger_stats
    assert (stats.active, stats.ended_idle) == (1, 1)
    await fill(storage, {2: range(4, 6)})
    assert logs_of(host) == ["1.log"]


async def test_what_a_failed_flush_wrote_to_the_logs_is_cut_off(host, storage):
    await fill(storage, {1: range(2), 2: range(2)})
    size = len(host.disk.read(f"{FOLDER}/0.log"))
    for ledger_id in (1, 2):
        storage.add(run_of(ledger_id, [5]))
    host.disk.limit(50)
    await raises(OSError, storage.flush())
    assert len(host.disk.read(f"{FOLDER}/0.log")) == size
    host.disk.limit(None)
    await storage.flush()
    for ledger_id in (1, 2):
        assert held(storage, ledger_id, range(6)) == entries(ledger_id, range(2)) | entries(ledger_id, range(5, 6))


def test_logs_are_counted_for_a_time_and_for_a_number_of_ledgers() -> None:
    stats = LedgerLogStats()
    counts = LogCounts(LOGS, stats)
    for ledger_id in range(6):
        counts.begun(ledger_id, 0)
        counts.begun(ledger_id, 1)
    assert (stats.ledgers_with_several, sum(stats.logs_per_ledger.counts)) == (6, 0)
    counts.begun(9, 2)
    assert sum(stats.logs_per_ledger.counts) == 1, "there are too many"
    counts.begun(10, 21)
    assert sum(stats.logs_per_ledger.counts) == 6, "they are too old"


def crash_after(changes: int) -> bool:
    async def story(universe: Universe) -> bool:
        host = universe.host("bookie")
        storage = await open_storage(host.world(), EACH)
        await fill(storage, {1: range(4), 2: range(4)})
        host.crash_after(changes)
        over = False
        try:
            await fill(storage, {each: range(4, 8) for each in range(1, 6)})
            over = True
        except BaseException:
            if host.running:
                raise
        host.cut_power()
        storage = await open_storage(host.world(), EACH)
        for ledger_id in (1, 2):
            found = held(storage, ledger_id, range(8))
            assert found.items() >= entries(ledger_id, range(4)).items()
            assert found.items() <= entries(ledger_id, range(8)).items()
        await storage.collect_garbage(live(1, 2))
        assert held(storage, 1, range(4)) == entries(1, range(4))
        return over

    return run(changes, story)


def test_a_crash_in_a_flush_of_many_logs_loses_nothing_that_was_flushed() -> None:
    assert next(changes for changes in range(300) if crash_after(changes)) > 20


# --- the log made ahead


async def test_the_next_log_is_made_ahead_when_the_present_one_is_half_full(host):
    storage = await open_storage(host.world(), AHEAD)
    await fill(storage, {1: range(2)})
    assert logs_of(host) == ["0.log"]
    await fill(storage, {1: range(2, 8)})
    assert logs_of(host) == ["0.log", "1.log"]
    assert (await storage.collect_garbage(live())).logs == (), "it is not one of the logs that may go"
    await fill(storage, {2: range(10)})
    assert storage._locations.get(2, 9) >> 32 == 1, "the flush has used it"
    assert held(storage, 2, range(12)) == entries(2, range(10))
    assert logs_of(host) == ["0.log", "1.log", "2.log"]
    await storage.close()
    assert logs_of(host) == ["0.log", "1.log"], "a stop leaves none"


async def test_a_log_made_ahead_that_a_crash_left_is_deleted(host):
    storage = await open_storage(host.world(), AHEAD)
    await fill(storage, {1: range(8)})
    host.cut_power()
    storage = await open_storage(host.world(), AHEAD)
    assert (await storage.collect_garbage(live(1))).logs == (1,)
    await fill(storage, {1: range(8, 10)})
    assert storage._logs.active_id == 2, "its id is not used again"
    assert held(storage, 1, range(12)) == entries(1, range(10))


async def test_without_room_for_a_log_ahead_the_flush_counts(monkeypatch, host, log_events):
    storage = await open_storage(host.world(), AHEAD)

    def fail() -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(storage._logs, "make_ahead", fail)
    await fill(storage, {1: range(12)})
    await fill(storage, {1: range(12, 20)})
    assert held(storage, 1, range(20)) == entries(1, range(20))
    assert any("made ahead" in event["event"] for event in log_events)
