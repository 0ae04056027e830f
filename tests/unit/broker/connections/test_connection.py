"""Life of a connection: the handshake's deadline, pings, back-pressure, and the state after its end."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from broker.connections.bounds import CLOSED_PRODUCERS_MAX
from broker.output import SHARE_MIN
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.receive_buffer import CHUNK_SIZE, IDLE_SIZE
from tests.support.pulsar_frames import SUB, C, entry, frame
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, FakeStream, Peer, Room, in_broker


@pytest.mark.broker(handshake_timeout_s=10.0)
async def test_who_does_not_say_connect_in_time_is_dropped_whatever_else_it_sends(room: Room) -> None:
    peer = room.open()
    for byte in bytes((0, 0, 1, 0, 0, 0, 0, 9)):
        await trio.sleep(1)
        peer.stream.arrive(bytes((byte,)))  # a frame that is never complete
    assert not peer.stream.closed
    await trio.sleep(7)
    assert peer.stream.closed
    assert not room.broker.connections


async def test_a_silent_peer_is_pinged_and_dropped_and_one_that_answers_stays(room: Room) -> None:
    alive, dead = await room.connect(), await room.connect()
    dead.dead = True
    await alive.silent(100)
    assert alive.pings >= 2
    assert not alive.stream.closed
    assert dead.stream.closed


@pytest.mark.broker(pending_sends_max=4)
async def test_a_peer_that_is_not_read_because_storage_is_slow_is_not_taken_for_dead(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    await peer.producer(producer_name="p")
    await peer.publish(b"first")
    room.cluster.ledgers.hold_appends()
    for number in range(1, 8):
        peer.send_message(b"x", number)
        await trio.sleep(0.01)
    await other.silent(200)
    assert not peer.stream.closed
    assert await other.refused_producer(producer_name="p") == pb.ProducerBusy
    room.cluster.ledgers.release()
    assert [(await peer.expect(C.SEND_RECEIPT)).send_receipt.sequence_id for _ in range(7)] == list(range(1, 8))


@pytest.mark.broker(pending_sends_max=4)
async def test_reading_stops_while_too_many_sends_are_unanswered(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.publish(b"first")
    room.cluster.ledgers.hold_appends()
    for number in range(1, 50):
        peer.send_message(b"x", number)
        await trio.sleep(0.01)
    [connection] = room.broker.connections
    assert connection.sends_in_flight <= 6
    room.cluster.ledgers.release()
    for _ in range(49):
        await peer.expect(C.SEND_RECEIPT)
    assert connection.sends_in_flight == 0


async def test_asked_for_ack_answers_count_as_requests_until_they_are_given(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.subscribe()
    [first] = await peer.publish(b"m0")
    [connection] = [each for each in room.broker.connections if each.consumers]
    room.cluster.ledgers.delay_s = 5
    peer.ack(first, request_id=77)
    await until(lambda: connection.requests_in_flight == 1)
    assert (await peer.expect(C.ACK_RESPONSE)).ackResponse.request_id == 77
    assert connection.requests_in_flight == 0


async def test_closed_producers_are_remembered_within_bounds(room: Room, peer: Peer) -> None:
    await peer.producer()
    [connection] = room.broker.connections
    producer = connection.producers[1]
    for number in range(CLOSED_PRODUCERS_MAX + 100):
        producer.producer_id = number
        connection.producers[number] = producer
        connection.producer_closed(producer)
    assert len(connection.closed_producers) == CLOSED_PRODUCERS_MAX
    assert CLOSED_PRODUCERS_MAX + 99 in connection.closed_producers


@pytest.mark.broker(connection_out_bytes_max=100000, read_batch_bytes_max=100000)
async def test_a_slow_reader_is_not_sent_more_than_the_bound_and_gets_the_rest_when_it_reads_again(room: Room) -> None:
    for kind in (SUB.Shared, SUB.Exclusive):
        topic = f"{TOPIC}-{kind}"
        writer, reader = await room.connect(), await room.connect()
        await writer.producer(topic)
        await reader.subscribe(topic, subType=kind)
        await writer.publish(*[b"x" * 10_000] * 200)
        [connection] = [each for each in room.broker.connections if each.consumers]
        reader.stream.window = 0
        reader.flow(1000)
        await trio.sleep(10)
        assert not reader.stream.closed
        assert connection._outbox.pending_bytes < 350_000
        reader.stream.open_window()
        assert len(await reader.payloads(200)) == 200
        await reader.closed_by_us()


async def test_when_a_connection_goes_everything_of_it_goes(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.subscribe(consumer_id=1, name="shared", subType=SUB.Shared)
    await peer.subscribe(consumer_id=2, name="reader", durable=False)
    topic = await room.topic()
    await peer.closed_by_us()
    assert not topic.producers
    assert list(topic.subscriptions) == ["shared"]
    assert not topic.subscriptions["shared"].consumers
    assert not topic.ledger.reader_cursors
    assert not topic.subscriptions["shared"].cursor.active


async def test_consumers_of_a_dead_connection_do_not_pass_their_messages_on_to_each_other(room: Room) -> None:
    """Each time would count as one more redelivery, and after a few of them the message is a dead letter."""
    peer, other = await room.connect(), await room.connect()
    await peer.producer()
    for consumer_id in (1, 2, 3):
        await peer.subscribe(consumer_id=consumer_id, subType=SUB.Shared, permits=100)
    for number in range(2):
        peer.send_message(b"m%d" % number, number)
    kinds = [(await peer.receive())[0].type for _ in range(4)]
    assert sorted(kinds) == sorted([C.SEND_RECEIPT, C.MESSAGE] * 2)
    await other.subscribe(subType=SUB.Shared)
    await peer.closed_by_us()
    other.flow(10)
    again = [(await other.message())[0].redelivery_count for _ in range(2)]
    assert again == [1, 1]


async def test_above_the_limit_a_connection_gets_a_last_word(room: Room) -> None:
    stream = FakeStream()
    room.broker.refuse(stream)
    error = (await Peer(stream).expect(C.ERROR)).error
    assert error.error == pb.NotAllowedError


async def test_every_request_that_is_not_served_is_answered_with_its_request_id(peer: Peer) -> None:
    served = {
        "CONNECT", "CONNECTED", "SUBSCRIBE", "PRODUCER", "SEND", "ACK", "FLOW", "UNSUBSCRIBE", "PING", "PONG",
        "CLOSE_PRODUCER", "CLOSE_CONSUMER", "REDELIVER_UNACKNOWLEDGED_MESSAGES", "PARTITIONED_METADATA", "LOOKUP",
        "SEEK", "GET_LAST_MESSAGE_ID",
    }  # fmt: skip
    asked = 0
    for value in pb.BaseCommand.Type.DESCRIPTOR.values:
        field = pb.BaseCommand.DESCRIPTOR.fields_by_number.get(value.number)
        if value.name in served or field is None:
            continue
        command = pb.BaseCommand(type=value.name)
        body = getattr(command, field.name)
        body.SetInParent()
        for each in body.DESCRIPTOR.fields:
            if each.is_required:
                if each.message_type is not None:
                    getattr(body, each.name).SetInParent()
                elif each.cpp_type == each.CPPTYPE_STRING:
                    setattr(body, each.name, "x" if each.type == each.TYPE_STRING else b"x")
                else:
                    setattr(body, each.name, 7 if each.enum_type is None else each.enum_type.values[0].number)
        if "request_id" in body.DESCRIPTOR.fields_by_name and not value.name.endswith(("RESPONSE", "SUCCESS")):
            body.request_id = 7
            if not command.IsInitialized():
                continue
            peer.send(command)
            answer, _ = await peer.receive()
            [reply] = [part for each, part in answer.ListFields() if each.name != "type"]
            assert reply.request_id == 7, value.name
            asked += 1
    assert asked >= 10


async def test_an_idle_connection_gives_back_the_buffer_of_busier_times_and_loses_nothing_of_what_is_half_there(
    room: Room, peer: Peer
) -> None:
    await peer.producer()
    [connection] = room.broker.connections
    buffer = connection._buffer
    assert buffer.size == IDLE_SIZE
    sends = [frame_of_send(b"x" * 1000, number) for number in range(400)]
    peer.stream.arrive(b"".join(sends[:-1]) + sends[-1][:700])
    await until(lambda: connection.sends_in_flight == 0 and buffer.buffered > 0)
    assert buffer.size == CHUNK_SIZE
    assert await receipts(peer, 399) == list(range(399))
    await peer.silent(25)
    assert buffer.size == IDLE_SIZE
    peer.stream.arrive(sends[-1][700:])
    assert await receipts(peer, 1) == [399]


async def test_an_idle_connection_is_one_task_and_one_with_a_slow_peer_gets_what_it_needs(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    [connection] = room.broker.connections
    assert len(connection.nursery.child_tasks) == 0
    await peer.subscribe()
    peer.stream.window = 1
    await_publish = [frame_of_send(b"y" * 100, number) for number in range(50)]
    peer.stream.arrive(b"".join(await_publish))
    await until(lambda: connection._outbox.pending_bytes > 0)
    assert {task.name for task in connection.nursery.child_tasks} == {"connection output"}
    peer.stream.open_window()
    assert await receipts(peer, 50) == list(range(50))
    assert len(connection.nursery.child_tasks) == 0


def frame_of_send(payload: bytes, sequence_id: int) -> bytes:
    command = C(type=C.SEND, send=pb.CommandSend(producer_id=1, sequence_id=sequence_id, num_messages=1))
    return frame(command, entry(payload, sequence_id=sequence_id))


async def receipts(peer: Peer, count: int) -> list[int]:
    return [(await peer.expect(C.SEND_RECEIPT)).send_receipt.sequence_id for _ in range(count)]


@pytest.mark.broker(publish_buffer_bytes_max=2000)
async def test_a_full_publish_buffer_stops_those_who_publish_and_nobody_else(room: Room) -> None:
    """A client whose PING and acks are not read closes the connection after 30 s, with all its other consumers."""
    publisher, consumer = await room.connect(), await room.connect()
    await publisher.producer()
    ids = await publisher.publish(b"m0", b"m1")
    await consumer.subscribe()
    room.cluster.ledgers.hold_appends()
    for number in range(2, 10):
        publisher.send_message(b"x" * 1000, number)
        await trio.sleep(0.01)
    assert room.broker.context.publishing.bytes > 2000
    consumer.flow(2)
    assert await consumer.payloads(2) == [b"m0", b"m1"]
    consumer.ack(*ids)
    topic = await room.topic()
    await until(lambda: topic.subscriptions["s"].backlog == 0)
    for _ in range(3):
        consumer.send(C(type=C.PING, ping=pb.CommandPing()))
        await consumer.expect(C.PONG)
    [paused] = [each for each in room.broker.connections if each.producers]
    assert paused._paused is not None, "the one that publishes is not read"
    room.cluster.ledgers.release()
    assert await receipts(publisher, 8) == list(range(2, 10))


async def test_forty_peers_that_do_not_read_stay_within_one_bound_and_those_that_read_get_everything() -> None:
    """Before the bound, 40 readers that received nothing held 8 MiB each."""
    peak = [0]

    async def test(room: Room) -> None:
        publisher = await room.connect()
        await publisher.producer()
        payloads = [bytes((65 + number % 26,)) * 40_000 for number in range(100)]
        await publisher.publish(*payloads)
        output = room.broker.context.output
        deaf = [await room.connect() for _ in range(40)]
        for number, peer in enumerate(deaf):
            await peer.subscribe(name=f"deaf-{number}")
            peer.stream.window = 0
            peer.flow(1000)
        for _ in range(40):
            await trio.sleep(0.05)
            peak[0] = max(peak[0], output.queued.bytes)
        assert output.queued.bytes > limit // 2
        listening = await room.connect()
        await listening.subscribe(name="listening", permits=1000)
        assert await listening.payloads(100) == payloads
        peak[0] = max(peak[0], output.queued.bytes)
        slow = deaf[0]
        slow.stream.open_window()
        assert await slow.payloads(100) == payloads, "and one that begins to read has the rest"
        for peer in deaf:
            await peer.closed_by_us()
        await trio.sleep(1)
        assert (output.queued.bytes, output.reserved) == (0, 0)

    limit = 4 << 20
    async with in_broker(output_bytes_max=limit, message_size_max=1 << 20) as room:
        await test(room)
    assert peak[0] <= limit + 41 * (SHARE_MIN + 41_000)


@pytest.mark.broker(producers_per_topic_max=1, consumers_per_topic_max=2, subscriptions_per_topic_max=1)
async def test_limits_of_a_topic_are_kept_and_named(peer: Peer) -> None:
    await peer.producer()
    peer.ask_producer(producer_id=2)
    code, why = await peer.error()
    assert (code, "maxProducersPerTopic" in why) == (pb.ProducerBusy, True)
    await peer.subscribe(subType=SUB.Shared)
    peer.ask_subscribe(consumer_id=2, subType=SUB.Shared)
    await peer.expect(C.SUCCESS)
    peer.ask_subscribe(consumer_id=3, subType=SUB.Shared)
    code, why = await peer.error()
    assert (code, "maxConsumersPerTopic" in why) == (pb.ConsumerBusy, True)
    peer.ask_subscribe(name="other", consumer_id=4)
    code, why = await peer.error()
    assert (code, "maxSubscriptionsPerTopic" in why) == (pb.NotAllowedError, True)
    await peer.end_producer()
    await peer.producer(producer_id=3)


def hold_appends(room: Room) -> None:
    room.cluster.ledgers.hold_appends()


async def two_publishers_of_which_one_fills_the_buffer(room: Room) -> tuple[Peer, Peer, Any]:
    """Return both, and the connection of the second, which is not read although it has no output of its own."""
    loud, quiet = await room.connect(), await room.connect()
    await loud.producer()
    await quiet.producer(producer_name="quiet")
    [connection] = [each for each in room.broker.connections if each.producers[1].name == "quiet"]
    await loud.publish(b"first")
    hold_appends(room)
    for number in range(4):
        loud.send_message(b"x" * 1000, number)
        await trio.sleep(0.01)
    quiet.send_message(b"y", 0)
    await until(lambda: connection._paused is not None)
    return loud, quiet, connection


@pytest.mark.broker(publish_buffer_bytes_max=2000)
async def test_who_waits_for_the_publish_buffer_reads_on_when_the_sends_of_others_are_confirmed(room: Room) -> None:
    loud, quiet, connection = await two_publishers_of_which_one_fills_the_buffer(room)
    await trio.sleep(300)
    assert not connection.closed, "the peer's silence is not held against it"
    assert connection._paused is not None
    room.cluster.ledgers.release()
    before = trio.current_time()
    quiet.send_message(b"y", 1)
    assert await receipts(quiet, 2) == [0, 1]
    assert trio.current_time() - before < 0.02, "told, not found out by looking now and then"
    assert await receipts(loud, 4) == list(range(4))
    assert connection._paused is None
    assert room.broker.context.publishing._waiting == {}


@pytest.mark.broker(publish_buffer_bytes_max=2000)
async def test_a_connection_that_is_not_read_is_alive_and_ends_at_once_when_it_is_aborted(room: Room) -> None:
    _, _, connection = await two_publishers_of_which_one_fills_the_buffer(room)
    assert await connection.alive()
    connection.abort("enough")
    await trio.testing.wait_all_tasks_blocked()
    assert connection not in room.broker.connections
    assert len(room.broker.context.publishing._waiting) == 1, "the one that filled it"
    room.cluster.ledgers.release()


@pytest.mark.broker(connection_out_bytes_max=1000)
async def test_a_peer_that_does_not_take_its_answers_is_not_read_until_it_does(room: Room, peer: Peer) -> None:
    await peer.producer()
    [connection] = room.broker.connections
    peer.stream.window = 0
    for number in range(200):
        peer.send_message(b"x", number)
        await trio.sleep(0.001)
    await until(lambda: connection._paused is not None)
    assert not connection.is_deaf, "its silence counts"
    peer.stream.open_window()
    assert await receipts(peer, 200) == list(range(200))
    assert connection._paused is None
