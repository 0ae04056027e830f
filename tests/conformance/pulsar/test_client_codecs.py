"""Messages of the official client, stored by the server and read by Quire's Opener; and messages packed by Quire, read
by the official client.

The broker never encodes metadata and payload again, so a raw reader gets the bytes that the client wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from quire.client.deliveries import Deliveries
from quire.client.packing import Packed, pack
from quire.client.unpacking import Messages, Opener
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import batch_counts
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess

COMPRESSIONS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}
RECEIVE_MS = 10_000


@pytest.fixture
def raw(server: StandaloneProcess) -> Iterator[RawClient]:
    with RawClient(server.port) as made:
        yield made


def stored(raw: RawClient, topic: str, messages: int) -> Deliveries:
    """Return the topic's first entries up to this number of messages; a piece of a chunked one counts as one."""
    raw.subscribe(topic, "raw")
    raw.flow(100_000)
    got = Deliveries()
    while sum(batch_counts(got.entries)) < messages:
        command, entry = raw.receive_frame()
        if command.type == pb.BaseCommand.MESSAGE:
            got.ledger_ids.append(command.message.message_id.ledgerId)
            got.entry_ids.append(command.message.message_id.entryId)
            got.entries.append(entry)
    return got


def opened(got: Deliveries) -> Messages:
    into = Messages()
    assert Opener().open(got, into) == []
    return into


ROWS: list[dict[str, Any]] = [
    {"content": b""},
    {"content": b"plain"},
    {"content": b"with a key", "partition_key": "k-1"},
    {"content": b"with properties", "properties": {"a": "1", "b": "\u00e4\u20ac", "": "x" * 200}},
    {"content": b"with a time", "event_timestamp": 1763737000123},
    {"content": b"ordered", "ordering_key": "o"},
    {"content": b"all" * 1000, "partition_key": "k\u00e4y" * 50, "properties": {"p": "q"}, "event_timestamp": 1},
]


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_the_official_client_sends_is_opened(
    client: pulsar.Client, raw: RawClient, topic: str, compression: str, batched: bool
) -> None:
    producer = client.create_producer(
        topic,
        compression_type=COMPRESSIONS[compression],
        batching_enabled=batched,
        batching_max_publish_delay_ms=200,
        batching_max_messages=5,
    )
    ids: list[pulsar.MessageId] = []
    for row in ROWS:
        producer.send_async(callback=lambda result, message_id: ids.append((result, message_id)), **row)
    producer.flush()
    found = opened(stored(raw, topic, len(ROWS)))
    assert found.values == [row["content"] for row in ROWS]
    assert found.keys == [row["partition_key"].encode() if "partition_key" in row else None for row in ROWS]
    assert [dict(pairs) for pairs in found.properties] == [row.get("properties", {}) for row in ROWS]
    assert found.event_ms == [row.get("event_timestamp", 0) for row in ROWS]
    assert [result for result, _ in ids] == [pulsar.Result.Ok] * len(ROWS)
    assert list(zip(found.ledger_ids, found.entry_ids, found.batch_indexes, strict=True)) == [
        (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()) for _, message_id in ids
    ]
    assert (max(found.batch_sizes) == 5) == batched
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    # (this client cannot read the empty payload that it compressed with zlib by itself)
    readable = found.publish_ms[1:] if compression == "zlib" and not batched else found.publish_ms
    assert readable == [reader.read_next(RECEIVE_MS).publish_timestamp() for _ in readable]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_chunked_message_of_the_official_client_is_put_together(
    client: pulsar.Client, raw: RawClient, topic: str, compression: str
) -> None:
    producer = client.create_producer(
        topic, compression_type=COMPRESSIONS[compression], batching_enabled=False, chunking_enabled=True
    )
    # (hardly compressible, or it would fit into one piece)
    large = b"".join(
        number.to_bytes(8, "big") * 2 + hash(str(number)).to_bytes(8, "big", signed=True) for number in range(500_000)
    )
    producer.send(b"before")
    last = producer.send(large, partition_key="big", properties={"p": "q"})
    producer.send(b"after")
    producer.close()
    consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
    pieces = consumer.receive(RECEIVE_MS).data() == b"before" and consumer.receive(RECEIVE_MS).data() == large
    assert pieces
    expected = consumer.receive(RECEIVE_MS).message_id().entry_id() - 1
    assert expected >= 2
    found = opened(stored(raw, topic, expected + 2))
    assert [len(value or b"") for value in found.values] == [6, len(large), 5]
    assert found.values == [b"before", large, b"after"]
    assert (found.keys[1], found.properties[1], found.entry_ids[1]) == (b"big", [("p", "q")], expected)
    assert last.ledger_id() == found.ledger_ids[1]


def publish(raw: RawClient, topic: str, packed: list[Packed]) -> None:
    """Send entries by hand, and wait for the receipt of each."""
    name = raw.producer(topic)
    for number, each in enumerate(packed):
        command = pb.BaseCommand(type=pb.BaseCommand.SEND)
        command.send.producer_id = 1
        command.send.sequence_id = number
        command.send.num_messages = each.count
        raw.send(command, each.encode(name, number, 1763737000123 + number))
        raw.expect(pb.BaseCommand.SEND_RECEIPT)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_is_packed_is_read_by_the_official_client(
    client: pulsar.Client, raw: RawClient, topic: str, compression: str, batched: bool
) -> None:
    values: list[bytes | None] = [b"", b"plain" * 100, b"a", b"b", b"c" * 300, None, b"d"]
    keys: list[bytes | None] = [None, b"k", "k\u00e4y".encode(), b"k", None, b"k", b"\xff\x00"]
    properties = [[], [("a", "1"), ("b", "\u00e4")], [], [("c", "")], [], [], []]
    event_ms = [0, 1763737000123, 5, 0, 0, 0, 7]
    packed = pack(values, keys, properties, event_ms, batch=batched, compression=compression)
    publish(raw, topic, packed)
    consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
    found = [consumer.receive(RECEIVE_MS) for _ in values]
    # (this client shows a key that came as base64 as it came, and a message without a value as an empty one)
    shown = {None: "", b"\xff\x00": "/wA="}
    rows = sorted(
        (value or b"", shown.get(key, key and key.decode(errors="replace")), dict(pairs), event)
        for value, key, pairs, event in zip(values, keys, properties, event_ms, strict=True)
    )
    assert (
        sorted((each.data(), each.partition_key(), each.properties(), each.event_timestamp()) for each in found) == rows
    )
    of_k = [each.data() for each in found if each.partition_key() == "k"]
    assert of_k == [b"plain" * 100, b"b", b""]
    assert {each.publish_timestamp() for each in found} <= {1763737000123 + number for number in range(len(packed))}
    assert len({each.message_id().serialize() for each in found}) == len(values)


def test_many_packed_messages_arrive_in_order_and_once(client: pulsar.Client, raw: RawClient, topic: str) -> None:
    values = [b"%d" % number for number in range(5000)]
    publish(raw, topic, pack(values, batch_bytes_max=8 << 10, compression="lz4"))
    consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
    assert [consumer.receive(RECEIVE_MS).data() for _ in values] == values


def test_keys_go_to_one_consumer_of_key_shared(client: pulsar.Client, raw: RawClient, topic: str) -> None:
    """A batch counts by the key in its metadata: a batch with several keys would go to one consumer whole."""
    consumers = [
        client.subscribe(
            topic, "shared", pulsar.ConsumerType.KeyShared, initial_position=pulsar.InitialPosition.Earliest
        )
        for _ in range(2)
    ]
    keys = [b"key-%d" % (number % 20) for number in range(400)]
    publish(raw, topic, pack([b"%d" % number for number in range(400)], keys))
    by_key: dict[str, set[int]] = {}
    numbers: dict[str, list[int]] = {}
    turns = itertools.cycle(range(2))
    index = next(turns)
    for _ in keys:
        while True:
            try:
                message = consumers[index].receive(100)
                break
            except pulsar.Timeout:
                index = next(turns)
        by_key.setdefault(message.partition_key(), set()).add(index)
        numbers.setdefault(message.partition_key(), []).append(int(message.data()))
        consumers[index].acknowledge(message)
    assert {key.encode() for key in by_key} == set(keys)
    assert all(len(indexes) == 1 for indexes in by_key.values())
    assert set.union(*by_key.values()) == {0, 1}
    assert all(each == sorted(each) for each in numbers.values())
