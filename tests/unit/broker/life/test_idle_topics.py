"""Topics without use, over a whole broker in virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing

from broker.life_config import CAUGHT_UP, NO_SUBSCRIPTIONS
from broker.topics.topic import Topic
from broker.topics.topic_policies.source import is_change_events
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import C
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAME = TopicName.parse(TOPIC)
QUIET = {"keep_alive_interval_s": 10**6, "inactive_check_interval_s": 10**6}
"""Nothing happens but what the test does."""


def rule(mode: str = NO_SUBSCRIPTIONS, seconds: int = 100, *, delete: bool = True) -> dict[str, Any]:
    return {"inactiveTopicDeleteMode": mode, "maxInactiveDurationSeconds": seconds, "deleteWhileInactive": delete}


async def set_policies(room: Room, namespace: dict[str, Any], topic: dict[str, Any]) -> None:
    await room.cluster.stores[0].put("/admin/policies/public/default", json.dumps(namespace).encode(), ANY_VERSION)
    await room.broker.policies.update(NAME, lambda own: {**own, **topic})
    await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def quiet(**options: Any) -> AsyncIterator[Room]:
    async with in_broker(**{**QUIET, "idle_unload_s": 0, **options}) as room:
        yield room


async def used(room: Room, *, subscription: bool = False) -> Peer:
    """Return a client that has published, maybe from behind a subscription, and has closed everything."""
    peer = await room.connect()
    if subscription:
        await peer.subscribe()
    await peer.producer()
    sent = await peer.publish(b"1")
    if subscription:
        await peer.answered_ack(*sent)
        peer.close_consumer(1)
        await peer.expect(C.SUCCESS)
    peer.close_producer(1)
    await peer.expect(C.SUCCESS)
    return peer


async def exists_after(room: Room, seconds: float) -> bool:
    """Return whether the topic is there after a check in so many seconds."""
    await trio.sleep(seconds)
    await room.broker.idle.round()
    return await room.broker.topics.exists(NAME)


def of_users(room: Room) -> list[Topic]:
    """Return the loaded topics but that of the policies, which is loaded as long as there are any."""
    return [each for each in room.broker.topics.loaded() if not is_change_events(each.name)]


@pytest.mark.parametrize("level", ["broker", "namespace", "topic"])
async def test_a_topic_without_use_is_deleted_after_its_time(level: str) -> None:
    options: dict[str, Any] = {"delete_inactive": True, "inactive_s": 100} if level == "broker" else {}
    async with quiet(**options) as room:
        await used(room)
        await set_policies(
            room,
            {"inactive_topic_policies": rule()} if level == "namespace" else {},
            {"inactiveTopicPolicies": rule()} if level == "topic" else {},
        )
        assert await exists_after(room, 90)
        assert not await exists_after(room, 11)
        assert of_users(room) == []
        assert room.broker.idle.deleted == 1
        assert await room.broker.policies.get(NAME) is None
        peer = await room.connect()
        await peer.producer()


async def test_topics_are_kept_where_their_deletion_is_switched_off() -> None:
    async with quiet(delete_inactive=False) as room:
        await used(room)
        assert await exists_after(room, 10**4)
        await set_policies(room, {"inactive_topic_policies": rule()}, {"inactiveTopicPolicies": rule(delete=False)})
        assert await exists_after(room, 10**4), "the topic goes before its namespace"


async def test_by_default_a_topic_without_clients_and_subscriptions_is_deleted_after_a_minute_as_in_pulsar() -> None:
    async with quiet(inactive_check_interval_s=60) as room:
        await used(room)
        assert await exists_after(room, 50)
        assert not await exists_after(room, 11)
    async with quiet(inactive_check_interval_s=60) as room:
        await used(room, subscription=True)
        assert await exists_after(room, 10**4)


async def test_a_topic_that_is_to_be_deleted_later_is_not_unloaded_before() -> None:
    async with quiet(inactive_s=1000, idle_unload_s=100) as room:
        await used(room)
        assert await exists_after(room, 900)
        assert len(of_users(room)) == 1
        assert not await exists_after(room, 110)


async def test_a_topic_whose_messages_are_kept_for_ever_is_unloaded_and_not_deleted() -> None:
    async with quiet(idle_unload_s=100) as room:
        await used(room)
        await set_policies(room, {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}, {})
        assert await exists_after(room, 900)
        await trio.testing.wait_all_tasks_blocked()
        assert of_users(room) == []
        assert await exists_after(room, 900)


async def test_each_use_begins_the_time_anew() -> None:
    async with quiet(delete_inactive=True, inactive_s=100) as room:
        peer = await used(room)
        for _ in range(3):
            assert await exists_after(room, 90)
            await peer.producer()  # between two checks
            peer.close_producer(1)
            await peer.expect(C.SUCCESS)
        await peer.subscribe(name="reader", durable=False)
        assert await exists_after(room, 1000)
        peer.close_consumer(1)
        await peer.expect(C.SUCCESS)
        assert await exists_after(room, 90)
        assert not await exists_after(room, 11)


async def test_a_subscription_keeps_a_topic_in_one_mode_and_a_backlog_in_the_other() -> None:
    async with quiet(delete_inactive=True, inactive_s=100) as room:
        peer = await used(room, subscription=True)
        assert await exists_after(room, 1000)
        await set_policies(room, {}, {"inactiveTopicPolicies": rule(CAUGHT_UP)})
        await peer.producer()
        await peer.publish(b"2")
        peer.close_producer(1)
        await peer.expect(C.SUCCESS)
        assert await exists_after(room, 1000), "the message was not acknowledged"
        (await room.topic()).subscriptions["s"].cursor.skip_all()
        assert await exists_after(room, 90)
        assert not await exists_after(room, 11)


@pytest.mark.parametrize(("minutes", "kept"), [(-1, True), (10, True), (1, False)])
async def test_retention_keeps_a_topic_for_its_time(minutes: int, kept: bool) -> None:
    async with quiet(delete_inactive=True, inactive_s=100) as room:
        await used(room)
        size = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
        await set_policies(room, {"retention_policies": size}, {})
        assert await exists_after(room, 500) is kept
        assert await exists_after(room, 200) is (minutes < 0)


async def test_a_partitioned_topic_goes_with_its_last_partition_if_that_is_asked_for() -> None:
    for metadata in (True, False):
        async with quiet(delete_inactive=True, inactive_s=100, delete_inactive_partitioned=metadata) as room:
            partitioned = TopicName.parse(f"{TOPIC}s")
            await room.broker.administration.create_partitioned_topic(partitioned, 2)
            peer = await room.connect()
            await peer.producer(f"{TOPIC}s-partition-0", 1)
            await peer.producer(f"{TOPIC}s-partition-1", 2)
            peer.close_producer(1)
            await peer.expect(C.SUCCESS)
            await trio.sleep(150)
            await room.broker.idle.round()
            topics = room.broker.topics
            assert not await topics.exists(partitioned.with_partition(0))
            assert await topics.partitioned.get(partitioned) == 2
            peer.close_producer(2)
            await peer.expect(C.SUCCESS)
            await trio.sleep(150)
            await room.broker.idle.round()
            assert not await topics.exists(partitioned.with_partition(1))
            assert await topics.partitioned.get(partitioned) == (0 if metadata else 2)


async def test_a_topic_that_is_used_while_it_is_about_to_be_deleted_stays() -> None:
    async with quiet(delete_inactive=True, inactive_s=100) as room:
        await used(room)
        await trio.sleep(200)
        topic = await room.topic()

        async def subscribe(name: TopicName) -> None:
            await topic.create_subscription("s", topic.ledger.last_confirmed)

        with patch.object(room.broker.ownership, "check", subscribe):
            await room.broker.idle.round()
        assert room.broker.topics.loaded() == [topic]
        assert await room.broker.topics.exists(NAME)


# Unloading


async def test_a_topic_without_clients_and_backlog_leaves_memory_and_comes_back_at_its_next_use() -> None:
    async with in_broker(idle_unload_s=600, keep_alive_interval_s=30) as room:
        peer = await used(room, subscription=True)
        await trio.sleep(500)
        peer.pong()
        assert len(of_users(room)) == 1
        await trio.sleep(300)
        assert room.broker.topics.count == 0
        assert room.broker.idle.unloaded == 1
        peer = await room.connect()
        await peer.producer()
        await peer.publish(b"2", first=1)
        await peer.subscribe()
        peer.flow(10)
        assert await peer.payloads(1) == [b"2"]


@pytest.mark.parametrize("why", ["backlog", "retention", "expiration", "producer", "off"])
async def test_a_topic_stays_loaded_that_time_alone_changes_or_that_is_in_use(why: str) -> None:
    async with quiet(idle_unload_s=0 if why == "off" else 600) as room:
        peer = await used(room, subscription=True)
        if why in ("backlog", "producer"):
            await peer.producer()
        if why == "backlog":
            await peer.publish(b"2", first=1)
            peer.close_producer(1)
            await peer.expect(C.SUCCESS)
        policies: dict[str, dict[str, Any]] = {
            "retention": {"retention_policies": {"retentionTimeInMinutes": 10**4, "retentionSizeInMB": -1}},
            "expiration": {"subscription_expiration_time_minutes": 10**4},
        }
        await set_policies(room, policies.get(why, {}), {})
        for _ in range(3):
            await trio.sleep(1000)
            await room.broker.idle.round()
        assert len(of_users(room)) == 1
        await set_policies(room, {}, {})
        if why == "retention":
            await trio.sleep(1000)
            await room.broker.idle.round()
            await trio.testing.wait_all_tasks_blocked()
            assert of_users(room) == [], "the policy alone kept it"
