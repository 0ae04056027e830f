"""Seek, unsubscribe, and consumers that connect and disconnect, over whole connections."""

from __future__ import annotations

import pytest
import trio

from broker.dispatch.subscription import CATCH_UP_ENTRIES
from managed_ledger.ledger_list import LedgerList
from managed_ledger.stored_list import StoredList
from quire.metadata.errors import MetadataError
from quire.metadata.store import Op
from quire.service.log import Event
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room

LATEST = pb.MessageIdData(ledgerId=(1 << 63) - 1, entryId=(1 << 63) - 1)
EARLIEST = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"m%d" % number for number in range(start, start + count)]


async def test_a_seek_disconnects_and_the_named_entry_is_next(room: Room) -> None:
    for kind in (SUB.Exclusive, SUB.Shared, SUB.Failover, SUB.Key_Shared):
        topic = f"{TOPIC}-{kind}"
        peer = await room.connect()
        await peer.producer(topic)
        ids = await peer.publish(*numbers(25))
        await peer.subscribe(topic, subType=kind)
        if kind == SUB.Failover:
            await peer.expect(C.ACTIVE_CONSUMER_CHANGE)
        peer.flow(100)
        assert await peer.payloads(25) == numbers(25)
        request_id = peer.seek(message_id=ids[13])
        closed = (await peer.expect(C.CLOSE_CONSUMER)).close_consumer
        assert (closed.consumer_id, closed.request_id) == (1, (1 << 64) - 1)
        assert (await peer.expect(C.SUCCESS)).success.request_id == request_id
        await peer.subscribe(topic, subType=kind)
        if kind == SUB.Failover:
            await peer.expect(C.ACTIVE_CONSUMER_CHANGE)
        peer.flow(100)
        again = [await peer.message() for _ in range(12)]
        assert [payload for _, payload in again] == numbers(12, 13)
        assert {message.redelivery_count for message, _ in again} == {0}


async def test_a_subscribe_that_comes_while_a_seek_is_made_durable_is_told_to_try_again(room: Room) -> None:
    for kind in (SUB.Exclusive, SUB.Shared):  # the same type, and another one
        topic = f"{TOPIC}-{kind}"
        peer = await room.connect()
        await peer.producer(topic)
        [first] = await peer.publish(b"m0")
        await peer.subscribe(topic)
        room.cluster.ledgers.delay_s = 2  # its cursor's first ledger is created now
        peer.seek(message_id=first)
        await peer.expect(C.CLOSE_CONSUMER)
        assert await peer.refused_consumer(topic, subType=kind) == pb.ServiceNotReady
        await peer.expect(C.SUCCESS)
        room.cluster.ledgers.delay_s = 0
        await peer.subscribe(topic, subType=kind)


async def test_a_readers_place_survives_its_own_seek_and_goes_with_it(room: Room, peer: Peer) -> None:
    await peer.producer()
    ids = await peer.publish(*numbers(5))
    await peer.subscribe(name="r", durable=False, start_message_id=EARLIEST)
    await peer.sought(message_id=ids[3])
    await trio.sleep(0.1)
    await peer.subscribe(name="r", durable=False)  # has no start: after a seek by time there is none
    peer.flow(10)
    assert await peer.payloads(2) == numbers(2, 3)
    await peer.silent(200)  # longer than it would be kept alone
    topic = await room.topic()
    assert list(topic.subscriptions) == ["r"]
    await peer.end_consumer()
    assert not topic.subscriptions
    assert not topic.ledger.reader_cursors


async def test_a_reader_that_dies_in_its_seek_leaves_nothing_behind(room: Room, peer: Peer) -> None:
    await peer.subscribe(name="r", durable=False, start_message_id=EARLIEST)
    topic = await room.topic()
    peer.seek(message_id=LATEST)
    await peer.expect(C.CLOSE_CONSUMER)
    await peer.closed_by_us()
    assert topic.ledger.reader_cursors
    await trio.sleep(61)
    assert not topic.ledger.reader_cursors
    assert not topic.subscriptions


async def test_a_refused_reader_leaves_nothing_behind(room: Room, peer: Peer) -> None:
    meta = pb.KeySharedMeta(keySharedMode=pb.STICKY)  # without ranges
    peer.ask_subscribe(name="r", durable=False, subType=SUB.Key_Shared, keySharedMeta=meta)
    assert (await peer.error())[0] == pb.ConsumerAssignError
    topic = await room.topic()
    assert not topic.subscriptions
    assert not topic.ledger.reader_cursors


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared, SUB.Key_Shared])
async def test_the_end_of_a_terminated_topic_is_told_once_all_is_acknowledged_and_to_who_comes_later(
    kind: int, room: Room
) -> None:
    peer = await room.connect("Pulsar-Java-v4.2.4")
    await peer.producer()
    await peer.publish(*numbers(3))
    await (await room.topic()).ledger.terminate()
    await peer.subscribe(subType=kind, permits=100)
    ids = [(await peer.message())[0].message_id for _ in range(3)]
    peer.ack(*ids[:2])
    assert await peer.silent()
    peer.ack(ids[2])
    assert (await peer.expect(C.REACHED_END_OF_TOPIC)).reachedEndOfTopic.consumer_id == 1
    peer.flow(100)
    assert await peer.silent(), "once is enough"
    await peer.end_consumer()
    await peer.subscribe(consumer_id=2, subType=kind)
    assert await peer.silent(), "it has not asked for anything yet"
    peer.flow(1, consumer_id=2)
    assert (await peer.expect(C.REACHED_END_OF_TOPIC)).reachedEndOfTopic.consumer_id == 2


async def test_a_seek_without_a_target_or_consumer_is_an_error(peer: Peer) -> None:
    await peer.subscribe()
    peer.seek()
    assert (await peer.error())[0] == pb.MetadataError
    peer.seek(consumer_id=9, message_id=EARLIEST)
    assert (await peer.error())[0] == pb.MetadataError


async def test_a_seek_by_time_over_several_ledgers(peer: Peer) -> None:
    await peer.producer()
    await peer.subscribe()
    for number, payload in enumerate(numbers(25)):
        await peer.publish(payload, first=number, publish_time=1000 + 10 * number)
    for when, expected in ((0, 0), (1115, 12), (1120, 12), (1240, 24)):
        await peer.sought(message_publish_time=when)
        await peer.subscribe(permits=1)
        assert await peer.payloads(1) == numbers(1, expected)
    await peer.sought(message_publish_time=5000)
    await peer.subscribe(permits=1)
    assert await peer.silent()


async def test_an_unsubscribe_is_refused_while_others_are_connected_unless_forced(room: Room) -> None:
    first, second = await room.connect(), await room.connect()
    await first.producer()
    await first.publish(b"m0")
    await first.subscribe(subType=SUB.Shared)
    await second.subscribe(subType=SUB.Shared)
    first.unsubscribe()
    assert (await first.error())[0] == pb.MetadataError
    await first.end_subscription(force=True)
    await second.expect(C.CLOSE_CONSUMER)
    topic = await room.topic()
    assert not topic.subscriptions
    assert not topic.ledger.cursors
    await second.subscribe(subType=SUB.Exclusive)


async def test_an_unsubscribe_whose_connection_breaks_is_carried_through(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    await peer.producer()
    await peer.publish(*numbers(3))
    await peer.subscribe()
    room.cluster.ledgers.delay_s = 1
    topic = await room.topic()
    async with topic.ledger._stored.held():
        peer.unsubscribe()
        await until(lambda: topic.subscriptions["s"].stopped)
        await peer.closed_by_us()
        assert await other.refused_consumer() == pb.ServiceNotReady
    await until(lambda: not topic.subscriptions)
    await other.subscribe(permits=10)
    assert await other.payloads(3) == numbers(3)


async def test_an_unsubscribe_that_fails_says_so_and_the_topic_is_loaded_anew(
    monkeypatch: pytest.MonkeyPatch, room: Room, peer: Peer
) -> None:
    await peer.producer()
    await peer.publish(*numbers(3))
    await peer.subscribe()
    topic = await room.topic()
    stored = topic.ledger._stored

    put = StoredList.put

    async def fail(self: StoredList, value: LedgerList, *ops: Op) -> None:
        if self is stored:
            raise MetadataError("away")
        await put(self, value, *ops)

    monkeypatch.setattr(StoredList, "put", fail)
    peer.unsubscribe()
    answers = [(await peer.receive())[0] for _ in range(2)]
    [error] = [answer.error for answer in answers if answer.type == C.ERROR]
    assert error.error == pb.ServiceNotReady
    await peer.subscribe(permits=10)
    assert await peer.payloads(3) == numbers(3)
    assert (await room.topic()) is not topic


async def test_acks_of_part_of_a_batch_and_of_bad_ids_in_one_command(peer: Peer) -> None:
    await peer.producer()
    await peer.subscribe(subType=SUB.Shared)
    ids = await peer.publish(*numbers(4), num_messages_in_batch=4)
    peer.flow(16)
    await peer.payloads(4)
    bad = pb.MessageIdData(ledgerId=ids[0].ledgerId, entryId=99)
    part = pb.MessageIdData(ledgerId=ids[2].ledgerId, entryId=ids[2].entryId, ack_set=[0b1100])
    answer = await peer.answered_ack(bad, ids[1], part)
    assert answer.error == pb.MetadataError
    peer.redeliver()
    peer.flow(16)
    again = [await peer.message() for _ in range(3)]
    assert [payload for _, payload in again] == [b"m0", b"m2", b"m3"]
    assert [list(message.ack_set) for message, _ in again] == [[], [0b1100], []]


async def test_the_properties_of_a_cumulative_ack_are_stored_with_its_position(room: Room, peer: Peer) -> None:
    await peer.producer()
    ids = await peer.publish(*numbers(4))
    await peer.subscribe(permits=4)
    await peer.payloads(4)
    cursor = (await room.topic()).subscriptions["s"].cursor
    assert not (await peer.answered_ack(ids[0], cumulative=True, properties={"rows": 7})).HasField("error")
    assert cursor.properties == {"rows": 7}
    assert not (await peer.answered_ack(ids[2], properties={"rows": 9})).HasField("error")
    assert cursor.properties == {"rows": 7}
    assert not (await peer.answered_ack(ids[1], cumulative=True)).HasField("error")
    assert cursor.properties == {}
    many = {f"p{number}": number for number in range(65)}
    answer = await peer.answered_ack(ids[3], cumulative=True, properties=many)
    assert (answer.error, cursor.properties) == (pb.NotAllowedError, {})


async def test_a_message_that_a_client_cannot_read_is_told_to_the_operator(log_events: list[Event], room: Room) -> None:
    async def test(room: Room) -> None:
        peer = await room.connect()
        await peer.producer()
        ids = await peer.publish(b"m0")
        await peer.subscribe(permits=1)
        await peer.payloads(1)
        error = pb.CommandAck.ChecksumMismatch
        assert not (await peer.answered_ack(ids[0], validation_error=error)).HasField("error")

    await test(room)
    told = [event for event in log_events if event["event"] == "client acknowledged a message it could not read"]
    assert [(event["subscription"], event["reason"]) for event in told] == [("s", "ChecksumMismatch")]


async def test_a_reader_may_acknowledge_cumulatively_and_nothing_durable_comes_of_it(peer: Peer) -> None:
    await peer.producer()
    ids = await peer.publish(*numbers(15))
    await peer.subscribe(name="r", durable=False, start_message_id=EARLIEST, permits=100)
    await peer.payloads(15)
    assert not (await peer.answered_ack(ids[12], cumulative=True)).HasField("error")
    peer.redeliver()
    peer.flow(100)
    assert await peer.payloads(2) == numbers(2, 13)
    await peer.end_consumer()
    await peer.subscribe(name="r", durable=False, start_message_id=EARLIEST, permits=100)
    assert await peer.payloads(15) == numbers(15)


@pytest.mark.broker(log={"retention_minutes": 0, "retention_mb": 0})
async def test_the_last_message_id_of_an_empty_a_filled_and_a_trimmed_topic(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.subscribe()
    none = (1 << 64) - 1
    assert await peer.last_message_id() == (none, none, -1)
    ids = await peer.publish(*numbers(9))
    [last] = await peer.publish(b"batch", first=9, num_messages_in_batch=3)
    assert await peer.last_message_id() == (last.ledgerId, last.entryId, 2)
    await peer.answered_ack(*ids, last)
    topic = await room.topic()
    await until(lambda: topic.ledger.first_position().ledger_id > last.ledgerId)
    assert await peer.last_message_id() == (none, none, -1)


async def test_a_new_subscription_may_start_some_time_ago(room: Room, peer: Peer) -> None:
    await peer.producer()
    now = room.broker.context.world.clock.wall_ms()
    for number, payload in enumerate(numbers(10)):
        await peer.publish(payload, first=number, publish_time=now - 1000 * (10 - number))
    await peer.subscribe(initialPosition=SUB.Latest, start_message_rollback_duration_sec=4, permits=100)
    got = await peer.payloads(3)
    assert got[0] in numbers(2, 6)


@pytest.mark.broker(log={"entries_max": 100000})
async def test_a_consumer_that_gives_no_permits_does_not_keep_the_tail_in_the_cache_for_ever(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    for consumer_id, kind in enumerate((SUB.Exclusive, SUB.Shared)):
        await peer.subscribe(name=f"s{kind}", consumer_id=consumer_id, subType=kind)
    cursors = (await room.topic()).ledger.cursors.values()
    await peer.publish(*numbers(CATCH_UP_ENTRIES))
    await trio.sleep(60)
    assert all(cursor.active for cursor in cursors)
    await peer.publish(b"m1000", first=1000)
    await trio.sleep(60)
    assert not any(cursor.active for cursor in cursors)
    assert (await room.topic()).ledger.appends.readers == 0
    # Consumers that receive again get everything, and are at the tail again.
    for consumer_id in (0, 1):
        peer.flow(5000, consumer_id)
        assert await peer.payloads(CATCH_UP_ENTRIES + 1) == numbers(CATCH_UP_ENTRIES + 1)
    assert all(cursor.active for cursor in cursors)


@pytest.mark.broker(log={"entries_max": 100000})
async def test_a_consumer_that_reads_the_tail_and_acknowledges_late_keeps_it_in_the_cache(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.subscribe(subType=SUB.Shared, permits=5000)
    for number in range(CATCH_UP_ENTRIES + 10):
        peer.send_message(b"m", number)
    kinds = [(await peer.receive())[0].type for _ in range(2 * (CATCH_UP_ENTRIES + 10))]
    assert kinds.count(C.MESSAGE) == CATCH_UP_ENTRIES + 10
    await trio.sleep(60)
    [subscription] = (await room.topic()).subscriptions.values()
    assert subscription.backlog > CATCH_UP_ENTRIES
    assert subscription.cursor.active


@pytest.mark.parametrize("durable", [True, False])
async def test_a_start_some_time_ago_wins_over_a_start_id(durable: bool, room: Room, peer: Peer) -> None:
    """Java's readers send both; the id is then the earliest one."""
    await peer.producer()
    now = room.broker.context.world.clock.wall_ms()
    for number, payload in enumerate(numbers(10)):
        await peer.publish(payload, first=number, publish_time=now - 1000 * (10 - number))
    everything = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)
    await peer.subscribe(start_message_id=everything, start_message_rollback_duration_sec=4, durable=durable)
    peer.flow(100)
    assert (await peer.payloads(3))[0] in numbers(2, 6)


@pytest.mark.parametrize(("initial", "expected"), [(SUB.Earliest, 5), (SUB.Latest, 0)])
async def test_a_subscription_that_is_not_durable_begins_where_it_asks_to(
    initial: int, expected: int, peer: Peer
) -> None:
    await peer.producer()
    await peer.publish(*numbers(5))
    await peer.subscribe(durable=False, initialPosition=initial, permits=100)
    assert await peer.payloads(expected) == numbers(expected)
    assert await peer.silent()


@pytest.mark.parametrize("version", ["Pulsar-CPP-v4.2.0", "Pulsar-Go-0.16.0", "2.8.1", ""])
async def test_the_end_of_a_terminated_topic_is_not_told_to_clients_that_break_on_it(version: str, room: Room) -> None:
    peer = await room.connect(version)
    await peer.producer()
    ids = await peer.publish(*numbers(3))
    await (await room.topic()).ledger.terminate()
    await peer.subscribe(permits=100)
    await peer.payloads(3)
    peer.ack(*ids)
    assert await peer.silent()
    peer.flow(100)
    assert await peer.silent()
