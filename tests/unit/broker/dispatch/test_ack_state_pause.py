"""Shared and Key_Shared subscriptions that are given nothing new while their acknowledgements have too many holes.

Covers `LimitedSubscription.keeps_new_back`, `ManyConsumers._pump`, `Cursor.is_storable`.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.dispatch import moving
from broker.dispatch.filtering import FilteringSubscription
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB
from tests.support.waiting import until
from tests.unit.broker.explain.asking import ask
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAME = TopicName.parse(TOPIC)
POLICY = "dispatcherPauseOnAckStatePersistentEnabled"
RANGES_MAX = 2
NONE_STORED: dict[str, Any] = {"cursors": {"ranges_max": 0}}
MANY = [SUB.Shared, SUB.Key_Shared]


async def subscription_of(room: Room) -> FilteringSubscription:
    subscription = (await room.topic()).subscriptions["s"]
    assert isinstance(subscription, FilteringSubscription)
    return subscription


async def with_holes(room: Room, kind: Any, holes: int, **options: Any) -> tuple[Peer, list[pb.MessageIdData]]:
    """Return a client that has received twice so many messages and acknowledged every other one, and the ids."""
    peer = await room.connect()
    await peer.subscribe(subType=kind, consumer_name="c", **options)
    await peer.producer()
    await peer.publish(*[b"%d" % number for number in range(2 * holes)])
    peer.flow(100)
    ids = [(await peer.message())[0].message_id for _ in range(2 * holes)]
    peer.ack(*ids[1::2])
    cursor = (await subscription_of(room)).cursor
    await until(lambda: cursor.range_count == holes)
    return peer, ids


async def obey(room: Room, **policies: Any) -> None:
    subscription = await subscription_of(room)
    before = subscription.rules
    await room.broker.policies.update(NAME, lambda own: {**own, **policies})
    await until(lambda: subscription.rules is not before)


@pytest.mark.parametrize("kind", MANY)
async def test_nothing_new_is_delivered_above_the_ranges_that_are_stored_until_there_are_fewer(kind: Any) -> None:
    async with in_broker(log={"cursors": {"ranges_max": RANGES_MAX}}, pause_on_ack_state=True) as room:
        peer, ids = await with_holes(room, kind, RANGES_MAX)
        await peer.publish(b"a", first=10)
        assert (await peer.message())[1] == b"a", "so many are stored"
        peer.ack(*(await ids_of(peer, room, b"b", b"c"))[1:])
        await peer.publish(b"d", first=20)
        await peer.silent()
        found = await ask(room)
        assert (found["cause"], found["state"]) == ("ack-state-full", "blocked")
        assert (found["details"]["ranges"], found["details"]["ranges_max"]) == (RANGES_MAX + 1, RANGES_MAX)
        assert (found["details"]["consumer"], found["details"]["held"]) == ("c", 4)
        assert found["details"]["last_stop"] == "it had more ranges of acknowledged entries than are to be stored"
        peer.ack(ids[2])  # closes a hole: two ranges are left
        assert (await peer.message())[1] == b"d"


async def ids_of(peer: Peer, room: Room, *payloads: bytes) -> list[pb.MessageIdData]:
    """Publish, and return the ids of what is delivered."""
    await peer.publish(*payloads, first=12)
    return [(await peer.message())[0].message_id for _ in payloads]


@pytest.mark.parametrize("kind", MANY)
async def test_what_was_delivered_is_delivered_again_meanwhile(kind: Any) -> None:
    async with in_broker(log=NONE_STORED, pause_on_ack_state=True) as room:
        peer, ids = await with_holes(room, kind, 2)
        await peer.publish(b"new", first=10)
        await peer.silent()
        peer.redeliver()
        assert [(await peer.message())[0].message_id for _ in range(2)] == ids[::2]
        await peer.silent()
        peer.ack(*ids[::2])
        assert (await peer.message())[1] == b"new"


@pytest.mark.parametrize(("kind", "durable"), [(SUB.Exclusive, True), (SUB.Shared, False)])
async def test_other_subscriptions_are_not_paused(kind: Any, durable: bool) -> None:
    async with in_broker(log=NONE_STORED, pause_on_ack_state=kind == SUB.Exclusive or not durable) as room:
        peer, _ = await with_holes(room, kind, 2, durable=durable)
        await peer.publish(b"new", first=10)
        assert (await peer.message())[1] == b"new"


async def test_a_topic_is_paused_and_goes_on_as_its_policy_is_changed() -> None:
    async with in_broker(log=NONE_STORED) as room:
        peer, _ = await with_holes(room, SUB.Shared, 2)
        await obey(room, **{POLICY: True})
        await peer.publish(b"new", first=10)
        await peer.silent()
        await obey(room, **{POLICY: False})
        assert (await peer.message())[1] == b"new"


async def test_it_goes_on_when_the_entries_before_the_holes_expire() -> None:
    async with in_broker(log=NONE_STORED, pause_on_ack_state=True) as room:
        peer, ids = await with_holes(room, SUB.Shared, 2)
        await peer.publish(b"new", first=10)
        await peer.silent()
        await moving.expire_through(await subscription_of(room), Position(ids[2].ledgerId, ids[2].entryId))
        assert (await peer.message())[1] == b"new"
