"""Policies of non-persistent topics: they hold as far as they concern what is not stored."""

from __future__ import annotations

import json
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, C
from tests.unit.broker.peers import Peer, Room, in_broker

TOPIC = "non-persistent://public/default/ruled"
NAME = TopicName.parse(TOPIC)
NAMESPACE = "/admin/policies/public/default"


async def said(room: Room, **policies: Any) -> None:
    """Set the policies of the namespace."""
    await room.cluster.stores[0].put(NAMESPACE, json.dumps(policies).encode(), -1)
    await wait_all_tasks_blocked()


async def test_limits_of_a_namespace_hold(room: Room) -> None:
    await said(room, max_producers_per_topic=1, max_consumers_per_topic=2, max_subscriptions_per_topic=2)
    peer = await room.connect()
    await peer.producer(TOPIC)
    other = await room.connect()
    other.ask_producer(TOPIC)
    assert (await other.error())[0] == pb.ProducerBusy
    await peer.subscribe(TOPIC, "a", 1, subType=SUB.Shared)
    await peer.subscribe(TOPIC, "b", 2)
    other.ask_subscribe(TOPIC, "c", 3)
    assert (await other.error())[0] == pb.NotAllowedError
    other.ask_subscribe(TOPIC, "a", 3, subType=SUB.Shared)
    assert (await other.error())[0] == pb.ConsumerBusy
    await said(room, max_producers_per_topic=2)
    await other.producer(TOPIC)


async def test_a_publish_rate_holds_producers_also_when_it_is_set_later() -> None:
    async with in_broker(cluster_name="here") as room:
        peer = await room.connect()
        await peer.producer(TOPIC)
        assert await seconds_of(peer, 0) < 1
        rate = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}
        await said(room, publishMaxMessageRate={"here": rate})
        assert await seconds_of(peer, 40) >= 2.5
        topic = room.broker.direct.find(NAME)
        assert topic is not None
        assert topic.rates is not None
        assert topic.rates.times_limited > 0
        await said(room)
        assert await seconds_of(peer, 80) < 1


async def seconds_of(peer: Peer, first: int) -> float:
    """Return how long forty messages take, one after the other."""
    began = trio.current_time()
    for number in range(first, first + 40):
        await peer.publish(b"x", first=number)
    return trio.current_time() - began


async def test_a_topic_is_not_made_at_its_first_use_where_the_namespace_forbids_it(room: Room) -> None:
    await said(room, autoTopicCreationOverride={"allowAutoTopicCreation": False})
    peer = await room.connect()
    peer.ask_producer(TOPIC)
    assert (await peer.error())[0] == pb.TopicNotFound
    assert room.broker.direct.loaded() == []


async def test_an_inactive_topic_is_forgotten_when_and_where_its_policy_says_so() -> None:
    async with in_broker(delete_inactive=False) as room:
        peer = await room.connect()
        await peer.producer(TOPIC)
        peer.close_producer()
        await peer.expect(C.SUCCESS)
        await trio.sleep(200)
        assert [each.name for each in room.broker.direct.loaded()] == [NAME]
        policy = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 5}
        await said(room, inactive_topic_policies={**policy, "deleteWhileInactive": True})
        await trio.sleep(100)
        assert room.broker.direct.loaded() == []
