"""Requests that the official clients never send, byte by byte: bad frames, wrong order, foreign ids, greedy permits."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import U64_MAX, entry, entry_of, frame
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess

GROWTH_MB_MAX = 40


@pytest.fixture
def client(server: StandaloneProcess) -> Iterator[RawClient]:
    with RawClient(server.port) as made:
        yield made


def still_served(server: StandaloneProcess) -> None:
    with RawClient(server.port) as client:
        client.send(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
        client.expect(pb.BaseCommand.PONG)


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03abc",
        b"\x80\x00\x00\x00\x00\x00\x00\x10",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        struct.pack("!II", (5 << 20) + (10 << 10) + 1, 10) + b"x" * 100,
        struct.pack("!II", 20, 1000) + b"x" * 16,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes.fromhex("16030100f8010000f40303") + b"\x00" * 240,
        struct.pack("!II", 8, 4) + b"\xff\xff\xff\xff",
    ],
    ids=[
        "length 0",
        "length 3",
        "length 2^31",
        "length 2^32-1",
        "over the limit",
        "command beyond the frame",
        "HTTP",
        "TLS",
        "no protobuf",
    ],
)
@pytest.mark.parametrize("connected", [False, True])
def test_a_bad_frame_closes_the_connection(server: StandaloneProcess, bytes_sent: bytes, connected: bool) -> None:
    with RawClient(server.port, connect=connected) as client:
        client.socket.sendall(bytes_sent)
        assert client.closed_by_server()
    still_served(server)


def test_random_bytes_close_the_connection_and_leave_no_memory_behind(server: StandaloneProcess) -> None:
    rng = random.Random(1)
    still_served(server)
    before = server.rss_mb()
    for _ in range(200):
        with RawClient(server.port, connect=rng.random() < 0.5) as client:
            blob = rng.randbytes(rng.randrange(8, 4096))
            # A random length is mostly beyond the limit; make half of them plausible.
            if rng.random() < 0.5:
                blob = struct.pack("!II", len(blob), rng.randrange(0, 64)) + blob
            try:
                client.socket.sendall(blob)
                client.socket.shutdown(1)
            except OSError:
                continue
            assert client.closed_by_server()
    assert server.rss_mb() - before < GROWTH_MB_MAX
    still_served(server)


def test_a_length_that_is_announced_but_not_sent_allocates_nothing(server: StandaloneProcess) -> None:
    before = server.rss_mb()
    clients = [RawClient(server.port) for _ in range(40)]
    for client in clients:
        client.socket.sendall(struct.pack("!I", 5 << 20))
    still_served(server)
    grown = server.rss_mb() - before
    for client in clients:
        client.socket.close()
    assert grown < GROWTH_MB_MAX * 2


@pytest.mark.parametrize(
    "command",
    [
        pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()),
        pb.BaseCommand(
            type=pb.BaseCommand.PRODUCER, producer=pb.CommandProducer(topic="t", producer_id=1, request_id=1)
        ),
    ],
    ids=["PING", "PRODUCER"],
)
def test_anything_before_connect_closes(server: StandaloneProcess, command: pb.BaseCommand) -> None:
    with RawClient(server.port, connect=False) as client:
        client.send(command)
        assert client.closed_by_server()


def test_a_second_connect_closes(client: RawClient) -> None:
    client.send(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(client_version="raw")))
    assert client.closed_by_server()


def test_a_send_before_its_producer_closes(client: RawClient) -> None:
    client.send_message(b"x", producer_id=77)
    assert client.closed_by_server()


def test_a_send_after_close_producer_is_ignored(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.send(
        pb.BaseCommand(
            type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=9)
        )
    )
    client.send_message(b"late")
    client.expect(pb.BaseCommand.SUCCESS)
    client.send(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
    client.expect(pb.BaseCommand.PONG)


def test_a_bad_checksum_is_refused_and_nothing_is_stored(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.subscribe(topic)
    client.flow(10)
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = 5
    command.send.num_messages = 1
    damaged = bytearray(entry(b"payload"))
    damaged[-1] ^= 1
    client.send(command, bytes(damaged))
    error = client.expect(pb.BaseCommand.SEND_ERROR).send_error
    assert (error.sequence_id, error.error) == (5, pb.ChecksumError)
    client.send_message(b"good", sequence_id=6)
    kinds = {client.receive().type, client.receive().type}
    assert kinds == {pb.BaseCommand.SEND_RECEIPT, pb.BaseCommand.MESSAGE}
    assert client.silent()


@pytest.mark.parametrize(
    "name",
    [
        "persistent://public/default/..",
        "persistent://public/../t",
        "persistent://../default/t",
        "persistent://public/default/",
        "persistent://public/default/a\0b",
        "persistent://public/default/" + "x" * 65536,
        "persistent:///default/t",
        "nonsense://public/default/t",
        "",
        "persistent://public/default%2F..%2Fx/t",
    ],
    ids=["..", "../t", "tenant ..", "empty", "NUL", "64 KB", "no tenant", "domain", "nothing", "%2F namespace"],
)
def test_a_bad_topic_name_is_refused_in_the_right_reply(name: str, client: RawClient) -> None:
    client.send(
        pb.BaseCommand(
            type=pb.BaseCommand.PARTITIONED_METADATA,
            partitionMetadata=pb.CommandPartitionedTopicMetadata(topic=name, request_id=4),
        )
    )
    body = client.expect(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE).partitionMetadataResponse
    assert (body.request_id, body.response) == (4, pb.CommandPartitionedTopicMetadataResponse.Failed)
    client.send(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=name, request_id=5)))
    found = client.expect(pb.BaseCommand.LOOKUP_RESPONSE).lookupTopicResponse
    assert (found.request_id, found.response) == (5, pb.CommandLookupTopicResponse.Failed)
    client.send(
        pb.BaseCommand(
            type=pb.BaseCommand.PRODUCER, producer=pb.CommandProducer(topic=name, producer_id=1, request_id=6)
        )
    )
    assert client.expect(pb.BaseCommand.ERROR).error.request_id == 6
    client.ask_subscribe(name)
    client.expect(pb.BaseCommand.ERROR)


def test_an_encoded_slash_stays_part_of_its_name(server: StandaloneProcess, topic: str) -> None:
    """`%2F` in a local name is those three characters, never a path: two spellings are two topics."""
    name = topic + "%2F..%2Fx"
    with RawClient(server.port) as client:
        try:
            client.producer(name)
        except AssertionError:
            return  # refusing such names is right as well
        client.publish(b"inside")
        client.subscribe(name)
        client.flow(1)
        assert client.message()[1] == b"inside"


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 70_000], ids=["empty", "NUL", "70 KB"])
def test_a_bad_subscription_name_is_refused(topic: str, name: str, client: RawClient) -> None:
    client.ask_subscribe(topic, name)
    client.expect(pb.BaseCommand.ERROR)


def test_acks_of_what_never_was_have_no_effect_but_an_error(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.producer(topic + "-other", 2)
    client.subscribe(topic)
    ids = [client.publish(b"m%d" % number, sequence_id=number) for number in range(3)]
    foreign = client.publish(b"elsewhere", producer_id=2)
    bad = [
        pb.MessageIdData(ledgerId=ids[0].ledgerId, entryId=ids[-1].entryId + 1),
        pb.MessageIdData(ledgerId=ids[0].ledgerId, entryId=1 << 40),
        pb.MessageIdData(ledgerId=foreign.ledgerId, entryId=foreign.entryId),
        pb.MessageIdData(ledgerId=1 << 50, entryId=0),
    ]
    before_all = [
        pb.MessageIdData(ledgerId=U64_MAX, entryId=U64_MAX),
        pb.MessageIdData(ledgerId=ids[0].ledgerId, entryId=U64_MAX),
    ]
    client.ack(*before_all)  # what lies before the first message is acknowledged as it is
    for each in bad:
        for cumulative in (False, True):
            answer = client.ack(each, cumulative=cumulative)
            assert answer is not None
            assert answer.HasField("error"), (each, cumulative)
            client.ack(each, cumulative=cumulative, answer=False)
    client.flow(10)
    assert [client.message()[1] for _ in range(3)] == [b"m0", b"m1", b"m2"]


def test_a_bad_id_among_good_ones_is_told_and_the_good_ones_count(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.subscribe(topic)
    good = client.publish(b"m0")
    client.publish(b"m1", sequence_id=1)
    answer = client.ack(good, pb.MessageIdData(ledgerId=good.ledgerId, entryId=999))
    assert answer is not None
    assert answer.HasField("error")
    client.flow(2)
    assert client.message()[1] == b"m1"


def test_an_ack_of_a_confirmed_entry_is_valid_before_it_was_delivered(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.subscribe(topic)
    ids = [client.publish(b"m%d" % number, sequence_id=number) for number in range(3)]
    answer = client.ack(ids[1])
    assert answer is not None
    assert not answer.HasField("error")
    client.flow(10)
    assert [client.message()[1] for _ in range(2)] == [b"m0", b"m2"]
    assert client.silent()


def test_a_cumulative_ack_with_two_ids_or_on_a_shared_subscription_is_an_error(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.subscribe(topic)
    client.subscribe(topic, "shared", 2, subType=pb.CommandSubscribe.Shared)
    ids = [client.publish(b"m%d" % number, sequence_id=number) for number in range(2)]
    two = client.ack(*ids, cumulative=True)
    shared = client.ack(ids[0], cumulative=True, consumer_id=2)
    assert two is not None
    assert shared is not None
    assert two.HasField("error")
    assert shared.HasField("error")


@pytest.mark.parametrize("permits", [1 << 31, (1 << 32) - 1])
def test_greedy_permits_are_capped(topic: str, permits: int, client: RawClient) -> None:
    client.producer(topic)
    client.subscribe(topic)
    for _ in range(5):
        client.flow(permits)
    client.publish(b"x")
    assert client.message()[1] == b"x"


def test_nothing_is_delivered_without_permits_and_no_more_than_permitted(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.subscribe(topic)
    for number in range(5):
        client.publish(b"m%d" % number, sequence_id=number)
    client.flow(0)
    assert client.silent()
    client.flow(2)
    assert [client.message()[1] for _ in range(2)] == [b"m0", b"m1"]
    assert client.silent()


def test_permits_count_messages_and_not_entries(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.subscribe(topic)
    for number in range(4):
        client.publish(b"batch", sequence_id=number, num_messages_in_batch=10)
    client.flow(15)
    client.message()
    client.message()
    assert client.silent()
    client.flow(6)
    client.message()
    assert client.silent()


UNSERVED = [
    pb.BaseCommand(
        type=pb.BaseCommand.CONSUMER_STATS, consumerStats=pb.CommandConsumerStats(request_id=7, consumer_id=1)
    ),
    pb.BaseCommand(type=pb.BaseCommand.NEW_TXN, newTxn=pb.CommandNewTxn(request_id=7)),
]


@pytest.mark.parametrize("command", UNSERVED, ids=lambda command: pb.BaseCommand.Type.Name(command.type))
def test_what_is_not_served_gets_an_error_and_never_silence(command: pb.BaseCommand, client: RawClient) -> None:
    client.send(command)
    answer = client.receive()
    fields = [value for descriptor, value in answer.ListFields() if descriptor.name != "type"]
    assert fields[0].request_id == 7


def test_requests_about_unknown_consumers_get_errors(client: RawClient) -> None:
    for command in (
        pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=pb.CommandSeek(consumer_id=9, request_id=1)),
        pb.BaseCommand(type=pb.BaseCommand.UNSUBSCRIBE, unsubscribe=pb.CommandUnsubscribe(consumer_id=9, request_id=1)),
        pb.BaseCommand(
            type=pb.BaseCommand.GET_LAST_MESSAGE_ID,
            getLastMessageId=pb.CommandGetLastMessageId(consumer_id=9, request_id=1),
        ),
    ):
        client.send(command)
        assert client.expect(pb.BaseCommand.ERROR).error.request_id == 1
    client.flow(10, consumer_id=9)
    answer = client.ack(pb.MessageIdData(ledgerId=0, entryId=0), consumer_id=9)
    assert answer is not None
    assert answer.HasField("error")


def test_large_properties_are_refused(topic: str, client: RawClient) -> None:
    big = [pb.KeyValue(key="k", value="v" * 100_000)]
    client.send(
        pb.BaseCommand(
            type=pb.BaseCommand.PRODUCER,
            producer=pb.CommandProducer(topic=topic, producer_id=1, request_id=2, metadata=big),
        )
    )
    assert client.expect(pb.BaseCommand.ERROR).error.request_id == 2


def test_frames_may_arrive_in_any_pieces(topic: str, client: RawClient) -> None:
    client.producer(topic)
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.num_messages = 1
    stream = b""
    for number in range(3):
        command.send.sequence_id = number
        stream += frame(command, entry(b"piece%d" % number, sequence_id=number))
    for start in range(0, len(stream), 7):
        client.socket.sendall(stream[start : start + 7])
    got = [client.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt.sequence_id for _ in range(3)]
    assert got == [0, 1, 2]


def test_tailing_consumers_cause_no_bookie_reads(server: StandaloneProcess, topic: str, client: RawClient) -> None:
    client.producer(topic)
    for number in range(1, 4):
        client.subscribe(topic, f"s{number}", number)
        client.flow(1000, consumer_id=number)
    before = server.metric("bookie_reads")
    for number in range(300):
        client.send_message(b"m%d" % number, sequence_id=number)
    seen = {pb.BaseCommand.SEND_RECEIPT: 0, pb.BaseCommand.MESSAGE: 0}
    while seen[pb.BaseCommand.SEND_RECEIPT] < 300 or seen[pb.BaseCommand.MESSAGE] < 900:
        seen[client.receive().type] += 1
    assert server.metric("bookie_reads") == before


def test_a_lower_priority_gets_only_what_the_higher_one_has_no_permits_for(server: StandaloneProcess, topic: str):
    with RawClient(server.port) as low, RawClient(server.port) as high:
        low.producer(topic)
        low.subscribe(topic, subType=pb.CommandSubscribe.Shared, priority_level=1)
        high.subscribe(topic, subType=pb.CommandSubscribe.Shared, priority_level=0)
        low.flow(100)
        high.flow(5)
        for client in (low, high):  # the permits are there when this is answered
            client.send(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
            client.expect(pb.BaseCommand.PONG)
        for number in range(10):
            low.send_message(b"%d" % number, sequence_id=number)
        assert [high.message()[1] for _ in range(5)] == [b"%d" % number for number in range(5)]
        seen = [low.receive_frame() for _ in range(15)]
        assert [tail[-1:] for _, tail in seen if tail] == [b"%d" % number for number in range(5, 10)]
        assert high.silent()


def test_sticky_ranges_that_overlap_or_are_none_are_refused(server: StandaloneProcess, topic: str) -> None:
    def sticky(*ranges: tuple[int, int]) -> pb.KeySharedMeta:
        return pb.KeySharedMeta(
            keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=start, end=end) for start, end in ranges]
        )

    with RawClient(server.port) as client:
        options: dict[str, Any] = {"subType": pb.CommandSubscribe.Key_Shared}
        client.subscribe(topic, consumer_id=1, keySharedMeta=sticky((0, 32767)), **options)
        split = pb.KeySharedMeta(keySharedMode=pb.AUTO_SPLIT)
        for meta in (sticky(), sticky((32767, 65535)), sticky((40000, 70000)), split):
            client.ask_subscribe(topic, consumer_id=2, keySharedMeta=meta, **options)
            assert client.expect(pb.BaseCommand.ERROR).error.error == pb.ConsumerAssignError
        client.subscribe(topic, consumer_id=2, keySharedMeta=sticky((32768, 65535)), **options)


def test_a_close_producer_is_answered_behind_its_receipts(topic: str, client: RawClient) -> None:
    client.producer(topic)
    for number in range(200):
        client.send_message(b"x", sequence_id=number)
    client.send(
        pb.BaseCommand(
            type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=9)
        )
    )
    got = [client.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt.sequence_id for _ in range(200)]
    assert got == list(range(200))
    assert client.expect(pb.BaseCommand.SUCCESS).success.request_id == 9


def test_a_consumer_closed_before_it_was_there_keeps_nobody_out(server: StandaloneProcess, topic: str) -> None:
    with RawClient(server.port) as client, RawClient(server.port) as other:
        client.ask_subscribe(topic)
        client.send(
            pb.BaseCommand(
                type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=99)
            )
        )
        answers = [client.receive() for _ in range(2)]
        assert {answer.type for answer in answers} == {pb.BaseCommand.SUCCESS, pb.BaseCommand.ERROR}
        other.subscribe(topic)


def test_an_entry_whose_metadata_is_no_protobuf_stops_nobody(topic: str, client: RawClient) -> None:
    """Its checksum is right, but no client could read it, so it is refused. Later messages are delivered in every type
    of subscription."""
    client.producer(topic)
    types = (
        pb.CommandSubscribe.Exclusive,
        pb.CommandSubscribe.Shared,
        pb.CommandSubscribe.Failover,
        pb.CommandSubscribe.Key_Shared,
    )
    client.send_entry(entry_of(b"\xff\xff\xff", b"garbage"))
    assert client.expect(pb.BaseCommand.SEND_ERROR).send_error.sequence_id == 0
    client.publish(b"after", sequence_id=1)
    for consumer_id, kind in enumerate(types, start=1):
        client.subscribe(topic, f"s{kind}", consumer_id, subType=kind)
        client.flow(10, consumer_id=consumer_id)
        assert client.message()[1] == b"after"


def test_a_reader_goes_on_at_the_sought_place_without_naming_a_start(topic: str, client: RawClient) -> None:
    client.producer(topic)
    ids = [client.publish(b"m%d" % number, sequence_id=number) for number in range(5)]
    earliest = pb.MessageIdData(ledgerId=U64_MAX, entryId=U64_MAX)
    client.subscribe(topic, "reader", durable=False, start_message_id=earliest)
    client.send(
        pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=50, message_id=ids[3]))
    )
    client.expect(pb.BaseCommand.CLOSE_CONSUMER)
    assert client.expect(pb.BaseCommand.SUCCESS).success.request_id == 50
    client.subscribe(topic, "reader", durable=False)
    client.flow(10)
    assert [client.message()[1] for _ in range(2)] == [b"m3", b"m4"]


def test_consumers_of_one_broken_connection_do_not_count_each_others_deliveries(server, topic, client):
    client.producer(topic)
    with RawClient(server.port) as broken:
        for consumer_id in (1, 2, 3):
            broken.subscribe(topic, consumer_id=consumer_id, subType=pb.CommandSubscribe.Shared)
            broken.flow(100, consumer_id=consumer_id)
        for number in range(10):
            client.publish(b"m%d" % number, sequence_id=number)
        for _ in range(10):
            broken.message()
    client.subscribe(topic, consumer_id=4, subType=pb.CommandSubscribe.Shared)
    client.flow(100, consumer_id=4)
    counts = {client.expect(pb.BaseCommand.MESSAGE).message.redelivery_count for _ in range(10)}
    assert max(counts) <= 1


def test_a_consumer_tells_its_permits_and_backlog(topic: str, client: RawClient) -> None:
    client.producer(topic)
    client.subscribe(topic, subType=pb.CommandSubscribe.Shared, consumer_name="me")
    client.flow(10)
    client.send_message(b"x")
    assert {client.receive().type for _ in range(2)} == {pb.BaseCommand.SEND_RECEIPT, pb.BaseCommand.MESSAGE}
    client.send(
        pb.BaseCommand(
            type=pb.BaseCommand.CONSUMER_STATS, consumerStats=pb.CommandConsumerStats(request_id=7, consumer_id=1)
        )
    )
    stats = client.expect(pb.BaseCommand.CONSUMER_STATS_RESPONSE).consumerStatsResponse
    assert not stats.HasField("error_code")
    assert (stats.availablePermits, stats.unackedMessages, stats.msgBacklog) == (9, 1, 1)
    assert (stats.type, stats.consumerName) == ("Shared", "me")
