"""Sends and receipts: order, failures, closing."""

from __future__ import annotations

import trio

from quire.ledger.errors import LedgerError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import C, entry
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room


async def test_receipts_carry_the_sequence_ids_in_order_and_growing_positions(peer: Peer) -> None:
    await peer.producer()
    for number in range(25):  # in ledgers of ten entries
        peer.send_message(b"x", 100 + number)
    receipts = [(await peer.expect(C.SEND_RECEIPT)).send_receipt for _ in range(25)]
    assert [receipt.sequence_id for receipt in receipts] == list(range(100, 125))
    places = [(receipt.message_id.ledgerId, receipt.message_id.entryId) for receipt in receipts]
    assert places == sorted(set(places))


async def test_what_is_durable_is_delivered_at_once_to_consumers_of_every_type(room: Room) -> None:
    sender, receiver = await room.connect(), await room.connect()
    await sender.producer()
    kinds = pb.CommandSubscribe.SubType.values()
    for consumer_id, kind in enumerate(kinds, 1):
        await receiver.subscribe(name=f"s{consumer_id}", consumer_id=consumer_id, subType=kind)
        if kind == pb.CommandSubscribe.Failover:
            await receiver.expect(C.ACTIVE_CONSUMER_CHANGE)
        receiver.flow(10, consumer_id)
    await sender.publish(b"first")
    assert await receiver.payloads(len(kinds)) == [b"first"] * len(kinds)
    before = trio.current_time()
    await sender.publish(b"second", first=1)
    assert await receiver.payloads(len(kinds)) == [b"second"] * len(kinds)
    assert trio.current_time() - before < 0.05


async def test_closing_a_producer_is_answered_behind_the_receipts_of_what_was_on_its_way(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.publish(b"first")
    room.cluster.ledgers.hold_appends()
    for number in range(3):
        peer.send_message(b"late", 1 + number)
    peer.close_producer()
    peer.send_message(b"ignored", 9)
    assert await peer.silent()
    room.cluster.ledgers.release()
    assert [(await peer.expect(C.SEND_RECEIPT)).send_receipt.sequence_id for _ in range(3)] == [1, 2, 3]
    await peer.expect(C.SUCCESS)
    assert await peer.silent()
    await peer.producer()  # the id may be used again


async def test_a_bad_checksum_is_told_behind_the_receipts_of_earlier_sends(peer: Peer) -> None:
    await peer.producer()
    broken = bytearray(entry(b"broken", sequence_id=1))
    broken[-1] ^= 1
    peer.send_message(b"good", 0)
    peer.send_entry(bytes(broken), 1)
    peer.send_message(b"good", 2)
    answers = [(await peer.receive())[0] for _ in range(3)]
    assert [answer.type for answer in answers].count(C.SEND_RECEIPT) == 2
    assert answers[0].send_receipt.sequence_id == 0
    error = next(answer.send_error for answer in answers if answer.type == C.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, pb.ChecksumError)


async def test_a_bad_checksum_of_an_unknown_producer_closes_the_connection(peer: Peer) -> None:
    broken = bytearray(entry(b"broken"))
    broken[-1] ^= 1
    peer.send_entry(bytes(broken), producer_id=7)
    await peer.closed()


async def test_a_failed_append_is_told_and_nothing_is_stored_before_the_client_has_reconnected(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.publish(b"m0")
    ledgers = room.cluster.ledgers
    ledgers.hold = True
    for writer in ledgers.writers.values():
        writer.held = True
    ledgers.failures["create"] = [LedgerError("no bookies")] * 1000
    peer.send_message(b"m1", 1)
    await until(lambda: any(writer.last_pushed == 1 for writer in ledgers.writers.values()))
    for writer in list(ledgers.writers.values()):
        writer.fail(LedgerError("disk full"))
    answer = await peer.expect(C.SEND_ERROR)
    assert (answer.send_error.sequence_id, answer.send_error.error) == (1, pb.PersistenceError)
    peer.send_message(b"m2", 2)  # sent before the client received it
    await peer.expect(C.CLOSE_PRODUCER)
    ledgers.failures.clear()
    ledgers.release()
    assert await peer.silent()
    await peer.producer()
    await peer.publish(b"m1", b"m2", first=1)
    await peer.subscribe(permits=10)
    assert await peer.payloads(3) == [b"m0", b"m1", b"m2"]


async def test_the_bytes_on_their_way_are_counted_down_again(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.publish(*[b"x" * 100] * 30)
    assert room.broker.context.publishing.bytes == 0
    [connection] = room.broker.connections
    assert connection.sends_in_flight == 0


async def test_a_name_is_taken_over_only_from_a_dead_connection(room: Room) -> None:
    first, second = await room.connect(), await room.connect()
    await first.producer(producer_name="p")
    second.ask_producer(producer_name="p")
    while True:  # the holder is probed, and answers
        await first.silent(0.5)
        if first.pings:
            break
    assert (await second.error())[0] == pb.ProducerBusy
    assert await first.refused_producer(producer_id=2, producer_name="p") == pb.ProducerBusy
    first.dead = True
    assert await second.producer(producer_name="p") == "p"
    assert first.stream.closed
    topic = await room.topic(TOPIC)
    assert list(topic.producers) == ["p"]


async def test_from_a_failed_append_on_sends_are_ignored_until_the_producer_is_back(room: Room, peer: Peer) -> None:
    await peer.producer()
    [connection] = room.broker.connections
    topic = await room.topic()
    topic.publish_failed(LedgerError("disk full"))
    assert not connection.producers  # in the same step: the next sends must not be stored after the gap
    assert not topic.producers
    peer.send_message(b"behind the gap")
    await peer.expect(C.CLOSE_PRODUCER)
    assert await peer.silent()
    assert not peer.stream.closed
