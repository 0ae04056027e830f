"""A topic that was deleted by force stays deleted while its clients reconnect."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from broker.server import Broker
from broker.topics.life import tombstones as module
from broker.topics.life.tombstones import decode, node_of
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import C
from tests.unit.broker.peers import OPTIONS, TOPIC, Peer, Room, in_broker
from tests.unit.managed_ledger.fake_ledgers import fake_world

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


async def test_it_stays_deleted_for_the_next_broker_too(room: Room) -> None:
    _, name = await deleted(room)
    async with room.cluster.broker() as factory, trio.open_nursery() as nursery:
        broker = Broker(fake_world(), room.broker.metadata, factory, OPTIONS, nursery, service_url="pulsar://next:6650")
        broker.start()
        await nursery.start(broker.policies.run)
        other = Room(broker, room.cluster, factory, nursery)
        again = await other.connect()
        again.ask_producer(producer_name=name, epoch=1)
        assert (await again.error())[0] == pb.TopicNotFound
        again.ask_subscribe(consumer_name="c")
        assert (await again.error())[0] == pb.TopicNotFound
        await again.producer(producer_id=3)  # anyone else may
        nursery.cancel_scope.cancel()


async def test_attempts_are_stored_and_what_is_over_is_swept(room: Room) -> None:
    await deleted(room)
    tombstones, metadata = room.broker.topics.first_use.tombstones, room.broker.metadata
    path = node_of(NAME.full)
    first = await metadata.get(path)
    assert first is not None
    request = pb.CommandSubscribe(subscription="s", consumer_name="c", consumer_id=1)
    found = decode(first.value)
    request.subscription = next(iter(found.consumers))[0]
    await trio.sleep(50)
    assert await tombstones.knows_consumer(NAME.full, request, loaded=False)
    unchanged = await metadata.get(path)
    assert unchanged is not None
    assert unchanged.version == first.version  # not with each attempt
    await trio.sleep(50)
    assert await tombstones.knows_consumer(NAME.full, request, loaded=False)
    later = await metadata.get(path)
    assert later is not None
    assert decode(later.value).until_ms >= found.until_ms + 99_000
    await tombstones.sweep()
    assert await metadata.get(path) is not None
    await trio.sleep(300)
    await tombstones.sweep()
    assert await metadata.get(path) is None


async def test_memory_is_bounded_over_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES_MAX", 5)
    async with in_broker() as room:
        tombstones = room.broker.topics.first_use.tombstones
        for number in range(4):
            topic = SimpleNamespace(name=TopicName.parse(f"{TOPIC}{number}"), producers=["a", "b"], subscriptions={})
            await tombstones.bury(topic)
        kept = [number for number in range(4) if tombstones.has(f"{TOPIC}{number}")]
        assert kept == [2, 3]
        # One that was let go is found again where it is stored.
        request = pb.CommandProducer(producer_name="a", epoch=1)
        assert await tombstones.knows_producer(f"{TOPIC}0", request, loaded=False)
