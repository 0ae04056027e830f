"""Limits of producers, consumers and subscriptions by topic and namespace, over a whole broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio.testing

from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

SHARED: dict[str, Any] = {"subType": SUB.Shared}


async def set_policies(room: Room, namespace: dict[str, Any], topic: dict[str, Any]) -> None:
    await room.cluster.stores[0].put("/admin/policies/public/default", json.dumps(namespace).encode(), ANY_VERSION)
    await room.broker.policies.update(TopicName.parse(TOPIC), lambda own: {**own, **topic})
    await trio.testing.wait_all_tasks_blocked()


async def use(peer: Peer) -> None:
    """Have one more of each: producer, subscription, consumer."""
    await peer.producer(producer_id=1)
    await peer.subscribe(consumer_id=1, **SHARED)


@pytest.mark.parametrize("level", ["broker", "namespace", "topic"])
@pytest.mark.parametrize(
    ("field", "of_namespace", "of_topic", "code"),
    [
        ("producers_per_topic_max", "max_producers_per_topic", "maxProducerPerTopic", pb.ProducerBusy),
        ("consumers_per_topic_max", "max_consumers_per_topic", "maxConsumerPerTopic", pb.ConsumerBusy),
        (
            "subscriptions_per_topic_max",
            "max_subscriptions_per_topic",
            "maxSubscriptionsPerTopic",
            pb.NotAllowedError,
        ),
        (
            "consumers_per_subscription_max",
            "max_consumers_per_subscription",
            "maxConsumersPerSubscription",
            pb.ConsumerBusy,
        ),
    ],
)
async def test_one_more_than_the_limit_is_refused_until_the_limit_is_gone(
    level: str, field: str, of_namespace: str, of_topic: str, code: pb.ServerError
) -> None:
    options: dict[str, Any] = {field: 1 if level == "broker" else 9}
    async with in_broker(**options) as room:
        peer = await room.connect()
        await use(peer)
        await set_policies(
            room,
            {} if level == "broker" else {of_namespace: 1 if level == "namespace" else 8},
            {of_topic: 1} if level == "topic" else {},
        )

        async def one_more() -> list[pb.ServerError]:
            refused = []
            peer.ask_producer(producer_id=2)
            peer.ask_subscribe(TOPIC, "s", 2, **SHARED)
            peer.ask_subscribe(TOPIC, "other", 3, **SHARED)
            for _ in range(3):
                answer, _ = await peer.receive()
                refused += [answer.error.error] if answer.type == pb.BaseCommand.ERROR else []
            return refused

        many = {"consumers_per_topic_max": 2}.get(field, 1)
        assert await one_more() == [code] * many
        if level == "broker":
            await set_policies(room, {}, {of_topic: 0})
        else:
            await set_policies(room, {}, {of_topic: None})
        await peer.producer(producer_id=5)
        await peer.subscribe(name="s", consumer_id=6, **SHARED)
        await peer.subscribe(name="another", consumer_id=7, **SHARED)
