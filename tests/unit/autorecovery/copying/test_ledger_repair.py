"""Repair of one ledger: it gets back all copies that can be made."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autorecovery.copying.ledger_repair import LedgerRepair
from autorecovery.copying.metrics import WorkerStats
from autorecovery.fragments import BadFragment
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerReadError, NoSuchEntryError, NoSuchLedgerError
from quire.ledger.placement import Adherence
from quire.metadata.ledger_metadata import LedgerMetadata
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.autorecovery.live import (
    CONFIG,
    all_copies_are_good,
    client_of,
    damage,
    marks_of,
    nothing_is_marked,
    recovering,
    write,
)
from tests.unit.cli.shell.build import with_bookies

pytestmark = pytest.mark.seeded


async def with_one_entry_lost(client: LedgerClient) -> int:
    """Return a closed ledger that has one entry more in its metadata than on its bookies."""
    ledger_id = await write(client, 3)
    metadata = await client.read_metadata(ledger_id)
    more = replace(metadata, last_entry_id=3, length=metadata.length + 1)
    await client._context.ledgers.update(ledger_id, lambda stored: more)
    return ledger_id


@pytest.mark.parametrize("in_limbo", [0, 1, 4])
async def test_lost_entries_are_told_as_an_error_and_the_mark_stays(in_limbo: int, expect_error, log_events) -> None:
    """Bookies in limbo do not deny an entry that they lack, and do not have it either."""
    expect_error("entries are lost")
    error = NoSuchEntryError if not in_limbo else LedgerReadError
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        ledger_id = await with_one_entry_lost(client)
        metadata = await client.read_metadata(ledger_id)
        for name in [*metadata.fragments[0].bookies, "b4"][:in_limbo]:
            cluster.bookies[name].storage.limbo.put(ledger_id, b"")
        await marks_of(cluster).mark(ledger_id, ["b1"])
        async with recovering(cluster) as stats:
            await until(lambda: stats.worker.unreadable > 0)
            assert [each["ledger"] for each in log_events if each["level"] == "error"] == [ledger_id]
            assert not await nothing_is_marked(cluster)()
        assert (await client.read_metadata(ledger_id)).fragments == metadata.fragments
        reader = await client.open(ledger_id, password=b"secret", recover=False)
        await raises(error, reader.read(3, 3))


async def test_a_ledger_that_is_deleted_while_it_is_repaired_is_not_called_lost(monkeypatch: pytest.MonkeyPatch):
    """Its bookies answer that they have no such ledger once their garbage collection has run."""
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        ledger_id = await with_one_entry_lost(client)
        repairs = LedgerRepair(cluster.world, client, CONFIG, WorkerStats())

        async def replicate(metadata: LedgerMetadata, bad: BadFragment) -> None:
            await client.delete(ledger_id)
            raise NoSuchEntryError("nobody has the ledger any more")

        monkeypatch.setattr(repairs._replicator, "replicate", replicate)
        await raises(NoSuchLedgerError, repairs.repair(ledger_id, ["b1"]))


async def test_of_whom_the_mark_names_everything_is_read_where_samples_are_read_of_others() -> None:
    """A sample may miss what another sample has found."""
    async with with_bookies() as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 200)
        await damage(client, ledger_id, "b1", 100)
        config = replace(CONFIG, verification_percentage=1)
        assert await LedgerRepair(cluster.world, client, config, WorkerStats()).repair(ledger_id, ["b1"])
        await all_copies_are_good(cluster, client, ledger_id, 200)


async def test_copies_are_moved_until_the_placement_policy_is_met_where_that_is_wished() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 30, quorums=(2, 2, 2))
        one, two = (await client.read_metadata(ledger_id)).fragments[0].bookies
        racks = {each: {"rack": "/r1" if each in (one, two) else "/r2"} for each in cluster.bookies}
        await cluster.store().create("/bookies", json.dumps({"default": racks}).encode())

        async def adherence() -> Adherence:
            return client.placement.adherence((await client.read_metadata(ledger_id)).fragments[0].bookies, 2, 2)

        async def is_seen() -> bool:
            return await adherence() is Adherence.FAIL

        await until(is_seen)
        marks = marks_of(cluster)
        await marks.mark(ledger_id, [])
        async with recovering(cluster):
            await until(nothing_is_marked(cluster))
        assert await adherence() is Adherence.FAIL
        await marks.mark(ledger_id, [])
        async with recovering(cluster, replace(CONFIG, repair_placement=True)):
            await until(nothing_is_marked(cluster))
        assert await adherence() is Adherence.MEETS_STRICT
        assert len({one, two} & {*(await client.read_metadata(ledger_id)).fragments[0].bookies}) == 1
        await all_copies_are_good(cluster, client, ledger_id, 30)
