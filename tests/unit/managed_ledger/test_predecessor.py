"""A ledger that another process closed: with ledgers in memory, and with the real ledger client."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest
import trio

from managed_ledger.errors import ManagedLedgerFencedError, ManagedLedgerUnavailableError
from managed_ledger.factory import open_factory
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerConflictError, LedgerFencedError, LedgerRecoveryError, LedgerWriteError
from quire.metadata.errors import MetadataUnavailableError
from tests.support.waiting import until
from tests.unit.ledger.fake_bookie import FakeCluster
from tests.unit.managed_ledger.cluster import NAME, Cluster, append, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink, fake_world
from tests.unit.managed_ledger.hosts import THREE_COPIES


@pytest.mark.parametrize("stored", [3, 4, 7, 8])
@pytest.mark.parametrize("told", ["fenced", "closed elsewhere", "at the close"])
async def test_the_log_confirms_what_the_closed_ledger_has_and_sends_the_rest_to_the_next(stored, told, cluster):
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub", initial="earliest")
        writer = cluster.ledgers.writers[0]
        writer.held = True
        sinks = [Sink() for _ in range(3)]
        for number, sink in enumerate(sinks):
            log.append(numbered(3 * number, 3), sink)
        writer.confirm(3)
        writer.store(stored)
        cluster.ledgers.close_by_others(0)
        if told == "fenced":
            writer.confirm(8)
        elif told == "closed elsewhere":
            writer.fail(LedgerConflictError("closed by others"))
        else:
            writer.fail(LedgerWriteError("no quorum"))
        log.append(numbered(9, 2), sinks[0])
        await until(lambda: [sink.count for sink in sinks] == [5, 3, 3])
        assert not any(sink.errors for sink in sinks)
        assert await read_all(log) == numbered(0, 11)
        places = [place for sink in sinks for place in sink.ids()]
        assert len(set(places)) == 11
        listed = await cluster.stored_list()
        assert [(one.ledger_id, one.entries) for one in listed.ledgers] == [(0, stored + 1), (1, 0)]
        assert listed.ledgers[0].size == stored + 1
        assert cursor.backlog() == 11
    async with cluster.broker() as factory:
        assert await read_all(await factory.open(NAME)) == numbered(0, 11)


@pytest.mark.broker(entries_max=100)
async def test_an_idle_ledger_that_was_closed_is_left_at_the_next_append(cluster: Cluster, log: ManagedLedger) -> None:
    for number in range(4):
        cluster.ledgers.close_by_others(log.ledgers[-1].ledger_id)
        assert (await publish(log, b"%d" % number))[0][1] == 0
    assert await read_all(log) == numbered(0, 4)
    await trio.sleep(1)
    assert cluster.ledgers.listed() == await cluster.named_ledgers() == {1, 2, 3, 4}


async def test_nobody_is_told_anything_when_the_list_was_changed(cluster: Cluster) -> None:
    async with cluster.broker() as factory, cluster.broker() as other:
        log = await factory.open(NAME)
        writer = cluster.ledgers.writers[0]
        writer.held = True
        sink = append(log, numbered(0, 3))
        writer.store(2)
        taken = await other.open(NAME)
        writer.confirm(2)
        await until(lambda: bool(sink.errors))
        assert (sink.count, log.state) == (0, State.FENCED)
        assert isinstance(sink.errors[0], ManagedLedgerFencedError)
        assert await read_all(taken) == numbered(0, 3)


@pytest.mark.broker(retry_timeout_s=30)
async def test_while_the_list_cannot_be_read_nothing_is_confirmed_and_afterwards_all_is(cluster, log):
    writer = cluster.ledgers.writers[0]
    writer.held = True
    sink = append(log, numbered(0, 4))
    writer.store(1)
    cluster.ledgers.close_by_others(0)
    cluster.stores[0].disconnect()
    writer.confirm(3)
    await trio.sleep(10)
    assert (sink.count, sink.errors, log.state) == (0, [], State.SWITCHING)
    cluster.stores[0].reconnect()
    await until(lambda: sink.count == 4)
    assert sink.ids() == [(0, 0), (0, 1), (1, 0), (1, 1)]


async def test_a_recovery_that_is_not_possible_now_is_tried_again_by_the_next_append(cluster, log):
    await publish(log, b"0")
    cluster.ledgers.close_by_others(0)
    cluster.ledgers.failures["open"] = [LedgerRecoveryError("bookies away")] * 20
    sink = append(log, [b"lost"])
    await until(lambda: bool(sink.errors))
    assert isinstance(sink.errors[0], ManagedLedgerUnavailableError)
    assert log.state is State.IDLE
    cluster.ledgers.failures.clear()
    assert await publish(log, b"1") == [(1, 0)]
    assert await read_all(log) == numbered(0, 2)


@pytest.mark.expect_error("closed below its last confirmed entry")
async def test_a_ledger_that_was_closed_below_what_was_confirmed_is_damage_and_fences_the_log(cluster, log):
    await publish(log, *numbered(0, 3))
    cluster.ledgers.stored[0].fenced = True
    cluster.ledgers.stored[0].last_entry_id = 1
    sink = append(log, [b"more"])
    await until(lambda: bool(sink.errors))
    assert (sink.count, log.state) == (0, State.FENCED)


async def test_a_ledger_that_was_deleted_under_its_owner_fences_the_log(cluster: Cluster, log: ManagedLedger) -> None:
    await publish(log, b"x")
    writer = cluster.ledgers.writers[0]
    await cluster.ledgers.delete(0)
    writer.fail(LedgerFencedError("no such ledger"))
    await until(lambda: log.state is State.FENCED)


async def test_an_empty_ledger_that_left_the_list_with_a_write_that_was_not_heard_of_does_not_leave_it_again(
    cluster: Cluster, log: ManagedLedger
) -> None:
    sink = append(log, numbered(0, 2))
    cluster.ledgers.failures["created"] = [MetadataUnavailableError("lost")]
    cluster.ledgers.writers[0].fail(LedgerWriteError("no quorum"))
    await until(lambda: sink.count == 2)
    assert await read_all(log) == numbered(0, 2)
    await trio.sleep(1)
    assert cluster.ledgers.listed() == await cluster.named_ledgers() == {2}


def all_confirmed(sinks: list[tuple[Sink, int]]) -> bool:
    return all(sink.count == count for sink, count in sinks)


async def test_whenever_ledgers_are_closed_by_others_every_entry_is_confirmed_once_and_read_once_in_order(cluster):
    """AllAckedEntriesAreReadable, NoOutOfOrderEntries, no leaks: rollovers, ledgers ahead, failures and such
    closes."""
    rng = random.Random(4)
    confirmed: list[bytes] = []
    number = 0
    for _ in range(10):
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            cursor = await log.open_cursor("sub", initial="earliest")
            for _ in range(15):
                sinks = []
                for _ in range(rng.randrange(1, 4)):
                    count = rng.randrange(1, 6)
                    sink = append(log, numbered(number, count))
                    sinks.append((sink, count))
                    confirmed += numbered(number, count)
                    number += count
                writer = cluster.ledgers.writers[log.ledgers[-1].ledger_id]
                kind = rng.randrange(7)
                if kind <= 2:
                    writer.confirm(rng.randint(-1, writer.last_pushed))
                    writer.store(rng.randint(-1, writer.last_pushed))
                    cluster.ledgers.close_by_others(writer.ledger_id)
                if kind == 1:
                    writer.fail(LedgerWriteError("no quorum"))
                elif kind == 3:
                    cluster.ledgers.failures["open"] = [LedgerRecoveryError("away")]
                elif kind == 4:
                    cluster.ledgers.failures["created"] = [MetadataUnavailableError("lost")]
                elif kind == 5 and cursor.store is not None and cursor.store.ledger_id in cluster.ledgers.stored:
                    cluster.ledgers.close_by_others(cursor.store.ledger_id)
                cursor.ack_cumulative(log.last_confirmed)
                with trio.fail_after(10):
                    await until(partial(all_confirmed, sinks))
                    await cursor.wait_persisted()
                assert not any(sink.errors for sink, _ in sinks)
                cluster.ledgers.failures.clear()
                assert await read_all(log) == confirmed
            if rng.random() < 0.5:
                kill(factory)
                await trio.lowlevel.checkpoint()
    async with cluster.broker() as factory:
        assert await read_all(await factory.open(NAME)) == confirmed
        await trio.sleep(1)
        assert cluster.ledgers.listed() - await cluster.named_ledgers() <= {cluster.ledgers._next_id - 1}


@pytest.mark.parametrize("in_flight", [0, 1, 5])
async def test_a_second_ledger_client_that_recovers_the_ledger_costs_no_message(in_flight: int) -> None:
    """Open with recovery, as auto recovery does, while the broker appends and bookies answer at different speeds."""
    cluster = FakeCluster(3)
    config = replace(THREE_COPIES, entries_max=50)
    async with (
        cluster.client() as client,
        cluster.client() as stranger,
        open_factory(fake_world(), cluster.store, client, config) as factory,
    ):
        log = await factory.open(NAME)
        sent = 0
        sinks: list[Sink] = []
        for round_ in range(12):
            for bookie in cluster.bookies.values():
                bookie.delay_s = lambda: cluster.rng.random() * 0.01
            for _ in range(in_flight):
                sink = append(log, numbered(sent, 3))
                sent += 3
                sinks.append(sink)
            await trio.sleep(cluster.rng.random() * 0.01)
            await stranger.open(log.ledgers[-1].ledger_id, recover=True)
            sink = append(log, numbered(sent, 1))
            sent += 1
            sinks.append(sink)
            await until(lambda: all(sink.count or sink.errors for sink in sinks))
            assert log.state in (State.OPEN, State.SWITCHING), round_
        assert not any(sink.errors for sink in sinks)
        assert await read_all(log) == numbered(0, sent)
        assert len(log.ledgers) > 6
