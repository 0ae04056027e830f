"""Permissions that are taken away under running producers and consumers. The change is made in the metadata store, as
by another broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from broker.connections.permits import takeaway
from broker.errors import ServiceNotReadyError
from broker.metrics import register
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker
from tests.unit.broker.security.roles import NAMESPACE, OPTIONS, policies, store, store_roles

DIRECT = "non-persistent://public/default/direct"
TENANT = "/admin/policies/public"


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(authorization=OPTIONS) as room:
        await store_roles(room.broker.metadata)
        yield room


async def change(room: Room, value: dict[str, Any], path: str = NAMESPACE) -> None:
    await store(room.broker.metadata, path, value)


async def told(peer: Peer, *kinds: pb.BaseCommand.Type) -> None:
    """Take these frames within a second of the change."""
    begun = trio.current_time()
    for kind in kinds:
        await peer.expect(kind)
    assert trio.current_time() - begun <= 1.0


async def test_a_producer_and_a_consumer_end_within_a_second_of_their_grant(room: Room) -> None:
    producer, consumer = await room.connect(role="producer"), await room.connect(role="consumer")
    await producer.producer()
    await consumer.subscribe()
    await change(room, policies({"consumer": ["consume"]}))
    await told(producer, C.CLOSE_PRODUCER)
    assert await producer.refused_producer() == pb.AuthorizationError
    assert await consumer.silent()
    await change(room, policies({}))
    await told(consumer, C.CLOSE_CONSUMER)
    assert await consumer.refused_consumer() == pb.AuthorizationError
    await change(room, policies())
    await producer.producer()
    await consumer.subscribe()


async def test_those_of_a_topic_that_is_not_persistent_end_too(room: Room) -> None:
    producer, consumer = await room.connect(role="producer"), await room.connect(role="consumer")
    await producer.producer(DIRECT)
    await consumer.subscribe(DIRECT)
    await change(room, policies({}))
    await told(producer, C.CLOSE_PRODUCER)
    await told(consumer, C.CLOSE_CONSUMER)


async def test_a_change_that_takes_nothing_away_ends_nothing(room: Room) -> None:
    producer, consumer = await room.connect(role="producer"), await room.connect(role="consumer")
    await producer.producer()
    await consumer.subscribe()
    await change(room, policies({"producer": ["produce", "consume"], "consumer": ["consume"], "x": ["produce"]}))
    await change(room, {"adminRoles": ["admin", "x"]}, TENANT)
    assert await producer.silent()
    assert await consumer.silent()


async def test_an_admin_of_the_tenant_loses_what_it_has_with_its_role_unless_it_has_a_grant(room: Room) -> None:
    admin = await room.connect(role="admin")
    await admin.producer(producer_id=1)
    await admin.subscribe(consumer_id=1)
    await change(room, policies({"admin": ["produce"]}))
    assert await admin.silent()
    await change(room, {"adminRoles": []}, TENANT)
    await told(admin, C.CLOSE_CONSUMER)
    assert await admin.silent()
    await change(room, policies({}))
    await told(admin, C.CLOSE_PRODUCER)


async def test_a_list_of_a_subscription_ends_the_consumers_of_other_roles_on_it_only(room: Room) -> None:
    consumer = await room.connect(role="consumer")
    await consumer.subscribe(name="s", consumer_id=1)
    await consumer.subscribe(name="t", consumer_id=2)
    await change(room, policies(subscription_auth_roles={"s": ["other"]}))
    closed = await consumer.expect(C.CLOSE_CONSUMER)
    assert closed.close_consumer.consumer_id == 1
    await change(room, policies(mode="Prefix"))
    closed = await consumer.expect(C.CLOSE_CONSUMER)
    assert closed.close_consumer.consumer_id == 2
    await consumer.subscribe(name="consumer-t", consumer_id=3)


async def test_a_grant_on_a_topic_ends_by_itself(room: Room) -> None:
    await change(room, policies({}, destination_auth={TOPIC: {"app": ["produce"]}}))
    peer = await room.connect(role="app")
    await peer.producer()
    await change(room, policies({}, destination_auth={}))
    await told(peer, C.CLOSE_PRODUCER)


async def test_behind_a_proxy_either_role_may_lose_it(room: Room) -> None:
    await change(room, policies({"proxy": ["produce"], "app": ["produce"]}))
    peer = await room.connect(role="proxy", original="app")
    await peer.producer()
    await change(room, policies({"app": ["produce"]}))
    await told(peer, C.CLOSE_PRODUCER)
    await change(room, policies({"proxy": ["produce"], "app": ["produce"]}))
    await peer.producer()
    await change(room, policies({"proxy": ["produce"]}))
    await told(peer, C.CLOSE_PRODUCER)


async def test_a_deleted_namespace_permits_nothing(room: Room) -> None:
    peer = await room.connect(role="producer")
    await peer.producer()
    await room.broker.metadata.delete(NAMESPACE)
    await told(peer, C.CLOSE_PRODUCER)


async def test_receipts_of_what_is_on_its_way_come_before_the_end(room: Room) -> None:
    peer = await room.connect(role="producer")
    await peer.producer()
    peer.send_message(b"one", 0)
    await change(room, policies({}))
    await told(peer, C.SEND_RECEIPT, C.CLOSE_PRODUCER)
    peer.send_message(b"two", 1)
    assert await peer.silent(), "what is sent to an ended producer is ignored"


async def test_a_producer_that_waits_for_its_turn_is_refused(room: Room) -> None:
    holder, waiting = await room.connect(role="super"), await room.connect(role="producer")
    await holder.producer(producer_access_mode=pb.Exclusive)
    waiting.ask_producer(producer_access_mode=pb.WaitForExclusive)
    assert not (await waiting.expect(C.PRODUCER_SUCCESS)).producer_success.producer_ready
    await change(room, policies({}))
    assert (await waiting.error())[0] == pb.ServiceNotReady
    assert await waiting.refused_producer() == pb.AuthorizationError
    await holder.end_producer()
    topic = await room.topic()
    assert not topic.producers


async def test_a_producer_whose_topic_is_being_loaded_is_not_made(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    peer, gate = await room.connect(role="producer"), trio.Event()
    get = room.broker.topics.get

    async def slow(*args: Any, **options: Any) -> Any:
        await gate.wait()
        return await get(*args, **options)

    monkeypatch.setattr(room.broker.topics, "get", slow)
    peer.ask_producer(producer_access_mode=pb.Exclusive)
    await until(lambda: bool(room.connection_of(peer).creating))
    await change(room, policies({}))
    await until(lambda: not room.connection_of(peer).creating)
    gate.set()
    assert (await peer.error())[0] == pb.ServiceNotReady
    assert not (await room.topic()).producers


async def test_a_watcher_of_a_topic_list_gets_no_more_names(room: Room) -> None:
    peer = await room.connect(role="consumer")
    body = pb.CommandWatchTopicList(request_id=9, watcher_id=1, namespace="public/default", topics_pattern=".*")
    peer.send(C(type=C.WATCH_TOPIC_LIST, watchTopicList=body))
    await peer.expect(C.WATCH_TOPIC_LIST_SUCCESS)
    setup = await room.connect(role="super")
    await setup.producer()
    await peer.expect(C.WATCH_TOPIC_UPDATE)
    await change(room, policies({}))
    await until(lambda: not room.connection_of(peer).watchers)
    await setup.producer(f"{TOPIC}-2", producer_id=2)
    assert await peer.silent()
    assert room.broker.topic_lists.count == 0


async def test_what_cannot_be_decided_is_decided_as_soon_as_it_can_be(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admin of a tenant loses its role, and the grants of the namespace cannot be read at that moment."""
    peer = await room.connect(role="admin")
    await peer.producer()
    authorizer: Any = room.broker.authorizer
    read, fails = authorizer._namespaces._read, [True]

    async def away(path: str) -> Any:
        if fails:
            raise ServiceNotReadyError("away")
        return await read(path)

    monkeypatch.setattr(authorizer._namespaces, "_read", away)
    await change(room, {"adminRoles": []}, TENANT)
    assert await peer.silent()
    fails.clear()
    await told(peer, C.CLOSE_PRODUCER)


class Checks(trio.abc.Instrument):
    """Counts the decisions of each step of the event loop."""

    def __init__(self) -> None:
        self.in_step = self.most = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.in_step = 0

    def decided(self) -> None:
        self.in_step += 1
        self.most = max(self.most, self.in_step)


async def test_many_are_checked_in_short_steps(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    count, checks = 3 * takeaway.CHECKED_IN_STEP, Checks()
    peers = [await room.connect(role="consumer") for _ in range(3)]
    for peer in peers:
        for number in range(count // 3):
            await peer.subscribe(consumer_id=number, subType=SUB.Shared)
    authorizer: Any = room.broker.authorizer
    at_once = authorizer.at_once

    def counted(*args: Any, **options: Any) -> Any:
        checks.decided()
        return at_once(*args, **options)

    monkeypatch.setattr(authorizer, "at_once", counted)
    trio.lowlevel.add_instrument(checks)
    await change(room, policies({}))
    for peer in peers:
        await told(peer, *[C.CLOSE_CONSUMER] * (count // 3))
    trio.lowlevel.remove_instrument(checks)
    assert checks.most == takeaway.CHECKED_IN_STEP
    metrics = Metrics()
    register(metrics, room.broker, ConnectionCounts(), "c")
    assert values(metrics, "quire_permissions_taken_away") == [count]
    before = values(metrics, "quire_requests_not_permitted")
    assert await peers[0].refused_consumer() == pb.AuthorizationError
    assert values(metrics, "quire_requests_not_permitted") == [before[0] + 1]


def values(metrics: Metrics, name: str) -> list[float]:
    """Return the samples of a metric."""
    text = "".join(metrics.lines())
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)]
