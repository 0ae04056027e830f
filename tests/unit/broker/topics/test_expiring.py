"""Messages and subscriptions that expire, over a whole broker in virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from broker.metrics import register
from cursors.cursor import Cursor
from cursors.position_info import decode_node
from quire.metadata.store import ANY_VERSION, MetadataStore
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.nodes import node_at
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room

NAME = TopicName.parse(TOPIC)
POLICIES = "/admin/policies/public/default"


def now_ms(room: Room) -> int:
    return room.broker.context.world.clock.wall_ms()


async def published(room: Room, *ages_s: int) -> Peer:
    """Publish an entry of each age, to the subscriptions `a` and `b`."""
    peer = await room.connect()
    await peer.subscribe(name="a", consumer_id=1)
    await peer.subscribe(name="b", consumer_id=2, subType=pb.CommandSubscribe.Shared)
    await peer.producer()
    for number, age_s in enumerate(ages_s):
        await peer.publish(b"m%d" % number, first=number, publish_time=now_ms(room) - 1000 * age_s)
    return peer


async def cursor(room: Room, name: str) -> Cursor:
    found: Cursor = (await room.topic()).subscriptions[name].cursor
    return found


async def backlogs(room: Room) -> list[int]:
    return [(await cursor(room, name)).backlog() for name in ("a", "b")]


async def set_policy(room: Room, path: str, value: bytes) -> None:
    store: MetadataStore = room.cluster.stores[0]
    await store.put(path, value, ANY_VERSION)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.broker(message_ttl_s=60)
async def test_messages_above_the_age_expire_for_every_durable_subscription(room: Room) -> None:
    await published(room, 300, 200, 61, 59, 10)
    await room.broker.expiring.check_messages()
    assert await backlogs(room) == [2, 2]
    metrics = Metrics()
    register(metrics, room.broker, ConnectionCounts(), "c")
    name = "pulsar_subscription_total_msg_expired"
    lines = [line for line in metrics.exposition().decode().splitlines() if line.startswith(f"{name}")]
    assert [line.rpartition(" ")[2] for line in lines] == ["3", "3"]
    assert (await cursor(room, "a")).durable_mark_delete == (await cursor(room, "a")).mark_delete
    await trio.sleep(2)
    await room.broker.expiring.check_messages()
    assert await backlogs(room) == [1, 1]


async def test_messages_do_not_expire_unless_an_age_is_set(room: Room) -> None:
    await published(room, 10**6)
    await room.broker.expiring.check_messages()
    assert await backlogs(room) == [1, 1]


@pytest.mark.broker(message_ttl_s=1000)
async def test_the_age_of_a_topic_goes_before_that_of_its_namespace_and_the_brokers(room: Room) -> None:
    await published(room, 2000, 500, 50)
    await set_policy(room, POLICIES, b'{"message_ttl_in_seconds":0}')
    await room.broker.expiring.check_messages()
    assert await backlogs(room) == [3, 3], "0 of the namespace: messages do not expire"
    await set_policy(room, POLICIES, b"{}")
    await room.broker.expiring.check_messages()
    assert await backlogs(room) == [2, 2]
    await set_policy(room, POLICIES, b'{"message_ttl_in_seconds":100}')
    await room.broker.policies.update(NAME, lambda own: {**own, "messageTTLInSeconds": 600})
    await room.broker.expiring.check_messages()
    assert await backlogs(room) == [2, 2]
    await room.broker.policies.update(NAME, lambda own: {**own, "messageTTLInSeconds": None})
    await room.broker.expiring.check_messages()
    assert await backlogs(room) == [1, 1]


@pytest.mark.broker(message_ttl_s=60, expiry_check_interval_s=120)
async def test_messages_are_checked_every_few_minutes(room: Room) -> None:
    peer = await published(room, 10)
    await trio.sleep(100)
    peer.pong()
    assert await backlogs(room) == [1, 1]
    with trio.fail_after(60):
        await until(lambda: room.broker.topics.loaded()[0].subscriptions["a"].cursor.backlog() == 0)


@pytest.mark.broker(message_ttl_s=60)
async def test_an_expired_message_is_taken_from_the_consumer_that_holds_it(room: Room) -> None:
    peer = await published(room, 300, 200, 10)
    peer.flow(10, consumer_id=2)
    assert await peer.payloads(3) == [b"m0", b"m1", b"m2"]
    subscription = (await room.topic()).subscriptions["b"]
    [consumer] = subscription.consumers
    assert subscription.unacked_of(consumer) == 3
    await room.broker.expiring.check_messages()
    assert subscription.unacked_of(consumer) == 1


@pytest.mark.broker(log={"entries_max": 2}, message_ttl_s=60)
async def test_a_ledger_that_was_closed_long_ago_expires_whatever_its_producers_clock_says(room: Room) -> None:
    await published(room, -500, -500, -500, -500, -500)
    closed = [info for info in (await room.topic()).ledger.ledgers if info.closed_ms]
    assert len(closed) == 2
    await trio.sleep(100)
    await room.broker.expiring.check_messages()
    assert await backlogs(room) == [1, 1]


@pytest.mark.broker(message_ttl_s=60)
async def test_readers_keep_their_messages(room: Room) -> None:
    peer = await published(room, 300)
    start = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)
    await peer.subscribe(name="reader", consumer_id=3, durable=False, start_message_id=start)
    await room.broker.expiring.check_messages()
    peer.flow(1, consumer_id=3)
    assert await peer.payloads(1) == [b"m0"]


# Subscriptions


async def names(room: Room) -> list[str]:
    return sorted((await room.topic()).subscriptions)


@pytest.mark.broker(subscription_expiration_minutes=10, keep_alive_interval_s=10**6)
async def test_a_subscription_without_consumers_expires(room: Room) -> None:
    peer = await published(room)
    peer.close_consumer(1)
    await peer.expect(pb.BaseCommand.SUCCESS)
    await trio.sleep(9 * 60)
    await room.broker.expiring.check_subscriptions()
    assert await names(room) == ["a", "b"]
    await trio.sleep(2 * 60)
    await room.broker.expiring.check_subscriptions()
    assert await names(room) == ["b"]
    folder = "/managed-ledgers/public/default/persistent/orders"
    assert await room.cluster.stores[0].children(folder) == ["b"]


@pytest.mark.broker(subscription_expiration_minutes=10, keep_alive_interval_s=10**6)
async def test_a_namespace_may_keep_subscriptions_for_another_time(room: Room) -> None:
    await set_policy(room, POLICIES, b'{"subscription_expiration_time_minutes":30}')
    peer = await published(room)
    await peer.closed_by_us()
    await trio.sleep(20 * 60)
    await room.broker.expiring.check_subscriptions()
    assert await names(room) == ["a", "b"]
    await trio.sleep(11 * 60)
    await room.broker.expiring.check_subscriptions()
    assert await names(room) == []


@pytest.mark.broker(subscription_expiration_minutes=10, keep_alive_interval_s=10**6)
async def test_use_is_stored_so_that_a_crash_does_not_make_a_subscription_look_forgotten(room: Room) -> None:
    await published(room)
    stored = []
    for _ in range(4):
        await trio.sleep(4 * 60)
        await room.broker.expiring.check_subscriptions()
        node = await node_at(room.cluster.stores[0], "/managed-ledgers/public/default/persistent/orders/a")
        stored.append(now_ms(room) - decode_node(node.value)[0].last_active_ms)
    assert max(stored) <= 9 * 60_000
    assert await names(room) == ["a", "b"]
