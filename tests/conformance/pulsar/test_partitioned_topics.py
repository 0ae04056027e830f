"""Partitioned topics with the official client: routing, readers, patterns, growth, deletion, auto creation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support import web
from tests.support.raw import RawClient
from tests.support.refusals import refuses
from tests.support.server import StandaloneProcess, standalone

RECEIVE_MS = 10_000


@pytest.fixture(scope="module")
def partitioning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Run a server that creates every topic as a partitioned one."""
    conf = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": 3}
    with standalone(tmp_path_factory.mktemp("partitioning"), conf) as running:
        yield running


@pytest.fixture
def connect(server: StandaloneProcess) -> Iterator[Callable[..., pulsar.Client]]:
    made: list[pulsar.Client] = []

    def client(to: StandaloneProcess = server, **options: Any) -> pulsar.Client:
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        made.append(pulsar.Client(to.url, operation_timeout_seconds=10, logger=logger, **options))
        return made[-1]

    yield client
    for each in made:
        each.close()


def rest(server: StandaloneProcess, method: str, topic: str, rest_of_path: str = "", **options: Any) -> httpx2.Response:
    path = f"/admin/v2/{topic.replace('://', '/')}{rest_of_path}"
    return web.request(method, f"{server.web}{path}", timeout=30, **options)


def make(server: StandaloneProcess, topic: str, partitions: int) -> None:
    assert rest(server, "PUT", topic, "/partitions", json=partitions).status_code == 204


def received(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    messages = [consumer.receive(RECEIVE_MS) for _ in range(count)]
    for message in messages:
        consumer.acknowledge(message)
    refuses(pulsar.Timeout, lambda: consumer.receive(300))
    return messages


def test_a_producer_spreads_over_the_partitions_and_a_consumer_gets_everything_of_a_key_in_order(
    server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    make(server, topic, 3)
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{index}" for index in range(3)]
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(60):
        producer.send(b"%d" % number, partition_key=f"k{number % 12}")
    messages = received(consumer, 60)
    by_key: dict[str, list[int]] = {}
    partitions: dict[str, set[str]] = {}
    for message in messages:
        by_key.setdefault(message.partition_key(), []).append(int(message.data()))
        partitions.setdefault(message.partition_key(), set()).add(message.topic_name())
    assert all(numbers == sorted(numbers) and len(numbers) == 5 for numbers in by_key.values())
    assert all(len(names) == 1 for names in partitions.values())
    assert len(set.union(*partitions.values())) == 3
    assert {message.message_id().partition() for message in messages} == {0, 1, 2}


def test_a_reader_reads_all_partitions(server: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    make(server, topic, 2)
    producer = client.create_producer(
        topic, batching_enabled=False, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for number in range(10):
        producer.send(b"%d" % number)
    reader = client.create_reader(topic, MessageId.earliest)
    assert sorted(int(reader.read_next(RECEIVE_MS).data()) for _ in range(10)) == list(range(10))
    assert not reader.has_message_available()


def test_one_partition_is_a_topic_of_its_own(server: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    make(server, topic, 2)
    name = f"{topic}-partition-1"
    consumer = client.subscribe(name, "s")
    client.create_producer(name).send(b"m")
    assert [message.data() for message in received(consumer, 1)] == [b"m"]
    refuses(pulsar.PulsarException, lambda: client.create_producer(f"{topic}-partition-2"))


def test_a_pattern_finds_plain_and_partitioned_topics(
    server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    make(server, f"{topic}-many", 2)
    client.create_producer(f"{topic}-one").send(b"one")
    client.create_producer(f"{topic}-many").send(b"many")
    client.create_producer(f"{topic}x").send(b"other")
    consumer = client.subscribe(
        re.compile(f"{topic}-.*"), "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
    )
    assert sorted(message.data() for message in received(consumer, 2)) == [b"many", b"one"]


def test_clients_that_are_connected_take_to_new_partitions_and_miss_nothing(
    server: StandaloneProcess, connect: Callable[..., pulsar.Client], topic: str
) -> None:
    make(server, topic, 1)
    client = connect()
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Latest)
    client.create_producer(topic).send(b"old")
    assert [message.data() for message in received(consumer, 1)] == [b"old"]
    consumer.close()
    assert rest(server, "POST", topic, "/partitions", json=3).status_code == 204
    assert rest(server, "GET", topic, "/partitions").json()["partitions"] == 3
    other = connect()
    assert len(other.get_topic_partitions(topic)) == 3
    producer = other.create_producer(
        topic, batching_enabled=False, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for number in range(9):
        producer.send(b"%d" % number)
    # The consumer was away all the time, and asks for what comes from now on: its subscription was on the new
    # partitions.
    again = other.subscribe(topic, "s", initial_position=InitialPosition.Latest)
    assert sorted(int(message.data()) for message in received(again, 9)) == list(range(9))


def test_what_is_connected_to_a_topic_that_is_deleted_never_sees_the_old_messages_again(
    server: StandaloneProcess, connect: Callable[..., pulsar.Client], topic: str
) -> None:
    client = connect()
    producer = client.create_producer(topic, batching_enabled=False)
    client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    for number in range(20):
        producer.send(b"old%d" % number)
    assert rest(server, "DELETE", topic).status_code == 412
    assert rest(server, "DELETE", topic, params={"force": "true"}).status_code == 204
    other = connect()
    fresh = other.subscribe(topic, "fresh", initial_position=InitialPosition.Earliest)
    other.create_producer(topic).send(b"new")
    assert [message.data() for message in received(fresh, 1)] == [b"new"]


def test_a_partitioned_topic_goes_with_everything_in_it(
    server: StandaloneProcess, connect: Callable[..., pulsar.Client], topic: str
) -> None:
    make(server, topic, 3)
    client = connect()
    producer = client.create_producer(topic)
    producer.send(b"old")
    assert rest(server, "DELETE", topic, "/partitions").status_code == 412
    producer.close()
    assert rest(server, "DELETE", topic, "/partitions").status_code == 204
    assert rest(server, "DELETE", topic, "/partitions").status_code == 404
    other = connect()
    assert other.get_topic_partitions(topic) == [topic]
    other.create_producer(topic).send(b"new")
    consumer = other.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    assert [message.data() for message in received(consumer, 1)] == [b"new"]


def test_topics_are_made_partitioned_where_the_configuration_says_so(
    partitioning: StandaloneProcess, connect: Callable[..., pulsar.Client], topic: str
) -> None:
    client = connect(partitioning)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution, batching_enabled=False
    )
    for number in range(9):
        producer.send(b"%d" % number)
    messages = received(consumer, 9)
    assert {message.topic_name() for message in messages} == {f"{topic}-partition-{index}" for index in range(3)}
    assert rest(partitioning, "GET", topic, "/partitions").json()["partitions"] == 3


def test_partitions_growth_and_subscriptions_are_there_after_a_kill(
    tmp_path: Path, connect: Callable[..., pulsar.Client], topic: str
) -> None:
    with standalone(tmp_path) as server:
        make(server, topic, 2)
        name = f"{topic}-partition-0"
        start = {"ledgerId": -1, "entryId": -1}
        assert rest(server, "PUT", name, "/subscription/hold", json=start).status_code == 204
        assert rest(server, "POST", topic, "/partitions", json=4).status_code == 204
        server.kill()
        server.start()
        client = connect(server)
        assert len(client.get_topic_partitions(topic)) == 4
        assert rest(server, "GET", f"{topic}-partition-3", "/subscriptions").json() == ["hold"]
        client.create_producer(f"{topic}-partition-3").send(b"m")
        consumer = client.subscribe(f"{topic}-partition-3", "hold", initial_position=InitialPosition.Latest)
        assert [message.data() for message in received(consumer, 1)] == [b"m"]


def test_the_list_of_topics_is_told_by_hash(server: StandaloneProcess, topic: str) -> None:
    def ask(client: RawClient, **options: Any) -> pb.CommandGetTopicsOfNamespaceResponse:
        body = pb.CommandGetTopicsOfNamespace(request_id=7, namespace="public/default", **options)
        client.send(pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body))
        return client.expect(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE).getTopicsOfNamespaceResponse

    make(server, topic, 2)
    with RawClient(server.port) as client:
        found = ask(client)
        assert {f"{topic}-partition-0", f"{topic}-partition-1"} <= set(found.topics)
        assert list(found.topics) == sorted(found.topics)
        same = ask(client, topics_hash=found.topics_hash)
        assert (list(same.topics), same.changed) == ([], False)
        make(server, f"{topic}-more", 1)
        changed = ask(client, topics_hash=found.topics_hash)
        assert changed.changed
        assert set(changed.topics) - set(found.topics) == {f"{topic}-more-partition-0"}


def test_a_new_count_is_told_at_once(server: StandaloneProcess, topic: str) -> None:
    make(server, topic, 1)
    with RawClient(server.port) as client:
        asked = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=1)
        command = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
        for partitions in (1, 2, 5):
            if partitions > 1:
                assert rest(server, "POST", topic, "/partitions", json=partitions).status_code == 204
            client.send(command)
            answer = client.expect(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE)
            assert answer.partitionMetadataResponse.partitions == partitions
