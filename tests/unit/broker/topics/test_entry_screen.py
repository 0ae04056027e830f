"""Invalid entries are refused from producers, and skipped if they are stored.

Covers broker.topics.entry_screen, broker.connections.last_message and their use by Producer and Topic."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import trio
from crc32c import crc32c

from quire.service.log import Event
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C, entry
from tests.support.waiting import until
from tests.unit.broker.fakes import Stage, delivered, on_stage
from tests.unit.broker.peers import Peer, Room, in_broker

GARBAGE = b"\x0e\x01\0\0\0\0\0\0\0\x03\xff\xff\xffgarbage"
WITHOUT_NAME = entry(b"x")[:6] + struct.pack("!I", 4) + b"\x10\x01\x18\x01" + b"no producer name"
KINDS = (SUB.Exclusive, SUB.Failover, SUB.Shared, SUB.Key_Shared)


class StoredSink:
    def __init__(self) -> None:
        self.count = 0

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self.count += count

    def failed(self, error: Exception) -> None:
        raise error


async def store(room: Room, *entries: bytes) -> None:
    """Store entries as by an earlier owner of the topic, and load the topic again after them."""
    topic = await room.topic()
    sink = StoredSink()
    topic.ledger.append(list(entries), sink)
    await until(lambda: sink.count == len(entries))
    await unload(room)


async def unload(room: Room) -> None:
    topic = await room.topic()
    room.broker.topics.close_soon(topic)
    await until(lambda: topic not in room.broker.topics.loaded())


async def producing(room: Room) -> Peer:
    peer = await room.connect()
    await peer.producer()
    return peer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("durable", [True, False])
async def test_an_entry_whose_metadata_cannot_be_read_is_passed_over_and_acknowledged(
    kind: Any, durable: bool, log_events: list[Event], room: Room
) -> None:
    async def test(room: Room) -> None:
        peer = await producing(room)
        await store(
            room, entry(b"before"), GARBAGE, WITHOUT_NAME, entry(b"behind")[:-1] + b"?", entry(b"after"), GARBAGE
        )
        peer = await producing(room)
        await peer.publish(b"new")
        await peer.subscribe(subType=kind, durable=durable)
        if kind == SUB.Failover:
            await peer.expect(C.ACTIVE_CONSUMER_CHANGE)
        peer.flow(100)
        ids = []
        for expected in (b"before", b"after", b"new"):
            message, payload = await peer.message()
            assert payload == expected
            ids.append(message.message_id)
        assert await peer.silent()
        peer.ack(*ids)
        topic = await room.topic()
        await until(lambda: topic.subscriptions["s"].backlog == 0)
        assert topic.subscriptions["s"].unacked_of(next(iter(topic.subscriptions["s"].consumers))) == 0
        assert dict(room.broker.context.passed_over) == {"unreadable metadata": 4}

    await test(room)
    [line] = [line for line in log_events if line["event"] == "unusual entry in topic"]
    assert line["reason"].endswith("unreadable metadata")


async def test_a_topic_of_bad_entries_costs_one_line_a_minute(log_events: list[Event]) -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join(permits=1000)
        for _ in range(50):
            stage.log.add(b"")
            stage.log.entries[-1] = GARBAGE
        stage.publish(b"1")
        await trio.sleep(61)
        stage.log.add(b"")
        stage.log.entries[-1] = GARBAGE
        stage.publish(b"2")
        assert delivered(consumer) == [b"1", b"2"]
        assert stage.screen.passed_over["unreadable metadata"] == 51

    async with on_stage(SUB.Exclusive, stored=True) as stage:
        await test(stage)
    assert [line["entries"] for line in log_events] == [1, 50]


@pytest.mark.parametrize("kind", KINDS)
async def test_markers_of_servers_are_passed_over_and_what_brokers_added_is_taken_off(kind: Any) -> None:
    """Covers a topic that was taken over from Pulsar."""
    async with on_stage(kind, stored=True) as stage:
        consumer = stage.join(permits=100)
        stage.log.add(b"marker", marker_type=21)
        stage.log.add(b"")
        stage.log.entries[-1] = b"\x0e\x02" + struct.pack("!I", 4) + b"\x08\x01\x10\x01" + entry(b"plain")
        positions = stage.publish(b"last", num_messages_in_batch=3)
        assert delivered(consumer) == [b"plain", b"last"]
        assert stage.screen.passed_over == {"server marker": 1}
        assert stage.subscription.cursor.backlog() == 2
        assert positions[0].entry_id == 2


async def test_messages_of_a_transaction_are_delivered_and_a_line_says_that_they_may_be_aborted(
    log_events: list[Event],
) -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join(permits=100)
        stage.publish(b"1", txnid_most_bits=1, txnid_least_bits=2)
        assert delivered(consumer) == [b"1"]

    async with on_stage(SUB.Shared, stored=True) as stage:
        await test(stage)
    assert "aborted" in log_events[0]["reason"]


async def test_the_last_message_id_is_of_one_that_can_be_read(room: Room) -> None:
    peer = await producing(room)
    await store(room, entry(b"batch", num_messages_in_batch=3), GARBAGE, entry(b"", marker_type=21))
    peer = await room.connect()
    await peer.subscribe()
    _, entry_id, batch_index = await peer.last_message_id()
    assert (entry_id, batch_index) == (0, 2)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (GARBAGE, "cannot be read"),
        (WITHOUT_NAME, "cannot be read"),
        (entry(b"x", marker_type=21), "marker_type"),
        (entry(b"x", txnid_most_bits=1, txnid_least_bits=2), "transactions"),
    ],
)
@pytest.mark.parametrize("version", ["Pulsar-CPP-v4.2.0", "Pulsar-Java-v4.2.4", "Pulsar-Go-0.16"])
async def test_a_send_that_cannot_be_obeyed_is_refused_and_those_around_it_are_stored(
    bad: bytes, reason: str, version: str, room: Room
) -> None:
    """For C++, only ChecksumError fails a single send: after any other code it reconnects and repeats the send."""
    size = struct.unpack_from("!I", bad, 6)[0]
    bad = entry(b"")[:2] + struct.pack("!I", crc32c(bad[6:])) + bad[6:]
    assert len(bad) >= 10 + size
    peer = room.open()
    await peer.handshake(version)
    await peer.producer()
    for number in range(60):
        if number in (0, 20, 21, 50):
            peer.send_entry(bad, number)
        else:
            peer.send_message(b"%d" % number, number)
    refused, stored = [], []
    for number in range(60):
        command, _ = await peer.receive()
        if command.type == C.SEND_ERROR:
            answer = command.send_error
            assert reason in answer.message
            assert answer.error == (pb.ChecksumError if "CPP" in version else pb.NotAllowedError)
            refused.append(answer.sequence_id)
            assert answer.sequence_id == number, "answers are in the order of the sends"
        else:
            stored.append(command.send_receipt.sequence_id)
            assert command.send_receipt.sequence_id == number
    assert refused == [0, 20, 21, 50]
    await peer.subscribe(permits=100)
    assert await peer.payloads(56) == [b"%d" % number for number in stored]
    [connection] = room.broker.connections
    assert connection.sends_in_flight == 0
    assert room.broker.context.publishing.bytes == 0


@pytest.mark.parametrize(
    "flag", [{"marker": True}, {"txnid_most_bits": 1}, {"message_id": pb.MessageIdData(ledgerId=1, entryId=1)}]
)
async def test_sends_for_replication_transactions_and_shadow_topics_are_refused(
    flag: dict[str, Any], room: Room
) -> None:
    peer = await producing(room)
    body = pb.CommandSend(producer_id=1, sequence_id=7, num_messages=1, **flag)
    peer.send(C(type=C.SEND, send=body), entry(b"x"))
    answer = (await peer.expect(C.SEND_ERROR)).send_error
    assert (answer.sequence_id, answer.error) == (7, pb.NotAllowedError)
    assert (await room.topic()).entries_in == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [("Pulsar-CPP-v4.2.0", pb.ChecksumError), ("Pulsar-Java-v4.2.4", pb.NotAllowedError)],
)
async def test_a_payload_above_max_message_size_is_refused_and_those_around_it_are_stored(
    version: str, code: pb.ServerError
) -> None:
    """Its frame fits into the 10 KiB that frames have for metadata, but consumers treat such a payload as damaged."""
    limit = 100_000
    async with in_broker(message_size_max=limit) as room:
        peer = room.open()
        await peer.handshake(version)
        await peer.producer()
        sizes = [5, limit, limit + 1, limit + 9_000, 70_000, 70_000]
        for number, size in enumerate(sizes):
            peer.send_message(b"x" * size, number)
        answers = [(await peer.receive())[0] for _ in sizes]
        refused = [each.send_error for each in answers if each.type == C.SEND_ERROR]
        assert [(each.sequence_id, each.error) for each in refused] == [(2, code), (3, code)]
        assert "100001 bytes is above maxMessageSize=100000" in refused[0].message
        await peer.subscribe(permits=100)
        assert [len(each) for each in await peer.payloads(4)] == [5, limit, 70_000, 70_000]
        assert room.broker.context.publishing.bytes == 0


@pytest.mark.broker(message_size_max=100000)
async def test_a_part_of_a_chunked_message_is_bounded_by_its_frame_alone(room: Room) -> None:
    peer = await producing(room)
    body = pb.CommandSend(producer_id=1, sequence_id=7, num_messages=1, is_chunk=True)
    peer.send(C(type=C.SEND, send=body), entry(b"x" * 100_001, uuid="u", chunk_id=0, num_chunks_from_msg=2))
    assert (await peer.expect(C.SEND_RECEIPT)).send_receipt.sequence_id == 7
