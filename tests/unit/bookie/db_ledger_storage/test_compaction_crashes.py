"""A crash at every step of a compaction: each entry stays readable, and its newest version is what is read."""

from __future__ import annotations

from typing import Any

import pytest

from bookie.db_ledger_storage.storage import DbLedgerStorage
from simulation.machines.world import Universe, run
from tests.unit.bookie.build import open_storage
from tests.unit.bookie.db_ledger_storage.compaction_rig import compact, fill, held, live, options
from tests.unit.bookie.db_ledger_storage.conftest import entry_of

LIVING = (1, 2, 3)


async def prepare(storage: DbLedgerStorage) -> None:
    """Three logs to compact, with entries that are overwritten, deleted, and made again under the same id."""
    await fill(storage, {1: range(4), 10: range(3), 11: range(3)})
    await fill(storage, {1: range(4, 8), 3: range(3), 10: range(3, 6)})
    await fill(storage, {1: range(8, 11), 2: range(2), 10: range(6, 11)})
    await fill(storage, {1: range(2, 5)}, version=2)
    await storage.delete_ledgers([3])
    await fill(storage, {3: range(1, 3)}, version=3)


def expected() -> dict[int, dict[int, bytes]]:
    one = {each: entry_of(1, each, version=2 if 2 <= each < 5 else 0) for each in range(11)}
    return {
        1: one,
        2: {each: entry_of(2, each) for each in range(2)},
        3: {each: entry_of(3, each, version=3) for each in range(1, 3)},
    }


def everything(storage: DbLedgerStorage) -> dict[int, dict[int, bytes]]:
    return {ledger_id: held(storage, ledger_id, range(15)) for ledger_id in LIVING}


def crash_in_compaction(changes: int, seed: int, settings: dict[str, Any]) -> bool:
    """Crash after `changes` changes of the disk; check; compact to the end; check. Return whether none was left."""

    async def story(universe: Universe) -> bool:
        host = universe.host("bookie")
        storage = await open_storage(host.world(), options(**settings))
        await prepare(storage)
        host.crash_after(changes)
        over = False
        try:
            compacted = await compact(storage, *LIVING)
            assert len(compacted.logs) >= 3
            over = True
        except BaseException:
            if host.running:
                raise
        host.cut_power()
        storage = await open_storage(host.world(), options(**settings))
        assert everything(storage) == expected()
        await compact(storage, *LIVING)
        assert everything(storage) == expected()
        await storage.close()
        host.end()
        storage = await open_storage(host.world(), options(**settings))
        await storage.collect_garbage(live(2))
        assert everything(storage) == {1: {}, 2: expected()[2], 3: {}}
        return over

    return run(seed, story)


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2)]])
@pytest.mark.parametrize(
    "settings", [{}, {"outstanding_max": 2}, {"whole": True}], ids=["plain", "two entries at a time", "whole"]
)
def test_a_crash_at_any_step_of_a_compaction_loses_and_brings_back_nothing(seed, settings):
    for changes in range(400):
        if crash_in_compaction(changes, seed, settings):
            assert changes > 20, "the compaction took many steps, and each was tried"
            break
    else:
        raise AssertionError("the compaction never came to its end")
