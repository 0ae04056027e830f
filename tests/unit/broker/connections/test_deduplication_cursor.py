"""The cursor of deduplication: what an unload stores, and that it is no subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR, PAUSE_S
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import C, entry
from tests.unit.broker.peers import Room, in_broker


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(deduplication=True, deduplication_entries_interval=5) as room:
        yield room


async def test_a_topic_that_is_unloaded_leaves_its_next_owner_nothing_to_read_again(room: Room) -> None:
    peer = await room.connect()
    await peer.producer(producer_name="p")
    body = pb.CommandSend(producer_id=1, sequence_id=0, num_messages=7, highest_sequence_id=6)
    fields = {"num_messages_in_batch": 7, "highest_sequence_id": 6, "producer_name": "p"}
    peer.send(C(type=C.SEND, send=body), entry(b"m0", sequence_id=0, **fields))
    await peer.expect(C.SEND_RECEIPT)
    [topic] = room.broker.topics.loaded()
    cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
    assert not cursor.properties
    await topic.close()
    assert cursor.properties == {"p": 6}
    assert cursor.durable_mark_delete == topic.ledger.last_confirmed


async def test_the_cursor_is_not_listed_among_the_subscriptions(room: Room) -> None:
    peer = await room.connect()
    await peer.producer(producer_name="p")
    [topic] = room.broker.topics.loaded()
    assert DEDUPLICATION_CURSOR in topic.ledger.cursors
    assert await room.broker.administration.subscriptions(topic.name) == []


async def test_new_partitions_of_a_deduplicated_topic_get_the_subscriptions_alone(room: Room) -> None:
    admin, name = room.broker.administration, TopicName.parse("parts")
    await admin.create_partitioned_topic(name, 1)
    peer = await room.connect()
    await peer.producer(name.with_partition(0).full, producer_name="p")
    await admin.grow_partitioned_topic(name, 2)
    assert await admin.partitioned.subscriptions(name.with_partition(1)) == []


async def test_snapshots_for_the_number_of_entries_are_taken_four_times_a_second_at_most(room: Room) -> None:
    peer = await room.connect()
    await peer.producer(producer_name="p")
    [topic] = room.broker.topics.loaded()
    cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
    await peer.publish(*[b"m"] * 5)
    assert cursor.properties == {"p": 4}
    await peer.publish(*[b"m"] * 20, first=5)
    assert cursor.properties == {"p": 4}
    await trio.sleep(PAUSE_S)
    await peer.publish(b"m", first=25)
    assert cursor.properties == {"p": 25}
