"""Compaction of a topic in a whole broker: what readers get, what is stored, and what is deleted."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from broker.errors import CompactionRunningError, NotAllowedError
from broker.ownership.values import encode_json
from broker.topics.compaction.compaction import ERROR, RUNNING, SUCCESS, compaction_of
from broker.topics.compaction.leftovers import COMPACTION_CURSOR, ROOT, new_ledger
from broker.topics.topic_policies.catalog import COMPACTION_THRESHOLD
from cursors.cursor_node import StoredNode
from quire.ledger.errors import LedgerWriteError
from quire.ledger.position import Position
from quire.metadata.errors import NoNodeError
from quire.metadata.store import ANY_VERSION, Put
from quire.wire.bookkeeper.entry import DigestType
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker
from tests.unit.broker.scraped import Scraped
from tests.unit.broker.topics.compaction.batches import batch

NAMESPACE = "/admin/policies/public/default"
EARLIEST = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)
TRIMMED = {"retention_minutes": 0, "retention_mb": 0}
"""Nothing is kept that no subscription needs."""


async def publish(peer: Peer, *pairs: tuple[str, bytes]) -> None:
    for key, value in pairs:
        await peer.publish(value, partition_key=key)


async def protected(room: Room) -> Peer:
    """Return a producer of a topic of which nothing is trimmed before it is compacted."""
    peer = await room.connect()
    await peer.producer()
    await compact(room)
    return peer


async def compact(room: Room, name: str = TOPIC) -> Any:
    """Compact the topic, and return its compaction when that is done."""
    topic = await room.topic(name)
    found = compaction_of(topic)
    found.start()
    assert found.status == RUNNING
    await until(lambda: found.status != RUNNING)
    assert (found.status, found.error) == (SUCCESS, "")
    return found


async def reader(room: Room, start: pb.MessageIdData = EARLIEST, *, permits: int = 100, **options: Any) -> Peer:
    peer = await room.connect()
    await peer.subscribe(name="r", durable=False, start_message_id=start, read_compacted=True, **options)
    peer.flow(permits)
    return peer


async def got(peer: Peer, count: int) -> list[bytes]:
    found = await peer.payloads(count)
    assert await peer.silent(0.5)
    return found


def compacted_ledgers(room: Room) -> list[int]:
    stored = room.cluster.ledgers.stored
    return [each for each, one in stored.items() if ("component", b"compacted-ledger") in one.custom_metadata]


async def no_leftovers(room: Room) -> bool:
    try:
        await room.cluster.stores[0].children(f"{ROOT}/public/default/persistent/orders")
    except NoNodeError:
        return True
    return False


async def test_a_compacted_reader_gets_the_newest_of_each_key_and_then_the_log(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b""))
    found = await compact(room)
    assert found.view.horizon == Position(0, 4)
    await publish(peer, ("a", b"5"))
    assert await got(await reader(room), 3) == [b"3", b"4", b"5"]
    plain = await room.connect()
    await plain.subscribe(name="plain")
    plain.flow(100)
    assert await got(plain, 6) == [b"1", b"2", b"3", b"4", b"", b"5"]
    assert found.counts.removed == 3


async def test_the_ledger_and_the_cursor_are_as_the_original_has_them(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"), ("b", b"2"), ("b", b""))
    found = await compact(room)
    [ledger_id] = compacted_ledgers(room)
    stored = room.cluster.ledgers.stored[ledger_id]
    assert stored.digest_type is DigestType.CRC32
    assert stored.last_entry_id == 0
    assert dict(stored.custom_metadata) == {
        "application": b"pulsar",
        "component": b"compacted-ledger",
        "pulsar/compactedTopic": TOPIC.encode(),
        "pulsar/compactedTo": bytes.fromhex("080010013000"),
    }
    assert stored.entries[0][:23].hex() == "0000000f0800100018ffffffffffffffffff01" + stored.entries[0][19:23].hex()
    cursor = (await room.topic()).ledger.cursors[COMPACTION_CURSOR]
    assert (cursor.properties, cursor.mark_delete) == ({"CompactedTopicLedger": ledger_id}, Position(0, 2))
    assert found.view.ledger_id == ledger_id
    assert await no_leftovers(room)


@pytest.mark.broker(log=TRIMMED)
async def test_each_compaction_builds_on_the_last_one_whose_ledger_is_deleted(room: Room) -> None:
    peer = await protected(room)
    for number in range(3):
        await publish(peer, *[(f"k{each}", b"%d" % number) for each in range(number, 12)])
        await compact(room)
        assert len(compacted_ledgers(room)) == 1
    topic = await room.topic()
    # Whole ledgers were trimmed, and their messages are read all the same.
    await until(lambda: topic.ledger.first_position() > Position(1, 0))
    assert await got(await reader(room), 12) == [b"0", b"1"] + [b"2"] * 10
    assert await no_leftovers(room)
    # Nothing is new: nothing is written.
    [ledger_id] = compacted_ledgers(room)
    await compact(room)
    assert compacted_ledgers(room) == [ledger_id]


@pytest.mark.broker(log=TRIMMED)
async def test_a_reader_starts_at_its_id_and_seeks_in_the_view(room: Room) -> None:
    peer = await protected(room)
    ids = [(await peer.publish(b"%d" % number, partition_key=f"k{number}"))[0] for number in range(25)]
    await publish(peer, *[(f"k{number}", b"new") for number in range(5)])
    await compact(room)
    topic = await room.topic()
    await until(lambda: topic.ledger.first_position() > Position(ids[15].ledgerId, ids[15].entryId))
    at = await reader(room, ids[7])
    old, new = [b"%d" % number for number in range(25)], [b"new"] * 5
    assert await got(at, 23) == old[7:] + new
    for sought in (ids[12], ids[23], ids[3], EARLIEST):
        body = pb.CommandSeek(consumer_id=1, request_id=7, message_id=sought)
        at.send(C(type=C.SEEK, seek=body))
        assert {(await at.receive())[0].type for _ in range(2)} == {C.CLOSE_CONSUMER, C.SUCCESS}
        first = max(5, ids.index(sought)) if sought in ids else 5
        await at.subscribe(name="r", durable=False, start_message_id=ids[24], read_compacted=True)
        at.flow(100)
        assert await got(at, 30 - first) == old[first:] + new


@pytest.mark.broker(log=TRIMMED)
async def test_what_a_reader_acknowledged_of_trimmed_ledgers_is_not_delivered_again(room: Room) -> None:
    peer = await protected(room)
    await publish(peer, *[(f"k{number}", b"%d" % number) for number in range(25)])
    await compact(room)
    topic = await room.topic()
    await until(lambda: topic.ledger.first_position() > Position(1, 0))
    at = await reader(room)
    messages = [(await at.message())[0] for _ in range(25)]
    await at.answered_ack(messages[6].message_id, cumulative=True)
    at.redeliver()
    assert await got(at, 18) == [b"%d" % number for number in range(7, 25)]


async def test_the_position_and_the_ledger_are_stored_in_one_entry(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"))
    await compact(room)
    store = (await room.topic()).ledger.cursors[COMPACTION_CURSOR].store
    assert store is not None
    written = store.entries_written
    await publish(peer, ("a", b"2"))
    await compact(room)
    assert store.entries_written == written + 1


@pytest.mark.broker(log=TRIMMED)
async def test_a_reader_goes_on_where_it_was_when_the_view_is_replaced(room: Room) -> None:
    peer = await protected(room)
    await publish(peer, *[(f"k{number}", b"%d" % number) for number in range(12)])
    await compact(room)
    slow = await reader(room, permits=3)
    assert await slow.payloads(3) == [b"0", b"1", b"2"]
    await publish(peer, ("k1", b"x"), ("k4", b""), ("k5", b"y"), *[(f"n{number}", b"z") for number in range(20)])
    await compact(room)
    topic = await room.topic()
    await until(lambda: topic.ledger.first_position() > Position(1, 0))
    slow.flow(100)
    expected = [b"%d" % number for number in range(3, 12) if number not in (4, 5)] + [b"x", b"y"] + [b"z"] * 20
    assert await got(slow, len(expected)) == expected


@pytest.mark.broker(log=TRIMMED)
async def test_a_reader_that_waits_since_before_the_first_compaction_misses_nothing(room: Room) -> None:
    peer = await protected(room)
    slow = await reader(room, permits=2)
    await publish(peer, *[(f"k{number % 8}", b"%d" % number) for number in range(25)])
    assert await slow.payloads(2) == [b"0", b"1"]
    await compact(room)
    topic = await room.topic()
    await until(lambda: topic.ledger.first_position() > Position(1, 0))
    slow.flow(100)
    assert await got(slow, 8) == [b"%d" % number for number in range(17, 25)]


@pytest.mark.broker(log=TRIMMED)
async def test_the_last_message_id_is_the_views_if_the_log_has_no_more(room: Room) -> None:
    peer = await protected(room)
    peer.send_entry(batch([("a", b"1"), ("b", b"2")]))
    await peer.receive()
    await publish(peer, ("b", b"3"), ("b", b""))
    found = await reader(room)
    assert await found.payloads(3)
    assert await found.last_message_id() == (0, 2, -1)
    await compact(room)
    assert await found.last_message_id() == (0, 0, 0)
    plain = await room.connect()
    await plain.subscribe(name="plain")
    assert await plain.last_message_id() == (0, 2, -1)
    await publish(peer, ("b", b"4"))
    assert await got(found, 1) == [b"4"]
    assert await found.last_message_id() == (0, 3, -1)


async def test_a_topic_of_which_nothing_is_left_has_an_empty_view(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"), ("a", b""))
    await compact(room)
    found = await reader(room)
    assert await got(found, 0) == []
    assert await found.last_message_id() == (U64, U64, -1)
    await publish(peer, ("a", b"2"))
    assert await got(found, 1) == [b"2"]


U64 = (1 << 64) - 1


async def test_a_durable_subscription_acknowledges_in_the_view(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, *[(f"k{number % 4}", b"%d" % number) for number in range(25)])
    await compact(room)
    consumer = await room.connect()
    await consumer.subscribe(name="d", read_compacted=True, subType=SUB.Failover)
    await consumer.receive()
    consumer.flow(100)
    messages = [await consumer.message() for _ in range(4)]
    assert [value for _, value in messages] == [b"21", b"22", b"23", b"24"]
    await consumer.answered_ack(messages[1][0].message_id, cumulative=True)
    await consumer.answered_ack(messages[3][0].message_id)
    await consumer.closed_by_us()
    again = await room.connect()
    await again.subscribe(name="d", read_compacted=True, subType=SUB.Failover)
    await again.receive()
    again.flow(100)
    assert await got(again, 1) == [b"23"]


async def test_only_one_consumer_at_a_time_reads_compacted(peer: Peer) -> None:
    for kind in (SUB.Shared, SUB.Key_Shared):
        peer.ask_subscribe(read_compacted=True, subType=kind)
        assert (await peer.error())[0] == pb.NotAllowedError


async def test_a_compaction_runs_once_at_a_time_and_not_of_the_servers_topics(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"))
    found = compaction_of(await room.topic())
    found.start()
    with pytest.raises(CompactionRunningError, match="already in progress"):
        found.start()
    await until(lambda: found.status == SUCCESS)
    events = "persistent://public/default/__change_events"
    await peer.producer(events, 2)
    compacted = compaction_of(await room.topic(events))
    compacted.start()  # the last message of each key counts
    await until(lambda: compacted.status == SUCCESS)
    with pytest.raises(NotAllowedError, match="nowhere else"):
        await compacted.drop()
    other = "persistent://public/default/__transaction_log_x"
    await peer.producer(other, 3)
    with pytest.raises(NotAllowedError):
        compaction_of(await room.topic(other)).start()


async def test_a_failed_compaction_leaves_the_old_view_and_no_ledger(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"))
    found = await compact(room)
    before = found.view
    await publish(peer, ("a", b"2"))
    room.cluster.ledgers.full = True
    found.start()
    await until(lambda: found.status == ERROR)
    assert "disk is full" in found.error
    room.cluster.ledgers.full = False
    assert found.view is before
    assert compacted_ledgers(room) == [before.ledger_id]
    assert await no_leftovers(room)
    assert (found.counts.failed, found.counts.succeeded) == (1, 1)
    await compact(room)
    assert await got(await reader(room), 1) == [b"2"]


async def no_ledger(*_: object) -> Any:
    raise LedgerWriteError("no bookies")


async def test_a_position_that_could_not_be_stored_keeps_both_ledgers_until_it_is(monkeypatch, room, peer):
    await peer.producer()
    await publish(peer, ("a", b"1"))
    found = await compact(room)
    await publish(peer, ("a", b"2"))
    topic = await room.topic()
    store = topic.ledger.cursors[COMPACTION_CURSOR].store
    assert store is not None
    monkeypatch.setattr(StoredNode, "new_ledger", no_ledger)
    store.leave_ledger()
    found.start()
    await until(lambda: found.status == ERROR)
    assert len(compacted_ledgers(room)) == 2
    monkeypatch.undo()
    await compact(room)
    assert compacted_ledgers(room) == [found.view.ledger_id]


@pytest.mark.broker(compaction_threshold_bytes=1000, compaction_check_interval_s=10)
async def test_enough_new_bytes_compact_a_topic_by_itself(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, *[("a", b"x" * 300)] * 3)
    await trio.sleep(25)
    topic: Any = await room.topic()
    assert not topic.compaction
    await publish(peer, ("a", b"x" * 300))
    await until(lambda: topic.compaction is not None and topic.compaction.status == SUCCESS)
    ledger_id = topic.compaction.view.ledger_id
    await publish(peer, *[("a", b"x" * 300)] * 3)
    await trio.sleep(25)
    assert topic.compaction.view.ledger_id == ledger_id


async def test_after_a_new_load_the_view_is_there_and_leftovers_go(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"), ("a", b"2"))
    found = await compact(room)
    topic = await room.topic()
    services = topic.ledger.cursor_services
    left = await new_ledger(services, topic.name, found.view.ledger_id, Position(0, 1))
    assert not await no_leftovers(room)
    room.broker.topics.close_soon(topic)
    await topic.ledger.closed.wait()
    assert await got(await reader(room), 1) == [b"2"]
    assert (await room.topic()) is not topic
    await until(lambda: left.ledger_id not in room.cluster.ledgers.stored)
    assert compacted_ledgers(room) == [found.view.ledger_id]
    assert await no_leftovers(room)


async def test_a_deleted_topic_leaves_no_compacted_ledger() -> None:
    for loaded in (True, False):
        async with in_broker() as room:
            peer = await room.connect()
            await peer.producer()
            await publish(peer, ("a", b"1"))
            await compact(room)
            topic = await room.topic()
            await peer.closed_by_us()
            if not loaded:
                room.broker.topics.close_soon(topic)
                await topic.ledger.closed.wait()
            await room.broker.topics.delete(topic.name, force=False)
            assert room.cluster.ledgers.stored == {}
            assert await no_leftovers(room)


async def test_a_topic_that_is_deleted_while_it_is_compacted_leaves_no_ledger(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"))
    await compact(room)
    await publish(peer, ("a", b"2"))
    topic = await room.topic()
    room.cluster.ledgers.hold = True
    topic.compaction.start()
    await until(lambda: len(compacted_ledgers(room)) == 2)
    room.cluster.ledgers.hold = False
    await room.broker.topics.delete(topic.name, force=True)
    assert room.cluster.ledgers.stored == {}
    assert await no_leftovers(room)


@pytest.mark.expect_error("compacted ledger is gone")
async def test_a_lost_compacted_ledger_leaves_the_log(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"), ("a", b"2"))
    found = await compact(room)
    topic = await room.topic()
    room.broker.topics.close_soon(topic)
    await topic.ledger.closed.wait()
    await room.cluster.ledgers.delete(found.view.ledger_id)
    assert await got(await reader(room), 2) == [b"1", b"2"]
    assert (await room.topic()).compaction.view is None


@pytest.mark.broker(compaction_threshold_bytes=7)
async def test_the_policies_of_namespace_and_topic_set_the_threshold(room: Room, peer: Peer) -> None:
    await peer.producer()
    held = (await room.topic()).policies
    assert held is not None
    assert held.value(COMPACTION_THRESHOLD) == 7
    store = room.cluster.stores[0]
    for policies, expected in (({"compaction_threshold": 0}, 0), ({"compaction_threshold": 1 << 40}, 1 << 40)):
        await store.multi([Put(path=NAMESPACE, value=encode_json(policies), version=ANY_VERSION)])
        await trio.testing.wait_all_tasks_blocked()  # the change is known
        assert held.value(COMPACTION_THRESHOLD) == expected
    await room.broker.policies.update(TopicName.parse(TOPIC), lambda own: {**own, "compactionThreshold": 300})
    assert (await room.broker.policies.load(TopicName.parse(TOPIC))).value(COMPACTION_THRESHOLD) == 300


async def test_compactions_are_counted_in_metrics(room: Room, peer: Peer) -> None:
    await peer.producer()
    await publish(peer, ("a", b"1"), ("a", b"2"), ("b", b"3"))
    await compact(room)
    scraped = Scraped(room)
    assert scraped["pulsar_compaction_succeed_count"] == 1
    assert scraped["pulsar_compaction_failed_count"] == 0
    assert scraped["pulsar_compaction_removed_event_count"] == 1
    assert scraped["pulsar_compaction_compacted_entries_count"] == 2
    assert scraped["pulsar_compaction_compacted_entries_size"] > 0
