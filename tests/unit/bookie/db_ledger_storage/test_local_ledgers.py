"""Strays, ledgers with rows in the location index alone. Covers bookie/db_ledger_storage/local_ledgers.py."""

from __future__ import annotations

import pytest

from bookie.db_ledger_storage import local_ledgers, log_map
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from simulation.machines.host import Host
from tests.unit.bookie.build import open_storage
from tests.unit.bookie.db_ledger_storage.compaction_rig import fill, held, live

ONE_EACH = StorageOptions(log_size_max=1024 + 3 * 44)
"""Size of a log in bytes: three entries, those of one ledger."""
LEDGERS = range(1, 10)


@pytest.fixture
def searched(monkeypatch) -> list[int]:
    """Let a round search two ledgers, in one step; return the numbers of ledgers that each step of a search found."""
    monkeypatch.setattr(local_ledgers, "SEEKS_PER_ROUND", 2)
    steps: list[int] = []
    seek = local_ledgers.LocalLedgers._seek

    async def noted(self, first: int, count_max: int):
        steps.append(count_max)
        return await seek(self, first, count_max)

    monkeypatch.setattr(local_ledgers.LocalLedgers, "_seek", noted)
    return steps


async def filled(host: Host) -> DbLedgerStorage:
    storage = await open_storage(host.world(), ONE_EACH)
    for ledger_id in LEDGERS:
        await fill(storage, {ledger_id: range(3)})
    return storage


def make_strays(storage: DbLedgerStorage, *ledgers: int) -> None:
    """Leave only the rows of the location index, as a replay after a deletion does."""
    for ledger_id in ledgers:
        storage._ledgers.forget(ledger_id)
    storage._ledgers.delete_rows(ledgers)


async def test_each_round_searches_a_part_and_in_the_end_all_strays_are_gone(host, searched):
    storage = await filled(host)
    make_strays(storage, 1, 4, 9)
    collected = [await storage.collect_garbage(live(2, 3, 5, 6, 7, 8)) for _ in range(6)]
    assert [each.ledgers for each in collected] == [(1,), (4,), (), (), (9,), ()]
    assert searched == [2] * 5, "the last part of the index is found to be the last one"
    assert storage._locations.ledgers() == [2, 3, 5, 6, 7, 8]


async def test_a_stray_that_is_not_found_yet_keeps_its_log(host, searched):
    storage = await filled(host)
    make_strays(storage, 8)
    for _ in range(7):
        collected = await storage.collect_garbage(live(*LEDGERS))
        assert (collected.ledgers, collected.logs) == ((), ())
    assert len(searched) == 5
    assert storage._locations.has_rows(8)
    storage.set_master_key(8, b"k")
    assert list(held(storage, 8, range(3))) == [0, 1, 2]


async def test_a_deleted_ledger_behind_the_searched_part_frees_its_log_in_the_same_round(host, searched):
    storage = await filled(host)
    collected = await storage.collect_garbage(live(1, 2, 3))
    assert collected.ledgers == (4, 5, 6, 7, 8, 9)
    assert collected.logs == (3, 4, 5, 6, 7)


async def test_the_index_is_asked_about_a_ledger_once_and_after_the_search_not_at_all(host, searched):
    storage = await open_storage(host.world(), ONE_EACH)
    for ledger_id in (7, 8):
        await fill(storage, {ledger_id: range(1), 9: range(2 * ledger_id, 2 * ledger_id + 2)})  # one log
    for ledger_id in range(1, 7):
        await fill(storage, {ledger_id: range(3)})
    ledgers = storage.upkeep.ledgers
    await storage.collect_garbage(live(1, 2, 3, 4, 5, 6, 8, 9))
    assert ledgers.asked == 1, "about 7, which is deleted"
    await storage.collect_garbage(live(1, 2, 3, 4, 5, 6, 9))
    assert ledgers.asked == 2, "about 8; both logs are examined again"
    for _ in range(3):
        await storage.collect_garbage(live(1, 2, 3, 4, 5, 6, 9))
    assert [ledgers.lives(each) for each in (7, 8, 9, 1 << 40)] == [False, False, True, False]
    assert ledgers.asked == 2
    assert not ledgers._rowless


async def test_a_large_bookie_searches_a_sixteenth_of_its_ledgers_in_a_round(host, searched, monkeypatch):
    monkeypatch.setattr(local_ledgers, "SEEKS_PER_ROUND", 1)
    storage = await open_storage(host.world(), ONE_EACH)
    for ledger_id in range(48):
        storage.set_master_key(ledger_id, b"k")
    await fill(storage, dict.fromkeys(range(48), range(1)))
    await storage.collect_garbage(live(*range(48)))
    assert searched == [3]


@pytest.mark.parametrize("living", [(), (1, 2, 3, 4)])
async def test_more_strays_than_are_kept_in_memory_are_collected_round_by_round(host, monkeypatch, living):
    monkeypatch.setattr(local_ledgers, "STRAYS_MAX", 2)
    monkeypatch.setattr(local_ledgers, "SEEKS_PER_ROUND", 3)
    storage = await filled(host)
    make_strays(storage, *LEDGERS)
    ledgers = storage.upkeep.ledgers
    logs: list[int] = []
    for _ in range(4):
        logs += (await storage.collect_garbage(live(*living))).logs
        assert len(ledgers._strays) <= 3
        assert [ledgers.lives(each) for each in living] == [True] * len(living), "the index is asked"
    assert storage._locations.ledgers() == list(living)
    assert sorted(logs) == list(range(len(living), 8)), "the last one is written"
    for _ in range(3):
        await storage.collect_garbage(live())
    assert storage._locations.ledgers() == [], "the search begins again"


async def test_a_log_of_many_ledgers_that_are_not_searched_yet_is_examined_in_steps(host, searched, monkeypatch):
    monkeypatch.setattr(log_map, "_SEEKS_PER_STEP", 3)
    storage = await open_storage(host.world(), StorageOptions(log_size_max=1024 + 12 * 44))
    await fill(storage, dict.fromkeys(range(10), range(1)))
    await fill(storage, {10: range(5)})
    make_strays(storage, *range(9))
    log_map_ = storage._log_map
    assert log_map_ is not None
    steps = [each is None for each in log_map_.read(0, storage.upkeep.ledgers)]
    assert steps == [True, True, True, False]
