"""Deduplication, through the commands of clients: what they send twice is stored once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR
from quire.ledger.errors import LedgerWriteError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, U64_MAX, C, entry
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAMED: dict[str, Any] = {"producer_name": "p"}


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(deduplication=True, deduplication_entries_interval=5) as room:
        yield room


async def joined(peer: Peer, **options: Any) -> int:
    """Connect the producer; return the last sequence id it is told."""
    peer.ask_producer(**{**NAMED, **options})
    return (await peer.expect(C.PRODUCER_SUCCESS)).producer_success.last_sequence_id


def send(
    peer: Peer, first: int, last: int | None = None, *, text: str = "", producer_id: int = 1, **fields: Any
) -> None:
    """Send a message, or the batch of messages `first` to `last`."""
    body = pb.CommandSend(producer_id=producer_id, sequence_id=first, num_messages=1)
    if last is not None:
        body.highest_sequence_id = last
        body.num_messages = last - first + 1
        fields = {"num_messages_in_batch": body.num_messages, "highest_sequence_id": last, **fields}
    if "uuid" in fields:
        body.is_chunk = True
    tail = entry((text or f"m{first}").encode(), sequence_id=first, **{**NAMED, **fields})
    peer.send(C(type=C.SEND, send=body), tail)


async def receipts(peer: Peer, count: int) -> str:
    """Return the answers of `count` sends: `5` was stored, `5=` was a duplicate."""
    found = []
    for _ in range(count):
        receipt = (await peer.expect(C.SEND_RECEIPT)).send_receipt
        duplicate = receipt.message_id.ledgerId == U64_MAX and receipt.message_id.entryId == U64_MAX
        found.append(f"{receipt.sequence_id}{'=' if duplicate else ''}")
    return " ".join(found)


async def stored(room: Room) -> list[str]:
    """Return the payloads that the topic has."""
    peer = await room.connect()
    peer.ask_subscribe(name="look", durable=False, initialPosition=SUB.Earliest)
    await peer.expect(C.SUCCESS)
    [topic] = room.broker.topics.loaded()
    peer.flow(100)
    found = [payload.decode() for payload in await peer.payloads(topic.ledger.entry_count)]
    await peer.closed_by_us()
    return found


async def reload(room: Room) -> None:
    """Drop the topic as at a crash: nothing is stored; the next use opens it."""
    [topic] = room.broker.topics.loaded()
    topic.abandon()
    room.broker.topics.close_soon(topic)
    del room.broker.topics._loaded[TOPIC]


async def snapshot_taken(room: Room) -> None:
    """Wait until fewer entries follow the durable snapshot than ask for another."""
    [topic] = room.broker.topics.loaded()
    cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
    await until(lambda: topic.ledger.count_between(cursor.durable_mark_delete, topic.ledger.last_confirmed) < 5)


async def under_way(room: Room) -> None:
    """Wait until the log has a send of the producer that is not durable."""
    [topic] = room.broker.topics.loaded()
    await until(lambda: topic.ledger.pending_bytes)


def hold(room: Room) -> None:
    for writer in room.cluster.ledgers.writers.values():
        writer.held = True


async def test_what_is_sent_twice_is_stored_once_and_answered_in_order(room: Room, peer: Peer) -> None:
    assert await joined(peer) == -1
    for sequence_id in (0, 1, 1, 0, 5, 3, 6):
        send(peer, sequence_id)
    assert await receipts(peer, 3) == "0 1 1="
    assert await receipts(peer, 4) == "0= 5 3= 6"
    assert await stored(room) == ["m0", "m1", "m5", "m6"]


async def test_a_run_of_sends_is_judged_send_by_send_only_where_it_has_to_be(room: Room, peer: Peer) -> None:
    await joined(peer)
    send(peer, 0)
    send(peer, 1)
    assert await receipts(peer, 2) == "0 1"
    for sequence_id in range(5):  # one pass: the first two are duplicates
        send(peer, sequence_id)
    assert await receipts(peer, 5) == "0= 1= 2 3 4"
    assert await stored(room) == [f"m{number}" for number in range(5)]


async def test_batches_count_with_their_highest_sequence_id(room: Room, peer: Peer) -> None:
    await joined(peer)
    send(peer, 0, 9)
    send(peer, 10, 19)
    send(peer, 0, 9)
    send(peer, 10, 19)
    send(peer, 15, 19)
    send(peer, 20)
    assert await receipts(peer, 6) == "0 10 0= 10= 15= 20"
    assert await joined(await room.connect(), producer_id=2, producer_name="other") == -1
    await peer.end_producer()
    assert await joined(peer) == 20


async def test_batches_that_do_not_say_their_highest_sequence_id_count_their_messages(room: Room, peer: Peer) -> None:
    await joined(peer)

    def batch(first: int, count: int) -> None:
        body = pb.CommandSend(producer_id=1, sequence_id=first, num_messages=count)
        fields = {"num_messages_in_batch": count, **NAMED}
        peer.send(C(type=C.SEND, send=body), entry(b"batch", sequence_id=first, **fields))

    batch(0, 10)
    batch(10, 2)
    batch(0, 10)
    send(peer, 11)
    assert await receipts(peer, 4) == "0 10 0= 11="
    await snapshot_taken(room)
    await reload(room)
    await peer.expect(C.CLOSE_PRODUCER)
    assert await joined(peer, epoch=1) == 11


async def test_producers_are_told_apart_by_name(room: Room, peer: Peer) -> None:
    await joined(peer)
    await joined(peer, producer_id=2, producer_name="q")
    send(peer, 7)
    send(peer, 7, producer_id=2, text="q7", producer_name="q")
    assert await receipts(peer, 2) == "7 7"
    assert await stored(room) == ["m7", "q7"]


@pytest.mark.parametrize("count", [3, 12])
async def test_what_was_stored_before_a_crash_is_known_after_it(room: Room, peer: Peer, count: int) -> None:
    await joined(peer)
    for sequence_id in range(count):
        send(peer, sequence_id)
    await receipts(peer, count)
    await snapshot_taken(room)
    await reload(room)
    await peer.expect(C.CLOSE_PRODUCER)
    assert await joined(peer, epoch=1) == count - 1
    for sequence_id in range(count - 2, count + 2):
        send(peer, sequence_id)
    assert await receipts(peer, 4) == f"{count - 2}= {count - 1}= {count} {count + 1}"
    assert await stored(room) == [f"m{number}" for number in range(count + 2)]


async def test_a_producer_whose_entries_are_all_before_the_snapshot_is_known_after_a_crash(room: Room) -> None:
    peer = await room.connect()
    await joined(peer, producer_id=2, producer_name="early")
    send(peer, 7, producer_id=2, producer_name="early")
    await receipts(peer, 1)
    await joined(peer)
    for sequence_id in range(12):
        send(peer, sequence_id)
    await receipts(peer, 12)
    [topic] = room.broker.topics.loaded()
    cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
    await until(lambda: topic.ledger.count_between(cursor.durable_mark_delete, topic.ledger.last_confirmed) < 5)
    await reload(room)
    for _ in range(2):
        await peer.expect(C.CLOSE_PRODUCER)
    assert await joined(peer, epoch=1, producer_name="early") == 7
    assert await joined(peer, epoch=1, producer_id=2) == 11


async def test_a_snapshot_is_taken_after_so_many_entries_and_lets_the_rest_be_trimmed(room: Room, peer: Peer) -> None:
    await joined(peer)
    for sequence_id in range(12):
        send(peer, sequence_id)
    await receipts(peer, 12)
    [topic] = room.broker.topics.loaded()
    cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
    await until(lambda: topic.ledger.count_between(cursor.durable_mark_delete, topic.ledger.last_confirmed) < 5)
    # Exactly what the log has up to there: a resend after a crash is judged by it and by what follows.
    assert cursor.properties["p"] == topic.ledger.count_between(Position(-1, -1), cursor.mark_delete) - 1
    assert not cursor.active


async def test_a_snapshot_is_taken_after_so_much_time() -> None:
    async with in_broker(
        deduplication=True, deduplication_check_interval_s=60, deduplication_snapshot_interval_s=120
    ) as room:
        peer = await room.connect()
        await joined(peer)
        send(peer, 0)
        await receipts(peer, 1)
        [topic] = room.broker.topics.loaded()
        cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
        await peer.silent(110)
        assert cursor.properties == {}
        await peer.silent(80)
        assert cursor.properties == {"p": 0}
        await until(lambda: cursor.durable_mark_delete == topic.ledger.last_confirmed)


async def test_producers_that_are_gone_for_long_are_forgotten() -> None:
    async with in_broker(deduplication=True, deduplication_check_interval_s=60, deduplication_inactivity_s=600) as room:
        peer = await room.connect()
        await joined(peer)
        await joined(peer, producer_id=2, producer_name="stays")
        send(peer, 0)
        send(peer, 0, producer_id=2, producer_name="stays")
        await receipts(peer, 2)
        await peer.end_producer()
        [topic] = room.broker.topics.loaded()
        assert topic.deduplication is not None
        await peer.silent(500)
        assert topic.deduplication.sequences.persisted == {"p": 0, "stays": 0}
        await peer.silent(200)
        assert topic.deduplication.sequences.persisted == {"stays": 0}
        assert topic.ledger.cursors[DEDUPLICATION_CURSOR].properties == {"stays": 0}


async def test_a_producer_that_returns_waits_until_what_it_sent_is_durable(room: Room) -> None:
    peer, again = await room.connect(), await room.connect()
    await joined(peer)
    send(peer, 0)
    await receipts(peer, 1)
    hold(room)
    send(peer, 1)
    await under_way(room)
    await peer.closed_by_us()
    again.ask_producer(**NAMED)
    assert await again.silent(2)
    room.cluster.ledgers.release()
    assert (await again.expect(C.PRODUCER_SUCCESS)).producer_success.last_sequence_id == 1
    send(again, 1)
    assert await receipts(again, 1) == "1="
    assert await stored(room) == ["m0", "m1"]


async def test_a_producer_does_not_wait_for_ever(room: Room) -> None:
    peer, again = await room.connect(), await room.connect()
    await joined(peer)
    hold(room)
    send(peer, 0)
    await under_way(room)
    await peer.closed_by_us()
    assert await again.refused_producer(**NAMED) == pb.ServiceNotReady
    [topic] = room.broker.topics.loaded()
    assert not topic.producers
    room.cluster.ledgers.release()


async def test_a_duplicate_of_a_send_on_its_way_is_answered_when_that_is_durable(room: Room, peer: Peer) -> None:
    await joined(peer)
    send(peer, 0)
    await receipts(peer, 1)
    hold(room)
    for sequence_id in (1, 0, 1, 2):
        send(peer, sequence_id)
    assert await peer.silent(0.5)
    room.cluster.ledgers.release()
    assert await receipts(peer, 4) == "1 0= 1= 2"
    assert await stored(room) == ["m0", "m1", "m2"]


async def test_a_duplicate_of_a_send_that_fails_is_not_confirmed(room: Room, peer: Peer) -> None:
    await joined(peer)
    ledgers = room.cluster.ledgers
    hold(room)
    send(peer, 0)
    send(peer, 0)
    await under_way(room)  # both come in one pass, and the second waits for the first
    ledgers.failures["create"] = [LedgerWriteError("away")] * 1000
    for writer in ledgers.writers.values():
        writer.fail(LedgerWriteError("broken"))
    assert (await peer.expect(C.SEND_ERROR)).send_error.sequence_id == 0
    await peer.expect(C.CLOSE_PRODUCER)
    ledgers.failures.clear()
    assert await joined(peer, epoch=1) == -1
    send(peer, 0)
    assert await receipts(peer, 1) == "0"
    assert await stored(room) == ["m0"]


async def test_after_a_failed_append_the_log_tells_what_it_has(room: Room, peer: Peer) -> None:
    await joined(peer)
    send(peer, 0)
    await receipts(peer, 1)
    ledgers = room.cluster.ledgers
    [writer] = [each for each in ledgers.writers.values() if each.stored.entries]
    writer.held = True
    send(peer, 1)
    await under_way(room)
    # It is on the bookies, but its writer fails, and no ledger can follow for longer than appends wait.
    writer.store(1)
    ledgers.failures["create"] = [LedgerWriteError("away")] * 1000
    writer.fail(LedgerWriteError("broken"))
    await peer.expect(C.SEND_ERROR)
    await peer.expect(C.CLOSE_PRODUCER)
    ledgers.failures.clear()
    last = await joined(peer, epoch=1)
    send(peer, 1)
    assert await receipts(peer, 1) == ("1=" if last == 1 else "1")
    assert await stored(room) == ["m0", "m1"]


async def test_of_a_chunked_message_the_last_part_decides(room: Room, peer: Peer) -> None:
    await joined(peer)

    def chunk(index: int, sequence_id: int) -> None:
        fields: dict[str, Any] = {"uuid": f"u{sequence_id}", "chunk_id": index, "num_chunks_from_msg": 3}
        send(peer, sequence_id, text=f"m{sequence_id}.{index}", **fields)

    chunk(0, 0)
    chunk(1, 0)
    assert await receipts(peer, 2) == "0 0"
    await snapshot_taken(room)
    await reload(room)  # in the middle of it
    await peer.expect(C.CLOSE_PRODUCER)
    assert await joined(peer, epoch=1) == -1
    for index in range(3):
        chunk(index, 0)
    send(peer, 1)
    assert await receipts(peer, 4) == "0 0 0 1"
    for index in range(3):
        chunk(index, 0)
    assert await receipts(peer, 3) == "0= 0= 0="
    assert await stored(room) == ["m0.0", "m0.1", "m0.0", "m0.1", "m0.2", "m1"]


async def test_the_name_of_the_cursor_is_not_a_subscription(room: Room, peer: Peer) -> None:
    await joined(peer)
    assert await peer.refused_consumer(name=DEDUPLICATION_CURSOR) == pb.ProducerBusy
    await reload(room)
    await peer.expect(C.CLOSE_PRODUCER)
    await joined(peer, epoch=1)
    [topic] = room.broker.topics.loaded()
    assert topic.subscriptions == {}


async def test_a_ledger_switch_disconnects_no_producer_and_loses_no_order(room: Room, peer: Peer) -> None:
    await joined(peer)
    for sequence_id in range(35):  # ten entries a ledger
        send(peer, sequence_id)
        send(peer, max(sequence_id - 1, 0))
    answers = await receipts(peer, 70)
    assert answers.count("=") == 35
    assert len({info.ledger_id for info in (await room.topic()).ledger.ledgers}) > 2
    assert await stored(room) == [f"m{number}" for number in range(35)]


NAMESPACE = "/admin/policies/public/default"
OWN = "/admin/topic-policies/local/public/default/persistent/orders"


async def test_a_topic_follows_its_policies() -> None:
    async with in_broker() as room:
        peer, store = await room.connect(), room.cluster.stores[0]
        await joined(peer)
        send(peer, 0)
        send(peer, 0)
        assert await receipts(peer, 2) == "0 0"
        await store.put(NAMESPACE, b'{"deduplicationEnabled":true}', -1)
        await peer.expect(C.CLOSE_PRODUCER)  # it is loaded again
        assert await joined(peer, epoch=1) == -1
        send(peer, 1)
        send(peer, 1)
        assert await receipts(peer, 2) == "1 1="
        await store.create(OWN, b'{"deduplicationEnabled":false}', make_parents=True)
        [topic] = room.broker.topics.loaded()
        await until(lambda: DEDUPLICATION_CURSOR not in topic.ledger.cursors)
        send(peer, 1)
        send(peer, 2)
        assert await receipts(peer, 2) == "1 2"
        await store.delete(OWN)
        await peer.expect(C.CLOSE_PRODUCER)
        assert await joined(peer, epoch=2) == -1
        assert await stored(room) == ["m0", "m0", "m1", "m1", "m2"]


async def test_a_topic_without_producers_follows_its_policies_when_the_next_one_comes() -> None:
    async with in_broker() as room:
        peer, store = await room.connect(), room.cluster.stores[0]
        await joined(peer)
        await peer.end_producer()
        [before] = room.broker.topics.loaded()
        await store.put(NAMESPACE, b'{"deduplicationEnabled":true}', -1)
        await peer.silent(1)
        assert room.broker.topics.loaded() == [before]
        await joined(peer)
        send(peer, 1)
        send(peer, 1)
        assert await receipts(peer, 2) == "1 1="


async def test_a_cursor_that_is_not_needed_any_more_is_deleted_when_the_topic_is_loaded(room: Room, peer: Peer) -> None:
    await joined(peer)
    send(peer, 0)
    await receipts(peer, 1)
    await room.cluster.stores[0].create(OWN, b'{"deduplicationEnabled":false}', make_parents=True)
    await reload(room)
    await peer.expect(C.CLOSE_PRODUCER)
    await joined(peer, epoch=1)
    [topic] = room.broker.topics.loaded()
    assert dict(topic.ledger.cursors) == {}


async def test_topics_of_the_system_have_no_deduplication(room: Room, peer: Peer) -> None:
    await joined(peer, topic="persistent://public/default/__transaction_log")
    [topic] = room.broker.topics.loaded()
    assert topic.deduplication is None
