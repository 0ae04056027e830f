"""Rates of publishing, delivery and subscribing, over a whole broker in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from broker.measures import Rates
from broker.topics.rates.broker_rates import BrokerRates
from broker.topics.rates.bucket import Rate, RateBucket, SubscribeWindow
from broker.topics.rates.following import TopicRates
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, C
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

OTHER = "persistent://public/default/other"
KINDS = [SUB.Exclusive, SUB.Failover, SUB.Shared, SUB.Key_Shared]


def dispatch(messages: int = -1, size: int = -1, period_s: int = 1, *, relative: bool = False) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": period_s,
        "relativeToPublishRate": relative,
    }


def publish(messages: int = -1, size: int = -1) -> dict[str, Any]:
    return {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": size}


async def set_policies(room: Room, namespace: dict[str, Any], topic: dict[str, Any]) -> None:
    await room.cluster.stores[0].put("/admin/policies/public/default", json.dumps(namespace).encode(), ANY_VERSION)
    await room.broker.policies.update(TopicName.parse(TOPIC), lambda own: {**own, **topic})
    await trio.testing.wait_all_tasks_blocked()


# The core


def test_a_bucket_gives_its_rate_over_any_longer_time_whatever_is_taken_at_once() -> None:
    bucket = RateBucket(Rate(10, 0), 0.0)
    now, passed = 0.0, 0
    while now < 100:
        if bucket.allowed(0, now):
            bucket.take(37, 0, now)
            passed += 37
        else:
            now += bucket.wait_s(now)
    assert 1000 <= passed <= 1000 + 10 + 37


@pytest.mark.parametrize(
    ("rate", "mean", "allowed"),
    [
        (Rate(10, 0), 0, 10),
        (Rate(10, 0, 5), 0, 10),
        (Rate(0, 1000), 100, 10),
        (Rate(0, 1000), 0, 1),
        (Rate(0, 1000), 5000, 1),
        (Rate(7, 1000), 100, 7),
        (Rate(70, 1000), 100, 10),
    ],
)
def test_a_full_bucket_allows_what_fits(rate: Rate, mean: float, allowed: int) -> None:
    assert RateBucket(rate, 5.0).allowed(mean, 5.0) == allowed


def test_a_bucket_that_is_used_up_waits_for_the_next_token() -> None:
    bucket = RateBucket(Rate(10, 0, 5), 0.0)
    bucket.take(12, 0, 0.0)
    assert bucket.allowed(0, 1.0) == 0
    assert bucket.wait_s(1.0) == pytest.approx(0.5)
    assert bucket.allowed(0, 1.5) == 1
    assert bucket.allowed(0, 100.0) == 10, "no more than a period is kept"


def test_a_relative_bucket_gives_what_is_published_too_and_pays_its_debt_sooner() -> None:
    bucket = RateBucket(Rate(10, 1000, 5, relative=True), 0.0)
    assert bucket.allowed(10, 0.0) == 10, "nothing is published yet"
    bucket.follow((2.0, 400.0), 0.0)
    assert bucket.present == (20, 3000, 5, True), "in 5 s there are 10 published messages with 2000 bytes"
    bucket.take(50, 0, 5.0)
    assert bucket.wait_s(5.0) == pytest.approx((1 + 50 - 20) / 4)
    bucket.follow((198.0, 0.0), 5.0)
    assert bucket.wait_s(5.0) == pytest.approx((1 + 50 - 20) / 200)
    bucket.follow((0.0, 0.0), 100.0)
    assert bucket.allowed(10, 200.0) == 10


def test_only_a_relative_bucket_follows_what_is_published_and_only_where_it_has_a_limit() -> None:
    for rate in (Rate(10, 0), Rate(-1, 1000, relative=True)):
        bucket = RateBucket(rate, 0.0)
        bucket.follow((100.0, 0.0), 0.0)
        assert bucket.present == rate
        assert bucket.allowed(100, 0.0) == 10


def test_the_rate_of_publishing_is_followed_at_once_upwards_and_by_halves_downwards() -> None:
    rates = TopicRates(BrokerRates.__new__(BrokerRates))
    seen = []
    for messages, size in ((100, 8000), (300, 4000), (100, 0), (0, 0)):
        rates.measured(Rates(messages_in=messages, bytes_in=size), 0.0)
        seen.append(rates.published_at)
    assert seen == [(100, 8000), (300, 6000), (200, 3000), (100, 1500)]


def test_attempts_of_a_consumer_are_counted_in_periods_by_themselves() -> None:
    window = SubscribeWindow(2, 30, 0.0)
    one, two = ("a:1", "c", 1), ("a:1", "c", 2)
    assert [window.take(each, 1.0) for each in (one, one, one, two)] == [True, True, False, True]
    assert not window.take(one, 29.9)
    assert window.take(one, 30.0)


# Publishing


async def timed(peer: Peer, *, first: int, count: int, size: int = 10, producer_id: int = 1) -> float:
    """Publish, and return the seconds until everything has its receipt."""
    began = trio.current_time()
    for number in range(count):
        peer.send_message(b"x" * size, first + number, producer_id)
    for _ in range(count):
        await peer.expect(C.SEND_RECEIPT)
    return trio.current_time() - began


@pytest.mark.parametrize("level", ["broker", "namespace", "topic", "whole broker"])
async def test_publishers_are_held_to_the_rate_of_their_topic(level: str) -> None:
    options: dict[str, Any] = {"topic_publish_messages": 10} if level == "broker" else {}
    if level == "whole broker":
        options = {"broker_publish_messages": 10}
    async with in_broker(**options) as room:
        await set_policies(
            room,
            {"publishMaxMessageRate": {"standalone": publish(10)}} if level == "namespace" else {},
            {"publishRate": publish(10)} if level == "topic" else {},
        )
        peer, free = await room.connect(), await room.connect()
        await peer.producer()
        await free.producer(OTHER)
        assert await timed(peer, first=0, count=40) < 0.1, "what was received is stored"
        assert await timed(peer, first=40, count=5) == pytest.approx(3.1, abs=0.2), "the debt, and a token"
        assert await timed(peer, first=45, count=1) == pytest.approx(0.5, abs=0.2)
        took = await timed(free, first=0, count=5)
        await set_policies(room, {}, {})
        if level == "topic":
            assert took < 0.1, "other topics have no rate"
        if level == "whole broker":
            assert took < 0.1
            assert await timed(free, first=5, count=1) > 0.3, "it counts with all others"


async def test_a_rate_in_bytes_holds_too_and_ends_with_its_policy(room: Room) -> None:
    await set_policies(room, {}, {"publishRate": publish(size=1000)})
    peer = await room.connect()
    await peer.producer()
    topic = await room.topic()
    await timed(peer, first=0, count=20, size=1000)
    peer.send_message(b"x", 20)
    assert await peer.silent(5)
    assert topic.rates.times_limited >= 1
    await room.broker.policies.update(TopicName.parse(TOPIC), lambda own: {**own, "publishRate": None})
    began = trio.current_time()
    await peer.expect(C.SEND_RECEIPT)
    assert trio.current_time() - began < 1
    [connection] = room.broker.connections
    assert (connection.sends_in_flight, connection.requests_in_flight) == (0, 0)


async def test_a_held_connection_that_ends_leaves_the_others_held_for_no_longer(room: Room) -> None:
    await set_policies(room, {}, {"publishRate": publish(10)})
    peer, other = await room.connect(), await room.connect()
    await peer.producer(producer_id=1)
    await other.producer(producer_id=2)
    await timed(peer, first=0, count=30)
    assert await timed(other, first=0, count=10, producer_id=2) < 0.1, "it was not held when it sent"
    await peer.closed_by_us()
    assert await timed(other, first=10, count=1, producer_id=2) == pytest.approx(3.1, abs=0.3)


# Delivery


async def filled(room: Room, count: int, kind: Any = SUB.Exclusive, topic: str = TOPIC, name: str = "s") -> Peer:
    """Return a client with a subscription and a backlog."""
    peer = await room.connect()
    await peer.subscribe(topic, name=name, subType=kind)
    if kind == SUB.Failover:
        await peer.expect(C.ACTIVE_CONSUMER_CHANGE)
    await peer.producer(topic)
    await peer.publish(*[b"x" * 100] * count)
    return peer


async def delivered(peer: Peer, seconds: float) -> int:
    """Return how many messages arrive in that time."""
    count = 0
    deadline = trio.current_time() + seconds
    with trio.move_on_at(deadline):
        while True:
            await peer.message()
            count += 1
    return count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["broker", "namespace", "old namespace", "topic", "whole broker"])
async def test_a_topic_is_delivered_at_its_rate(kind: Any, level: str) -> None:
    options: dict[str, Any] = {"topic_dispatch_messages": 10} if level == "broker" else {}
    if level == "whole broker":
        options = {"broker_dispatch_messages": 10}
    rate = {"standalone": dispatch(10)}
    namespace = {"namespace": {"topicDispatchRate": rate}, "old namespace": {"clusterDispatchRate": rate}}
    async with in_broker(**options) as room:
        await set_policies(room, namespace.get(level, {}), {"dispatchRate": dispatch(10)} if level == "topic" else {})
        peer = await filled(room, 100, kind)
        peer.flow(1000)
        assert 10 <= await delivered(peer, 0.05) <= 11
        assert 48 <= await delivered(peer, 5) <= 52
        assert await delivered(peer, 10) >= 37
        await peer.silent(1)


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared])
@pytest.mark.parametrize("level", ["namespace", "topic", "subscriptions", "subscription"])
async def test_a_relative_rate_comes_on_top_of_what_is_published(kind: Any, level: str) -> None:
    rate = dispatch(5, relative=True)
    topic = {
        "topic": {"dispatchRate": rate},
        "subscriptions": {"subscriptionDispatchRate": rate},
        "subscription": {"subscriptionPolicies": {"s": {"dispatchRate": rate}}},
    }
    async with in_broker(stats_interval_s=10) as room:
        await set_policies(
            room, {"topicDispatchRate": {"standalone": rate}} if level == "namespace" else {}, topic.get(level, {})
        )
        peer = await filled(room, 200, kind)
        peer.flow(1000)
        assert 29 <= await delivered(peer, 5) <= 31, "nothing was measured: its own rate"
        await trio.sleep(5.5)  # 200 in the first 10 s are 20 a second
        await delivered(peer, 0.1)
        assert 74 <= await delivered(peer, 3) <= 76
        await trio.sleep(10)  # nothing in the second 10 s: 10 a second are left of them
        await delivered(peer, 0.1)
        sender = await room.connect()
        await sender.producer()
        await sender.publish(*[b"x"] * 100)
        await delivered(peer, 0.5)
        assert 29 <= await delivered(peer, 2) <= 31


async def test_a_debt_is_paid_sooner_when_the_rate_goes_up_while_the_pump_waits() -> None:
    async with in_broker(stats_interval_s=10) as room:
        await set_policies(room, {}, {"dispatchRate": dispatch(size=10, relative=True)})
        peer = await filled(room, 10)
        peer.flow(1000)
        assert await delivered(peer, 9.5) <= 2, "100 bytes and more have to be paid with 10 a second"
        assert await delivered(peer, 10) >= 8, "and then with over 100"


@pytest.mark.parametrize("level", ["broker", "namespace", "topic", "subscription"])
async def test_a_subscription_is_delivered_at_its_own_rate_beside_others(level: str) -> None:
    options: dict[str, Any] = {"subscription_dispatch_messages": 10} if level == "broker" else {}
    rate = dispatch(10)
    topic = {
        "topic": {"subscriptionDispatchRate": rate},
        "subscription": {"subscriptionPolicies": {"s": {"dispatchRate": rate}}},
    }
    namespace = {"subscriptionDispatchRate": {"standalone": rate}} if level == "namespace" else {}
    async with in_broker(**options) as room:
        await set_policies(room, namespace, topic.get(level, {}))
        peer = await filled(room, 60)
        other = await room.connect()
        await other.subscribe(name="other")
        peer.flow(1000)
        other.flow(1000)
        found = [0, 0]
        async with trio.open_nursery() as nursery:
            for at, each in enumerate((peer, other)):

                async def count(at: int = at, each: Peer = each) -> None:
                    found[at] = await delivered(each, 2)

                nursery.start_soon(count)
        assert 28 <= found[0] <= 31
        assert found[1] == 60 if level == "subscription" else 28 <= found[1] <= 31


async def test_subscriptions_share_the_rate_of_their_topic() -> None:
    async with in_broker(topic_dispatch_messages=10) as room:
        peer = await filled(room, 100)
        await peer.subscribe(name="other", consumer_id=2)
        peer.flow(1000, consumer_id=1)
        peer.flow(1000, consumer_id=2)
        assert 38 <= await delivered(peer, 3) <= 42


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rate_in_bytes_is_kept_by_the_size_of_messages(kind: Any, room: Room) -> None:
    await set_policies(room, {}, {"dispatchRate": dispatch(size=1200)})
    peer = await filled(room, 100, kind)
    topic = await room.topic()
    size = topic.ledger.size / 100
    peer.flow(1000)
    found = await delivered(peer, 5)
    assert 5.5 * 1200 <= found * size <= 6.5 * 1200 + size


async def test_a_change_of_a_rate_holds_at_once(room: Room) -> None:
    peer = await filled(room, 200)
    assert (await room.topic()).rates is None, "a topic without a rate has nothing of this"
    assert (await room.topic()).subscriptions["s"].limit is None
    await set_policies(room, {}, {"dispatchRate": dispatch(10)})
    peer.flow(1000)
    assert 28 <= await delivered(peer, 2) <= 31
    await set_policies(room, {}, {"dispatchRate": dispatch(100)})
    assert 100 <= await delivered(peer, 0.2) <= 125
    await set_policies(room, {}, {"dispatchRate": None})
    assert await delivered(peer, 0.5) > 40


async def test_batches_count_as_their_messages_unless_the_configuration_says_otherwise() -> None:
    for by_entry in (False, True):
        async with in_broker(topic_dispatch_messages=10, dispatch_counts_batches=by_entry) as room:
            peer = await room.connect()
            await peer.subscribe()
            await peer.producer()
            await peer.publish(*[b"x"] * 60, num_messages_in_batch=5)
            peer.flow(10_000)
            found = await delivered(peer, 2)
            assert 28 <= found <= 31 if by_entry else 6 <= found <= 12


async def test_consumers_that_have_caught_up_can_be_left_out() -> None:
    async with in_broker(topic_dispatch_messages=5, dispatch_limits_tail=False) as room:
        peer = await room.connect()
        await peer.subscribe()
        peer.flow(1000)
        other = await room.connect()
        await other.producer()
        await other.publish(*[b"x"] * 50)
        assert await delivered(peer, 1) == 50


# Subscribing


@pytest.mark.parametrize("level", ["broker", "namespace", "topic"])
async def test_a_consumer_subscribes_so_often_in_a_period_and_others_as_often(level: str) -> None:
    rate = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 30}
    options: dict[str, Any] = {"subscribe_attempts": 2} if level == "broker" else {}
    async with in_broker(**options) as room:
        await set_policies(
            room,
            {"clusterSubscribeRate": {"standalone": rate}} if level == "namespace" else {},
            {"subscribeRate": rate} if level == "topic" else {},
        )
        peer = await room.connect()
        for _ in range(2):
            await peer.subscribe(consumer_name="c")
            peer.close_consumer(1)
            await peer.expect(C.SUCCESS)
        peer.ask_subscribe(consumer_name="c")
        code, why = await peer.error()
        assert code == pb.NotAllowedError
        assert "subscribe rate limit" in why
        await peer.subscribe(consumer_name="c", consumer_id=2, name="other")
        await trio.sleep(31)
        await peer.subscribe(consumer_name="c")
