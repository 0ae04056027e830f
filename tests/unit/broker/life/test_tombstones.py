"""A topic that was deleted by force stays deleted while its clients reconnect."""

from __future__ import annotations

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import C
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAME = TopicName.parse(TOPIC)


async def deleted(room: Room) -> tuple[Peer, str]:
    """Return a client with a producer, and its name, and a consumer, of a topic that was deleted."""
    peer = await room.connect()
    name = await peer.producer()
    await peer.subscribe(consumer_name="c")
    await room.broker.administration.delete_topic(NAME, force=True)
    await peer.expect(C.CLOSE_PRODUCER)
    await peer.expect(C.CLOSE_CONSUMER)
    return peer, name


async def test_those_who_reconnect_do_not_make_it_again_for_some_time() -> None:
    async with in_broker(keep_alive_interval_s=10**6) as room:
        peer, name = await deleted(room)
        for _ in range(3):
            await trio.sleep(100)  # each attempt counts
            peer.ask_producer(producer_name=name, epoch=1)
            assert (await peer.error())[0] == pb.TopicNotFound
            peer.ask_subscribe(consumer_name="c")
            assert (await peer.error())[0] == pb.TopicNotFound
            assert not await room.broker.topics.exists(NAME)
        await trio.sleep(121)
        await peer.producer(producer_name=name, epoch=2)


async def test_anyone_else_may_and_then_they_may_use_it(room: Room) -> None:
    peer, name = await deleted(room)
    await peer.producer(producer_id=2, producer_name=name)  # a new one of that name: its epoch is 0
    await peer.producer(producer_id=3)
    await peer.subscribe(consumer_id=2, consumer_name="c")
    peer.close_consumer(2)
    await peer.expect(C.SUCCESS)
    await peer.subscribe(consumer_name="c")


async def test_without_a_time_they_make_it_again() -> None:
    async with in_broker(tombstone_s=0) as room:
        peer, name = await deleted(room)
        await peer.producer(producer_name=name, epoch=1)
        await peer.subscribe(consumer_name="c")
