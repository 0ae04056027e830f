"""Quotas of backlogs, over a whole broker in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from broker.life_config import EVICTION, EXCEPTION, HOLD
from broker.topics.quotas.backlog import size_of
from quire.metadata.store import ANY_VERSION, MetadataStore
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAME = TopicName.parse(TOPIC)
ENTRY = b"x" * 1000


async def set_namespace(room: Room, **policies: Any) -> None:
    store: MetadataStore = room.cluster.stores[0]
    await store.put("/admin/policies/public/default", json.dumps(policies).encode(), ANY_VERSION)
    await trio.testing.wait_all_tasks_blocked()


async def with_backlog(room: Room, count: int, *, age_s: int = 0, topic: str = TOPIC) -> Peer:
    """Publish entries of about 1 KB each to the subscriptions `a`, which acknowledges half, and `b`."""
    peer = await room.connect()
    await peer.subscribe(topic, name="a", consumer_id=1)
    await peer.subscribe(topic, name="b", consumer_id=2)
    await peer.producer(topic)
    now_ms = room.broker.context.world.clock.wall_ms()
    sent = await peer.publish(*[ENTRY] * count, publish_time=now_ms - 1000 * age_s)
    peer.ack(sent[count // 2 - 1], consumer_id=1, cumulative=True)
    await trio.testing.wait_all_tasks_blocked()
    return peer


async def refused(peer: Peer, topic: str = TOPIC, producer_id: int = 9) -> pb.ServerError:
    peer.ask_producer(topic, producer_id)
    return (await peer.error())[0]


async def backlogs(room: Room) -> list[int]:
    topic = await room.topic()
    return [topic.subscriptions[name].cursor.backlog() for name in ("a", "b")]


@pytest.mark.parametrize(
    ("policy", "code"),
    [(HOLD, pb.ProducerBlockedQuotaExceededError), (EXCEPTION, pb.ProducerBlockedQuotaExceededException)],
)
async def test_above_its_size_a_topic_cuts_its_producers_off_and_takes_no_more_until_it_is_below(
    policy: str, code: pb.ServerError
) -> None:
    async with in_broker(quota_bytes=8000, quota_policy=policy) as room:
        peer = await with_backlog(room, 6)
        await room.broker.quotas.round()
        assert (await room.topic()).producers, "below the quota"
        last = (await peer.publish(ENTRY, ENTRY, first=6))[-1]
        await room.broker.quotas.round()
        assert (await peer.expect(C.CLOSE_PRODUCER)).close_producer.producer_id == 1
        assert await refused(peer) == code
        assert (await room.topic()).producers == {}
        peer.ack(last, consumer_id=2, cumulative=True)
        await peer.producer(producer_id=9)
        peer.send_message(ENTRY, producer_id=9)
        await peer.expect(C.SEND_RECEIPT)


async def test_a_producer_that_is_cut_off_gets_its_receipts_first(room: Room) -> None:
    peer = await with_backlog(room, 4)
    await set_namespace(room, backlog_quota_map={"destination_storage": {"limitSize": 2000, "policy": HOLD}})
    topic = await room.topic()
    ledgers = room.cluster.ledgers
    for writer in ledgers.writers.values():
        writer.held = True
    for number in range(3):
        peer.send_message(ENTRY, 4 + number)
    await until(lambda: topic.entries_in == 7)
    await room.broker.quotas.round()
    assert topic.producers == {}
    assert await peer.silent()
    ledgers.release()
    frames = [(await peer.receive())[0].type for _ in range(4)]
    assert frames == [C.SEND_RECEIPT, C.SEND_RECEIPT, C.SEND_RECEIPT, C.CLOSE_PRODUCER]


async def test_an_eviction_lets_the_slowest_skip_the_oldest_until_nine_tenths_of_the_quota_are_left() -> None:
    async with in_broker(quota_bytes=6000, quota_policy=EVICTION) as room:
        peer = await with_backlog(room, 10)
        assert await backlogs(room) == [5, 10]
        await room.broker.quotas.round()
        assert await backlogs(room) == [5, 5]
        assert size_of(await room.topic()) <= 5400
        await peer.publish(ENTRY, first=10)
        await room.broker.quotas.round()
        found = (await room.topic()).subscriptions["b"]
        assert found.cursor.durable_mark_delete == found.cursor.mark_delete
        assert found.expiry.expired == 6, "the sixth goes with the entry that was added"
        assert room.broker.quotas.exceeded["destination_storage"] == 2


async def test_the_quota_of_a_topic_goes_before_that_of_its_namespace_and_the_brokers() -> None:
    async with in_broker(quota_bytes=1000) as room:
        peer = await with_backlog(room, 4)
        assert await refused(peer) == pb.ProducerBlockedQuotaExceededError
        await set_namespace(room, backlog_quota_map={"destination_storage": {"limitSize": 2000, "policy": EXCEPTION}})
        assert await refused(peer) == pb.ProducerBlockedQuotaExceededException
        own = {"backLogQuotaMap": {"destination_storage": {"limit": 10**6, "policy": EXCEPTION}}}
        await room.broker.policies.update(NAME, lambda known: {**known, **own})
        await trio.testing.wait_all_tasks_blocked()
        await peer.producer(producer_id=9)


async def test_partitions_have_the_quota_of_their_topic(room: Room) -> None:
    await room.broker.administration.create_partitioned_topic(TopicName.parse(f"{TOPIC}s"), 2)
    peer = await with_backlog(room, 4, topic=f"{TOPIC}s-partition-1")
    own = {"backLogQuotaMap": {"destination_storage": {"limitSize": 2000, "policy": EXCEPTION}}}
    await room.broker.policies.update(TopicName.parse(f"{TOPIC}s"), lambda known: {**known, **own})
    await trio.testing.wait_all_tasks_blocked()
    await room.broker.quotas.round()
    await peer.expect(C.CLOSE_PRODUCER)
    assert await refused(peer, f"{TOPIC}s-partition-1") == pb.ProducerBlockedQuotaExceededException
    await peer.producer(f"{TOPIC}s-partition-0", producer_id=9)


async def test_a_quota_of_time_counts_from_the_closing_of_a_ledger() -> None:
    async with in_broker(log={"entries_max": 4}, quota_seconds=60) as room:
        peer = await with_backlog(room, 6, age_s=1000)
        await room.broker.quotas.round()
        assert (await room.topic()).producers
        await trio.sleep(61)
        await room.broker.quotas.round()
        await peer.expect(C.CLOSE_PRODUCER)
        assert await refused(peer) == pb.ProducerBlockedQuotaExceededError


async def test_a_precise_quota_of_time_counts_from_the_publish_time() -> None:
    async with in_broker(quota_seconds=60, quota_precise_age=True) as room:
        peer = await with_backlog(room, 6, age_s=50)
        await room.broker.quotas.round()
        assert (await room.topic()).producers
        await trio.sleep(11)
        await room.broker.quotas.round()
        await peer.expect(C.CLOSE_PRODUCER)
        assert await refused(peer) == pb.ProducerBlockedQuotaExceededError
        (await room.topic()).subscriptions["b"].cursor.skip_all()
        assert await refused(peer) == pb.ProducerBlockedQuotaExceededError, "a is behind, too"
        (await room.topic()).subscriptions["a"].cursor.skip_all()
        await peer.producer(producer_id=9)


@pytest.mark.parametrize("precise", [True, False])
async def test_an_eviction_by_time_lets_every_subscription_skip_what_is_too_old(precise: bool) -> None:
    async with in_broker(
        log={"entries_max": 4}, quota_seconds=60, quota_policy=EVICTION, quota_precise_age=precise
    ) as room:
        peer = await with_backlog(room, 4, age_s=70)
        await trio.sleep(61)
        now_ms = room.broker.context.world.clock.wall_ms()
        await peer.publish(ENTRY, first=6, publish_time=now_ms)
        await room.broker.quotas.round()
        assert await backlogs(room) == [1, 1]


async def test_topics_and_cursors_of_the_servers_have_no_quota() -> None:
    async with in_broker(quota_bytes=1000, accept_unsupported_policies=True) as room:
        system = "persistent://public/default/__change_events"
        peer = await with_backlog(room, 4, topic=system)
        await room.broker.quotas.round()
        await peer.producer(system, producer_id=9)


@pytest.mark.parametrize("check", [True, False])
async def test_backlogs_are_checked_periodically_unless_that_is_off(check: bool) -> None:
    async with in_broker(quota_bytes=2000, quota_check=check, quota_check_interval_s=20) as room:
        await with_backlog(room, 4)
        found = await room.topic()
        if check:
            with trio.fail_after(60):
                await until(lambda: not found.producers)
        else:
            await trio.sleep(50)
            assert found.producers
