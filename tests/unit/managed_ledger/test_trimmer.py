"""Ledgers that are no longer needed are deleted, each after the list was stored without it."""

from __future__ import annotations

import pytest
import trio

from managed_ledger.errors import ManagedLedgerFencedError
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.trimming import Retention
from managed_ledger.writing.state import State
from quire.ledger.position import EARLIEST, Position
from quire.metadata.errors import MetadataUnavailableError
from tests.support.refusals import raises
from tests.unit.managed_ledger.cluster import NAME, Cluster, numbered, publish, read_all


@pytest.mark.broker(retention_minutes=0, retention_mb=0)
async def test_ledgers_are_deleted_when_the_slowest_durable_cursor_has_passed_them_durably(cluster, log):
    fast = await log.open_cursor("fast", initial="earliest")
    slow = await log.open_cursor("slow", initial="earliest")
    reader = log.new_reader_cursor(EARLIEST)
    await publish(log, *numbered(0, 35))
    fast.ack_cumulative(Position(3, 4))
    slow.ack_cumulative(Position(1, 8))
    await trio.sleep(1)
    assert await cluster.named_ledgers() == {1, 2, 3}
    assert 0 not in cluster.ledgers.listed()
    assert reader.read_position == Position(1, 0)
    slow.ack_individual([Position(1, 9)])
    await trio.sleep(1)
    assert await cluster.named_ledgers() == {2, 3}
    assert (await cluster.stored_list()).deleting == (1,)
    await log.delete_cursor("slow")
    await trio.sleep(1)
    assert await cluster.named_ledgers() == {3}
    assert await read_all(log) == numbered(30, 5)


@pytest.mark.broker(retention_minutes=5, retention_mb=-1)
async def test_retention_keeps_what_is_consumed(cluster: Cluster, log: ManagedLedger) -> None:
    await publish(log, *numbered(0, 15))
    await trio.sleep(4 * 60)
    assert await cluster.named_ledgers() == {0, 1}
    await trio.sleep(4 * 60)
    assert await cluster.named_ledgers() == {1}
    log.retention = Retention(time_ms=-1, size=-1)
    await publish(log, *numbered(15, 10))
    await trio.sleep(3600)
    assert await cluster.named_ledgers() == {1, 2}


async def test_an_old_owner_deletes_nothing(cluster: Cluster) -> None:
    async with cluster.broker() as factory, cluster.broker() as other:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 25))
        await other.open(NAME)
        await trio.sleep(1)
        kept = cluster.ledgers.listed()
        log.retention = Retention()
        await raises(ManagedLedgerFencedError, log.trim())
        assert cluster.ledgers.listed() == kept
        assert log.state is State.FENCED


async def test_a_delete_that_fails_is_remembered_and_done_by_the_next_open(cluster: Cluster) -> None:
    async with cluster.broker(retention_minutes=0, retention_mb=0) as factory:
        log = await factory.open(NAME)
        cluster.ledgers.failures["delete"] = [MetadataUnavailableError("away")]
        await publish(log, *numbered(0, 15))
        await trio.sleep(1)
        assert await cluster.named_ledgers() == {1}
        assert 0 in cluster.ledgers.listed()
        assert (await cluster.stored_list()).deleting == (0,)
    async with cluster.broker() as factory:
        await factory.open(NAME)
        await trio.sleep(1)
        assert 0 not in cluster.ledgers.listed()
