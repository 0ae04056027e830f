"""Metrics of transactions have the original's names, and the right values."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

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
    assert [scraped[f"pulsar_txn_tp_{name}_count"] for name in ("committed", "aborted")] == [0, 1]

    await until(lambda: scraped["pulsar_txn_timeout_total"] == 1, within=60)
    await until(lambda: scraped["pulsar_txn_aborted_total"] == 2)
    late = [scraped[f"pulsar_txn_execution_latency_le_{bound}"] for bound in (30_000, 60_000)]
    assert sum(late) == 1  # that one was open for 30 s
    bounds = (10, 20, 50, 100, 500, 1000, 5000, 15000, 30000, 60000, 300000, 1500000, 3000000, "overflow")
    assert sum(scraped[f"pulsar_txn_execution_latency_le_{bound}"] for bound in bounds) == 4
