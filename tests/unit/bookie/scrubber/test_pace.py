"""Steps of a scrub are small, pause beside adds, and keep the rate. Covers pace.py, steps of rows.py and strays.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import trio

from bookie.config import BookieConfig
from bookie.scrubber import strays
from bookie.scrubber.directory_reads import DirectoryReads
from bookie.scrubber.pace import PAUSE_S_MAX, PAUSES, ROWS
from bookie.scrubber.rows import check_rows
from bookie.scrubber.strays import find_strays
from simulation.machines.world import Universe
from tests.support.waiting import until
from tests.unit.bookie.integrity.rig import CONFIG, IntegrityCluster, Member, integrity_cluster
from tests.unit.bookie.scrubber.rig import scrub, scrubber

UNBOUNDED = replace(CONFIG, scrub_rate=1_000_000, flush_interval_ms=100_000_000)
ENTRIES = 40


@pytest.fixture
async def cluster(universe: Universe) -> AsyncIterator[IntegrityCluster]:
    async with integrity_cluster(universe) as cluster:
        yield cluster


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Times at which steps begin and end."""
    found: list[tuple[float, float]] = []
    run = DirectoryReads.run

    async def observed(self: DirectoryReads, directory: int, job: Callable[[], Any]) -> Any:
        began = trio.current_time()
        result = await run(self, directory, job)
        found.append((began, trio.current_time()))
        return result

    monkeypatch.setattr(DirectoryReads, "run", observed)
    return found


async def filled(cluster: IntegrityCluster, config: BookieConfig) -> Member:
    """Return a member with entries in a log that is no longer written."""
    (a,) = await cluster.begin("a", config=config)
    await a.add(await cluster.ledger(a, ack_quorum=1), ENTRIES)
    await a.bookie.checkpoint()
    await a.stop()
    await a.start()
    return a


@pytest.mark.parametrize(("bytes_max", "adding", "pauses"), [(1, True, PAUSES), (1, False, 0), (0, True, 0)])
async def test_a_pause_follows_each_step_while_entries_are_added(
    bytes_max: int, adding: bool, pauses: int, cluster: IntegrityCluster, steps: list[tuple[float, float]]
) -> None:
    a = await filled(cluster, replace(UNBOUNDED, read_bytes_beside_adds=bytes_max))
    ledger_id = await cluster.ledger(a, ack_quorum=1)
    await a.add(ledger_id, 1)
    if not adding:
        await trio.sleep(10)
    done = await scrub(a)
    assert done.counts.entries == ENTRIES
    assert len(steps) > (2 * ENTRIES if bytes_max else 2), "with one byte at a time each entry has a step of its own"
    began = steps[0][0]
    rests = [after[0] - step[1] for step, after in pairwise(steps) if after[0] < began + 1]
    took = [ended - began for began, ended in steps]
    assert sum(took) > 0
    for rest, step in zip(rests, took, strict=False):
        assert rest >= min(pauses * step, PAUSE_S_MAX) - 1e-9
    if not pauses:
        assert min(rests) < PAUSES * max(took)


async def test_a_look_for_strays_in_large_entries_keeps_the_rate_too(cluster: IntegrityCluster) -> None:
    a = await filled(cluster, replace(UNBOUNDED, scrub_rate=4, read_bytes_beside_adds=1))
    began = trio.current_time()
    scrubber(a).ask()
    await until(lambda: scrubber(a).counts.entries > 0)
    assert trio.current_time() - began >= (ENTRIES - 1) / 10 / 4, "each step has a single record, a tenth of an entry"


async def test_a_step_ends_after_so_many_bytes_or_rows(
    cluster: IntegrityCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await filled(cluster, CONFIG)
    (storage,) = a.bookie.storage.directories
    (log_id,) = storage.parts.logs.inactive_ids()
    (ledger_id,) = storage.parts.locations.ledgers_from(0, 10)
    checked = [check_rows(storage.parts, ledger_id, 0, 100, None, bytes_max) for bytes_max in (1, 200, 1 << 20)]
    assert [each.entries for each in checked][::2] == [1, ENTRIES]
    assert 1 < checked[1].entries < 5
    assert [each.next_entry for each in checked] == [1, checked[1].entries, -1]
    found = [find_strays(storage.parts, log_id, bytes_max=bytes_max) for bytes_max in (1, 200, 1 << 20)]
    assert [each.records for each in found][::2] == [1, ENTRIES]
    assert 1 < found[1].records < 5
    assert (found[0].next_at > 0, found[2].next_at) == (True, -1)
    monkeypatch.setattr(strays, "RECORDS_PER_STEP", 3)
    assert find_strays(storage.parts, log_id).records == 3
    scrubber(a).rate = 7
    assert scrubber(a)._pace.rows_max == 7
    scrubber(a).rate = 10_000
    assert scrubber(a)._pace.rows_max == ROWS
