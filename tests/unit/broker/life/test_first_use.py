"""Topics and subscriptions that a first use makes, by policy, over a whole broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio.testing

from broker.errors import NotAllowedError
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import C
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

OFF = {"allowAutoTopicCreation": False}
ON = {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}
IN_3 = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}


async def set_policies(room: Room, **policies: Any) -> None:
    await room.cluster.stores[0].put("/admin/policies/public/default", json.dumps(policies).encode(), ANY_VERSION)
    await trio.testing.wait_all_tasks_blocked()


async def partitions(peer: Peer, topic: str) -> int | pb.ServerError:
    body = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=peer.next_id())
    peer.send(C(type=C.PARTITIONED_METADATA, partitionMetadata=body))
    found = (await peer.expect(C.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse
    return found.error if found.response == found.Failed else found.partitions


def names() -> list[str]:
    return [f"persistent://public/default/t{number}" for number in range(9)]


async def test_the_rule_of_a_namespace_goes_before_that_of_the_configuration_each_time_anew() -> None:
    for on in (True, False):
        async with in_broker(allow_auto_topic_creation=on) as room:
            peer = await room.connect()
            left = iter(names())
            for rule, found in ((OFF, pb.TopicNotFound), (IN_3, 3), (ON, 0)):
                await set_policies(room, autoTopicCreationOverride=rule)
                for _ in range(2):  # a task may answer the first, and the pass the second
                    assert await partitions(peer, next(left)) == found
            await set_policies(room)
            assert await partitions(peer, next(left)) == (0 if on else pb.TopicNotFound)


async def test_producers_and_consumers_make_no_topic_where_that_is_not_allowed(room: Room) -> None:
    peer = await room.connect()
    await set_policies(room, autoTopicCreationOverride=OFF)
    for _ in range(2):
        peer.ask_producer()
        assert (await peer.error())[0] == pb.TopicNotFound
        peer.ask_subscribe()
        assert (await peer.error())[0] == pb.TopicNotFound
    await room.broker.administration.create_topic(TopicName.parse(TOPIC))
    await peer.producer()
    await set_policies(room, autoTopicCreationOverride=ON)
    await peer.producer(names()[0], producer_id=2)


@pytest.mark.parametrize("level", ["broker", "namespace", "topic"])
async def test_no_durable_subscription_is_made_where_that_is_not_allowed(level: str) -> None:
    rule = {"allowAutoSubscriptionCreation": level == "broker"}
    async with in_broker(allow_auto_subscription_creation=level != "broker") as room:
        peer = await room.connect()
        await peer.producer()
        if level == "namespace":
            await set_policies(room, autoSubscriptionCreationOverride=rule)
        if level == "topic":
            key = "autoSubscriptionCreationOverride"
            await room.broker.policies.update(TopicName.parse(TOPIC), lambda own: {**own, key: rule})
            await trio.testing.wait_all_tasks_blocked()
        peer.ask_subscribe()
        assert (await peer.error())[0] == pb.SubscriptionNotFound
        peer.ask_producer(producer_id=2, initial_subscription_name="s")
        assert (await peer.error())[0] == pb.NotAllowedError
        await peer.subscribe(name="reader", consumer_id=2, durable=False)
        await (await room.topic()).create_subscription("s", (await room.topic()).ledger.last_confirmed)
        await peer.subscribe()


@pytest.mark.parametrize("level", ["broker", "namespace"])
async def test_a_namespace_has_no_more_topics_and_partitions_than_its_limit(level: str) -> None:
    options: dict[str, Any] = {"topics_per_namespace_max": 4} if level == "broker" else {}
    async with in_broker(**options) as room:
        if level == "namespace":
            await set_policies(room, max_topics_per_namespace=4)
        administration = room.broker.administration
        peer = await room.connect()
        one, two, three, four, five, *_ = names()
        await peer.producer(one)
        with pytest.raises(NotAllowedError, match="Exceed maximum number of topics"):
            await administration.create_partitioned_topic(TopicName.parse(two), 4)
        await administration.create_partitioned_topic(TopicName.parse(two), 2)
        await administration.create_topic(TopicName.parse(three))
        with pytest.raises(NotAllowedError):
            await administration.create_topic(TopicName.parse(four))
        peer.ask_producer(four, 2)
        code, why = await peer.error()
        assert code == pb.NotAllowedError
        assert "maximum number of topics" in why
        await peer.producer(three, 3)
        await peer.producer(f"{two}-partition-1", 4)
        await administration.delete_topic(TopicName.parse(three), force=True)
        await peer.expect(C.CLOSE_PRODUCER)
        await peer.producer(five, 5)
