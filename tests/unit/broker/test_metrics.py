"""The broker's metrics have the original's names and the right values."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from broker.errors import TopicNotFoundError
from broker.ownership.lookup import Redirect
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB
from tests.unit.broker.peers import TOPIC, Room
from tests.unit.broker.scraped import Scraped


async def test_each_lookup_is_an_answer_a_redirect_or_a_failure_and_none_is_left(room: Room) -> None:
    peer, scraped = await room.connect(), Scraped(room)
    seen: list[float] = []
    await peer.lookup()  # the namespace is read
    await peer.lookup()  # answered within the pass
    await peer.lookup("persistent://public/nowhere/t")
    ownership = room.broker.ownership

    async def redirected(name: TopicName, *, authoritative: bool) -> Any:
        seen.append(scraped["pulsar_broker_lookup_pending_requests"])
        return Redirect("pulsar://other:6650", "http://other:8080", authoritative=True)

    with patch.object(ownership, "owns", lambda name: False), patch.object(ownership, "lookup", redirected):
        await peer.lookup()
    names = ("answers", "redirects", "failures", "pending_requests", "count")
    assert [scraped[f"pulsar_broker_lookup_{name}"] for name in names] == [2, 1, 1, 0, 4]
    assert seen == [1]


async def test_topics_that_were_loaded_and_those_that_were_not_are_counted_and_how_long_it_took(room: Room) -> None:
    peer, scraped = await room.connect(), Scraped(room)
    room.cluster.ledgers.delay_s = 0.1
    await peer.producer()
    peer.ask_producer(f"{TOPIC}-partition-1", producer_id=2)  # a topic without partitions
    await peer.error()
    assert scraped["pulsar_topic_load_times_count"] == 1
    assert scraped["pulsar_topic_load_times_sum"] == pytest.approx(200), "creating its ledger"
    assert scraped["pulsar_topic_load_failed_count"] == 1


async def test_health_is_what_the_last_check_found(room: Room) -> None:
    scraped = Scraped(room)
    assert scraped["pulsar_health"] == -1
    with pytest.raises(TopicNotFoundError):  # the namespace of the topic that it publishes to is missing
        await room.broker.check_health()
    assert scraped["pulsar_health"] == 0
    await room.cluster.stores[0].create("/admin/policies/pulsar/system", b"", make_parents=True)
    await room.broker.check_health()
    assert scraped["pulsar_health"] == 1


async def test_connections_messages_and_what_is_kept_are_told(room: Room) -> None:
    peer, scraped = await room.connect(), Scraped(room)
    room.open()  # sends nothing
    await peer.producer()
    await peer.publish(b"m0", b"m1", b"m2")
    await peer.subscribe(subType=SUB.Shared, permits=2)
    assert await peer.payloads(2) == [b"m0", b"m1"]
    topic = await room.topic()
    wanted = {
        "pulsar_active_connections": 3,
        "pulsar_connection_created_total_count": 5,
        "pulsar_connection_closed_total_count": 2,
        "pulsar_connection_create_success_count": 1,
        "pulsar_in_messages_total": 3,
        "pulsar_in_bytes_total": topic.bytes_in,
        "pulsar_out_messages_total": 2,
        "pulsar_consumers_count": 1,
        "pulsar_msg_backlog": 3,
        "pulsar_storage_size": topic.bytes_in,
        "pulsar_subscription_unacked_messages": 2,
    }
    assert {name: scraped[name] for name in wanted} == wanted
