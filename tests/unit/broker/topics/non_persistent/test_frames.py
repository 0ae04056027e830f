"""Non-persistent topics through frames: what is confirmed, what is delivered, what is dropped."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.ownership.bundles import RING_END, Bundle
from broker.topics.non_persistent.topic import NonPersistentTopic
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC as PERSISTENT
from tests.unit.broker.peers import Peer, Room, in_broker
from tests.unit.broker.scraped import Scraped

TOPIC = "non-persistent://public/default/news"
NAME = TopicName.parse(TOPIC)
MINUS_ONE = (1 << 64) - 1


def the_topic(room: Room, name: str = TOPIC) -> NonPersistentTopic:
    found = room.broker.direct.find(TopicName.parse(name))
    assert found is not None
    return found


async def consumer(room: Room, permits: int, name: str = "s", **options: Any) -> Peer:
    peer = await room.connect()
    await peer.subscribe(TOPIC, name, **options)
    peer.flow(permits)
    if permits:
        topic = the_topic(room)
        holders = topic.subscriptions[name].consumers
        await until(lambda: any(topic.subscriptions[name].permits_of(each) == permits for each in holders))
    return peer


async def test_a_message_goes_straight_to_every_subscription_with_permits_and_nothing_is_stored(room: Room) -> None:
    one, other = await consumer(room, 10, "a"), await consumer(room, 10, "b")
    producer = await room.connect()
    await producer.producer(TOPIC)
    receipts = await producer.publish(b"1", b"2")
    assert [(each.ledgerId, each.entryId) for each in receipts] == [(0, 0), (0, 0)]
    for peer in (one, other):
        for payload in (b"1", b"2"):
            message, found = await peer.message()
            assert (found, message.message_id.ledgerId, message.message_id.entryId) == (payload, 0, 0)
    assert await room.broker.topics.names(NamespaceName("public", "default")) == []
    assert room.broker.topics.count == 0


async def test_what_has_no_permit_is_dropped_and_counted_and_never_delivered_later(room: Room) -> None:
    peer = await consumer(room, 2)
    producer = await room.connect()
    await producer.producer(TOPIC)
    await producer.publish(b"1", b"2", b"3", b"4", b"5")
    assert await peer.payloads(2) == [b"1", b"2"]
    subscription = the_topic(room).subscriptions["s"]
    assert (subscription.messages_out, subscription.dropped.count) == (2, 3)
    assert subscription.dropped.rate(trio.current_time()) > 0
    peer.flow(10)
    await peer.silent()
    await producer.publish(b"6")
    assert await peer.payloads(1) == [b"6"]


async def test_a_subscription_without_consumers_drops_what_comes(room: Room) -> None:
    peer = await consumer(room, 5, durable=True)
    producer = await room.connect()
    await producer.producer(TOPIC)
    peer.close_consumer()
    await peer.expect(C.SUCCESS)
    await producer.publish(b"1")
    assert the_topic(room).subscriptions["s"].dropped.count == 1
    await peer.subscribe(TOPIC)
    peer.flow(5)
    await peer.silent()


async def test_a_batch_costs_as_many_permits_as_it_has_messages(room: Room) -> None:
    peer = await consumer(room, 4)
    producer = await room.connect()
    await producer.producer(TOPIC)
    await producer.publish(b"batch", num_messages_in_batch=3)
    await producer.publish(b"batch", num_messages_in_batch=3)
    await producer.publish(b"last", num_messages_in_batch=3)
    assert await peer.payloads(2) == [b"batch", b"batch"]
    await peer.silent()
    assert the_topic(room).subscriptions["s"].dropped.count == 3


async def test_shared_consumers_have_their_turn_and_only_those_with_permits(room: Room) -> None:
    async with in_broker(round_robin_batch_max=1) as other:
        peers = [await consumer(other, count, subType=SUB.Shared) for count in (3, 1)]
        producer = await other.connect()
        await producer.producer(TOPIC)
        await producer.publish(*[bytes([number]) for number in range(5)])
        assert sorted(await peers[0].payloads(3) + await peers[1].payloads(1)) == [bytes([n]) for n in range(4)]
        assert the_topic(other).subscriptions["s"].dropped.count == 1


async def test_the_chunks_of_a_message_go_to_one_shared_consumer(room: Room) -> None:
    async with in_broker(round_robin_batch_max=1) as other:
        peers = [await consumer(other, 100, subType=SUB.Shared) for _ in range(2)]
        producer = await other.connect()
        await producer.producer(TOPIC)
        for index in range(4):
            chunk = {"uuid": "u", "chunk_id": index, "num_chunks_from_msg": 4, "total_chunk_msg_size": 4}
            await producer.publish(b"c%d" % index, first=index, **chunk)
        subscription = the_topic(other).subscriptions["s"]
        assert sorted(each.messages_out for each in subscription.consumers) == [0, 4]
        await peers[0].closed_by_us()


async def test_key_shared_messages_of_a_key_go_to_one_consumer(room: Room) -> None:
    peers = [await consumer(room, 100, subType=SUB.Key_Shared, consumer_name=name) for name in "ab"]
    producer = await room.connect()
    await producer.producer(TOPIC)
    for number in range(40):
        await producer.publish(b"%d" % (number % 10), first=number, partition_key=f"k{number % 10}")
    counts = [each.messages_out for each in the_topic(room).subscriptions["s"].consumers]
    assert sum(counts) == 40
    assert min(counts) > 0
    found = [set(await peer.payloads(count)) for peer, count in zip(peers, counts, strict=True)]
    assert not found[0] & found[1]


async def test_the_active_failover_consumer_gets_everything_and_the_next_takes_over(room: Room) -> None:
    peers = []
    for name in "ab":
        peer = await room.connect()
        peer.ask_subscribe(f"{TOPIC}-partition-0", subType=SUB.Failover, consumer_name=name)
        peers.append(peer)
    await room.broker.direct.create_partitioned(NAME, 1)
    first, second = peers
    for peer in peers:
        assert (await peer.error())[0] == pb.NotAllowedError  # there was no such partition yet
        peer.ask_subscribe(f"{TOPIC}-partition-0", subType=SUB.Failover, consumer_name="ab"[peers.index(peer)])
        await peer.expect(C.SUCCESS)
        change = (await peer.expect(C.ACTIVE_CONSUMER_CHANGE)).active_consumer_change
        assert change.is_active is (peer is first)
        peer.flow(10)
    await first.expect(C.ACTIVE_CONSUMER_CHANGE)
    producer = await room.connect()
    await producer.producer(f"{TOPIC}-partition-0")
    await producer.publish(b"1")
    message, _ = await first.message()
    assert message.message_id.partition == 0
    await first.closed_by_us()
    assert (await second.expect(C.ACTIVE_CONSUMER_CHANGE)).active_consumer_change.is_active
    await producer.publish(b"2", first=1)
    assert await second.payloads(1) == [b"2"]


async def test_a_second_exclusive_consumer_is_refused_unless_the_first_is_dead(room: Room) -> None:
    first, second = await consumer(room, 1), await room.connect()
    second.ask_subscribe(TOPIC)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.silent, 6.0)
        assert (await second.error())[0] == pb.ConsumerBusy
    first.dead = True
    second.ask_subscribe(TOPIC)
    await second.expect(C.SUCCESS)


async def test_acks_redelivery_and_seek_succeed_and_change_nothing(room: Room) -> None:
    peer = await consumer(room, 10)
    producer = await room.connect()
    await producer.producer(TOPIC)
    await producer.publish(b"1")
    message, _ = await peer.message()
    assert not (await peer.answered_ack(message.message_id)).HasField("error")
    peer.redeliver()
    peer.seek(message_id=pb.MessageIdData(ledgerId=0, entryId=0))
    await peer.expect(C.SUCCESS)
    await peer.silent()
    body = pb.CommandGetLastMessageId(consumer_id=1, request_id=9)
    peer.send(C(type=C.GET_LAST_MESSAGE_ID, getLastMessageId=body))
    assert (await peer.error())[0] == pb.NotAllowedError
    peer.unsubscribe()
    await peer.expect(C.SUCCESS)
    assert the_topic(room).subscriptions == {}


async def test_a_message_that_no_consumer_could_read_is_refused_and_the_rest_goes_on(room: Room) -> None:
    peer = await consumer(room, 10)
    producer = await room.connect()
    await producer.producer(TOPIC)
    producer.send_message(b"marker", 0, marker_type=1)
    assert (await producer.expect(C.SEND_ERROR)).send_error.error == pb.NotAllowedError
    await producer.publish(b"2", first=1)
    assert await peer.payloads(1) == [b"2"]


async def test_exclusive_producers_have_an_epoch_that_lasts_as_long_as_the_topic(room: Room) -> None:
    first, second = await room.connect(), await room.connect()
    first.ask_producer(TOPIC, producer_access_mode=pb.Exclusive)
    assert (await first.expect(C.PRODUCER_SUCCESS)).producer_success.topic_epoch == 0
    second.ask_producer(TOPIC, producer_access_mode=pb.Exclusive)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.silent, 6.0)
        assert (await second.error())[0] == pb.ProducerFenced
    first.close_producer()
    await first.expect(C.SUCCESS)
    second.ask_producer(TOPIC, producer_access_mode=pb.Exclusive)
    assert (await second.expect(C.PRODUCER_SUCCESS)).producer_success.topic_epoch == 1


async def test_a_slow_peer_loses_messages_and_costs_no_memory_beyond_its_bound(room: Room) -> None:
    peer = await consumer(room, 1_000_000)
    peer.stream.window = 0
    producer = await room.connect()
    await producer.producer(TOPIC)
    for number in range(20):
        await producer.publish(bytes(1 << 20), first=number)
    subscription = the_topic(room).subscriptions["s"]
    assert 0 < subscription.messages_out < 12
    assert subscription.dropped.count == 20 - subscription.messages_out
    peer.stream.open_window()
    await until(lambda: len(peer.stream.sent) > subscription.messages_out << 20)
    await wait_all_tasks_blocked()
    await producer.publish(b"now", first=20)
    taken = await peer.payloads(subscription.messages_out)
    assert taken[-1] == b"now"


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared, SUB.Key_Shared])
async def test_what_a_slow_peer_could_not_be_sent_costs_it_no_permit(room: Room, kind: Any) -> None:
    peer = await consumer(room, 1000, subType=kind)
    producer = await room.connect()
    await producer.producer(TOPIC)
    subscription = the_topic(room).subscriptions["s"]
    (holder,) = subscription.consumers
    peer.stream.window = 0
    for number in range(100):
        await producer.publish(bytes(100_000), first=number)
    assert subscription.dropped.count
    assert subscription.permits_of(holder) == 1000 - subscription.messages_out


async def test_small_messages_survive_the_next_use_of_the_receive_buffer(room: Room) -> None:
    peer = await consumer(room, 1_000_000)
    peer.stream.window = 0
    producer = await room.connect()
    await producer.producer(TOPIC)
    payloads = [b"%03d" % number * 300 for number in range(600)]
    for begin in range(0, 600, 100):
        await producer.publish(*payloads[begin : begin + 100], first=begin)
    peer.stream.open_window()
    assert await peer.payloads(600) == payloads


async def test_the_topic_moves_with_its_bundle_and_clients_are_told_where_to(room: Room) -> None:
    peer = await consumer(room, 10)
    producer = await room.connect()
    await producer.producer(TOPIC)
    everything = Bundle(NAME.namespace_name, 0, RING_END)
    await room.broker._unload(everything, "pulsar://next:6650")
    assert (await peer.expect(C.CLOSE_CONSUMER)).close_consumer.assignedBrokerServiceUrl == "pulsar://next:6650"
    assert (await producer.expect(C.CLOSE_PRODUCER)).close_producer.assignedBrokerServiceUrl == "pulsar://next:6650"
    assert room.broker.direct.find(NAME) is None
    await peer.subscribe(TOPIC)
    room.broker._lose(everything)
    await peer.expect(C.CLOSE_CONSUMER)
    assert room.broker.direct.loaded() == []


async def test_an_unused_topic_is_forgotten_and_one_with_a_subscription_is_kept(room: Room) -> None:
    peer = await consumer(room, 1, durable=True)
    producer = await room.connect()
    await producer.producer(f"{TOPIC}2")
    producer.close_producer()
    await producer.expect(C.SUCCESS)
    peer.close_consumer()
    await peer.expect(C.SUCCESS)
    await trio.sleep(120)
    assert [each.name for each in room.broker.direct.loaded()] == [NAME]


async def test_kinds_that_are_switched_off_are_refused() -> None:
    async with in_broker(non_persistent_topics=False) as room:
        peer = await room.connect()
        peer.ask_producer(TOPIC)
        assert (await peer.error())[0] == pb.NotAllowedError
        peer.ask_subscribe(TOPIC)
        assert (await peer.error())[0] == pb.NotAllowedError
        await peer.producer(PERSISTENT)
    async with in_broker(persistent_topics=False) as room:
        peer = await room.connect()
        peer.ask_producer(PERSISTENT)
        assert (await peer.error())[0] == pb.NotAllowedError
        peer.ask_subscribe(PERSISTENT)
        assert (await peer.error())[0] == pb.NotAllowedError
        await peer.producer(TOPIC)


@pytest.mark.parametrize("command", ["producer", "subscribe"])
async def test_a_second_use_of_an_id_is_answered_as_for_other_topics(room: Room, command: str) -> None:
    peer = await room.connect()
    if command == "producer":
        assert await peer.producer(TOPIC) == await peer.producer(TOPIC)
        peer.ask_producer(PERSISTENT)
    else:
        await peer.subscribe(TOPIC)
        await peer.subscribe(TOPIC)
        peer.ask_subscribe(PERSISTENT)
    assert (await peer.error())[0] == pb.NotAllowedError


async def test_more_than_one_pass_can_do_waits_in_order_and_too_much_of_it_is_dropped() -> None:
    async with in_broker(non_persistent_pending_max=100, send_linger_threshold=1_000_000) as room:
        peers = [await consumer(room, 100_000, f"s{number}") for number in range(100)]
        producer = await room.connect()
        await producer.producer(TOPIC)
        for number in range(1000):
            producer.send_message(b"%d" % number, number)
        receipts = [(await producer.expect(C.SEND_RECEIPT)).send_receipt for _ in range(1000)]
        assert [each.sequence_id for each in receipts] == list(range(1000))
        dropped = [each.sequence_id for each in receipts if each.message_id.ledgerId == MINUS_ONE]
        assert dropped
        assert the_topic(room).dropped.count == len(dropped)
        kept = [b"%d" % each.sequence_id for each in receipts if each.message_id.ledgerId == 0]
        for peer in peers:
            assert await peer.payloads(len(kept)) == kept


async def test_its_numbers_are_in_the_metrics_beside_those_of_other_topics(room: Room) -> None:
    peer = await consumer(room, 1)
    producer = await room.connect()
    await producer.producer(TOPIC)
    await producer.producer(PERSISTENT, producer_id=2)
    await producer.publish(b"1", b"2", b"3")
    await peer.payloads(1)
    scraped = Scraped(room)
    assert scraped["pulsar_in_messages_total"] == 3
    assert (scraped["pulsar_producers_count"], scraped["pulsar_consumers_count"]) == (2, 1)
    assert (scraped["pulsar_subscriptions_count"], scraped["pulsar_out_messages_total"]) == (1, 1)
    assert scraped["pulsar_subscription_msg_drop_rate"] > 0
