"""Metadata of the broker in front of entries: index and time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.dispatch.message_index import entry_with_index
from broker.topics.entry_stamps import INDEX, TIMESTAMP, index_in, stamp_kinds
from managed_ledger.trimming import Retention
from quire.ledger.position import EARLIEST, Position
from quire.service.errors import ConfigError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import broker_metadata, read_metadata
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, C, entry, payload_of
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAME = TopicName.parse(TOPIC)


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(entry_metadata=(INDEX, TIMESTAMP), log={"entries_max": 3}) as room:
        yield room


async def stored(room: Room) -> list[pb.BrokerEntryMetadata]:
    ledger = (await room.topic()).ledger
    found, at = [], ledger.first_position()
    while at <= ledger.last_confirmed:
        run = await ledger.read(at, 100, 1 << 20)
        for each in run.payloads:
            added = broker_metadata(each)
            assert added is not None
            assert read_metadata(each).producer_name
            found.append(added)
        at = ledger.next_position(Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1))
    return found


async def batch(peer: Peer, first: int, count: int) -> pb.MessageIdData:
    """Send a batch; only its metadata matter here."""
    body = pb.CommandSend(producer_id=1, sequence_id=first, num_messages=count)
    peer.send(C(type=C.SEND, send=body), entry(b"batch", sequence_id=first, num_messages_in_batch=count))
    return (await peer.expect(C.SEND_RECEIPT)).send_receipt.message_id


async def reload(room: Room, *, crash: bool) -> None:
    topic = await room.topic()
    if crash:
        topic.abandon()  # nothing is stored
        room.broker.topics.close_soon(topic)
        room.broker.topics._loaded.pop(TOPIC, None)
    else:
        room.broker.topics.close_soon(topic)
        await topic.ledger.closed.wait()
        await until(lambda: room.broker.topics.find(NAME) is None and TOPIC not in room.broker.topics._closing)


def test_the_names_of_the_original_are_taken_and_no_others() -> None:
    assert stamp_kinds((TIMESTAMP,)) == (False, True)
    assert stamp_kinds((INDEX, TIMESTAMP)) == (True, True)
    with pytest.raises(ConfigError, match=r"brokerEntryMetadataInterceptors: 'x\.Y' is neither"):
        stamp_kinds((INDEX, "x.Y"))
    assert [index_in({"index": text}) for text in ("7", "-1", "x", "")] == [7, -1, -1, -1]


async def test_each_entry_has_the_index_of_its_last_message_and_the_time(room: Room, peer: Peer) -> None:
    await peer.producer()
    before = room.broker.context.world.clock.wall_ms()
    await peer.publish(b"0", b"1")
    await batch(peer, 2, 3)
    await peer.publish(b"5", first=5)
    found = await stored(room)
    assert [each.index for each in found] == [0, 1, 4, 5]
    assert all(before <= each.broker_timestamp <= before + 60_000 for each in found)


@pytest.mark.parametrize("crash", [False, True])
async def test_indexes_go_on_over_reloads_and_switches_of_ledgers(room: Room, crash: bool) -> None:
    for first in range(0, 35, 5):
        peer = await room.connect()
        await peer.producer()
        for number in range(5):
            await peer.publish(b"x", first=first + number)
        await reload(room, crash=crash)
    peer = await room.connect()
    await peer.producer()
    assert [each.index for each in await stored(room)] == list(range(35))


async def test_an_index_does_not_come_again_when_all_entries_are_deleted(room: Room, peer: Peer) -> None:
    await peer.subscribe()
    await peer.producer()
    ids = await peer.publish(*[b"x"] * 10)
    topic = await room.topic()
    peer.flow(10)
    await peer.payloads(10)
    await peer.answered_ack(ids[-1], cumulative=True)
    topic.ledger.retention = Retention()
    topic.ledger.roll()
    await topic.ledger.appends.settled()
    await topic.ledger.trim()
    assert topic.ledger.entry_count == 0
    await reload(room, crash=True)
    peer = await room.connect()
    await peer.producer()
    await peer.publish(b"next", first=10)
    assert [each.index for each in await stored(room)] == [10]


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared, SUB.Key_Shared])
async def test_consumers_get_entries_as_they_were_sent(room: Room, peer: Peer, kind: int) -> None:
    await peer.subscribe(subType=kind)
    await peer.producer()
    sent = entry(b"one", sequence_id=0, partition_key="k")
    for turn in range(2):  # from the cache, and read again
        if not turn:
            peer.send_entry(sent, 0)
            await peer.expect(C.SEND_RECEIPT)
        peer.flow(1)
        command, tail = await peer.receive()
        assert (command.type, bytes(tail)) == (C.MESSAGE, sent)
        await reload(room, crash=False)
        peer = await room.connect()
        await peer.subscribe(subType=kind)


async def test_delayed_messages_and_batches_are_known_behind_the_metadata(room: Room, peer: Peer) -> None:
    await peer.subscribe(subType=SUB.Shared)
    await peer.producer()
    await peer.publish(b"late", deliver_at_time=room.broker.context.world.clock.wall_ms() + 5000)
    await batch(peer, 1, 5)
    peer.flow(5)
    assert await peer.payloads(1) == [b"batch"]
    assert (await room.topic()).subscriptions["s"].delayed == 1
    await peer.publish(b"now", first=6)
    assert await peer.silent(2), "the batch has taken all permits"
    assert (await peer.last_message_id())[:2] >= (0, 2)
    peer.flow(5)
    assert sorted(await peer.payloads(2)) == [b"late", b"now"]


async def test_clients_that_understand_it_get_the_metadata_where_it_is_exposed() -> None:
    async with in_broker(entry_metadata=(INDEX,), expose_entry_metadata=True) as room:
        old, new = await room.connect(), room.open()
        flags = pb.FeatureFlags(supports_broker_entry_metadata=True)
        connect = pb.CommandConnect(client_version="new", protocol_version=20, feature_flags=flags)
        new.send(C(type=C.CONNECT, connect=connect))
        await new.expect(C.CONNECTED)
        await old.subscribe(name="old")
        await new.subscribe(name="new")
        await old.producer()
        await old.publish(b"one")
        for peer in (old, new):
            peer.flow(1)
        _, plain = await old.receive()
        _, with_metadata = await new.receive()
        assert payload_of(plain) == b"one"
        added = broker_metadata(with_metadata)
        assert added is not None
        assert added.index == 0
        assert bytes(with_metadata).endswith(bytes(plain))


async def test_an_entry_is_found_by_the_index_of_any_of_its_messages(room: Room, peer: Peer) -> None:
    await peer.subscribe()
    await peer.producer()
    places = []
    for number in range(6):
        places.append(await batch(peer, 3 * number, 3))
    ledger = (await room.topic()).ledger
    positions = [Position(each.ledgerId, each.entryId) for each in places]
    for index in range(18):
        assert await entry_with_index(ledger, index) == positions[index // 3]
    assert await entry_with_index(ledger, 18) is None
    peer.flow(100)
    await peer.payloads(6)
    await peer.answered_ack(places[3], cumulative=True)
    ledger.retention = Retention()
    await ledger.trim()
    assert ledger.first_position() > positions[0]
    assert await entry_with_index(ledger, 8) == EARLIEST
    assert await entry_with_index(ledger, 9) == positions[3]


async def test_deduplication_stamps_what_is_stored_only() -> None:
    async with in_broker(entry_metadata=(INDEX,), deduplication=True) as room:
        peer = await room.connect()
        await peer.producer(producer_name="p")
        for sequence_id in (0, 1, 1, 2):
            peer.send_message(b"x", sequence_id, producer_name="p")
            await peer.expect(C.SEND_RECEIPT)
        assert [each.index for each in await stored(room)] == [0, 1, 2]
