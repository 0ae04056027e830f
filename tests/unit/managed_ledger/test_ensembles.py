"""Logs on three bookies, through the real ledger client, while some of them are unavailable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from managed_ledger.errors import ManagedLedgerUnavailableError
from managed_ledger.factory import ManagedLedgerFactory, open_factory
from managed_ledger.writing.state import State
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.ledger.fake_bookie import FakeCluster
from tests.unit.managed_ledger.cluster import NAME, append, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import fake_world
from tests.unit.managed_ledger.hosts import THREE_COPIES


@asynccontextmanager
async def broker(cluster: FakeCluster) -> AsyncIterator[ManagedLedgerFactory]:
    config = replace(THREE_COPIES, entries_max=5)
    async with cluster.client() as client, open_factory(fake_world(), cluster.store, client, config) as factory:
        yield factory


async def test_a_log_is_not_opened_with_too_few_bookies_and_is_when_there_are_enough() -> None:
    cluster = FakeCluster(3)
    third = cluster.bookies["bookie2:3181"]
    third.down = True
    async with broker(cluster) as factory:
        await raises(ManagedLedgerUnavailableError, factory.open(NAME), match=r"cannot be opened: .*bookies")
        third.down = False
        [(_, entry_id)] = await publish(await factory.open(NAME), b"x")
        assert entry_id == 0


async def test_the_ledgers_of_a_log_and_of_its_cursors_have_its_ensemble_and_quorums() -> None:
    cluster = FakeCluster(4)
    async with broker(cluster) as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub", initial="earliest")
        await publish(log, *numbered(0, 7))
        cursor.ack_individual([log.first_position()])
        await cursor.wait_persisted()
        assert cursor.store is not None
        for ledger_id in (*[info.ledger_id for info in log.ledgers], cursor.store.ledger_id):
            metadata = await cluster.metadata(ledger_id)
            assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 3, 2)


async def test_a_roll_without_enough_bookies_is_tried_again_and_nothing_is_confirmed_or_lost_meanwhile() -> None:
    cluster = FakeCluster(3)
    async with broker(cluster) as factory:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 4))
        third = cluster.bookies["bookie2:3181"]
        third.down = True
        sink = append(log, numbered(4, 5))
        await trio.sleep(2)
        assert (sink.count, sink.errors, log.state) == (1, [], State.SWITCHING)
        third.down = False
        await until(lambda: sink.count == 5)
        assert await read_all(log) == numbered(0, 9)


async def test_without_an_ack_quorum_nothing_is_confirmed_and_the_producer_is_told_and_with_one_the_log_goes_on() -> (
    None
):
    cluster = FakeCluster(3)
    async with broker(cluster) as factory:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 2))
        for bookie_id in ("bookie1:3181", "bookie2:3181"):
            cluster.bookies[bookie_id].stop()
        sink = append(log, numbered(2, 2))
        await until(lambda: bool(sink.errors))
        assert sink.count == 0
        assert isinstance(sink.errors[0], ManagedLedgerUnavailableError)
        for bookie in cluster.bookies.values():
            bookie.down = False
        assert await publish(log, b"after")
        found = await read_all(log)
        assert (found[:2], found[-1]) == (numbered(0, 2), b"after")
