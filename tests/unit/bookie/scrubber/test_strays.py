"""Rows without entries, entries without rows, and logs whose map is damaged. Covers strays.py, expected.is_expected."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from bookie.db_ledger_storage.compaction.plan import CompactionKind
from bookie.integrity.expected import is_expected
from bookie.scrubber import strays
from bookie.scrubber.strays import find_strays
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.wire.bookkeeper.v2 import Rc
from simulation.machines.world import Universe
from tests.support.waiting import until
from tests.unit.bookie.build import Client
from tests.unit.bookie.integrity.rig import IntegrityCluster, Member, integrity_cluster
from tests.unit.bookie.scrubber.rig import ENTRIES, FAST, FOUND, flip, logs, scrub, scrubber, written


@pytest.fixture
async def cluster(universe: Universe) -> AsyncIterator[IntegrityCluster]:
    async with integrity_cluster(universe) as cluster:
        yield cluster


def lose_rows(member: Member, ledger_id: int, *entry_ids: int) -> None:
    rows = member.bookie.storage.of(ledger_id).parts.locations._rows
    batch = rows.batch()
    for entry_id in entry_ids:
        batch.delete(struct.pack("!qq", ledger_id, entry_id))
    rows.write(batch, sync=True)


async def restarted(cluster: IntegrityCluster) -> tuple[Member, int]:
    """Return a member whose log is no longer written, and its ledger."""
    (a, _, _), ledger_id = await written(cluster)
    await a.stop()
    await a.start()
    return a, ledger_id


async def test_entries_without_rows_get_them_again(cluster: IntegrityCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "RECORDS_PER_STEP", 7)
    monkeypatch.setattr(strays, "STRAYS_PER_STEP", 2)
    a, ledger_id = await restarted(cluster)
    lose_rows(a, ledger_id, 0, 3, 4, ENTRIES - 1)
    assert (await Client(a.bookie).read(ledger_id, 3)).rc == Rc.NO_ENTRY
    parts = a.bookie.storage.of(ledger_id).parts
    (log_id,) = parts.logs.inactive_ids()
    found = find_strays(parts, log_id)
    assert ([stray.entry_id for stray in found.strays], found.records) == ([0, 3], 4)
    counts = (await scrub(a)).counts
    assert (counts.strays, counts.rows_written, counts.damaged) == (4, 4, 0)
    await a.bookie.checkpoint()
    await a.kill(lose_unsynced=True)
    await a.start()
    await Client(a.bookie).holds(ledger_id, range(ENTRIES))
    counts = (await scrub(a)).counts
    assert (counts.strays, counts.damaged) == (0, 0)


async def test_a_damaged_entry_without_a_row_gets_none(cluster: IntegrityCluster) -> None:
    a, ledger_id = await restarted(cluster)
    flip(a, ledger_id, 3, 50)
    lose_rows(a, ledger_id, 3)
    counts = (await scrub(a)).counts
    assert (counts.strays, counts.rows_written) == (1, 0)
    assert (await Client(a.bookie).read(ledger_id, 3)).rc == Rc.NO_ENTRY


async def test_entries_that_belong_to_other_bookies_or_to_no_ledger_need_no_rows(cluster: IntegrityCluster) -> None:
    a, b, c = await cluster.begin("a", "b", "c", config=FAST)
    others, deleted = await cluster.ledger(b, c), await cluster.ledger(a, b, c)
    await a.add(others, 5)
    await a.add(deleted, 5)
    await a.stop()
    await a.start()
    lose_rows(a, others, 2)
    await a.bookie.storage.delete_ledger(deleted)
    lose_rows(a, deleted, 2)
    assert (await scrub(a)).counts.strays == 0


def test_the_members_of_an_entry_are_those_of_its_fragment_and_stripe() -> None:
    fragments = (Fragment(0, ("a", "b", "c")), Fragment(10, ("a", "d", "c")))
    ledger = LedgerMetadata(ensemble_size=3, write_quorum=2, ack_quorum=2, fragments=fragments)
    assert [each for each in range(12) if is_expected(ledger, "b", each)] == [0, 1, 3, 4, 6, 7, 9]
    assert [each for each in range(16) if is_expected(ledger, "d", each)] == [10, 12, 13, 15]
    closed = LedgerMetadata(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        fragments=fragments,
        state=LedgerState.CLOSED,
        last_entry_id=12,
        length=1,
    )
    assert [each for each in range(16) if is_expected(closed, "d", each)] == [10, 12]


async def test_logs_that_were_read_in_a_round_are_not_read_again_after_a_restart(cluster: IntegrityCluster) -> None:
    a, ledger_id = await restarted(cluster)
    record = (await scrub(a)).records[0]
    lose_rows(a, ledger_id, 3)
    record.position, record.next_log = 0, 1
    await scrubber(a)._save(0)
    await a.stop()
    await a.start()
    await until(lambda: scrubber(a).counts.rounds)
    assert scrubber(a).counts.strays == 0
    assert (await scrub(a)).counts.strays == 1


@pytest.mark.expect_error(FOUND)
async def test_rows_whose_log_is_gone_are_healed(cluster: IntegrityCluster) -> None:
    a, ledger_id = await restarted(cluster)
    (path,) = logs(a)
    a.host.disk.remove(path)
    done = await scrub(a)
    assert (done.counts.damaged, done.counts.healed) == (ENTRIES, ENTRIES)
    await Client(a.bookie).holds(ledger_id, range(ENTRIES))


@pytest.mark.expect_error("an entry log has a damaged header or map")
@pytest.mark.parametrize("place", ["magic", "count", "map"])
async def test_compaction_replaces_a_log_whose_header_or_map_is_damaged(place: str, cluster: IntegrityCluster) -> None:
    a, ledger_id = await restarted(cluster)
    (path,) = logs(a)
    size = len(a.host.disk.read(path))
    a.host.disk.flip(path, {"magic": 1, "count": 19, "map": size - 3}[place], 0)
    assert list((await scrub(a)).records[0].damaged_logs) == [0]
    storage = a.bookie.storage.of(ledger_id)

    async def live() -> AsyncGenerator[int, None]:
        yield ledger_id

    await storage.collect_garbage(live)
    assert list((await storage.compact(CompactionKind.MAJOR, 1.1)).logs) == [0]
    await a.bookie.checkpoint()
    assert not (await scrub(a)).records[0].damaged_logs
    await Client(a.bookie).holds(ledger_id, range(ENTRIES))
