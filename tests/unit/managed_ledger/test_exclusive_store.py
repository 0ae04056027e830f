"""Logs of a broker that is alone with its metadata: an open that has nothing to prove stores nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from managed_ledger.errors import ManagedLedgerUnavailableError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerReadError
from quire.ledger.position import Position
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import NAME, Cluster, Session, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other process write to the metadata."""
    monkeypatch.setattr(Session, "is_exclusive", True, raising=False)


async def node_of(cluster: Cluster) -> tuple[bytes, int]:
    node = await node_at(cluster.metadata, log_path(NAME))
    return node.value, node.version


async def write(cluster: Cluster, count: int, *, killed: bool = False) -> None:
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), *numbered(0, count))
        if killed:
            kill(factory)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("killed", [False, True])
async def test_opens_without_anything_to_prove_store_nothing_and_the_first_append_stores_the_end(
    killed: bool, cluster: Cluster
) -> None:
    await write(cluster, 12, killed=killed)
    before = await node_of(cluster)
    for _ in range(3):
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            assert await node_of(cluster) == before
            assert (log.last_confirmed, log.entry_count, log.state) == (Position(1, 1), 12, State.IDLE)
            assert [info.entries for info in log.ledgers] == [10, 2]
            assert await read_all(log) == numbered(0, 12)
        assert await node_of(cluster) == before
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        await publish(log, b"12")
        stored = await cluster.stored_list()
        assert [(info.ledger_id, info.entries) for info in stored.ledgers] == [(0, 10), (1, 2), (2, 0)]
        assert await read_all(log) == numbered(0, 13)


async def closed(cluster: Cluster, factory: ManagedLedgerFactory) -> None:
    await (await factory.open(NAME)).close()


async def abandoned(cluster: Cluster, factory: ManagedLedgerFactory) -> None:
    (await factory.open(NAME)).abandon()


async def failed(cluster: Cluster, factory: ManagedLedgerFactory) -> None:
    cluster.ledgers.failures["open"] = [LedgerReadError("too few bookies answer")]
    await raises(ManagedLedgerUnavailableError, factory.open(NAME))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("ended", [closed, abandoned, failed])
async def test_a_log_that_this_process_had_before_is_taken_over_by_a_write(
    ended: Callable[[Cluster, ManagedLedgerFactory], Awaitable[None]], cluster: Cluster
) -> None:
    """Writes of its former life may be on their way."""
    await write(cluster, 3)
    async with cluster.broker() as factory:
        before = await node_of(cluster)
        await ended(cluster, factory)
        await factory.open(NAME)
        assert (await node_of(cluster))[1] == before[1] + 1


@pytest.mark.usefixtures("alone")
async def test_beyond_the_names_that_are_kept_every_log_is_taken_over_by_a_write(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("managed_ledger.factory.ENDED_MAX", 1)
    await write(cluster, 3)
    async with cluster.broker() as factory:
        before = await node_of(cluster)
        for name in ("a/b/persistent/one", "a/b/persistent/two"):
            await (await factory.open(name)).close()
        await factory.open(NAME)
        assert (await node_of(cluster))[1] == before[1] + 1


@pytest.mark.usefixtures("alone")
async def test_the_time_of_the_close_is_stored_where_it_counts_for_the_retention(cluster: Cluster) -> None:
    await write(cluster, 3)
    for _ in range(2):
        async with cluster.broker(retention_minutes=5, retention_mb=-1) as factory:
            await factory.open(NAME)
            await trio.sleep(4 * 60)
    assert cluster.ledgers.listed() == await cluster.named_ledgers() == {1}, "a restart does not prolong it"


@pytest.mark.usefixtures("alone")
async def test_an_empty_ledger_is_named_for_deletion_before_it_is_deleted(cluster: Cluster) -> None:
    await write(cluster, 3)
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        cluster.ledgers.delay_s = 0.5
        log.append([b"lost"], Sink())
        await until(lambda: cluster.ledgers._next_id == 2)
        kill(factory)
    cluster.ledgers.delay_s = 0.0
    assert [info.ledger_id for info in (await cluster.stored_list()).ledgers] == [0, 1]
    cluster.ledgers.failures["delete"] = [LedgerReadError("not now")] * 10
    async with cluster.broker() as factory:
        await factory.open(NAME)
        assert (await cluster.stored_list()).deleting == (1,)
        cluster.ledgers.failures.clear()
