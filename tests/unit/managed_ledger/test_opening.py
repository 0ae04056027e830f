from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from cursors.errors import CursorRecoveryError
from managed_ledger.errors import (
    LedgerIdOrderError,
    ManagedLedgerFencedError,
    ManagedLedgerTerminatedError,
    ManagedLedgerUnavailableError,
    NoSuchManagedLedgerError,
)
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.ledger_list import encode
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerReadError, LedgerRecoveryError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.store import ANY_VERSION
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import NAME, Cluster, append, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink


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


@pytest.mark.parametrize("stored_beyond", [0, 2])
async def test_after_a_crash_the_last_ledger_is_recovered_and_nothing_confirmed_is_lost(stored_beyond, cluster):
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 13))
        writer = cluster.ledgers.writers[1]
        writer.held = True
        log.append(numbered(13, 4), Sink())
        writer.store(2 + stored_beyond)
        kill(factory)
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        assert await read_all(log) == numbered(0, 13 + stored_beyond)
        assert log.last_confirmed == Position(1, 2 + stored_beyond)
        listed = await cluster.stored_list()
        assert [(one.ledger_id, one.entries) for one in listed.ledgers] == [(0, 10), (1, 3 + stored_beyond)]
        assert all(one.closed_ms for one in listed.ledgers)


async def test_empty_ledgers_leave_the_list_and_are_deleted(cluster: Cluster) -> None:
    for _ in range(4):
        async with cluster.broker() as factory:
            await factory.open(NAME)
            await trio.sleep(1)
    assert cluster.ledgers.listed() == await cluster.named_ledgers() == {3}


async def test_a_ledger_of_the_list_that_is_gone_is_dropped_with_a_warning(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), *numbered(0, 13))
    await cluster.ledgers.delete(1)
    async with cluster.broker() as factory:
        assert await read_all(await factory.open(NAME)) == numbered(0, 10)


@pytest.mark.parametrize(
    "error", [LedgerRecoveryError("away"), LedgerReadError("away"), MetadataUnavailableError("away")]
)
async def test_any_other_error_of_recovery_fails_the_open_and_changes_nothing(error: Exception, cluster: Cluster):
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), *numbered(0, 3))
    before = await cluster.stored_list()
    async with cluster.broker() as factory:
        cluster.ledgers.failures["open"] = [error]
        await raises(ManagedLedgerUnavailableError, factory.open(NAME))
        assert await cluster.stored_list() == before
        assert await read_all(await factory.open(NAME)) == numbered(0, 3)


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


async def test_a_cursor_that_cannot_be_read_now_fails_the_open_and_is_not_rolled_back(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub", initial="earliest")
        await publish(log, *numbered(0, 5))
        cursor.ack_individual([Position(0, 0)])
        await cursor.wait_persisted()
        kill(factory)
    async with cluster.broker() as factory:
        cluster.ledgers.failures["read"] = [LedgerReadError("bookies away")]
        await raises(CursorRecoveryError, factory.open(NAME))
        log = await factory.open(NAME)
        assert log.cursors["sub"].mark_delete == Position(0, 0)
        assert await read_all(log) == numbered(0, 5)


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


@pytest.mark.expect_error("next ledger not created")
async def test_ledger_ids_far_below_the_last_one_are_refused_and_a_few_are_passed_over(cluster: Cluster) -> None:
    cluster.ledgers._next_id = 500
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), b"x")
    cluster.ledgers._next_id = 10
    async with cluster.broker() as factory:
        log, sink = await factory.open(NAME), Sink()
        log.append([b"lost"], sink)
        await until(lambda: bool(sink.errors))
        assert [type(error) for error in sink.errors] == [LedgerIdOrderError]
        cluster.ledgers._next_id = 490
        assert await publish(log, b"y") == [(501, 0)]


async def test_a_log_that_is_not_to_be_made_is_not_made(factory: ManagedLedgerFactory, cluster: Cluster) -> None:
    await raises(NoSuchManagedLedgerError, factory.open(NAME, create=False))
    assert cluster.ledgers.listed() == set()
