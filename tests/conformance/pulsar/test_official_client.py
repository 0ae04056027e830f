"""The official Python client (C++ core) with a running server: behaviour that its users need, and errors that its own
suite does not detect (two exclusive consumers, shared consumers starved, keys ignored, permits miscounted ...)."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx2
import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import entry_of
from tests.support.raw import RawClient
from tests.support.refusals import refuses
from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

RECEIVE_MS = 10_000


def receive_all(consumer: pulsar.Consumer, count: int, *, ack: bool = True) -> list[pulsar.Message]:
    messages = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        if ack:
            consumer.acknowledge(message)
        messages.append(message)
    return messages


def nothing_more(consumer: pulsar.Consumer, ms: int = 300) -> bool:
    try:
        message = consumer.receive(ms)
    except pulsar.Timeout:
        return True
    raise AssertionError(f"did not expect {message.data()!r}")


def publish(client: pulsar.Client, topic: str, payloads: list[bytes], **options: object) -> list[MessageId]:
    options.setdefault("batching_enabled", False)
    producer = client.create_producer(topic, **options)
    ids = [producer.send(payload) for payload in payloads]
    producer.close()
    return ids


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"m%d" % number for number in range(start, start + count)]


@pytest.mark.parametrize("batched", [False, True])
def test_what_is_sent_arrives_whole_and_in_order(client: pulsar.Client, topic: str, batched: bool) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=5)
    results: list[object] = []
    for payload in numbers(500):
        producer.send_async(payload, lambda result, _: results.append(result))
    producer.flush()
    assert [message.data() for message in receive_all(consumer, 500)] == numbers(500)
    assert Counter(results) == {pulsar.Result.Ok: 500}
    assert nothing_more(consumer)


def test_key_properties_and_times_come_back(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="named")
    producer.send(b"x", properties={"a": "1"}, partition_key="k", ordering_key="o", event_timestamp=12345)
    message = consumer.receive(RECEIVE_MS)
    assert (message.properties(), message.partition_key(), message.ordering_key()) == ({"a": "1"}, "k", "o")
    assert (message.event_timestamp(), message.producer_name(), message.redelivery_count()) == (12345, "named", 0)
    assert abs(message.publish_timestamp() - time.time() * 1000) < 60_000


@pytest.mark.parametrize(
    "kind",
    [
        pulsar.CompressionType.LZ4,
        pulsar.CompressionType.ZLib,
        pulsar.CompressionType.ZSTD,
        pulsar.CompressionType.SNAPPY,
    ],
)
def test_compressed_messages_pass_untouched(client: pulsar.Client, topic: str, kind: object) -> None:
    consumer = client.subscribe(topic, "s")
    payload = b"abc" * 5000
    client.create_producer(topic, compression_type=kind).send(payload)
    assert consumer.receive(RECEIVE_MS).data() == payload


def test_a_message_as_large_as_allowed_passes_and_larger_ones_in_chunks(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    large = bytes(range(256)) * 4 * 1024 * 4  # 4 MiB
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(large)
    assert consumer.receive(RECEIVE_MS).data() == large
    refuses(pulsar.MessageTooBig, lambda: producer.send(large + large))
    chunked = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    chunked.send(large + large)
    assert consumer.receive(RECEIVE_MS).data() == large + large


def test_message_ids_grow_and_name_what_is_delivered(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    sent = publish(client, topic, numbers(20))
    places = [(each.ledger_id(), each.entry_id()) for each in sent]
    assert places == sorted(set(places))
    received = [message.message_id() for message in receive_all(consumer, 20)]
    assert [(each.ledger_id(), each.entry_id()) for each in received] == places


def test_a_new_subscription_starts_at_latest_or_earliest_as_asked(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, numbers(3))
    latest = client.subscribe(topic, "latest", initial_position=InitialPosition.Latest)
    earliest = client.subscribe(topic, "earliest", initial_position=InitialPosition.Earliest)
    publish(client, topic, numbers(1, 3))
    assert [message.data() for message in receive_all(earliest, 4)] == numbers(4)
    assert [message.data() for message in receive_all(latest, 1)] == numbers(1, 3)


def test_a_second_exclusive_consumer_is_refused(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s")
    refuses(pulsar.ConsumerBusy, lambda: client.subscribe(topic, "s"))
    publish(client, topic, [b"x"])
    assert first.receive(RECEIVE_MS).data() == b"x"
    first.close()
    client.subscribe(topic, "s").close()


def test_another_subscription_type_is_refused_while_consumers_are_connected(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    refuses(pulsar.ConsumerBusy, lambda: client.subscribe(topic, "s", consumer_type=ConsumerType.Failover))
    first.close()
    client.subscribe(topic, "s", consumer_type=ConsumerType.Failover).close()


def test_a_second_producer_of_the_same_name_is_refused(client: pulsar.Client, server: object, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="p")
    refuses(pulsar.ProducerBusy, lambda: client.create_producer(topic, producer_name="p"))
    producer.close()
    client.create_producer(topic, producer_name="p").close()


def test_an_unknown_namespace_is_not_found(client: pulsar.Client) -> None:
    refuses(pulsar.TopicNotFound, lambda: client.create_producer("persistent://public/nowhere/t"))
    refuses(pulsar.TopicNotFound, lambda: client.subscribe("persistent://nobody/default/t", "s"))


def test_shared_consumers_all_get_their_part_once(client: pulsar.Client, topic: str) -> None:
    consumers = [
        client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, receiver_queue_size=10) for _ in range(3)
    ]
    publish(client, topic, numbers(300))
    got: Counter[bytes] = Counter()
    shares = [0, 0, 0]
    deadline = time.monotonic() + 20
    while sum(shares) < 300 and time.monotonic() < deadline:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(20)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            got[message.data()] += 1
            shares[index] += 1
    assert got == Counter(numbers(300))
    assert min(shares) >= 50, shares


def test_what_a_leaving_shared_consumer_held_goes_to_the_others(client: pulsar.Client, topic: str) -> None:
    leaving = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    publish(client, topic, numbers(20))
    held = {message.data() for message in receive_all(leaving, 20, ack=False)}
    staying = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    leaving.close()
    again = receive_all(staying, 20)
    assert {message.data() for message in again} == held
    assert all(message.redelivery_count() == 1 for message in again)


def test_failover_gives_everything_to_one_and_then_to_the_next(client: pulsar.Client, topic: str) -> None:
    consumers = {
        name: client.subscribe(topic, "s", consumer_type=ConsumerType.Failover, consumer_name=name)
        for name in ("a", "b")
    }
    publish(client, topic, numbers(10))
    active = None
    deadline = time.monotonic() + 10
    while active is None and time.monotonic() < deadline:
        for name, consumer in consumers.items():
            try:
                first = consumer.receive(100)
            except pulsar.Timeout:
                continue
            active = name
            break
    assert active is not None
    other = consumers["b" if active == "a" else "a"]
    rest = [first, *receive_all(consumers[active], 9, ack=False)]
    assert [message.data() for message in rest] == numbers(10)
    assert nothing_more(other)
    for message in rest[:5]:
        consumers[active].acknowledge(message)
    consumers[active].close()
    assert [message.data() for message in receive_all(other, 5)] == numbers(5, 5)


def test_a_key_stays_with_one_consumer_and_in_order(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared) for _ in range(3)]
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(300):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=f"key{number % 30}")
    producer.flush()
    owner: dict[str, set[int]] = defaultdict(set)
    order: dict[str, list[int]] = defaultdict(list)
    left = 300
    deadline = time.monotonic() + 20
    while left and time.monotonic() < deadline:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(20)
            except pulsar.Timeout:
                continue
            owner[message.partition_key()].add(index)
            order[message.partition_key()].append(int(message.data()))
            consumer.acknowledge(message)
            left -= 1
    assert left == 0
    assert all(len(each) == 1 for each in owner.values()), owner
    assert len({next(iter(each)) for each in owner.values()}) > 1
    assert all(each == sorted(each) for each in order.values())


def test_a_key_is_held_back_until_its_former_owner_acknowledged(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(40):
        producer.send(b"old%d" % number, partition_key=f"key{number}")
    held = receive_all(first, 40, ack=False)
    second = client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared)
    for number in range(40):
        producer.send(b"new%d" % number, partition_key=f"key{number}")
    assert nothing_more(second)
    for message in held:
        first.acknowledge(message)
    moved = 0
    deadline = time.monotonic() + 10
    total = 0
    while total < 40 and time.monotonic() < deadline:
        for consumer in (first, second):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            total += 1
            moved += consumer is second
    assert total == 40
    assert 0 < moved < 40


def test_an_individual_ack_takes_only_its_message(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, numbers(10))
    for message in receive_all(consumer, 10, ack=False):
        if message.data() in (b"m2", b"m3", b"m7"):
            consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s")
    expected = [each for each in numbers(10) if each not in (b"m2", b"m3", b"m7")]
    assert [message.data() for message in receive_all(again, 7)] == expected
    assert nothing_more(again)


def test_a_cumulative_ack_takes_everything_up_to_it(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, numbers(10))
    messages = receive_all(consumer, 10, ack=False)
    consumer.acknowledge_cumulative(messages[6])
    consumer.close()
    again = client.subscribe(topic, "s")
    assert [message.data() for message in receive_all(again, 3)] == numbers(3, 7)


def test_part_of_a_batch_can_be_acknowledged(client: pulsar.Client, topic: str) -> None:
    options = {"batch_index_ack_enabled": True}
    consumer = client.subscribe(topic, "s", **options)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=200)
    for payload in numbers(10):
        producer.send_async(payload, lambda *_: None)
    producer.flush()
    messages = receive_all(consumer, 10, ack=False)
    assert len({message.message_id().entry_id() for message in messages}) == 1
    for message in messages[:4]:
        consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s", **options)
    assert [message.data() for message in receive_all(again, 6)] == numbers(6, 4)


def test_a_negative_ack_brings_the_message_again_and_counts(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    publish(client, topic, numbers(3))
    for message in receive_all(consumer, 3, ack=False):
        if message.data() == b"m1":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    again = consumer.receive(RECEIVE_MS)
    assert (again.data(), again.redelivery_count()) == (b"m1", 1)
    consumer.acknowledge(again)
    assert nothing_more(consumer)


def test_a_message_nobody_can_handle_goes_to_the_dead_letter_topic(client: pulsar.Client, topic: str) -> None:
    dead = client.subscribe(topic + "-DLQ", "d", initial_position=InitialPosition.Earliest)
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, topic + "-DLQ"),
    )
    publish(client, topic, [b"poison"])
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(RECEIVE_MS))
    assert dead.receive(RECEIVE_MS).data() == b"poison"


def test_permits_bound_what_is_in_flight(client: pulsar.Client, topic: str) -> None:
    zero = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, receiver_queue_size=0)
    publish(client, topic, numbers(3))
    other = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, receiver_queue_size=10)
    assert sorted(message.data() for message in receive_all(other, 3)) == numbers(3)
    publish(client, topic, numbers(1, 3))
    assert other.receive(RECEIVE_MS).data() == b"m3"
    zero.close()


def test_seek_by_id_makes_that_message_the_next(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    ids = publish(client, topic, numbers(10))
    receive_all(consumer, 10)
    consumer.seek(ids[4])
    assert [message.data() for message in receive_all(consumer, 5)] == numbers(5, 5)
    consumer.seek(MessageId.earliest)
    assert [message.data() for message in receive_all(consumer, 10)] == numbers(10)
    consumer.seek(MessageId.latest)
    publish(client, topic, numbers(1, 10))
    assert consumer.receive(RECEIVE_MS).data() == b"m10"


def test_seek_by_id_includes_it_when_asked(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    ids = publish(client, topic, numbers(10))
    consumer.seek(ids[4])
    assert [message.data() for message in receive_all(consumer, 6)] == numbers(6, 4)


def test_seek_by_time_finds_the_first_message_published_then(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, numbers(5))
    messages = receive_all(consumer, 5)
    time.sleep(0.005)
    publish(client, topic, numbers(5, 5))
    cut = consumer.receive(RECEIVE_MS).publish_timestamp()
    assert cut > messages[-1].publish_timestamp()
    consumer.seek(cut)
    assert [message.data() for message in receive_all(consumer, 5)] == numbers(5, 5)


def test_readers_start_where_they_are_told(client: pulsar.Client, topic: str) -> None:
    ids = publish(client, topic, numbers(10))

    def rest(reader: pulsar.Reader) -> list[bytes]:
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(RECEIVE_MS).data())
        return found

    assert rest(client.create_reader(topic, MessageId.earliest)) == numbers(10)
    assert rest(client.create_reader(topic, ids[6])) == numbers(3, 7)
    assert rest(client.create_reader(topic, ids[6], start_message_id_inclusive=True)) == numbers(4, 6)
    latest = client.create_reader(topic, MessageId.latest)
    assert rest(latest) == []
    publish(client, topic, numbers(1, 10))
    assert latest.read_next(RECEIVE_MS).data() == b"m10"
    reader = client.create_reader(topic, MessageId.earliest)
    reader.seek(ids[8])
    assert rest(reader) == numbers(2, 9)


def test_a_reader_reads_into_a_batch(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=200)
    ids: list[MessageId] = []
    for payload in numbers(10):
        producer.send_async(payload, lambda _, message_id: ids.append(message_id))
    producer.flush()
    reader = client.create_reader(topic, ids[3])
    assert [reader.read_next(RECEIVE_MS).data() for _ in range(6)] == numbers(6, 4)


def test_the_last_message_id_is_the_last_one_sent(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    sent = publish(client, topic, numbers(3))
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (sent[-1].ledger_id(), sent[-1].entry_id())


def test_unsubscribe_forgets_the_position(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    other = client.subscribe(topic, "other")
    publish(client, topic, numbers(3))
    receive_all(consumer, 1)
    consumer.unsubscribe()
    again = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    assert [message.data() for message in receive_all(again, 3)] == numbers(3)
    other.close()


def test_many_producers_and_topics_at_once(client: pulsar.Client, topic: str) -> None:
    def one(number: int) -> list[bytes]:
        name = f"{topic}-{number}"
        consumer = client.subscribe(name, "s")
        publish(client, name, numbers(50))
        return [message.data() for message in receive_all(consumer, 50)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(16))) == [numbers(50)] * 16


def test_a_listener_hears_at_once(client: pulsar.Client, topic: str) -> None:
    heard: list[bytes] = []

    def hear(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        heard.append(message.data())
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", message_listener=hear)
    publish(client, topic, numbers(3))
    deadline = time.monotonic() + 5
    while len(heard) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert heard == numbers(3)
    consumer.close()


def test_an_unacknowledged_message_of_a_closed_client_goes_to_another_client(
    client: pulsar.Client, server: StandaloneProcess, topic: str
) -> None:
    other = pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    leaving = [other.subscribe(topic, "s", consumer_type=ConsumerType.Shared) for _ in range(3)]
    publish(client, topic, numbers(30))
    leaving[0].receive(RECEIVE_MS)
    other.close()
    staying = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    again = receive_all(staying, 30)
    assert sorted(message.data() for message in again) == sorted(numbers(30))
    assert nothing_more(staying)


def test_chunked_messages_arrive_whole_on_two_shared_consumers(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", ConsumerType.Shared, receiver_queue_size=5) for _ in range(2)]
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    size = (5 << 20) * 2 + 1000
    sent = {bytes([number]) * size for number in range(6)}
    got: list[bytes] = []
    with ThreadPoolExecutor(2) as pool:
        for payload in sent:
            producer.send_async(payload, lambda *_: None)

        def drain(consumer: pulsar.Consumer) -> None:
            while True:
                try:
                    message = consumer.receive(2000)
                except pulsar.Timeout:
                    return
                got.append(message.data())
                consumer.acknowledge(message)

        list(pool.map(drain, consumers))
    assert len(got) == len(sent)
    assert set(got) == sent


@pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.KeyShared])
def test_delayed_messages_are_delivered_when_they_are_due(
    kind: ConsumerType, client: pulsar.Client, topic: str
) -> None:
    """With the batching that this client uses by default: it sends delayed messages by themselves."""
    consumer = client.subscribe(topic, "s", kind)
    at_once = client.subscribe(topic, "exclusive", ConsumerType.Exclusive)
    producer = client.create_producer(topic)
    sent = time.time()
    producer.send(b"later", deliver_after=timedelta(seconds=6))
    producer.send(b"sooner", deliver_at=int((sent + 3) * 1000))
    producer.send(b"now")
    assert [message.data() for message in receive_all(at_once, 3)] == [b"later", b"sooner", b"now"]
    for payload, after_s in ((b"now", 0), (b"sooner", 3), (b"later", 6)):
        message = consumer.receive(RECEIVE_MS)
        assert message.data() == payload
        assert message.redelivery_count() == 0
        assert time.time() >= sent + after_s - 1.1, "at most one tick before its time"
        consumer.acknowledge(message)
    assert nothing_more(consumer)


def test_a_delayed_message_that_is_refused_by_its_consumer_comes_again_at_once(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic).send(b"x", deliver_after=timedelta(seconds=2))
    first = consumer.receive(RECEIVE_MS)
    consumer.negative_acknowledge(first)
    begun = time.monotonic()
    second = consumer.receive(RECEIVE_MS)
    assert (second.data(), second.redelivery_count()) == (b"x", 1)
    assert time.monotonic() - begun < 2
    consumer.acknowledge(second)
    assert nothing_more(consumer)


def test_what_is_delayed_survives_an_unload_and_its_consumers(
    client: pulsar.Client, server: StandaloneProcess, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    producer = client.create_producer(topic)
    sent = time.time()
    for number in range(20):
        producer.send(b"%d" % number, deliver_after=timedelta(seconds=5))
    producer.send(b"now")
    message = consumer.receive(RECEIVE_MS)
    assert message.data() == b"now"
    consumer.acknowledge(message)
    path = f"{server.web}/admin/v2/persistent/{topic.removeprefix('persistent://')}"
    # The client sends acknowledgements in groups; one that is on its way at the unload is lost.
    wait_until(lambda: httpx2.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"] == 20)
    assert httpx2.put(f"{path}/unload", timeout=20).status_code == 204
    found = receive_all(consumer, 20)
    assert time.time() >= sent + 5 - 1.1
    assert sorted(message.data() for message in found) == sorted(b"%d" % number for number in range(20))


def test_an_unreadable_entry_does_not_get_into_a_topic(
    client: pulsar.Client, server: StandaloneProcess, topic: str
) -> None:
    consumers = [client.subscribe(topic, kind.name, kind) for kind in (ConsumerType.Exclusive, ConsumerType.Shared)]
    with RawClient(server.port) as raw:
        raw.producer(topic)
        raw.send_entry(entry_of(b"\xff\xff\xff", b"payload"))
        assert raw.expect(pb.BaseCommand.SEND_ERROR).send_error.error == pb.NotAllowedError
    publish(client, topic, numbers(3))
    for consumer in consumers:
        assert [message.data() for message in receive_all(consumer, 3)] == numbers(3)


def test_unloading_a_topic_under_load_stores_nothing_twice(
    client: pulsar.Client, server: StandaloneProcess, topic: str
) -> None:
    unload = f"{server.web}/admin/v2/persistent/{topic.removeprefix('persistent://')}/unload"
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    results: list[object] = []
    with httpx2.Client(timeout=20) as http:
        count = 0
        for _ in range(5):
            until = time.monotonic() + 0.25
            while time.monotonic() < until:
                producer.send_async(b"%d" % count, lambda result, _: results.append(result))
                count += 1
            assert http.put(unload).status_code == 204
    producer.flush()
    assert Counter(results) == {pulsar.Result.Ok: count}
    reader = client.create_reader(topic, MessageId.earliest)
    got = []
    while reader.has_message_available():
        got.append(int(reader.read_next(RECEIVE_MS).data()))
    assert len(got) == count, "nothing is lost, and nothing comes twice"
    assert got == list(range(count))
