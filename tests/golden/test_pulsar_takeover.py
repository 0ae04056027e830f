"""Topics of Apache Pulsar 4.2.4, running (as after a kill) and stopped, taken over by Quire's broker. The metadata has
Pulsar's nodes, and the bookies named by its ledgers have its entries, under their own ids. Bookies and metadata are in
memory; tests/cluster/test_pulsar_takeover.py uses real ones.
"""

from __future__ import annotations

import pytest

from broker.topics.topic import Topic
from broker.topics.topic_policies.event_schema import event_schema, event_type
from broker.topics.topic_policies.events import changes_in, event_entry, event_value
from managed_ledger.errors import ManagedLedgerTerminatedError
from managed_ledger.ledger_list import decode
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.ledger.position import Position
from quire.metadata.store import Put
from quire.wire.pulsar import PulsarApi_pb2 as api
from quire.wire.pulsar.metadata import peek, read_metadata
from quire.wire.pulsar.names import TopicName, decode_name
from tests.golden.pulsar_files import (
    MOMENTS,
    cursor_nodes,
    entries,
    internal_stats,
    ledgers,
    logs,
    places,
    position,
    ranges_text,
    step,
)
from tests.golden.served import served
from tests.golden.takeover import DEFAULT, NEWER, ORDERS, entries_of, taken_over
from tests.support.pulsar_frames import SUB, U64_MAX
from tests.unit.broker.peers import Peer
from tests.unit.managed_ledger.cluster import publish, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink


@pytest.mark.parametrize("moment", MOMENTS)
async def test_every_topic_has_the_same_messages_and_every_subscription_stands_where_it_stood(moment: str) -> None:
    async with taken_over(moment) as left:
        seen = 0
        async with left.broker() as factory:
            for name in logs(moment):
                log = await factory.open(name, create=False)
                assert await read_all(log) == entries_of(moment, name)
                stats = internal_stats(name)
                if stats is not None and stats["numberOfEntries"]:
                    assert (log.last_confirmed, log.entry_count) == (
                        position(stats["lastConfirmedEntry"]),
                        stats["numberOfEntries"],
                    )
                    if log.state is not State.TERMINATED:
                        assert log.size == stats["totalSize"]
                names = {decode_name(cursor) for of, cursor in cursor_nodes(moment) if of == name}
                assert set(log.cursors) == names
                for subscription, cursor in log.cursors.items():
                    stored = left.stored(name, subscription)
                    if not log.entry_count:  # its one ledger was empty and has gone
                        assert cursor.mark_delete == Position(log.first_position().ledger_id, -1)
                        continue
                    seen += 1
                    assert cursor.mark_delete == stored.mark_delete, (name, subscription)
                    told = None if stats is None else stats["cursors"][subscription]
                    if told is not None and subscription not in ("__compaction", "delayed"):
                        assert cursor.mark_delete == position(told["markDeletePosition"])
                        assert ranges_text(stored) == told["individuallyDeletedMessages"]
                        assert cursor.properties == told["properties"]
                    assert cursor.ack_ranges() == list(stored.ranges.ranges())
            holes = factory.managed_ledgers[ORDERS].cursors["holes"]
            assert holes.ack_set(Position(2, 1)) == [0b10101]
            assert factory.managed_ledgers["public/dedup/persistent/once"].cursors["pulsar.dedup"].properties
        assert seen == 11


@pytest.mark.parametrize("moment", MOMENTS)
async def test_what_is_stored_of_them_afterwards_is_read_by_the_originals_schema_and_nothing_of_it_is_lost(
    moment: str,
) -> None:
    async with taken_over(moment) as left:
        before = {name: decode(value) for name, value in logs(moment).items()}
        for turn in range(2):
            async with left.broker() as factory:
                for name in before:
                    log = await factory.open(name)
                    if log.state is not State.TERMINATED:
                        await publish(log, b"ours")
                for subscription in ("holes", "idle"):
                    cursor = factory.managed_ledgers[ORDERS].cursors[subscription]
                    cursor.ack_individual([Position(4, 3 + turn)])
                    await cursor.wait_persisted()
        for name, old in before.items():
            info = await left.list_of(name)
            assert info.IsInitialized()
            kept = {one.ledger_id: one for one in old.ledgers}
            for one in info.ledgerInfo:
                known = kept.pop(one.ledgerId, None)
                if known is not None and known.entries:
                    assert (one.entries, one.size, one.timestamp) == (known.entries, known.size, known.closed_ms)
                elif known is not None:
                    there = entries(moment)[one.ledgerId]
                    assert (one.entries, one.size) == (len(there), sum(map(len, there)))
                    assert one.timestamp > 0
            assert [ledger_id for ledger_id in kept if entries(moment).get(ledger_id)] == []
            assert [(pair.key, pair.value) for pair in info.properties] == list(old.properties)
        async with left.broker() as factory:
            log = await factory.open(ORDERS)
            assert await read_all(log) == [*entries_of(moment, ORDERS), b"ours", b"ours"]
            assert log.cursors["holes"].ack_set(Position(2, 1)) == [0b10101]
            assert {(4, 3, 4)} <= set(log.cursors["holes"].ack_ranges())
            assert log.cursors["idle"].ack_ranges() == [(4, 3, 4)]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_terminated_topic_stays_so_and_gets_no_ledger(moment: str) -> None:
    async with taken_over(moment) as left:
        async with left.broker() as factory:
            log = await factory.open(f"{DEFAULT}/ended")
            assert (log.state, log.last_confirmed) == (State.TERMINATED, Position(26, 2))
            sink = Sink()
            log.append([b"late"], sink)
            assert [type(error) for error in sink.errors] == [ManagedLedgerTerminatedError]
            reader = log.new_reader_cursor(Position(26, 0))
            assert reader.read_position == Position(26, 1)
        info = await left.list_of(f"{DEFAULT}/ended")
        assert [one.ledgerId for one in info.ledgerInfo] == [26]
        assert (info.terminatedPosition.ledgerId, info.terminatedPosition.entryId) == (26, 2)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_fields_of_a_newer_schema_come_through_an_open_a_roll_and_a_close(moment: str) -> None:
    async with taken_over(moment) as left:
        paths = [log_path(ORDERS), *(f"{log_path(ORDERS)}/{name}" for name in ("holes", "idle", "cumulative"))]
        for path in paths:
            node = await left.store.get(path)
            assert node is not None
            await left.store.multi([Put(path=path, value=node.value + NEWER, version=node.version)])
        async with left.broker() as factory:
            log = await factory.open(ORDERS)
            await publish(log, *[b"%d" % number for number in range(25)])
            for cursor in log.cursors.values():
                cursor.ack_individual([log.last_confirmed])
                await cursor.wait_persisted()
        for path in paths:
            node = await left.store.get(path)
            assert node is not None
            assert node.value.count(NEWER) == 1
            assert node.version > 1


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_compacted_ledger_and_its_digest_are_read(moment: str) -> None:
    async with taken_over(moment) as left:
        async with left.client() as client:
            reader = await client.open(20, recover=False)
            found = await reader.read(0, reader.last_entry_id, size_max=1 << 20)
            assert [bytes(entry) for entry in found] == entries(moment)[20]
        assert ledgers(moment)[20]["digest"] == "CRC32"


async def deliveries(
    peer: Peer, topic: str, subscription: str, count: int, kind: int
) -> list[tuple[tuple[int, int], list[int]]]:
    """Return the next `count` entries: the place, and the bitmap of the wanted messages of a batch."""
    await peer.subscribe(f"persistent://public/default/{topic}", subscription, subType=kind, durable=True)
    peer.flow(1000)
    found: list[tuple[tuple[int, int], list[int]]] = []
    while len(found) < count:
        command, _ = await peer.receive()
        if command.type == api.BaseCommand.MESSAGE:
            message = command.message
            found.append(((message.message_id.ledgerId, message.message_id.entryId), list(message.ack_set)))
    assert await peer.silent(0.5)
    return found


@pytest.mark.parametrize("moment", MOMENTS)
async def test_consumers_get_what_they_had_not_acknowledged_and_nothing_else(moment: str) -> None:
    async with served(moment) as room:
        everything = [
            (info.ledger_id, entry_id)
            for info in decode(logs(moment)[ORDERS]).ledgers
            for entry_id in range(len(entries(moment)[info.ledger_id]))
        ]
        acked = {(2, 0), (2, 3), (2, 6), (2, 8), (3, 0), (3, 1), (3, 2)}
        wanted = [place for place in everything if place not in acked]
        holes = await deliveries(await room.connect(), "orders", "holes", len(wanted), SUB.Shared)
        assert [place for place, _ in holes] == wanted
        assert [(place, bits) for place, bits in holes if bits] == [((2, 1), [0b10101])]
        behind = [place for place in everything if place > (2, 7)]
        cumulative = await deliveries(await room.connect(), "orders", "cumulative", len(behind), SUB.Exclusive)
        assert [place for place, _ in cumulative] == behind
        idle = await deliveries(await room.connect(), "orders", "idle", len(everything), SUB.Shared)
        assert [place for place, _ in idle] == everything
        assert await deliveries(await room.connect(), "later", "made-by-admin", 0, SUB.Shared) == []
        assert await deliveries(await room.connect(), "later", "delayed", 0, SUB.Shared) == []
        later = next(topic for topic in room.broker.topics.loaded() if topic.name.local == "later")
        assert later.subscriptions["delayed"].delayed == 1, "(16, 0) is still delayed, as it was by Pulsar"
        for index in range(3):
            assert await deliveries(await room.connect(), f"parts-partition-{index}", "sub", 0, SUB.Shared) == []


@pytest.mark.parametrize("moment", MOMENTS)
async def test_new_subscribers_read_every_topic_from_its_start(moment: str) -> None:
    async with served(moment) as room:
        for topic, start in {"state": "topic state", "typed": "topic typed", "ended": "topic ended"}.items():
            sent = places(step(start)["ids"])
            found = await deliveries(await room.connect(), topic, "new", len(sent), SUB.Exclusive)
            assert [Position(*place) for place, _ in found] == sent


@pytest.mark.parametrize("moment", MOMENTS)
async def test_producers_are_refused_where_no_more_messages_are_taken(moment: str) -> None:
    async with served(moment) as room:
        peer = await room.connect("Pulsar-Java-v4.2.4")
        ended = "persistent://public/default/ended"
        peer.ask_producer(ended)
        assert (await peer.error())[0] == api.TopicTerminatedError
        await peer.subscribe(ended, "new")
        peer.flow(100)
        stored = entries_of(moment, TopicName.parse(ended).managed_ledger_path)
        peer.ack(*[(await peer.message())[0].message_id for _ in stored])
        await peer.expect(api.BaseCommand.REACHED_END_OF_TOPIC)
        await peer.producer("persistent://public/default/orders")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_deduplication_goes_on_with_the_sequence_ids_that_the_original_stored(moment: str) -> None:
    async with served(moment) as room:
        peer = await room.connect("Pulsar-Java-v4.2.4")
        once = "persistent://public/dedup/once"
        stored = entries_of(moment, TopicName.parse(once).managed_ledger_path)
        last = peek(stored[-1])
        for turn in range(2):  # the second time with what is stored here
            peer.ask_producer(once, producer_name=last.producer_name, epoch=turn)
            found = (await peer.expect(api.BaseCommand.PRODUCER_SUCCESS)).producer_success
            assert found.last_sequence_id == last.sequence_id + turn == 206 + turn
            for sequence_id in (200, 206, 206 + turn, 207 + turn):
                peer.send_message(b"ours", sequence_id, producer_name=last.producer_name)
            ids = [(await peer.expect(api.BaseCommand.SEND_RECEIPT)).send_receipt.message_id for _ in range(4)]
            assert [each.ledgerId == U64_MAX for each in ids] == [True, True, True, False]
            room.broker.topics.close_soon(next(each for each in room.broker.topics.loaded() if each.name.full == once))
            await peer.expect(api.BaseCommand.CLOSE_PRODUCER)


EVENTS = TopicName.parse("persistent://public/default/__change_events")
TOPIC_WITH_POLICIES = TopicName.parse("persistent://public/default/orders")


def retention_minutes(topic: Topic) -> int:
    """Return what holds for the ledgers of a loaded topic."""
    assert topic.policies is not None
    return topic.policies().retention_minutes


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_topic_keeps_the_policies_that_the_original_wrote_for_it_and_gets_more(moment: str) -> None:
    kept = {"retentionTimeInMinutes": 90, "retentionSizeInMB": 50}
    async with served(moment) as room:
        peer = await room.connect()
        await peer.subscribe(TOPIC_WITH_POLICIES.full)
        orders = next(topic for topic in room.broker.topics.loaded() if topic.name == TOPIC_WITH_POLICIES)
        assert retention_minutes(orders) == 90
        policies = room.broker.policies
        assert await policies.get(TOPIC_WITH_POLICIES) == {"isGlobal": False, "retentionPolicies": kept}
        await policies.update(TOPIC_WITH_POLICIES, lambda own: {**own, "messageTTLInSeconds": 5})
        log = await room.broker.topics.get(EVENTS)
        first, second = await read_all(log.ledger)
        assert first == entries_of(moment, EVENTS.managed_ledger_path)[0]
        [change] = changes_in(second, {0: event_type()}.get)  # of the version that the original registered
        assert change.key == TOPIC_WITH_POLICIES.full
        assert change.fields == {"isGlobal": False, "retentionPolicies": kept, "messageTTLInSeconds": 5}
        assert len(await room.broker.topics.schemas.versions(EVENTS)) == 1


def test_an_event_is_written_byte_for_byte_as_the_original_writes_it() -> None:
    [written] = entries_of("running", EVENTS.managed_ledger_path)
    metadata = read_metadata(written)
    [change] = changes_in(written, {0: event_type()}.get)
    assert change.fields is not None
    ours = event_entry(
        TOPIC_WITH_POLICIES,
        event_value(TOPIC_WITH_POLICIES, change.fields, "golden"),
        is_global=False,
        cluster="golden",
        kind=event_type(),
        version=0,
        producer=metadata.producer_name,
        sequence_id=metadata.sequence_id,
        now_ms=metadata.publish_time,
    )
    assert ours == written


@pytest.mark.parametrize("topic", ["public/default/__change_events", "public/dedup/__change_events"])
async def test_the_schema_of_events_is_the_one_that_the_original_registers(topic: str) -> None:
    async with served("running") as room:
        found = await room.broker.topics.schemas.newest(TopicName.parse(f"persistent://{topic}"))
        assert found is not None
        assert (found.schema.data, found.schema.properties) == (event_schema().data, event_schema().properties)
