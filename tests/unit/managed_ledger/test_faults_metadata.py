"""Logs whose metadata is unavailable, damaged, set back, or very large. docs/faults.md has the list."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from managed_ledger.errors import LedgerIdOrderError, ManagedLedgerDamagedError, ManagedLedgerError
from managed_ledger.factory import OPENS_MAX, ManagedLedgerFactory, open_factory
from managed_ledger.stored_list import log_path
from quire.ledger.position import Position
from quire.metadata.store import ANY_VERSION
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.ledger.fake_bookie import FakeCluster
from tests.unit.managed_ledger.cluster import (
    CONFIG,
    CURSOR_CONFIG,
    NAME,
    Cluster,
    Session,
    append,
    kill,
    numbered,
    publish,
    read_all,
)
from tests.unit.managed_ledger.fake_ledgers import Sink, fake_world
from tests.unit.managed_ledger.hosts import host

TEN_MINUTES_S = 600


@pytest.mark.parametrize("hurt", [False, True], ids=["bookies well", "a bookie lost meanwhile"])
async def test_m5_ten_minutes_without_metadata_cost_no_entry_and_confirm_none_wrongly(hurt: bool) -> None:
    """The open ledger continues to serve, past its rollover. If a bookie is lost, a change of the ensemble is needed
    and waits: nothing is confirmed then. When the metadata is back, everything continues."""
    cluster = FakeCluster(5)
    async with host(cluster, entries_max=10, retry_timeout_s=60) as a:
        log = await a.factory.open(NAME)
        await publish(log, *numbered(0, 5))
        members = (await cluster.metadata(log.ledgers[-1].ledger_id)).fragments[-1].bookies
        a.store.disconnect()
        told: dict[bytes, Sink] = {}
        if hurt:
            cluster.bookies[members[0]].stop()
        for number in range(5, 5 + TEN_MINUTES_S // 10):
            sink = told[b"%d" % number] = Sink()
            log.append([b"%d" % number], sink)
            await trio.sleep(10)
            assert sink.count == (0 if hurt else 1)
        a.store.reconnect()
        await until(lambda: all(sink.count or sink.errors for sink in told.values()))
        await publish(log, b"after")
        await until(lambda: log.ledgers[-1].ledger_id > 0)
        found = await read_all(log)
        confirmed = [payload for payload, sink in told.items() if sink.count]
        expected = [*numbered(0, 5), *confirmed, b"after"]
        assert [each for each in found if each in expected] == expected, "others may be there without a receipt"
        assert hurt or len(confirmed) == len(told)


async def test_m15_a_log_with_a_damaged_list_fails_by_name_and_the_others_serve_on(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        well, ill = await factory.open(f"{NAME}-well"), await factory.open(f"{NAME}-ill")
        await publish(well, *numbered(0, 12))
        await publish(ill, *numbered(0, 12))
    path = log_path(f"{NAME}-ill")
    node = await node_at(cluster.metadata, path)
    for damaged in (
        b"\xff",
        node.value[:-1],
        b"\xff" + node.value,
        node.value[:10] + b"\x00\xff" + node.value[12:],
    ):
        await cluster.metadata.put(path, damaged, ANY_VERSION)
        async with cluster.broker() as factory:
            await raises(ManagedLedgerDamagedError, factory.open(f"{NAME}-ill"), match="ill")
            assert (await read_all(await factory.open(f"{NAME}-well")))[:12] == numbered(0, 12)
        found = await node_at(cluster.metadata, path)
        assert found.value == damaged, "it is for an operator to mend"
    await cluster.metadata.put(path, node.value, ANY_VERSION)
    async with cluster.broker() as factory:
        assert await read_all(await factory.open(f"{NAME}-ill")) == numbered(0, 12)


@pytest.mark.expect_error("next ledger not created")
async def test_m11_an_owner_whose_list_was_set_back_in_time_writes_nothing_more_and_the_next_refuses_used_ids(
    cluster: Cluster,
) -> None:
    """ZooKeeper restored from an old snapshot: versions and ledger ids regress."""
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 12))
        old = await node_at(cluster.metadata, log_path(NAME))
        cluster.ledgers._next_id = 1000
        await publish(log, *numbered(12, 30))
    # With an owner that has the newer list.
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        await cluster.metadata.put(log_path(NAME), old.value, ANY_VERSION)
        gone: list[str] = []
        log.on_fenced = lambda: gone.append("fenced")
        sink = append(log, numbered(42, 25))
        await until(lambda: bool(gone))
        before = await node_at(cluster.metadata, log_path(NAME))
        assert before.value == old.value
    # Before an owner opens: the sequence of ids has regressed too, below the ids of a newer list.
    await cluster.metadata.delete(log_path(NAME), ANY_VERSION)
    cluster.ledgers._next_id = 2000
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), b"x")
    cluster.ledgers._next_id = 50
    async with cluster.broker() as factory:
        sink = Sink()
        (await factory.open(NAME)).append([b"y"], sink)
        await until(lambda: bool(sink.errors))
        assert [type(error) for error in sink.errors] == [LedgerIdOrderError]


@pytest.mark.parametrize("skew_s", [-3600 * 24 * 365, -3600, 3600, 3600 * 24 * 365])
async def test_o9_a_broker_with_a_wrong_clock_changes_no_id_no_order_and_loses_nothing_unconsumed(
    skew_s: int, cluster: Cluster
) -> None:
    async with cluster.broker(retention_minutes=60, retention_mb=-1, retention_check_s=1) as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub", initial="earliest")
        await publish(log, *numbered(0, 25))
        cursor.ack_cumulative(Position(0, 4))
        await cursor.wait_persisted()
    world, store = fake_world(skew_ms=skew_s * 1000), Session(cluster.tree)
    config = replace(CONFIG, retention_minutes=60, retention_mb=-1, retention_check_s=1)
    async with open_factory(world, store, cluster.ledgers, config, CURSOR_CONFIG) as factory:
        log = await factory.open(NAME)
        assert log.cursors["sub"].mark_delete == Position(0, 4)
        ids = await publish(log, *numbered(25, 25))
        assert ids == sorted(ids)
        await trio.sleep(120)
        await log.trim()
        assert log.cursors["sub"].backlog() == 45
        assert await read_all(log, Position(0, 5)) == numbered(5, 45)
        assert log.first_position() == Position(0, 0)
    async with cluster.broker() as factory:
        assert await read_all(await factory.open(NAME), Position(0, 5)) == numbered(5, 45)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.full)])
async def test_m13_very_many_logs_are_opened_at_once_without_crowding_the_metadata_service(
    count: int, cluster: Cluster
) -> None:
    """Each takes the time of a few round trips, and at most the configured number is in progress."""
    names = [f"{NAME}-{number}" for number in range(count)]
    calls = most = 0

    async def open_all(factory: ManagedLedgerFactory) -> None:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(factory.open, name)

    class Slow(Session):
        """Delay every call by 10 ms, and count the calls in progress."""

        async def get(self, path: str) -> Any:
            return await self._slowly(super().get, path)

        async def multi(self, ops: Any) -> Any:
            return await self._slowly(super().multi, ops)

        async def _slowly(self, call: Any, argument: Any) -> Any:
            nonlocal calls, most
            calls += 1
            most = max(most, calls)
            await trio.sleep(0.01)
            try:
                return await call(argument)
            finally:
                calls -= 1

    async with cluster.broker() as factory:
        await open_all(factory)
        kill(factory)
    begun = trio.current_time()
    async with open_factory(fake_world(), Slow(cluster.tree), cluster.ledgers, CONFIG) as factory:
        await open_all(factory)
        assert len(factory.managed_ledgers) == count
        assert most <= OPENS_MAX
        assert trio.current_time() - begun <= 0.1 * count / OPENS_MAX + 1.0
        kill(factory)


async def test_m15_no_value_of_a_list_ends_in_anything_but_an_error_of_ours(cluster: Cluster) -> None:
    """Yield a good value with each byte changed, one at a time."""
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), *numbered(0, 12))
    node = await node_at(cluster.metadata, log_path(NAME))
    for place in range(len(node.value)):
        damaged = bytearray(node.value)
        damaged[place] ^= 0x55
        await cluster.metadata.put(log_path(NAME), bytes(damaged), ANY_VERSION)
        async with cluster.broker() as factory:
            try:
                await factory.open(NAME, create=False)
            except ManagedLedgerError:
                pass
            kill(factory)
