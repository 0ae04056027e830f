"""Internal state of a topic: consistent, under the original's names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import trio

from broker.admin.administration import LATEST
from broker.admin.stats import internal_stats
from broker.admin.stats.internal_stats import take
from broker.errors import IsPartitionedError
from cursors.cursor import Cursor
from quire.ledger.position import Position
from quire.metadata import ledger_codec
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.metadata.ledgers import ledger_path
from quire.wire.pulsar.MLDataFormats_pb2 import OffloadContext
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, C, entry
from tests.support.waiting import until
from tests.unit.broker.counted_steps import Counted
from tests.unit.broker.peers import TOPIC, Peer, Room

NAME = TopicName.parse(TOPIC)
SIZE = len(entry(b"m", sequence_id=0))


async def publish(peer: Peer, count: int) -> list[Any]:
    await peer.producer()
    return await peer.publish(*[b"m"] * count)


async def test_a_ledger_that_the_original_offloaded_is_named_as_such(room: Room, peer: Peer) -> None:
    await publish(peer, 25)
    topic = await room.topic()
    await until(lambda: topic.ledger.state.name == "OPEN")
    context = OffloadContext(uidMsb=1, uidLsb=2, complete=True).SerializeToString()
    first, *others = topic.ledger.ledgers
    begun = replace(others[0], offload=OffloadContext(uidMsb=1, uidLsb=3).SerializeToString())
    changed = (replace(first, offload=context), begun, *others[1:])
    topic.ledger._stored.change_of(lambda value: replace(value, ledgers=changed))
    stats: Any = (await room.broker.administration.internal_stats(NAME)).as_json()
    assert [each["offloaded"] for each in stats["ledgers"]] == [True, False, False]


async def test_ledgers_end_and_sizes_fit_together(room: Room, peer: Peer) -> None:
    ids = await publish(peer, 25)
    topic = await room.topic()
    await until(lambda: topic.ledger.state.name == "OPEN")
    stats = await room.broker.administration.internal_stats(NAME)
    assert [(each.entries, each.size) for each in stats.ledgers] == [(10, 10 * SIZE), (10, 10 * SIZE), (0, 0)]
    assert [each.ledger_id for each in stats.ledgers] == sorted({each.ledgerId for each in ids})
    assert (stats.current_ledger_id, stats.current_ledger_entries) == (ids[-1].ledgerId, 5)
    assert (stats.current_ledger_size, stats.total_size) == (5 * SIZE, 25 * SIZE)
    assert (stats.entry_count, stats.entries_added, stats.pending_adds) == (25, 25, 0)
    assert stats.last_confirmed == (ids[-1].ledgerId, 4)
    assert stats.state == "LedgerOpened"


async def test_every_ledger_in_the_metadata_is_one_that_a_topic_shows(room: Room, peer: Peer) -> None:
    """The ledger that was created ahead is included, because a ledger that no topic shows counts as lost."""
    await publish(peer, 9)  # in ledgers of ten entries
    topic = await room.topic()
    await until(lambda: topic.ledger.appends.next_ledger_id >= 0)
    stats = await room.broker.administration.internal_stats(NAME)
    shown = {each.ledger_id for each in stats.ledgers}
    made: Any = stats.as_json()["nextLedger"]
    assert shown | {made["ledgerId"]} == set(room.cluster.ledgers.writers)
    assert made["ledgerId"] not in shown
    await peer.publish(b"m", b"m", first=9)
    stats = await room.broker.administration.internal_stats(NAME)
    assert stats.current_ledger_id == made["ledgerId"]
    assert stats.next_ledger_id == -1


async def test_what_is_not_confirmed_yet_is_counted_as_pending_and_nowhere_else(room: Room, peer: Peer) -> None:
    await publish(peer, 3)
    topic = await room.topic()
    writer: Any = topic.ledger.appends.writer
    writer.held = True
    for number in range(3, 5):
        peer.send_message(b"m", number)
    await until(lambda: writer.last_pushed == 4)
    stats = await room.broker.administration.internal_stats(NAME)
    assert (stats.entry_count, stats.current_ledger_entries, stats.pending_adds) == (3, 3, 2)
    assert (stats.current_ledger_size, stats.total_size) == (3 * SIZE, 3 * SIZE)
    writer.held = False
    writer.confirm()


async def test_at_no_moment_of_a_change_of_ledgers_do_list_and_end_contradict_each_other(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    topic = await room.topic()
    states: set[str] = set()
    wrong: list[AssertionError] = []

    def check() -> None:
        stats = take(topic, {}, show_metadata=False)
        entries = {each.ledger_id: each.entries for each in stats.ledgers}
        assert all(count > 0 for count in list(entries.values())[:-1])
        assert stats.ledgers[-1].entries == 0
        entries[stats.ledgers[-1].ledger_id] = stats.current_ledger_entries
        assert stats.ledgers[-1].ledger_id == stats.current_ledger_id
        assert sum(entries.values()) == stats.entry_count == stats.entries_added
        if stats.entry_count:
            ledger_id, entry_id = stats.last_confirmed
            assert entries[ledger_id] == entry_id + 1
            assert all(not count for each, count in entries.items() if each > ledger_id)
        assert stats.total_size == stats.entry_count * SIZE
        states.add(stats.state)

    class Look(trio.abc.Instrument):
        def after_task_step(self, task: object) -> None:
            try:
                check()
            except AssertionError as error:
                wrong.append(error)

    look = Look()
    room.cluster.ledgers.delay_s = 0.5
    trio.lowlevel.add_instrument(look)
    await peer.publish(*[b"m"] * 95)
    trio.lowlevel.remove_instrument(look)
    assert not wrong, wrong[0]
    assert {"LedgerOpened", "ClosingLedger"} <= states


async def test_a_cursor_tells_where_it_is_and_what_it_has(room: Room, peer: Peer) -> None:
    admin = room.broker.administration
    await admin.create_subscription(NAME, "idle", LATEST)
    ids = await publish(peer, 8)
    await peer.subscribe(subType=SUB.Shared, permits=100)
    await peer.payloads(8)
    await peer.answered_ack(ids[0], ids[2], ids[3], ids[5])
    stats = await admin.internal_stats(NAME)
    found = dict(stats.cursors)
    ledger = ids[0].ledgerId
    cursor = found["s"]
    assert (cursor.mark_delete, cursor.read_position) == (Position(ledger, 0), Position(ledger, 8))
    assert (cursor.ranges_count, cursor.last_range) == (2, None)
    assert (cursor.consumed, cursor.entries_since_first_unacked) == (4, 7)
    assert (cursor.active, cursor.waiting_read, cursor.reading) == (True, True, False)
    assert cursor.cursor_ledger_id >= 0
    assert cursor.state == "Open"
    idle = found["idle"]
    assert (idle.mark_delete, idle.read_position) == (Position(ledger, -1), Position(ledger, 0))
    assert (idle.active, idle.waiting_read, idle.cursor_ledger_id, idle.state) == (False, False, -1, "NoLedger")
    assert (idle.consumed, idle.entries_since_first_unacked) == (0, 0)
    assert stats.waiting_cursors == 1
    shown: Any = stats.as_json()["cursors"]
    assert shown["s"]["individuallyDeletedMessages"] == f"[({ledger}:1..{ledger}:3],({ledger}:4..{ledger}:5]]"
    assert shown["s"]["totalNonContiguousDeletedMessagesRange"] == 2
    assert shown["idle"]["individuallyDeletedMessages"] == "[]"


async def test_many_ranges_of_a_cursor_are_shown_whole_and_read_in_steps(
    room: Room, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await publish(peer, 16)
    await peer.subscribe(subType=SUB.Shared, permits=100)
    await peer.payloads(16)
    await peer.answered_ack(*ids[1::2])
    in_step = Counted()
    read = Cursor.ack_ranges

    def counting(cursor: Cursor, *given: Any, **named: Any) -> list[tuple[int, int, int]]:
        found = read(cursor, *given, **named)
        in_step.now += len(found)
        return found

    monkeypatch.setattr(internal_stats, "RANGES_IN_STEP", 3)
    monkeypatch.setattr(Cursor, "ack_ranges", counting)
    trio.lowlevel.add_instrument(in_step)
    await trio.lowlevel.checkpoint()
    stats = (await room.broker.administration.internal_stats(NAME)).as_json()
    await trio.lowlevel.checkpoint()
    trio.lowlevel.remove_instrument(in_step)
    shown: Any = stats["cursors"]
    places = [(each.ledgerId, each.entryId) for each in ids[1::2]]
    ranges = ",".join(f"({ledger}:{entry - 1}..{ledger}:{entry}]" for ledger, entry in places)
    assert shown["s"]["individuallyDeletedMessages"] == f"[{ranges}]"
    assert shown["s"]["totalNonContiguousDeletedMessagesRange"] == 8
    assert 0 < in_step.most <= 3


async def test_the_json_has_every_name_that_tools_read(room: Room) -> None:
    await room.broker.administration.create_subscription(NAME, "s", LATEST)
    found = json.loads(json.dumps((await room.broker.administration.internal_stats(NAME)).as_json()))
    assert set(found) == set(
        [
            "entriesAddedCounter",
            "numberOfEntries",
            "totalSize",
            "currentLedgerEntries",
            "currentLedgerSize",
            "nextLedger",
            "lastLedgerCreatedTimestamp",
            "lastLedgerCreationFailureTimestamp",
            "waitingCursorsCount",
            "pendingAddEntriesCount",
            "lastConfirmedEntry",
            "state",
            "ledgers",
            "cursors",
            "schemaLedgers",
            "compactedLedger",
            "properties",
        ]
    )
    assert set(found["ledgers"][0]) == set(
        ["ledgerId", "entries", "size", "offloaded", "metadata", "underReplicated", "properties"]
    )
    assert set(found["cursors"]["s"]) == set(
        [
            "markDeletePosition",
            "readPosition",
            "waitingReadOp",
            "pendingReadOps",
            "messagesConsumedCounter",
            "cursorLedger",
            "cursorLedgerLastEntry",
            "individuallyDeletedMessages",
            "lastLedgerSwitchTimestamp",
            "state",
            "active",
            "numberOfEntriesSinceFirstNotAckedMessage",
            "totalNonContiguousDeletedMessagesRange",
            "subscriptionHavePendingRead",
            "subscriptionHavePendingReplayRead",
            "properties",
        ]
    )
    ledger_id = found["ledgers"][0]["ledgerId"]
    assert found["lastConfirmedEntry"] == f"{ledger_id}:-1"
    assert found["cursors"]["s"]["markDeletePosition"] == f"{ledger_id}:-1"
    assert found["cursors"]["s"]["readPosition"] == f"{ledger_id}:0"


async def test_a_ledgers_metadata_is_shown_to_who_asks_for_it(room: Room, peer: Peer) -> None:
    ids = await publish(peer, 15)
    topic = await room.topic()
    await until(lambda: topic.ledger.state.name == "OPEN")
    closed = LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(0, ("b:1",)),),
        state=LedgerState.CLOSED,
        last_entry_id=9,
        length=70,
        password=b"secret",
    )
    opened = LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(0, ("b:1",)),),
        ctime_ms=1_700_000_000_123,
    )
    store = room.cluster.stores[0]
    for ledger_id, metadata in ((ids[0].ledgerId, closed), (ids[-1].ledgerId, opened)):
        path = ledger_path("/ledgers", ledger_id)
        if await store.get(path) is not None:
            await store.put(path, ledger_codec.encode(metadata), -1)
        else:
            await store.create(path, ledger_codec.encode(metadata), make_parents=True)
    admin = room.broker.administration
    plain: Any = (await admin.internal_stats(NAME)).as_json()
    assert [each["metadata"] for each in plain["ledgers"]] == ["", ""]
    assert plain["lastLedgerCreatedTimestamp"] == "2023-11-14T22:13:20.123Z"
    shown: Any = (await admin.internal_stats(NAME, True)).as_json()
    texts = [each["metadata"] for each in shown["ledgers"]]
    assert "state=CLOSED, length=70, lastEntryId=9" in texts[0]
    assert "ensembles={0=[b:1]}" in texts[0]
    assert "secret" not in texts[0]
    assert "state=OPEN, digestType" in texts[1]


async def test_a_partitioned_topic_has_an_inside_in_each_partition_only(room: Room) -> None:
    admin = room.broker.administration
    await admin.create_partitioned_topic(NAME, 2)
    try:
        await admin.internal_stats(NAME)
    except IsPartitionedError:
        pass
    else:
        raise AssertionError("a partitioned topic was looked into")
    assert (await admin.internal_stats(NAME.with_partition(1))).entry_count == 0


async def test_a_topic_that_was_loaded_anew_shows_what_it_had(room: Room, peer: Peer) -> None:
    ids = await publish(peer, 25)
    room.broker.topics.close_soon(await room.topic())
    await peer.expect(C.CLOSE_PRODUCER)
    stats = await room.broker.administration.internal_stats(NAME)
    assert [each.entries for each in stats.ledgers] == [10, 10, 5]
    assert (stats.entry_count, stats.entries_added, stats.current_ledger_entries) == (25, 0, 0)
    assert (stats.state, stats.current_ledger_id) == ("ClosedLedger", -1)
    assert stats.last_confirmed == (ids[-1].ledgerId, 4)
    assert stats.total_size == 25 * SIZE
