from __future__ import annotations

from dataclasses import replace

import trio

from managed_ledger.errors import (
    ManagedLedgerFencedError,
    ManagedLedgerTerminatedError,
)
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.ledger_list import encode
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.ledger.position import Position
from quire.metadata.store import ANY_VERSION
from tests.support.nodes import node_at
from tests.unit.managed_ledger.cluster import NAME, Cluster, append, kill, numbered, publish, read_all


async def test_a_new_log_is_one_write(factory: ManagedLedgerFactory, cluster: Cluster) -> None:
    await factory.open(NAME)
    assert len(cluster.ledgers.multis) == 1
    assert [op.path for op in cluster.ledgers.multis[0]] == ["/ledgers/L0", log_path(NAME)]
    found = await node_at(cluster.metadata, log_path(NAME))
    assert (found.version, found.value.hex()) == (0, "0a0408002000")


async def test_a_node_made_and_left_empty_is_a_log_without_ledgers(cluster: Cluster) -> None:
    await cluster.metadata.create(log_path(NAME), b"", make_parents=True)
    async with cluster.broker() as factory:
        assert await publish(await factory.open(NAME), b"x") == [(0, 0)]


async def test_of_two_that_open_at_once_one_owns_the_log(cluster: Cluster) -> None:
    async with cluster.broker() as setup:
        await publish(await setup.open(NAME), *numbered(0, 3))
    async with cluster.broker() as one, cluster.broker() as other:
        cluster.ledgers.delay_s = 0.1
        outcomes: list[object] = []

        async def attempt(factory: ManagedLedgerFactory, delay_s: float) -> None:
            await trio.sleep(delay_s)
            try:
                outcomes.append(await factory.open(NAME))
            except ManagedLedgerFencedError as error:
                outcomes.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(attempt, one, 0.0)
            nursery.start_soon(attempt, other, 0.05)
        cluster.ledgers.delay_s = 0
        assert sum(isinstance(outcome, ManagedLedgerFencedError) for outcome in outcomes) == 1
        await trio.sleep(1)
        assert cluster.ledgers.listed() == await cluster.named_ledgers()


async def test_cursors_come_back_where_they_stood(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        for name in ("a/b", "graceful ü"):
            cursor = await log.open_cursor(name, initial="earliest", properties=[("k", "v")])
        await publish(log, *numbered(0, 25))
        cursor.ack_individual([Position(0, n) for n in range(4)] + [Position(1, 3)])
        await cursor.wait_persisted()
    for graceful in (False, True):
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            assert sorted(log.cursors) == ["a/b", "graceful ü"]
            cursor = log.cursors["graceful ü"]
            assert (cursor.mark_delete, cursor.ack_ranges()) == (Position(0, 3), [(1, 3, 3)])
            assert (cursor.read_position, cursor.backlog()) == (Position(0, 4), 20)
            assert cursor.cursor_properties == (("k", "v"),)
            assert not cursor.active
            assert log.cursors["a/b"].backlog() == 25
            if not graceful:
                kill(factory)


async def test_a_terminated_log_can_be_read_and_takes_nothing(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), *numbered(0, 13))
    value = replace(await cluster.stored_list(), terminated=Position(1, 2))
    await cluster.metadata.put(log_path(NAME), encode(value), ANY_VERSION)
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        assert log.state is State.TERMINATED
        assert await read_all(log) == numbered(0, 13)
        sink = append(log, [b"late"])
        assert isinstance(sink.errors[0], ManagedLedgerTerminatedError)
