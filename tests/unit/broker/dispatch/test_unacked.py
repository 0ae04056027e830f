"""The common bound of the unacknowledged messages of a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.dispatch.unacked import BrokerUnacked
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.broker.peers import Peer, Room, in_broker

HELD = "persistent://public/default/held"
SMALL = "persistent://public/default/small"


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(unacked_messages_per_broker_max=100, unacked_share_when_over=0.2) as room:
        yield room


def test_the_share_of_a_subscription_counts_only_while_the_bound_is_reached() -> None:
    woken: list[object] = []
    unacked = BrokerUnacked(100, 0.2, woken.append)
    big, small = (lambda: None), (lambda: None)
    assert not unacked.count(big, 0, 99)
    assert unacked.count(big, 99, 100)
    assert not unacked.count(small, 0, 20)
    assert unacked.count(small, 20, 21)
    assert unacked.count(small, 21, 10)
    assert not unacked.count(small, 10, 9)
    assert unacked.count(big, 100, 41)  # 50 in all
    assert not unacked.count(big, 41, 40)
    assert (unacked.messages, unacked.held, unacked.is_over, woken) == (49, 0, False, [big])


def unacked_of(room: Room) -> BrokerUnacked:
    found = room.broker.context.unacked
    assert found is not None
    return found


async def consumer_of(room: Room, topic: str, count: int, kind: int) -> Peer:
    peer = await room.connect()
    await peer.subscribe(topic, subType=kind)
    await peer.producer(topic)
    await peer.publish(*[b"%d" % number for number in range(count)])
    peer.flow(1000)
    return peer


@pytest.mark.parametrize("kind", [pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared])
async def test_a_subscription_that_holds_most_of_the_bound_waits_and_others_do_not(kind: int, room: Room) -> None:
    big = await consumer_of(room, HELD, 150, kind)
    first = [(await big.message())[0].message_id for _ in range(100)]
    assert await big.silent()
    [held] = (await room.topic(HELD)).subscriptions.values()
    assert held.is_blocked
    small = await consumer_of(room, SMALL, 10, kind)
    assert len(await small.payloads(10)) == 10
    big.ack(*first[:50])  # 60 of 100 are left
    assert await big.silent()
    assert unacked_of(room).messages == 60
    big.ack(*first[50:60])
    assert await big.silent()
    big.ack(first[60])
    rest = [(await big.message())[0].message_id for _ in range(50)]
    assert not held.is_blocked
    big.ack(*rest)


async def test_what_others_acknowledge_and_leave_behind_lets_a_subscription_go_on(room: Room) -> None:
    big = await consumer_of(room, HELD, 60, pb.CommandSubscribe.Shared)
    await big.payloads(60)
    other = await consumer_of(room, SMALL, 60, pb.CommandSubscribe.Shared)
    ids = [(await other.message())[0].message_id for _ in range(40)]
    await big.producer(HELD, producer_id=2)
    big.send_message(b"more", 0, producer_id=2)
    assert (await big.receive())[0].type == pb.BaseCommand.SEND_RECEIPT
    assert await big.silent()
    assert ids
    await other.closed_by_us()  # what it held is not counted any more
    assert unacked_of(room).messages <= 61
    big.redeliver()
    assert len(await big.payloads(61)) == 61


async def test_a_topic_that_is_closed_holds_nothing(room: Room) -> None:
    big = await consumer_of(room, HELD, 150, pb.CommandSubscribe.Shared)
    await big.payloads(100)
    await room.broker.topics.delete((await room.topic(HELD)).name, force=True)
    assert unacked_of(room).messages == 0
    assert not unacked_of(room).is_over
