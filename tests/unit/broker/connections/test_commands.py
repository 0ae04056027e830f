"""Requests: the answers, their errors, and the state after a close in the middle of a creation."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import trio

from broker.config import PARTITIONED
from broker.connections.topic_lists.hashes import topics_hash
from managed_ledger.config import LogConfigSource
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.errors import LedgerError
from quire.metadata.errors import MetadataError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker


def partitions(peer: Peer, topic: str) -> None:
    body = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=5)
    peer.send(C(type=C.PARTITIONED_METADATA, partitionMetadata=body))


async def partition_count(peer: Peer, topic: str, *, create: bool = True) -> int | pb.ServerError:
    """Return the number of partitions, or the error as a number below 0."""
    body = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=5, metadata_auto_creation_enabled=create)
    peer.send(C(type=C.PARTITIONED_METADATA, partitionMetadata=body))
    found = (await peer.expect(C.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse
    if found.response == pb.CommandPartitionedTopicMetadataResponse.Success:
        return found.partitions
    return -found.error


async def topics_of(peer: Peer, **options: Any) -> pb.CommandGetTopicsOfNamespaceResponse:
    body = pb.CommandGetTopicsOfNamespace(request_id=6, **{"namespace": "public/default", **options})
    peer.send(C(type=C.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body))
    return (await peer.expect(C.GET_TOPICS_OF_NAMESPACE_RESPONSE)).getTopicsOfNamespaceResponse


async def test_the_count_of_partitions_is_told_truly_and_nothing_is_made_by_asking(room: Room, peer: Peer) -> None:
    admin, name = room.broker.administration, TopicName.parse(TOPIC)
    for create in (True, True, False):
        assert await partition_count(peer, TOPIC, create=create) == (0 if create else -pb.TopicNotFound)
    assert await admin.topics_of_namespace(name.namespace_name) == []
    await admin.create_partitioned_topic(name, 3)
    for create in (True, False):
        assert await partition_count(peer, TOPIC, create=create) == 3
        assert await partition_count(peer, f"{TOPIC}-partition-2", create=create) == 0
    assert await partition_count(peer, f"{TOPIC}-partition-3") == 0  # a user of it is refused
    assert await partition_count(peer, f"{TOPIC}-partition-3", create=False) == -pb.TopicNotFound
    await admin.grow_partitioned_topic(name, 4)
    assert await partition_count(peer, TOPIC) == 4
    await admin.delete_partitioned_topic(name)
    assert await partition_count(peer, TOPIC) == 0
    await peer.producer()
    assert await partition_count(peer, TOPIC, create=False) == 0


@pytest.mark.broker(auto_topic_type=PARTITIONED, partitions_default=4)
async def test_a_topic_that_a_client_first_names_is_partitioned_if_the_configuration_says_so(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    space = TopicName.parse(TOPIC).namespace_name
    assert await partition_count(peer, TOPIC, create=False) == -pb.TopicNotFound
    assert await room.broker.administration.topics_of_namespace(space) == []
    for each in (peer, other):
        body = pb.CommandPartitionedTopicMetadata(topic=TOPIC, request_id=5)
        each.send(C(type=C.PARTITIONED_METADATA, partitionMetadata=body))
    for each in (peer, other):
        found = (await each.expect(C.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse
        assert found.partitions == 4
    assert len(await room.broker.administration.topics_of_namespace(space)) == 4
    assert await partition_count(peer, f"{TOPIC}-partition-1") == 0
    assert await partition_count(peer, f"{TOPIC}-partition-9") == 0
    await room.broker.administration.create_topic(TopicName.parse("plain"))
    assert await partition_count(peer, "persistent://public/default/plain") == 0


@pytest.mark.broker(allow_auto_topic_creation=False, auto_topic_type=PARTITIONED)
async def test_where_no_topic_may_be_made_one_that_is_not_there_is_not_found(room: Room, peer: Peer) -> None:
    assert await partition_count(peer, TOPIC) == -pb.TopicNotFound
    await room.broker.administration.create_partitioned_topic(TopicName.parse(TOPIC), 2)
    assert await partition_count(peer, TOPIC) == 2
    await peer.producer(f"{TOPIC}-partition-1")


async def test_a_count_that_is_known_is_answered_in_the_pass_that_asks(
    room: Room, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await room.broker.administration.create_partitioned_topic(TopicName.parse(TOPIC), 2)
    assert await partition_count(peer, TOPIC) == 2
    assert await partition_count(peer, "persistent://public/default/plain") == 0

    async def never(path: str) -> None:
        raise AssertionError(f"the store was asked for {path}")

    monkeypatch.setattr(room.cluster.stores[0], "get", never)
    assert await partition_count(peer, TOPIC) == 2
    assert await partition_count(peer, "persistent://public/default/plain") == 0
    assert await partition_count(peer, f"{TOPIC}-partition-1") == 0


async def test_the_topics_of_a_namespace_come_with_their_hash_and_without_names_if_it_is_known(room: Room) -> None:
    peer = await room.connect()
    empty = await topics_of(peer)
    assert (list(empty.topics), empty.topics_hash, empty.changed) == ([], "00000000", True)
    await room.broker.administration.create_partitioned_topic(TopicName.parse("b"), 2)
    await room.broker.administration.create_topic(TopicName.parse("a"))
    names = [f"persistent://public/default/{each}" for each in ("a", "b-partition-0", "b-partition-1")]
    found = await topics_of(peer)
    assert (list(found.topics), found.filtered, found.changed) == (names, False, True)
    assert found.topics_hash == topics_hash(names)
    again = await topics_of(peer, topics_hash=found.topics_hash)
    assert (list(again.topics), again.topics_hash, again.changed) == ([], found.topics_hash, False)
    assert list((await topics_of(peer, topics_hash="00000000")).topics) == names
    mode = pb.CommandGetTopicsOfNamespace
    assert list((await topics_of(peer, mode=mode.ALL)).topics) == names
    assert list((await topics_of(peer, mode=mode.NON_PERSISTENT)).topics) == []


async def test_a_pattern_that_can_be_matched_safely_is_and_the_answer_says_so(room: Room, peer: Peer) -> None:
    await room.broker.administration.create_partitioned_topic(TopicName.parse("orders"), 1)
    await room.broker.administration.create_topic(TopicName.parse("other"))
    found = await topics_of(peer, topics_pattern="public/default/or.*")
    assert list(found.topics) == ["persistent://public/default/orders-partition-0"]
    assert found.filtered
    assert found.topics_hash == topics_hash(found.topics)
    assert list((await topics_of(peer, topics_pattern="public/default/(or|off)+.*")).topics) == list(found.topics)
    for unsafe in ("public/default/(?=or).*", "public/default/.{0,50}" + "." * 50):
        everything = await topics_of(peer, topics_pattern=unsafe)
        assert len(everything.topics) == 2
        assert not everything.filtered


async def test_patterns_are_left_to_clients_if_the_configuration_says_so() -> None:
    for options in ({"pattern_evaluation": False}, {"pattern_length_max": 10}):
        async with in_broker(**options) as room:
            peer = await room.connect()
            await room.broker.administration.create_topic(TopicName.parse("other"))
            found = await topics_of(peer, topics_pattern="public/default/or.*")
            assert (len(found.topics), found.filtered) == (1, False)


async def test_the_topics_of_what_is_no_namespace_are_an_error(peer: Peer) -> None:
    body = pb.CommandGetTopicsOfNamespace(request_id=6, namespace="public")
    peer.send(C(type=C.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body))
    assert (await peer.error())[0] == pb.InvalidTopicName


async def test_a_namespace_that_is_not_there_has_no_topics(peer: Peer) -> None:
    """With an error, Go retries for 30 s, and Python and Java fail; the original answers with an empty list."""
    found = await topics_of(peer, namespace="public/nowhere")
    assert (list(found.topics), found.topics_hash) == ([], topics_hash([]))


async def test_lookups_fail_in_their_own_answers(peer: Peer) -> None:
    for topic, code in (
        ("persistent://public/nowhere/t", pb.TopicNotFound),
        ("persistent://public/default/..", pb.InvalidTopicName),
        ("persistent://public/default/a\\b", pb.NotAllowedError),
    ):
        assert (await peer.lookup(topic)).error == code
        partitions(peer, topic)
        assert (await peer.expect(C.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse.error == code
    found = await peer.lookup(advertised_listener_name="test")
    assert (found.error, "the broker do not have test listener" in found.message) == (pb.ServiceNotReady, True)
    assert (await peer.lookup()).brokerServiceUrl == "pulsar://test:6650"


async def test_a_name_that_pulsar_takes_and_quire_does_not_is_refused_with_a_code_that_clients_do_not_retry(
    peer: Peer,
) -> None:
    """The official C++ and Python clients retry InvalidTopicName until their timeout, and stop at
    NotAllowedError."""
    for topic in ("a\\b", "a%2Fb", "a\x07b"):
        partitions(peer, f"persistent://public/default/{topic}")
        assert (
            await peer.expect(C.PARTITIONED_METADATA_RESPONSE)
        ).partitionMetadataResponse.error == pb.NotAllowedError


async def test_metadata_that_is_away_is_not_answered_so_that_clients_hang_up(
    room: Room, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = room.cluster.stores[0]

    async def away(path: str) -> None:
        raise MetadataError("away")

    monkeypatch.setattr(store, "get", away)
    assert (await peer.lookup()).error == pb.MetadataError


@pytest.mark.expect_error("request failed")
async def test_our_own_mistake_in_a_request_is_answered_and_logged_and_the_connection_lives(
    room: Room, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def wrong(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(room.broker.topics.namespaces, "exists", wrong)
    assert (await peer.lookup()).error == pb.UnknownError
    peer.send(C(type=C.PING, ping=pb.CommandPing()))
    await peer.expect(C.PONG)


async def test_a_topic_is_not_made_where_that_is_not_allowed() -> None:
    async def test(room: Room) -> None:
        peer = await room.connect()
        assert await peer.refused_consumer(force_topic_creation=False) == pb.TopicNotFound
        await peer.subscribe()

    async with in_broker() as room:
        await test(room)

    async def nor_here(room: Room) -> None:
        peer = await room.connect()
        assert await peer.refused_producer() == pb.TopicNotFound
        assert await peer.refused_consumer() == pb.TopicNotFound

    async with in_broker(allow_auto_topic_creation=False) as room:
        await nor_here(room)


async def test_who_may_make_a_topic_makes_it_although_somebody_who_may_not_asked_first(room: Room) -> None:
    first, second = await room.connect(), await room.connect()
    opens = room.factory.open

    async def slow(name: str, *, create: bool = True, config: LogConfigSource | None = None) -> ManagedLedger:
        await trio.sleep(1)
        return await opens(name, create=create, config=config)

    with patch.object(room.factory, "open", slow):
        first.ask_subscribe(force_topic_creation=False)
        await trio.sleep(0.5)
        second.ask_producer()
        assert (await first.error())[0] == pb.TopicNotFound
        await second.expect(C.PRODUCER_SUCCESS)


async def test_the_same_id_again_is_a_success_if_it_is_the_same_and_refused_if_it_is_another(room: Room) -> None:
    peer = await room.connect()
    name = await peer.producer()
    assert await peer.producer() == name
    assert await peer.refused_producer(TOPIC + "-other") == pb.NotAllowedError
    await peer.subscribe()
    await peer.subscribe()
    topic = await room.topic()
    assert len(topic.subscriptions["s"].consumers) == 1
    assert await peer.refused_consumer(name="t") == pb.NotAllowedError


async def test_an_id_that_is_being_created_is_refused_and_one_closed_meanwhile_comes_to_nothing(room: Room) -> None:
    peer = await room.connect()
    room.cluster.ledgers.delay_s = 2  # loading takes a while
    peer.ask_producer(producer_name="p")
    assert await peer.refused_producer(producer_name="p") == pb.ServiceNotReady
    peer.ask_subscribe()
    peer.close_producer()
    await peer.end_consumer()
    await peer.expect(C.SUCCESS)
    assert [(await peer.error())[0] for _ in range(2)] == [pb.ServiceNotReady] * 2
    topic = await room.topic()
    assert not topic.producers
    assert not topic.subscriptions["s"].consumers
    room.cluster.ledgers.delay_s = 0
    await peer.producer(producer_name="p")
    await peer.subscribe()


async def test_an_exclusive_subscription_is_taken_over_only_from_a_dead_connection(room: Room) -> None:
    for durable in (True, False):
        name = f"s-{durable}"
        first, second = await room.connect(), await room.connect()
        await first.producer()
        await first.subscribe(name=name, durable=durable)
        assert await first.refused_consumer(name=name, durable=durable, consumer_id=2) == pb.ConsumerBusy
        second.ask_subscribe(name=name, durable=durable)
        await first.silent(0.5)
        assert first.pings
        assert (await second.error())[0] == pb.ConsumerBusy
        first.dead = True
        await second.subscribe(name=name, durable=durable)
        assert first.stream.closed
        topic = await room.topic()
        assert len(topic.subscriptions[name].consumers) == 1
        second.flow(10)
        await second.producer()
        await second.closed_by_us()


async def test_a_closed_consumer_makes_way_at_once(room: Room) -> None:
    first, second = await room.connect(), await room.connect()
    await first.subscribe()
    await first.end_consumer()
    await second.subscribe()


async def test_names_and_properties_have_bounds(peer: Peer) -> None:
    big = [pb.KeyValue(key="k", value="v" * 100_000)]
    for options in ({"metadata": big}, {"producer_name": "p" * 5000}, {"initial_subscription_name": "a\0b"}):
        assert await peer.refused_producer(**options) == pb.NotAllowedError
    for options in ({"metadata": big}, {"subscription_properties": big}, {"consumer_name": "c" * 5000}):
        assert await peer.refused_consumer(**options) == pb.NotAllowedError
    assert await peer.refused_consumer(name="") == pb.ProducerBusy


async def test_what_is_not_served_of_producing_and_subscribing_is_refused(peer: Peer) -> None:
    assert await peer.refused_consumer(subType=SUB.Shared, read_compacted=True) == pb.NotAllowedError
    await peer.subscribe(name="durable")
    await peer.end_consumer()
    assert await peer.refused_consumer(name="durable", durable=False) == pb.NotAllowedError


async def test_the_policies_of_a_topic_are_known_from_memory_when_a_producer_has_it_loaded(room: Room) -> None:
    peer = await room.connect()
    asked: list[str] = []
    path = "/admin/topic-policies/local/public/default/persistent/orders"
    await room.cluster.stores[0].create(path, b"{}", make_parents=True)
    real = room.cluster.stores[0].get

    async def noted(path: str) -> Any:
        asked.append(path)
        return await real(path)

    async with trio.open_nursery() as nursery:
        await nursery.start(room.broker.policies.run)
        await peer.producer("persistent://public/default/another")
        with patch.object(room.cluster.stores[0], "get", noted):
            await peer.producer(producer_id=2)
        assert not [each for each in asked if "topic-policies" in each]
        nursery.cancel_scope.cancel()


async def test_a_producer_of_a_topic_that_is_served_needs_no_namespace_to_be_looked_up(
    room: Room, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.producer()
    asked: list[str] = []
    room.broker.topics.namespaces._seen.forget("public/default")
    real = room.cluster.stores[0].get

    async def noted(path: str) -> Any:
        asked.append(path)
        return await real(path)

    monkeypatch.setattr(room.cluster.stores[0], "get", noted)
    async with trio.open_nursery() as nursery:
        await nursery.start(room.broker.policies.run)
        await peer.producer(producer_id=2)
        asked.clear()
        room.broker.topics.namespaces._seen.forget("public/default")
        await peer.producer(producer_id=3)
        assert asked == []
        nursery.cancel_scope.cancel()


async def test_an_initial_subscription_is_there_from_the_first_message_on_and_holds_no_cache(room: Room) -> None:
    peer = await room.connect()
    await peer.producer(initial_subscription_name="dlq")
    topic = await room.topic()
    assert not topic.subscriptions["dlq"].cursor.active
    await peer.publish(b"m0", b"m1")
    await peer.subscribe(name="dlq", subType=SUB.Shared, initialPosition=SUB.Latest, permits=10)
    assert await peer.payloads(2) == [b"m0", b"m1"]
    await peer.producer(producer_id=2, initial_subscription_name="dlq")  # allowed, with consumers of another type


async def test_consumer_stats_tell_permits_backlog_and_type(peer: Peer) -> None:
    await peer.producer()
    for consumer_id, kind, unacked in ((1, SUB.Exclusive, 0), (2, SUB.Shared, 2), (3, SUB.Key_Shared, 2)):
        topic = f"{TOPIC}-{kind}"
        await peer.producer(topic, producer_id=10 + consumer_id)
        await peer.subscribe(topic, subType=kind, consumer_id=consumer_id, consumer_name="me", permits=5)
        for number in range(2):
            peer.send_message(b"x", number, 10 + consumer_id)
        for _ in range(4):
            await peer.receive()
        body = pb.CommandConsumerStats(request_id=9, consumer_id=consumer_id)
        peer.send(C(type=C.CONSUMER_STATS, consumerStats=body))
        stats = (await peer.expect(C.CONSUMER_STATS_RESPONSE)).consumerStatsResponse
        assert not stats.HasField("error_code")
        assert (stats.request_id, stats.consumerName, stats.type) == (9, "me", SUB.SubType.Name(kind))
        assert (stats.availablePermits, stats.msgBacklog, stats.unackedMessages) == (3, 2, unacked)
    peer.send(C(type=C.CONSUMER_STATS, consumerStats=pb.CommandConsumerStats(request_id=9, consumer_id=99)))
    stats = (await peer.expect(C.CONSUMER_STATS_RESPONSE)).consumerStatsResponse
    assert stats.error_code == pb.ConsumerNotFound


@pytest.mark.broker(topic_load_timeout_s=100.0)
async def test_a_topic_that_cannot_be_loaded_is_tried_again_when_it_is_asked_for_again(room: Room, peer: Peer) -> None:
    room.cluster.ledgers.failures["create"] = [LedgerError("no bookies")] * 1000
    assert await peer.refused_producer() == pb.ServiceNotReady
    room.cluster.ledgers.failures.clear()
    await peer.producer()
    await until(lambda: len(room.broker.topics.loaded()) == 1)
