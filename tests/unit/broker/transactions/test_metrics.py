"""Metrics of transactions have the original's names, and the right values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio

from broker.errors import ServiceNotReadyError
from quire.metadata.store import Create
from tests.support.pulsar_frames import SUB
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Room, in_broker
from tests.unit.broker.scraped import Scraped
from tests.unit.broker.transacting import Client, id_of, producer, publish


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(transactions=True) as room:
        await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        yield room


async def test_transactions_are_counted_by_coordinator_topic_and_subscription(room: Room) -> None:
    client, sender = await Client.of(room), await producer(room)
    scraped = Scraped(room)
    place = await publish(sender, b"plain", 0)
    peer = await room.connect()
    await peer.subscribe(TOPIC, "s", subType=SUB.Shared, initialPosition=SUB.Earliest)
    peer.flow(1)
    await peer.message()
    for number, commit in enumerate((True, True, False), 1):
        txn = await client.new()
        await client.add_partition(txn, TOPIC)
        await client.add_subscription(txn, TOPIC, "s")
        await publish(sender, b"m", number, txn)
        if number == 3:
            answer = await peer.answered_ack(place, **id_of(txn))
            assert not answer.HasField("error")
        await client.end(txn, commit=commit)
    left = await client.new(ttl_ms=30_000)
    await client.add_partition(left, TOPIC)
    await publish(sender, b"left", 4, left)

    assert [scraped[f"pulsar_txn_{name}"] for name in ("active_count", "created_total", "committed_total")] == [1, 4, 2]
    assert scraped["pulsar_txn_aborted_total"] == 1
    # New, both kinds of participants, decision and end of three; the fourth is open, and has one participant.
    assert scraped["pulsar_txn_append_log_total"] == 3 * 5 + 2
    assert [scraped[f"pulsar_txn_tb_{name}_total"] for name in ("active", "committed", "aborted")] == [1, 2, 1]
    assert [scraped[f"pulsar_txn_tp_{name}_count_total"] for name in ("committed", "aborted")] == [0, 1]

    await until(lambda: scraped["pulsar_txn_timeout_total"] == 1, within=60)
    await until(lambda: scraped["pulsar_txn_aborted_total"] == 2)
    late = [scraped[f"pulsar_txn_execution_latency_le_{bound}"] for bound in (30_000, 60_000)]
    assert sum(late) == 1  # that one was open for 30 s
    bounds = (10, 20, 50, 100, 500, 1000, 5000, 15000, 30000, 60000, 300000, 1500000, 3000000, "overflow")
    assert sum(scraped[f"pulsar_txn_execution_latency_le_{bound}"] for bound in bounds) == 4


def slow_down(records: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a log take 10 ms for a record."""
    write = type(records).write

    async def slow(record: bytes, applied: Any) -> None:
        await trio.sleep(0.01)
        await write(records, record, applied)

    monkeypatch.setattr(records, "write", slow)


async def test_what_participants_were_told_is_counted_and_timed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    client, sender = await Client.of(room), await producer(room)
    scraped = Scraped(room)
    place = await publish(sender, b"plain", 0)
    peer = await room.connect()
    await peer.subscribe(TOPIC, "s", subType=SUB.Shared, initialPosition=SUB.Earliest)
    service = room.broker.transactions
    assert service is not None
    end_here, failures = service.end_here, [ServiceNotReadyError("not yet")] * 3

    async def slow(*args: Any, **options: Any) -> None:
        await trio.sleep(0.02)
        if failures:
            raise failures.pop()
        await end_here(*args, **options)

    monkeypatch.setattr(service, "end_here", slow)
    for number, commit in enumerate((True, False), 1):
        txn = await client.new()
        await client.add_partition(txn, TOPIC)
        await client.add_subscription(txn, TOPIC, "s")
        await publish(sender, b"m", number, txn)
        await peer.answered_ack(place, **id_of(txn))
        slow_down((await room.topic()).transactions.acks["s"].records, monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(client.end, txn, commit=not commit))
            await until(lambda: scraped["pulsar_txn_tb_client_pending_requests"] == 2)
        assert scraped["pulsar_txn_tb_client_pending_requests"] == 0
    # The topic and its subscription; the first transaction, an abort, met the failures.
    assert scraped["pulsar_txn_tb_client_abort_failed_total"] == 3
    assert scraped["pulsar_txn_tb_client_commit_failed_total"] == 0
    for kind in ("commit", "abort"):
        assert scraped[f"pulsar_txn_tb_client_{kind}_latency_count"] == 2
        assert 2 * 20e6 <= scraped[f"pulsar_txn_tb_client_{kind}_latency_sum"] < 2 * 35e6  # nanoseconds
    assert [scraped[f"pulsar_txn_tp_{name}_count_total"] for name in ("committed", "aborted")] == [1, 1]
    assert scraped["pulsar_txn_tp_commit_latency_count"] == 1
    assert 10_000 <= scraped["pulsar_txn_tp_commit_latency_sum"] < 15_000  # microseconds, of the log alone
