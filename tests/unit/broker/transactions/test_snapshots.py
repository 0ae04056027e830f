"""Snapshots of transactions in the topics where Pulsar keeps them: its bytes, and topics taken over in both
directions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from broker.topics.loader import NAMESPACE_TTL_S
from broker.topics.schemas.avro_schema import parse
from broker.topics.schemas.schema import Schema, SchemaType, version_bytes
from broker.topics.topic_policies.avro import encode
from broker.transactions.buffer_state import Aborted, Snapshot, SnapshotError, united
from broker.transactions.snapshots import formats
from broker.transactions.snapshots.store import Snapshots
from broker.transactions.txn_id import TxnId
from quire.ledger.position import Position
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import read_metadata
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, U64_MAX, C, entry
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker
from tests.unit.broker.transacting import Client, id_of, producer, publish, send
from tests.unit.managed_ledger.fake_ledgers import Sink

NAME = TopicName.parse(TOPIC)
IN = "persistent://public/default/__transaction_buffer_snapshot"
INDEXES = f"{IN}_indexes"
SEGMENTS = f"{IN}_segments"
PROPERTY = "quire.transactions"

# Made by the classes and the client of Pulsar 4.2.4.
SPACE = "org.apache.pulsar.broker.transaction.buffer.metadata"
SCHEMA = (
    f'{{"type":"record","name":"TransactionBufferSnapshot","namespace":"{SPACE}","fields":[{{"name":"aborts","type":'
    '["null",{"type":"array","items":{"type":"record","name":"AbortTxnMetadata","fields":[{"name":"entryId","type":'
    '"long"},{"name":"ledgerId","type":"long"},{"name":"txnIdLeastBits","type":"long"},{"name":"txnIdMostBits","type":'
    '"long"}]},"java-class":"java.util.List"}],"default":null},{"name":"maxReadPositionEntryId","type":"long"},{"name":'
    '"maxReadPositionLedgerId","type":"long"},{"name":"topicName","type":["null","string"],"default":null}]}'
)
INDEX_SCHEMA = (
    f'{{"type":"record","name":"TransactionBufferSnapshotIndexes","namespace":"{SPACE}.v2","fields":[{{"name":'
    '"indexList","type":["null",{"type":"array","items":{"type":"record","name":"TransactionBufferSnapshotIndex",'
    '"fields":[{"name":"abortedMarkEntryID","type":"long"},{"name":"abortedMarkLedgerID","type":"long"},{"name":'
    '"segmentEntryID","type":"long"},{"name":"segmentLedgerID","type":"long"},{"name":"sequenceID","type":"long"}]},'
    '"java-class":"java.util.List"}],"default":null},{"name":"snapshot","type":["null",{"type":"record","name":'
    '"TransactionBufferSnapshotIndexesMetadata","fields":[{"name":"aborts","type":["null",{"type":"array","items":'
    '{"type":"record","name":"TxnIDData","fields":[{"name":"leastSigBits","type":"long"},{"name":"mostSigBits","type":'
    '"long"}]},"java-class":"java.util.List"}],"default":null},{"name":"maxReadPositionEntryId","type":"long"},{"name":'
    '"maxReadPositionLedgerId","type":"long"}]}],"default":null},{"name":"topicName","type":["null","string"],'
    '"default":null}]}'
)
SEGMENT_SCHEMA = (
    f'{{"type":"record","name":"TransactionBufferSnapshotSegment","namespace":"{SPACE}.v2","fields":[{{"name":"aborts",'
    '"type":["null",{"type":"array","items":{"type":"record","name":"TxnIDData","fields":[{"name":"leastSigBits","type"'
    ':"long"},{"name":"mostSigBits","type":"long"}]},"java-class":"java.util.List"}],"default":null},{"name":'
    '"persistentPositionEntryId","type":"long"},{"name":"persistentPositionLedgerId","type":"long"},{"name":'
    '"sequenceId","type":"long"},{"name":"topicName","type":["null","string"],"default":null}]}'
)
TEXT = "023a70657273697374656e743a2f2f7075626c69632f64656661756c742f74"
SINGLE = bytes.fromhex(f"02043c1804023e188080808080401e004418{TEXT}")
INDEX = bytes.fromhex(f"02023c180a9a0100000202021202004418{TEXT}")
SEGMENT = bytes.fromhex(f"020404020602003c1800{TEXT}")


# The bytes


def test_schema_and_value_are_pulsars_byte_for_byte() -> None:
    assert formats.snapshot_schema().data.decode() == SCHEMA
    aborted = {
        TxnId(1, 2): Aborted(None, Position(12, 30)),
        TxnId(15, 1 << 40): Aborted(None, Position(12, 31)),
    }
    snapshot = Snapshot(Position(12, 34), aborted, {})
    assert formats.encode_snapshot(TopicName.parse("public/default/t"), snapshot) == SINGLE
    assert formats.decode_snapshot(parse(SCHEMA.encode()), SINGLE, []) == snapshot


def test_a_snapshot_in_segments_is_read() -> None:
    found = formats.decode_index(parse(INDEX_SCHEMA.encode()), INDEX)
    assert found.last == Snapshot(Position(12, 34), {TxnId(1, 9): Aborted(None, Position(12, 34))}, {})
    assert found.places == [(Position(77, 5), Position(12, 30))]
    marker = Position(12, 30)
    segment = formats.decode_segment(parse(SEGMENT_SCHEMA.encode()), SEGMENT, marker)
    assert segment == {TxnId(1, 2): Aborted(None, marker), TxnId(1, 3): Aborted(None, marker)}


@pytest.mark.parametrize("cut", range(1, len(SINGLE) - 32))
def test_a_damaged_snapshot_is_refused_not_read_as_none(cut: int) -> None:
    with pytest.raises(SnapshotError):
        formats.decode_snapshot(formats.snapshot_type(), SINGLE[:cut], [])


def test_snapshots_of_one_topic_are_united() -> None:
    old = Snapshot(Position(1, 2), {TxnId(0, 1): Aborted(None, Position(1, 1))}, {0: 5, 1: 1})
    new = Snapshot(Position(2, 0), {TxnId(0, 7): Aborted(None, Position(2, 0))}, {0: 4})
    both = Snapshot(Position(2, 0), {**old.aborted, **new.aborted}, {0: 5, 1: 1})
    assert united([]) is None
    assert united([old, new]) == both
    assert united([new, old]) == both


def test_many_aborted_transactions_fit_into_a_message() -> None:
    aborted = {TxnId(3, number): Aborted(None, Position(5, number)) for number in range(20_000)}
    snapshot = Snapshot(Position(5, 20_000), aborted, {3: 7})
    message = formats.snapshot_message(NAME, snapshot, version_bytes(0))
    assert len(message.payload) < 300_000
    properties = [(formats.WATERMARKS, "[[3,7]]")]
    assert formats.decode_snapshot(formats.snapshot_type(), message.payload, properties) == snapshot


# Topics


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(transactions=True) as room:
        await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        yield room


async def put(room: Room, topic: str, key: str, value: bytes, schema: str) -> Position:
    """Add a message as Pulsar's broker does; return its place."""
    name, topics = TopicName.parse(topic), room.broker.topics
    found = await topics.get(name)
    of_system = topics.schemas.defaults.rules(name, None, None)
    stored = Schema(SchemaType.AVRO, schema.encode())
    version = version_bytes(await topics.schemas.register(name, stored, of_system))
    sink = Sink()
    found.ledger.append([entry(value, partition_key=key, schema_version=version, null_value=not value)], sink)
    await until(lambda: bool(sink.calls))
    return Position(*found.ledger.last_confirmed)


async def put_single(room: Room, position: Position, *aborted: TxnId) -> None:
    snapshot = Snapshot(position, {each: Aborted(None, position) for each in aborted}, {})
    await put(room, IN, TOPIC, formats.encode_snapshot(NAME, snapshot), SCHEMA)


async def written_by_pulsar(room: Room) -> list[Position]:
    """Write a log with an aborted transaction, a committed one, and messages of none; leave the topic not loaded."""
    peer = await room.connect()
    await peer.producer()
    topic = await room.topic()
    for payload, fields in (
        (b"aborted", id_of((3, 7))),
        (b"committed", id_of((3, 8))),
        (b"plain", {}),
        (b"", {**id_of((3, 7)), "marker_type": 22, "producer_name": "pulsar.txn.marker"}),
        (b"", {**id_of((3, 8)), "marker_type": 21, "producer_name": "pulsar.txn.marker"}),
    ):
        topic.ledger.append([entry(payload, **fields)], Sink())
    await until(lambda: topic.ledger.entry_count == 5)
    last = topic.ledger.last_confirmed
    await to_another_broker(room, topic)
    return [Position(last.ledger_id, number) for number in range(5)]


def unload(room: Room, topic: Any) -> None:
    topic.abandon()
    del room.broker.topics._loaded[topic.name.full]


async def to_another_broker(room: Room, topic: Any) -> None:
    """Unload a topic for as long as it is kept that the namespace has no topic with snapshots."""
    unload(room, topic)
    await trio.sleep(NAMESPACE_TTL_S)


async def read(room: Room, count: int, name: str) -> list[bytes]:
    peer = await room.connect()
    await peer.subscribe(TOPIC, name, subType=SUB.Shared, durable=False)
    peer.flow(100)
    found = await peer.payloads(count)
    assert await peer.silent()
    await peer.closed_by_us()
    return found


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("at", [0, 4])
async def test_a_topic_with_transactions_is_taken_over_from_pulsar(on: bool, at: int) -> None:
    """From a snapshot before its first message, and from one behind its last marker."""
    async with in_broker(transactions=on) as room:
        places = await written_by_pulsar(room)
        first = Position(places[0].ledger_id, -1)
        await put_single(room, places[at] if at else first, *([TxnId(3, 7)] if at else []))
        assert await read(room, 2, "s") == [b"committed", b"plain"]


async def test_what_an_open_transaction_of_pulsar_holds_back_is_held_back_here(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    topic = await room.topic()
    topic.ledger.append([entry(b"plain"), entry(b"open", **id_of((3, 9))), entry(b"behind")], Sink())
    await until(lambda: topic.ledger.entry_count == 3)
    await to_another_broker(room, topic)
    await put_single(room, Position(topic.ledger.last_confirmed.ledger_id, -1))
    assert await read(room, 1, "s") == [b"plain"]


async def test_a_segmented_snapshot_is_obeyed_but_for_segments_that_are_trimmed(room: Room) -> None:
    places = await written_by_pulsar(room)
    marker, end = places[3], places[4]
    value = {"topicName": TOPIC, "sequenceId": 0, "aborts": [{"mostSigBits": 3, "leastSigBits": 7}]}
    segment = await put(
        room, SEGMENTS, f"multiple-0-{TOPIC}", encode(parse(SEGMENT_SCHEMA.encode()), value), SEGMENT_SCHEMA
    )

    def index(place: Position, marker: Position) -> dict[str, int]:
        return {
            "sequenceID": 0,
            "segmentLedgerID": place.ledger_id,
            "segmentEntryID": place.entry_id,
            "abortedMarkLedgerID": marker.ledger_id,
            "abortedMarkEntryID": marker.entry_id,
        }

    indexes = {
        "topicName": TOPIC,
        "indexList": [index(Position(9999, 0), Position(8888, 1)), index(segment, marker)],
        "snapshot": {"maxReadPositionLedgerId": end.ledger_id, "maxReadPositionEntryId": end.entry_id},
    }
    await put(room, INDEXES, TOPIC, encode(parse(INDEX_SCHEMA.encode()), indexes), INDEX_SCHEMA)
    assert await read(room, 2, "s") == [b"committed", b"plain"]
    unload(room, await room.topic())
    indexes["indexList"] = [index(Position(9999, 0), marker)]  # a segment that has to be there
    await put(room, INDEXES, TOPIC, encode(parse(INDEX_SCHEMA.encode()), indexes), INDEX_SCHEMA)
    peer = await room.connect()
    peer.ask_subscribe(TOPIC, "t")
    code, why = await peer.error()
    assert code == pb.ServiceNotReady or code == pb.MetadataError
    assert SEGMENTS in why


async def test_what_an_older_version_found_out_does_not_hide_what_pulsar_added_since(room: Room) -> None:
    """The property "none" is from a time at which the topic had no transactions."""
    places = await written_by_pulsar(room)
    topic = await room.broker.topics.get(NAME)
    await topic.ledger.update_properties(lambda known: {**known, PROPERTY: "none"})
    unload(room, topic)
    await put_single(room, places[4], TxnId(3, 7))
    assert await read(room, 2, "s") == [b"committed", b"plain"]


async def test_the_property_of_an_older_version_is_united_with_the_snapshot(room: Room) -> None:
    places = await written_by_pulsar(room)
    topic = await room.broker.topics.get(NAME)
    old = Snapshot(places[4], {TxnId(3, 7): Aborted(None, places[3])}, {3: 8}).encode()
    await topic.ledger.update_properties(lambda known: {**known, PROPERTY: old})
    unload(room, topic)
    await put_single(room, Position(places[0].ledger_id, -1))
    assert await read(room, 2, "s") == [b"committed", b"plain"]
    buffer = (await room.topic()).transactions.buffer
    assert buffer.state.low_watermarks == {3: 8}
    await buffer.store_snapshot()
    assert dict((await room.topic()).ledger.properties)[PROPERTY] == "topic"


async def aborted_one(room: Room) -> tuple[int, int]:
    """Abort a transaction on the topic, and store its state."""
    client, sender = await Client.of(room), await producer(room)
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"aborted", 0, txn)
    await client.abort(txn)
    await publish(sender, b"plain", 1)
    await (await room.topic()).transactions.buffer.store_snapshot()
    return txn


async def test_snapshots_are_stored_as_pulsar_reads_them(room: Room) -> None:
    txn = await aborted_one(room)
    topic, found = await room.topic(), await room.topic(IN)
    peer = await room.connect()
    start = pb.MessageIdData(ledgerId=U64_MAX, entryId=U64_MAX)
    await peer.subscribe(IN, "r", durable=False, start_message_id=start, read_compacted=True)
    peer.flow(10)
    values = []
    for _ in range(found.ledger.entry_count):
        run = await peer.receive()
        metadata = read_metadata(run[1])
        assert metadata.partition_key == TOPIC
        number = int.from_bytes(metadata.schema_version, "big")
        kind = await room.broker.topics.schemas.version(TopicName.parse(IN), number)
        assert kind is not None
        assert json.loads(kind.schema.data) == json.loads(SCHEMA)
        size = metadata.uncompressed_size
        values.append(formats.decode_snapshot(parse(kind.schema.data), run[1][-size:], []))
    end = topic.ledger.last_confirmed
    marker = Position(end.ledger_id, 1)
    assert values[0].aborted == {}
    assert values[-1] == Snapshot(end, {TxnId(*txn): Aborted(None, marker)}, {})
    assert dict(topic.ledger.properties)[PROPERTY] == "topic"


async def test_a_restart_begins_with_the_snapshot_and_not_with_the_log(room: Room) -> None:
    txn = await aborted_one(room)
    unload(room, await room.topic())
    assert await read(room, 1, "s") == [b"plain"]
    state = (await room.topic()).transactions.buffer.state
    assert state.aborted[TxnId(*txn)].first is None  # so its message was not read
    assert not state.takes(TxnId(*txn))


async def test_a_topic_whose_snapshot_is_lost_is_read_from_its_beginning(room: Room) -> None:
    await aborted_one(room)
    unload(room, await room.topic())
    await room.broker.topics.delete(TopicName.parse(IN), force=True)
    assert await read(room, 1, "s") == [b"plain"]


async def test_the_snapshot_of_a_deleted_topic_is_deleted(room: Room) -> None:
    await aborted_one(room)
    store = room.broker._snapshot_store()
    assert await store.find(NAME, lambda _: True) is not None
    await room.broker.topics.delete(NAME, force=True)
    assert await store.find(NAME, lambda _: True) is None
    last = (await room.topic(IN)).ledger
    run = await last.read(last.last_confirmed, 1, 1 << 20)
    assert read_metadata(bytes(run.payloads[0])).null_value


async def test_snapshots_are_found_again_after_their_topic_was_compacted_and_trimmed(room: Room) -> None:
    """By Pulsar, whose compaction deletes from the log what the compacted ledger has."""
    txn = await aborted_one(room)
    snapshots = await room.topic(IN)
    from broker.topics.compaction import compaction as module

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "is_system_topic", lambda name: False)
        compaction = module.compaction_of(snapshots)
        compaction.start()
        await until(lambda: compaction.status != module.RUNNING)
    assert compaction.status == module.SUCCESS, compaction.error
    store = Snapshots(room.broker.context, room.broker.topics, room.broker.metadata, room.broker.ownership)
    found = await store.find(NAME, lambda _: True)
    assert found is not None
    assert TxnId(*txn) in found.aborted


async def test_snapshots_are_never_trimmed(room: Room) -> None:
    await aborted_one(room)
    config = (await room.broker.policies.load(TopicName.parse(IN)))()
    assert (config.retention_minutes, config.retention_mb) == (-1, -1)


async def test_a_terminated_topic_keeps_its_own_snapshot_too(room: Room) -> None:
    client, sender = await Client.of(room), await producer(room)
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"m", 0, txn)
    topic = await room.topic()
    await topic.ledger.terminate()
    await client.commit(txn)
    stored = dict(topic.ledger.properties)[PROPERTY]
    assert Snapshot.decode(stored).position == topic.ledger.last_confirmed
    unload(room, topic)
    assert await read(room, 1, "s") == [b"m"]


async def test_the_first_message_waits_for_the_first_snapshot(room: Room) -> None:
    """Pulsar delivers every message of a topic that has no snapshot."""
    peer: Peer = await room.connect()
    await peer.producer(txn_enabled=True)
    assert (await room.topic(IN)).ledger.entry_count == 1
    send(peer, b"m", 0, (0, 1))
    await peer.expect(C.SEND_RECEIPT)
