"""Loading and closing topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from unittest.mock import patch

import pytest
import trio

from broker.connections.connection import Connection
from broker.errors import ServiceNotReadyError, TopicNotFoundError
from broker.topics.loader import HOLD_S
from broker.topics.loading import THEN_MAX, Loading
from broker.topics.topic import Topic
from cursors.errors import CursorDamagedError, CursorRecoveryError
from managed_ledger.config import LogConfigSource
from managed_ledger.errors import ManagedLedgerFencedError, ManagedLedgerUnavailableError
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from quire.ledger.errors import LedgerRecoveryError
from quire.metadata.errors import MetadataUnavailableError as StoreUnavailableError
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.pulsar_frames import SUB, C
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room

NAME = TopicName.parse(TOPIC)


async def test_many_who_ask_at_once_get_the_same_topic(room: Room) -> None:
    found: list[Topic] = []

    async def ask() -> None:
        found.append(await room.broker.topics.get(NAME))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask)
    assert len(set(map(id, found))) == 1
    assert room.cluster.ledgers.log.count("create 0") == 1
    assert len(room.broker.topics.loaded()) == 1


async def test_producers_wait_for_their_topic_without_a_task_each_as_long_as_they_are_few(room: Room) -> None:
    peer, another = await room.connect(), await room.connect()
    async with trio.open_nursery() as nursery:
        await nursery.start(room.broker.policies.run)
        await another.producer("persistent://public/default/another")  # what holds for the namespace is known now
        started: list[str] = []
        start = Connection.start

        def noted(self: Connection, command: pb.BaseCommand, work: Callable[[], Awaitable[None]]) -> None:
            started.append(pb.BaseCommand.Type.Name(command.type))
            start(self, command, work)

        with patch.object(Connection, "start", noted):
            for number in range(THEN_MAX + 5):
                peer.ask_producer(producer_id=number)
            answers = [await peer.expect(C.PRODUCER_SUCCESS) for _ in range(THEN_MAX + 5)]
            assert started == ["PRODUCER"] * 5
            assert len({each.producer_success.request_id for each in answers}) == THEN_MAX + 5
            await peer.producer(producer_id=100)
            assert len(started) == 5, "nor if the topic is loaded"
        assert len((await room.topic()).producers) == THEN_MAX + 6
        assert room.broker.topics.count == 2
        nursery.cancel_scope.cancel()


async def test_a_consumer_of_a_known_subscription_needs_no_task_and_another_one_gets_its_answer_from_one(
    room: Room,
) -> None:
    peer, another = await room.connect(), await room.connect()
    await peer.subscribe(name="s")
    await peer.producer()
    await peer.publish(b"1")
    started: list[str] = []
    start = Connection.start

    def noted(self: Connection, command: pb.BaseCommand, work: Callable[[], Awaitable[None]]) -> None:
        started.append(pb.BaseCommand.Type.Name(command.type))
        start(self, command, work)

    with patch.object(Connection, "start", noted):
        peer.ask_subscribe(name="s", consumer_id=7)
        assert (await peer.error())[0] == pb.ConsumerBusy, "the subscription is exclusive, and its consumer lives"
        assert started == ["SUBSCRIBE"]
        peer.send(C(type=C.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=77)))
        await peer.expect(C.SUCCESS)
        another.ask_subscribe(name="s", consumer_id=7)
        another.flow(1, consumer_id=7)
        await another.expect(C.SUCCESS)
        assert (await another.message())[1] == b"1"
        assert started == ["SUBSCRIBE"]
        another.ask_subscribe(name="s", consumer_id=7)
        await another.expect(C.SUCCESS)
        another.ask_subscribe(name="new", consumer_id=8)
        await another.expect(C.SUCCESS)
        assert started == ["SUBSCRIBE"] * 3, "a repeated one, and a subscription that has to be stored"
    assert len((await room.topic()).subscriptions["s"].consumers) == 1


@pytest.mark.expect_error("request failed")
async def test_a_consumer_whose_adding_fails_gets_an_answer_and_its_connection_stays(peer: Peer) -> None:
    await peer.producer()
    await peer.subscribe(name="s")
    await peer.subscribe(name="s2", consumer_id=2)
    peer.send(C(type=C.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=77)))
    await peer.expect(C.SUCCESS)
    with patch("broker.connections.creation.make_consumer", side_effect=ValueError("a mistake")):
        assert await peer.refused_consumer(name="s") == pb.UnknownError
    await peer.subscribe(name="s")


async def test_a_producer_that_waits_too_long_for_its_topic_is_refused_and_the_next_finds_it(room: Room) -> None:
    peer = await room.connect()
    opens = room.factory.open

    async def slow(name: str, *, create: bool = True, config: LogConfigSource | None = None) -> ManagedLedger:
        await trio.sleep(100)
        return await opens(name, create=create, config=config)

    async with trio.open_nursery() as nursery:
        await nursery.start(room.broker.policies.run)
        await peer.producer("persistent://public/default/another")
        with patch.object(room.factory, "open", slow):
            begun = trio.current_time()
            peer.ask_producer(producer_id=2)
            code, message = await peer.error()
        assert (code, message) == (pb.ServiceNotReady, f"topic {TOPIC} is still being loaded")
        timeout_s = room.broker.context.options.topic_load_timeout_s
        assert timeout_s <= trio.current_time() - begun <= timeout_s + 10
        await peer.producer(producer_id=2)
        assert 100 <= trio.current_time() - begun < 100.1
        nursery.cancel_scope.cancel()


async def test_a_load_that_is_over_is_not_waited_for() -> None:
    loading = Loading(create=True)
    loading.error = ServiceNotReadyError("away")
    loading.settle()
    with trio.fail_after(1):
        await loading.done.wait()


async def test_a_producer_that_is_closed_while_it_waits_for_its_topic_is_not_added(room: Room, peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(room.broker.policies.run)
        await peer.producer("persistent://public/default/another")
        peer.ask_producer(producer_id=2)
        peer.send(C(type=C.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=2, request_id=77)))
        assert (await peer.expect(C.SUCCESS)).success.request_id == 77
        assert (await peer.error())[0] == pb.ServiceNotReady
        assert not (await room.topic()).producers
        nursery.cancel_scope.cancel()


async def test_a_topic_is_not_made_in_a_namespace_that_was_deleted_a_moment_ago(room: Room) -> None:
    metadata = room.broker.metadata
    await room.broker.topics.namespaces.exists(NAME)  # its existence is known and cached
    await metadata.delete(f"/admin/policies/{NAME.namespace_path}")
    await raises(TopicNotFoundError, room.broker.topics.get(NAME))
    assert await metadata.get(log_path(NAME.managed_ledger_path)) is None


async def test_no_topic_is_made_in_a_namespace_that_is_being_deleted_and_those_there_are_served(room: Room) -> None:
    topics, metadata = room.broker.topics, room.broker.metadata
    await topics.get(NAME)
    await metadata.put(f"/admin/policies/{NAME.namespace_path}", b'{"deleted": true}', ANY_VERSION)
    other = TopicName.parse(f"persistent://{NAME.namespace_path}/other")
    await raises(TopicNotFoundError, topics.get(other), match="is being deleted")
    await raises(TopicNotFoundError, topics.create(other), match="is being deleted")
    assert await metadata.get(log_path(other.managed_ledger_path)) is None
    assert (await topics.get(NAME)).name == NAME


async def test_what_is_left_of_the_topics_of_a_namespace_that_is_gone_is_deleted_with_its_ledgers(room: Room) -> None:
    metadata = room.broker.metadata
    await room.broker.topics.get(NAME)
    await metadata.delete(f"/admin/policies/{NAME.namespace_path}")
    assert room.cluster.ledgers.listed() == {0}
    room.broker.topics.close_soon(await room.topic())
    await until(lambda: not room.broker.topics.loaded())
    await room.broker.topics.delete_left_over(NamespaceName.parse(NAME.namespace_path))
    assert room.cluster.ledgers.listed() == set()
    assert await metadata.get(f"/managed-ledgers/{NAME.namespace_path}") is None
    await room.broker.topics.delete_left_over(NamespaceName.parse(NAME.namespace_path))


async def test_closing_tells_producers_and_consumers_of_every_kind_and_a_new_lookup_loads_anew(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.publish(b"m0")
    kinds = (SUB.Exclusive, SUB.Shared, SUB.Failover, SUB.Key_Shared)
    for kind in kinds:
        for durable in (True, False):
            consumer_id = 10 * int(durable) + kind
            await peer.subscribe(name=f"{kind}-{durable}", consumer_id=consumer_id, subType=kind, durable=durable)
            if kind == SUB.Failover:
                await peer.expect(C.ACTIVE_CONSUMER_CHANGE)
    topic = await room.topic()
    room.broker.topics.close_soon(topic)
    closed = [(await peer.receive())[0].type for _ in range(9)]
    assert closed.count(C.CLOSE_PRODUCER) == 1
    assert closed.count(C.CLOSE_CONSUMER) == 8
    await peer.producer()
    assert (await room.topic()) is not topic
    await peer.publish(b"m1", first=1)
    await peer.subscribe(name="0-True", consumer_id=10, permits=10)
    assert await peer.payloads(2) == [b"m0", b"m1"]


async def test_messages_of_a_closing_shared_subscription_are_not_passed_around(room: Room, peer: Peer) -> None:
    await peer.producer()
    for consumer_id in (1, 2):
        await peer.subscribe(consumer_id=consumer_id, subType=SUB.Shared)
    await peer.publish(b"m0")
    peer.flow(10, 1)
    await peer.message()
    peer.flow(10, 2)
    await peer.silent()
    room.broker.topics.close_soon(await room.topic())
    closed = [(await peer.receive())[0].type for _ in range(3)]
    assert sorted(closed) == sorted([C.CLOSE_PRODUCER, C.CLOSE_CONSUMER, C.CLOSE_CONSUMER])


async def test_a_topic_whose_log_was_taken_over_lets_go_and_comes_back(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.publish(b"m0")
    await peer.subscribe()
    topic = await room.topic()
    topic.ledger.appends.fence("a test says so")
    assert {(await peer.receive())[0].type for _ in range(2)} == {C.CLOSE_PRODUCER, C.CLOSE_CONSUMER}
    await peer.producer()
    await peer.publish(b"m1", first=1)
    await peer.subscribe(permits=10)
    assert await peer.payloads(2) == [b"m0", b"m1"]


async def test_a_log_that_is_lost_while_it_is_being_opened_is_not_kept(room: Room, peer: Peer) -> None:
    opens = room.factory.open

    async def lost(name: str, *, create: bool = True, config: LogConfigSource | None = None) -> object:
        ledger = await opens(name, create=create, config=config)
        ledger.appends.fence("a test says so")
        return ledger

    with patch.object(room.factory, "open", lost):
        assert await peer.refused_producer() == pb.ServiceNotReady
        assert not room.broker.topics.loaded()
    await peer.producer()


async def test_stopping_closes_every_topic_and_loads_no_other(room: Room, peer: Peer) -> None:
    for number in range(3):
        await peer.producer(f"{TOPIC}-{number}", producer_id=number)
    room.broker.begin_close()
    closed = [(await peer.receive())[0].type for _ in range(3)]
    assert closed == [C.CLOSE_PRODUCER] * 3
    with trio.fail_after(30):
        await room.broker.closed.wait()
    await raises(ServiceNotReadyError, room.broker.topics.get(NAME))
    assert not room.broker.topics.loaded()
    assert not room.factory.managed_ledgers
    assert peer.stream.closed


@pytest.mark.parametrize(
    "error", [LedgerRecoveryError("a bookie is away"), StoreUnavailableError("away"), CursorRecoveryError("away")]
)
async def test_a_topic_that_cannot_be_loaded_now_is_tried_again_while_its_client_waits(
    error: Exception, room: Room, peer: Peer
) -> None:
    opens = room.factory.open
    tries: list[float] = []

    async def away(name: str, *, create: bool = True, config: LogConfigSource | None = None) -> ManagedLedger:
        tries.append(trio.current_time())
        if trio.current_time() < 4:
            if isinstance(error, CursorRecoveryError):
                raise error
            raise ManagedLedgerUnavailableError(f"{name}: {error}") from error
        return await opens(name, create=create, config=config)

    with patch.object(room.factory, "open", away):
        peer.ask_producer()
        await peer.expect(C.PRODUCER_SUCCESS)
    assert trio.current_time() < 4.6, "soon after it can be"
    assert 5 < len(tries) < 20, "and not all the time"
    assert room.broker.topics.loads_failed == 0


async def test_who_waits_for_a_topic_hears_of_it_before_he_gives_up_himself(room: Room, peer: Peer) -> None:

    async def away(name: str, *, create: bool = True, config: LogConfigSource | None = None) -> ManagedLedger:
        raise ManagedLedgerUnavailableError("away")

    with patch.object(room.factory, "open", away):
        begun = trio.current_time()
        assert await peer.refused_producer() == pb.ServiceNotReady
    assert HOLD_S - 1 < trio.current_time() - begun <= HOLD_S
    await peer.producer()


@pytest.mark.parametrize("error", [ManagedLedgerFencedError("taken over"), CursorDamagedError("cannot be read")])
async def test_what_no_other_try_would_mend_is_told_at_once(error: Exception, room: Room, peer: Peer) -> None:

    async def fail(name: str, *, create: bool = True, config: LogConfigSource | None = None) -> ManagedLedger:
        raise error

    with patch.object(room.factory, "open", fail):
        begun = trio.current_time()
        assert await peer.refused_producer() == pb.ServiceNotReady
    assert trio.current_time() - begun < 0.01


async def test_a_topic_that_is_closed_gives_every_receipt_before_it_sends_its_producers_away(room: Room) -> None:
    """Messages without a receipt are sent again, and would be stored twice."""
    peer = await room.connect()
    await peer.producer()
    await peer.producer(producer_id=2)
    ledgers = room.cluster.ledgers
    ledgers.hold = True
    await peer.publish()
    topic = await room.topic()
    for writer in ledgers.writers.values():
        writer.held = True
    for number in range(5):
        peer.send_message(b"m%d" % number, number)
    await until(lambda: topic.entries_in == 5)
    room.broker.topics.close_soon(topic)
    assert (await peer.expect(C.CLOSE_PRODUCER)).close_producer.producer_id == 2, "it waits for nothing"
    peer.send_message(b"late", 5)
    assert await peer.silent()
    ledgers.release()
    assert [(await peer.expect(C.SEND_RECEIPT)).send_receipt.sequence_id for _ in range(5)] == list(range(5))
    assert (await peer.expect(C.CLOSE_PRODUCER)).close_producer.producer_id == 1
    await until(lambda: not room.broker.topics.loaded())
    await peer.producer()
    await peer.publish(b"late", first=5)
    await peer.subscribe(permits=100)
    assert await peer.payloads(6) == [*(b"m%d" % number for number in range(5)), b"late"]
    [connection] = room.broker.connections
    assert (connection.sends_in_flight, connection.requests_in_flight) == (0, 0)


async def test_bookies_that_do_not_answer_keep_no_producer_of_a_closed_topic_for_long(room: Room, peer: Peer) -> None:
    await peer.producer()
    topic = await room.topic()
    room.cluster.ledgers.hold_appends()
    peer.send_message(b"m", 0)
    await until(lambda: topic.entries_in == 1)
    begun = trio.current_time()
    room.broker.topics.close_soon(topic)
    await peer.expect(C.CLOSE_PRODUCER)
    assert 4 < trio.current_time() - begun < 6
    room.cluster.ledgers.release()
    await until(lambda: not room.broker.topics.loaded())
    assert await peer.silent()
