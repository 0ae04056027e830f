"""Producers that want a topic for themselves, through the commands of their clients."""

from __future__ import annotations

from typing import Any

import trio

from managed_ledger.ledger_list import decode
from managed_ledger.stored_list import log_path
from quire.metadata.errors import MetadataUnavailableError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.nodes import node_at
from tests.support.pulsar_frames import C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room

ALONE: dict[str, Any] = {"producer_access_mode": pb.Exclusive}
FENCING: dict[str, Any] = {"producer_access_mode": pb.ExclusiveWithFencing}
WAITING: dict[str, Any] = {"producer_access_mode": pb.WaitForExclusive}


async def added(peer: Peer, **options: Any) -> pb.CommandProducerSuccess:
    peer.ask_producer(**options)
    return await success(peer)


async def success(peer: Peer) -> pb.CommandProducerSuccess:
    found = (await peer.expect(C.PRODUCER_SUCCESS)).producer_success
    assert found.producer_ready
    return found


async def queued(peer: Peer, **options: Any) -> None:
    peer.ask_producer(**{**WAITING, **options})
    found = (await peer.expect(C.PRODUCER_SUCCESS)).producer_success
    assert not found.producer_ready
    assert not found.HasField("topic_epoch")


async def refusal(peer: Peer, *alive: Peer, **options: Any) -> pb.ServerError:
    """Return the error of a PRODUCER, while the clients in `alive` answer PINGs."""
    async with trio.open_nursery() as nursery:
        for each in alive:
            nursery.start_soon(each.silent, 600)
        peer.ask_producer(**options)
        code, _ = await peer.error()
        nursery.cancel_scope.cancel()
    return code


async def stored_epoch(room: Room) -> str | None:
    node = await node_at(room.cluster.stores[0], log_path(TopicName.parse(TOPIC).managed_ledger_path))
    return dict(decode(node.value).properties).get("pulsar.topic.epoch")


async def unload(room: Room) -> None:
    topic = await room.topic()
    room.broker.topics.close_soon(topic)
    await until(lambda: not room.broker.topics.loaded())


async def test_an_exclusive_producer_keeps_others_out_until_it_is_closed(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    assert (await added(peer, **ALONE)).topic_epoch == 0
    assert await stored_epoch(room) == "0"
    assert await refusal(other, peer, **ALONE) == pb.ProducerFenced
    assert await refusal(other, peer) == pb.ProducerBusy
    await peer.publish(b"mine")
    await peer.end_producer()
    assert (await added(other, **ALONE)).topic_epoch == 1
    await other.publish(b"mine now")


async def test_a_topic_that_is_shared_has_no_exclusive_producer(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    assert not (await added(peer)).HasField("topic_epoch")
    assert await refusal(other, peer, **ALONE) == pb.ProducerFenced
    await added(other, producer_id=2)


async def test_an_exclusive_producer_is_taken_over_only_from_a_dead_connection(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    await added(peer, **ALONE)
    peer.dead = True
    assert (await added(other, producer_id=2, **ALONE)).topic_epoch == 1
    assert peer.stream.closed


async def test_a_shared_producer_takes_a_topic_over_from_a_dead_exclusive_one(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    await added(peer, **ALONE)
    peer.dead = True
    await added(other, producer_id=2)


async def test_a_producer_that_fences_gives_the_others_their_receipts_and_ends_them(room: Room) -> None:
    peer, other, waiting = await room.connect(), await room.connect(), await room.connect()
    await added(peer, producer_name="first", **ALONE)
    await queued(waiting, producer_name="second")
    for writer in room.cluster.ledgers.writers.values():
        writer.held = True
    peer.send_message(b"on its way", 0)
    topic = await room.topic()
    await until(lambda: topic.ledger.pending_bytes)
    other.ask_producer(producer_name="third", **FENCING)
    assert (await waiting.error())[0] == pb.ProducerFenced
    assert await peer.silent(0.5)
    room.cluster.ledgers.release()
    assert (await success(other)).topic_epoch == 1
    assert (await peer.expect(C.SEND_RECEIPT)).send_receipt.sequence_id == 0
    await peer.expect(C.CLOSE_PRODUCER)
    peer.send_message(b"too late", 1)
    assert await refusal(peer, producer_id=2, producer_name="first", topic_epoch=0, **ALONE) == pb.ProducerFenced
    # Nor does an outdated one that fences fence the one that has the topic.
    assert await refusal(peer, producer_id=3, producer_name="first", topic_epoch=0, **FENCING) == pb.ProducerFenced
    await other.publish(b"mine")
    assert room.broker.topics.loaded()[0].entries_in == 2


async def test_producers_that_wait_have_their_turns_in_order(room: Room) -> None:
    peers = [await room.connect() for _ in range(4)]
    assert (await added(peers[0], **WAITING)).topic_epoch == 0
    for peer in peers[1:]:
        await queued(peer)
    assert await refusal(await room.connect(), peers[0]) == pb.ProducerBusy
    await peers[2].closed_by_us()
    for number, peer in enumerate([peers[0], peers[1]]):
        await peer.end_producer()
        following = peers[1] if number == 0 else peers[3]
        assert (await success(following)).topic_epoch == number + 1
        await following.publish(b"my turn")


async def test_a_waiting_producer_has_its_turn_when_the_last_shared_one_is_gone(room: Room) -> None:
    peer, waiting = await room.connect(), await room.connect()
    await added(peer)
    await added(peer, producer_id=2)
    await queued(waiting)
    await peer.end_producer(1)
    assert await waiting.silent(0.5)
    await peer.closed_by_us()
    await success(waiting)


async def test_a_client_may_close_a_producer_that_waits(room: Room) -> None:
    peer, waiting, last = await room.connect(), await room.connect(), await room.connect()
    await added(peer, **ALONE)
    await queued(waiting)
    await queued(last)
    waiting.close_producer()
    kinds = {(await waiting.receive())[0].type for _ in range(2)}
    assert kinds == {C.SUCCESS, C.ERROR}
    [topic] = room.broker.topics.loaded()
    assert topic.access is not None
    assert len(topic.access.waiting) == 1
    await peer.closed_by_us()
    await success(last)


async def test_waiting_producers_do_not_count_as_requests_under_way(room: Room) -> None:
    peer, waiting = await room.connect(), await room.connect()
    await added(peer, **ALONE)
    for number in range(5):
        await queued(waiting, producer_id=number)
    [connection] = [each for each in room.broker.connections if each.creating]
    assert connection.requests_in_flight == 0
    await waiting.closed_by_us()
    await until(lambda: connection.requests_in_flight == 0)


async def test_a_producer_returns_with_its_epoch_after_unload(room: Room, peer: Peer) -> None:
    assert (await added(peer, producer_name="p", **ALONE)).topic_epoch == 0
    await unload(room)
    await peer.expect(C.CLOSE_PRODUCER)
    assert (await added(peer, producer_name="p", topic_epoch=0, **ALONE)).topic_epoch == 0
    await peer.publish(b"still mine")


async def test_a_producer_that_another_one_followed_meanwhile_is_fenced(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    await added(peer, producer_name="p", **ALONE)
    await unload(room)
    await peer.expect(C.CLOSE_PRODUCER)
    assert (await added(other, producer_name="q", **ALONE)).topic_epoch == 1
    await other.closed_by_us()
    await unload(room)
    for mode in (ALONE, WAITING, FENCING):
        assert await refusal(peer, producer_name="p", topic_epoch=0, **mode) == pb.ProducerFenced


async def test_an_unload_refuses_who_waits_and_uses_no_epoch_for_it(room: Room) -> None:
    peer, waiting = await room.connect(), await room.connect()
    await added(peer, producer_name="p", **ALONE)
    await queued(waiting)
    await unload(room)
    assert (await waiting.error())[0] == pb.ServiceNotReady
    await peer.expect(C.CLOSE_PRODUCER)
    assert await stored_epoch(room) == "0"
    assert (await added(peer, producer_name="p", topic_epoch=0, **ALONE)).topic_epoch == 0
    await queued(waiting)


async def test_a_reconnected_producer_keeps_its_place_before_those_that_wait(room: Room) -> None:
    peer, waiting = await room.connect(), await room.connect()
    await added(peer, producer_name="p", **ALONE)
    await queued(waiting)
    again = await room.connect()
    peer.dead = True
    again.ask_producer(producer_name="p", topic_epoch=0, **ALONE)
    # Its old connection is found dead, and with its end the topic is the waiting one's.
    assert (await success(waiting)).topic_epoch == 1
    assert (await again.error())[0] == pb.ProducerFenced
    # On the same connection it takes its own place.
    waiting.ask_producer(producer_name="q", epoch=1, **ALONE)
    assert (await success(waiting)).topic_epoch == 1


async def test_a_topic_whose_epoch_cannot_be_stored_is_not_taken(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.end_producer()

    async def away() -> None:
        raise MetadataUnavailableError("away")

    store = room.cluster.stores[0]
    store.point = away
    assert await refusal(peer, **ALONE) == pb.ServiceNotReady
    store.point = None
    assert (await added(peer, **ALONE)).topic_epoch == 0
    await peer.publish(b"mine")


async def test_the_epoch_of_a_topic_that_was_deleted_begins_again(room: Room, peer: Peer) -> None:
    await added(peer, producer_name="p", **ALONE)
    await room.broker.topics.delete(TopicName.parse(TOPIC), force=True)
    await peer.expect(C.CLOSE_PRODUCER)
    assert (await added(peer, producer_name="p", topic_epoch=7, **ALONE)).topic_epoch == 7
    await peer.publish(b"first of the new topic")
