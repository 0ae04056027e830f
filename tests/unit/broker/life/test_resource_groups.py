"""Resource groups: rates that the topics of several namespaces share at a broker, and shares of brokers.

Covers broker.topics.rates.groups, group_shares and group_following."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from broker.ownership.values import BrokerReport, BundleLoad, LocalBroker
from broker.topics.rates.bucket import Rate, RateBucket
from broker.topics.rates.group_following import GROUPS, GroupFollowing
from broker.topics.rates.group_shares import parts
from broker.topics.rates.groups import WHOLE
from broker.topics.topic_policies.known import topic_path
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, C
from tests.unit.broker.peers import TOPIC, Peer, Room

OTHER = "persistent://public/other/news"
DIRECT = "non-persistent://public/default/news"
NAMESPACES = ("/admin/policies/public/default", "/admin/policies/public/other")


async def store(room: Room, path: str, value: dict[str, Any]) -> None:
    metadata = room.cluster.stores[0]
    if await metadata.get(path) is None:
        await metadata.create(path, b"", make_parents=True)
    await metadata.put(path, json.dumps(value).encode(), ANY_VERSION)
    await trio.testing.wait_all_tasks_blocked()


def follow(room: Room) -> GroupFollowing:
    """Let the broker follow the stored groups, as its process does."""
    topics = room.broker.topics
    groups = GroupFollowing(room.broker.metadata, topics.rates.groups, topics.following.everything)
    room.nursery.start_soon(groups.run)
    return groups


async def in_group(room: Room, name: str = "gold", **rates: int) -> GroupFollowing:
    """Make a group with both namespaces in it."""
    await store(room, f"{GROUPS}/{name}", rates)
    for path in NAMESPACES:
        await store(room, path, {"resource_group_name": name})
    return follow(room)


async def timed(peer: Peer, *, first: int, count: int, producer_id: int = 1, size: int = 10) -> float:
    """Publish, and return the seconds until everything has its receipt."""
    began = trio.current_time()
    for number in range(count):
        peer.send_message(b"x" * size, first + number, producer_id)
    for _ in range(count):
        await peer.expect(C.SEND_RECEIPT)
    return trio.current_time() - began


async def test_topics_of_all_namespaces_of_a_group_share_its_publish_rate(room: Room) -> None:
    await in_group(room, publishRateInMsgs=10)
    one, other = await room.connect(), await room.connect()
    await one.producer()
    await other.producer(OTHER)
    assert await timed(one, first=0, count=30) < 0.1, "what was received is stored"
    assert await timed(other, first=0, count=1) < 0.1
    assert await timed(other, first=1, count=1) == pytest.approx(2.2, abs=0.2), "the debt of both topics"
    await store(room, f"{GROUPS}/gold", {"publishRateInMsgs": -1, "publishRateInBytes": 1000})
    assert await timed(other, first=2, count=30) < 0.2, "the rate has no limit of messages any more"
    assert await timed(other, first=32, count=1, size=3000) < 0.2
    assert await timed(other, first=33, count=1) > 1, "and one of bytes"


async def test_a_held_publisher_goes_on_when_its_group_gets_a_higher_rate_or_is_deleted(room: Room) -> None:
    await in_group(room, publishRateInMsgs=1)
    peer = await room.connect()
    await peer.producer()
    await timed(peer, first=0, count=200)
    peer.send_message(b"x", 200)
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    await store(room, f"{GROUPS}/gold", {"publishRateInMsgs": 1000})
    await peer.expect(C.SEND_RECEIPT)
    assert trio.current_time() - began < 2, "and not in four minutes"
    await store(room, f"{GROUPS}/gold", {"publishRateInMsgs": 1})
    await timed(peer, first=201, count=200)
    await room.cluster.stores[0].delete(f"{GROUPS}/gold", ANY_VERSION)
    await trio.testing.wait_all_tasks_blocked()
    assert await timed(peer, first=401, count=100) < 1


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared])
async def test_subscriptions_of_a_group_share_its_dispatch_rate(room: Room, kind: Any) -> None:
    await in_group(room, dispatchRateInMsgs=20)
    publisher, consumers = await room.connect(), []
    for topic, producer_id in ((TOPIC, 1), (OTHER, 2)):
        await publisher.producer(topic, producer_id=producer_id)
        consumer = await room.connect()
        await consumer.subscribe(topic, subType=kind)
        consumers.append(consumer)
        await timed(publisher, first=0, count=200, producer_id=producer_id)
    for consumer in consumers:
        consumer.flow(1000)
    counts = [0, 0]

    async def count(index: int) -> None:
        while True:
            await consumers[index].expect(C.MESSAGE)
            counts[index] += 1

    with trio.move_on_after(5):
        async with trio.open_nursery() as nursery:
            for index in range(2):
                nursery.start_soon(count, index)
    assert 90 <= sum(counts) <= 150, "five seconds of both together, and a full bucket"
    assert min(counts) > 0


async def test_a_topic_may_be_in_a_group_of_its_own_and_non_persistent_topics_are_in_theirs(room: Room) -> None:
    await in_group(room, publishRateInMsgs=10)
    await store(room, f"{GROUPS}/free", {})
    await store(room, topic_path(TopicName.parse(TOPIC)), {"isGlobal": False, "resourceGroupName": "free"})
    own, direct = await room.connect(), await room.connect()
    await own.producer()
    await direct.producer(DIRECT)
    assert await timed(own, first=0, count=40) < 0.1
    assert await timed(own, first=40, count=5) < 0.1
    await timed(direct, first=0, count=30)
    assert await timed(direct, first=30, count=1) > 1.5


async def test_a_group_that_is_not_stored_or_cannot_be_read_limits_nothing_until_it_can(
    room: Room, log_events: list[dict[str, Any]]
) -> None:
    await in_group(room, publishRateInMsgs="many")  # type: ignore[arg-type]
    await trio.testing.wait_all_tasks_blocked()
    assert [each for each in log_events if each["event"] == "resource group not obeyed"]
    peer = await room.connect()
    await peer.producer()
    assert await timed(peer, first=0, count=100) + await timed(peer, first=100, count=1) < 0.2
    await store(room, f"{GROUPS}/gold", {"publishRateInMsgs": 10})
    await timed(peer, first=101, count=30)
    assert await timed(peer, first=131, count=1) > 1.5


def test_a_bucket_keeps_its_debt_at_another_rate() -> None:
    bucket = RateBucket(Rate(10, 0), 0.0)
    bucket.take(30, 5000, 0.0)
    bucket.change(Rate(100, 1000), 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(0.21)
    assert bucket.rate == Rate(100, 1000)
    bucket.change(Rate(5, 0), 1.0)
    assert bucket.allowed(0, 1.0) == 5


# Shares


def report(name: str, **loads: BundleLoad) -> BrokerReport:
    broker = LocalBroker(id=name, broker_url=f"pulsar://{name}:1", web_url=f"http://{name}:2")
    return BrokerReport(broker=broker, bundles={f"public/{key}/0x0_0x1": load for key, load in loads.items()})


def test_brokers_share_a_group_by_their_use_and_all_parts_are_the_whole() -> None:
    groups = {"public/one": "gold", "public/two": "gold", "public/free": "free"}
    reports = {
        "a": report("a", one=BundleLoad(messages_in=90, bytes_out=500), other=BundleLoad(messages_in=1e9)),
        "b": report("b", two=BundleLoad(messages_in=10, bytes_out=500)),
        "c": report("c", free=BundleLoad(messages_in=1e9)),
    }
    of_a, of_b = (parts(reports, each, groups)["gold"] for each in "ab")
    assert of_a.messages_in == pytest.approx(0.9, abs=0.03)
    assert of_a.bytes_out == of_b.bytes_out == pytest.approx(0.5)
    assert of_a.messages_out == 0.5, "nothing is used yet"
    assert of_b.messages_in > 10 / 100, "so that it can come to use more"
    assert [one + other for one, other in zip(of_a, of_b, strict=True)] == pytest.approx([1, 1, 1, 1])
    assert parts(reports, "c", groups)["free"] == WHOLE, "no other broker has a bundle of it"
    assert 0 < parts(reports, "c", groups)["gold"].messages_in < 0.05, "it may have taken one since its report"
    assert "none" not in parts(reports, "a", groups)


async def test_a_broker_holds_to_its_share_and_to_all_of_it_when_the_others_are_gone(room: Room) -> None:
    following = await in_group(room, publishRateInMsgs=100, dispatchRateInBytes=1000)
    reports = {
        "me": report("me", default=BundleLoad(messages_in=10)),
        "b": report("b", other=BundleLoad(messages_in=30)),
    }
    room.nursery.start_soon(following.share, "me", lambda: reports, lambda: 60.0)
    group = room.broker.topics.rates.groups.of("gold")
    await trio.sleep(59)
    assert group.publish.rate == Rate(100, 0)
    await trio.sleep(2)
    assert group.publish.rate == Rate(26, 0)
    assert group.dispatch.rate == Rate(0, 500)
    await store(room, f"{GROUPS}/gold", {"publishRateInMsgs": 200})
    assert group.publish.rate == Rate(52, 0), "the share stays when the rate changes"
    del reports["b"]
    await trio.sleep(60)
    assert group.publish.rate == Rate(200, 0)
