"""A ledger that another process closed: with ledgers in memory, and with the real ledger client."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest
import trio

from managed_ledger.factory import open_factory
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerRecoveryError, LedgerWriteError
from quire.metadata.errors import MetadataUnavailableError
from tests.support.waiting import until
from tests.unit.ledger.fake_bookie import FakeCluster
from tests.unit.managed_ledger.cluster import NAME, append, kill, numbered, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink, fake_world
from tests.unit.managed_ledger.hosts import THREE_COPIES


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
