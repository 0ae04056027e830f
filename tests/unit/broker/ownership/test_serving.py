"""Whole brokers that share bookies and metadata, as their clients see them when bundles get owners, lose them, and
move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from broker.errors import MetadataUnavailableError, ServiceNotReadyError
from broker.ownership.bundles import Bundle, even
from broker.ownership.peers import topic_in
from broker.server import Broker
from managed_ledger.factory import ManagedLedgerFactory, open_factory
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.nodes import node_at
from tests.support.pulsar_frames import SUB, C
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.broker.ownership.cluster import NAMESPACE, Cluster, Host, in_cluster
from tests.unit.broker.peers import OPTIONS, TOPIC, FakeStream, Peer
from tests.unit.managed_ledger.cluster import CONFIG, CURSOR_CONFIG
from tests.unit.managed_ledger.fake_ledgers import FakeLedgers, fake_world, running

NAME = TopicName.parse(TOPIC)
BUNDLE = even(NAMESPACE, 4).find(NAME)


class Server:
    """One broker and its host."""

    def __init__(self, host: Host, broker: Broker, factory: ManagedLedgerFactory) -> None:
        self.host = host
        self.broker = broker
        self.factory = factory
        self.streams: list[FakeStream] = []

    async def connect(self) -> Peer:
        stream = FakeStream()
        self.streams.append(stream)
        self.broker.context.nursery.start_soon(self.broker.handle, stream)
        peer = Peer(stream)
        await peer.handshake()
        return peer

    def kill(self) -> None:
        self.host.kill()
        for stream in self.streams:
            stream.close()


class Scene:
    def __init__(self, cluster: Cluster, a: Server, b: Server) -> None:
        self.cluster = cluster
        self.a = a
        self.b = b

    async def versions(self) -> dict[str, int]:
        """Return the versions of everything stored for the topic."""
        store, path = self.cluster.store, log_path(NAME.managed_ledger_path)
        found = {}
        for each in (path, *(f"{path}/{child}" for child in await store.children(path))):
            node = await node_at(store, each)
            found[each] = node.version
        return found


@asynccontextmanager
async def server(cluster: Cluster, ledgers: FakeLedgers, name: str) -> AsyncIterator[Server]:
    host = await cluster.start(name)
    await until(lambda: host.ownership.brokers.leader is not None)
    factory = open_factory(fake_world(), host.metadata, ledgers, CONFIG, CURSOR_CONFIG)
    async with factory as made, trio.open_nursery() as nursery:
        broker = Broker(
            fake_world(),
            host.metadata,
            made,
            OPTIONS,
            nursery,
            service_url=host.me.broker_url,
            ownership=host.ownership,
        )
        broker.start()
        yield Server(host, broker, made)
        nursery.cancel_scope.cancel()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with in_cluster() as cluster:
        ledgers = FakeLedgers(cluster.tree)
        async with running(ledgers), server(cluster, ledgers, "a") as a, server(cluster, ledgers, "b") as b:
            await until(lambda: all(len(each.host.ownership.brokers.reports) == 2 for each in (a, b)))
            yield Scene(cluster, a, b)


async def test_lookups_are_answered_with_the_owner_or_a_redirect_as_the_wire_has_them(scene: Scene) -> None:
    a, b = await scene.a.connect(), await scene.b.connect()
    answer = await b.lookup()
    assert (answer.response, answer.brokerServiceUrl) == (answer.Redirect, "pulsar://a:6650")
    assert answer.HasField("authoritative")
    assert not answer.authoritative
    answer = await a.lookup()
    assert (answer.response, answer.brokerServiceUrl) == (answer.Connect, "pulsar://a:6650")
    assert answer.authoritative
    await trio.sleep(0.1)  # for the watch
    answer = await b.lookup()
    assert (answer.response, answer.brokerServiceUrl) == (answer.Connect, "pulsar://a:6650")
    answer = await a.lookup(topic_in(even(NAMESPACE, 4).all()[0]).full)
    assert (answer.response, answer.brokerServiceUrl) == (answer.Redirect, "pulsar://b:6650")
    assert answer.authoritative


async def test_who_does_not_own_a_topic_serves_no_producer_and_no_consumer_and_opens_nothing(scene: Scene) -> None:
    a, b = await scene.a.connect(), await scene.b.connect()
    b.ask_producer()
    code, message = await b.error()
    assert code == pb.ServiceNotReady
    assert "not served by this instance" in message
    assert "Please redo the lookup" in message
    await a.lookup()
    await a.producer()
    versions = await scene.versions()
    for ask in (b.ask_producer, b.ask_subscribe):
        ask()
        assert (await b.error())[0] == pb.ServiceNotReady
    assert await scene.versions() == versions
    assert scene.b.broker.topics.loaded() == []


async def test_the_health_of_a_broker_is_checked_on_a_topic_of_its_own(scene: Scene) -> None:
    for each in (scene.a, scene.b):
        await each.broker.check_health()
        [topic] = each.broker.topics.loaded()
        assert topic.name.namespace_path == f"pulsar/{each.host.me.id}"


async def test_a_killed_owner_s_topic_is_served_by_the_other_with_everything_that_was_confirmed(scene: Scene) -> None:
    a, b = await scene.a.connect(), await scene.b.connect()
    await a.lookup()
    await a.subscribe()
    await a.producer()
    await a.publish(b"m0", b"m1")
    scene.a.kill()
    killed_at = trio.current_time()
    answer = await b.lookup()
    assert answer.brokerServiceUrl == "pulsar://b:6650"
    await b.producer()
    await b.publish(b"m2")
    assert trio.current_time() - killed_at < 4.0
    await b.subscribe(permits=10)
    assert await b.payloads(3) == [b"m0", b"m1", b"m2"]


async def test_on_confirmed_loss_every_topic_of_the_bundle_closes_at_once_and_nothing_is_written(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await scene.a.connect(), await scene.b.connect()
    await a.lookup()
    await a.producer()
    ids = await a.publish(b"m0", b"m1")
    await a.subscribe(permits=10)
    assert await a.payloads(2) == [b"m0", b"m1"]
    a.ack(ids[0])
    await trio.sleep(10)
    scene.a.host.metadata.disconnect()
    scene.cluster.network.refuses.add("pulsar://a:6650")
    assert (await b.lookup()).brokerServiceUrl == "pulsar://b:6650"
    await b.subscribe()
    await b.producer()
    b.flow(10)
    assert await b.payloads(1) == [b"m1"]
    a.ack(ids[1])
    [topic] = scene.a.broker.topics.loaded()
    writer: Any = topic.ledger.appends.writer
    writer.held = True
    a.send_message(b"late", 2)
    await trio.sleep(0.1)
    assert topic.ledger.pending_bytes > 0
    versions = await scene.versions()
    attempts = scene.a.host.writes_below("/managed-ledgers", monkeypatch)
    lose = scene.a.host.ownership.on_lost
    seen: list[tuple[int, bool]] = []

    def lose_and_look(bundle: Bundle) -> None:
        lose(bundle)
        seen.append((len(scene.a.broker.topics.loaded()), topic.ledger.is_usable))

    scene.a.host.ownership.on_lost = lose_and_look
    scene.a.host.metadata.reconnect()
    await until(lambda: scene.a.broker.topics.loaded() == [], within=1)
    await trio.sleep(10)
    kinds: list[int] = []
    while len(kinds) < 2:
        kinds.append((await a.receive())[0].type)
    assert sorted(kinds) == [C.CLOSE_PRODUCER, C.CLOSE_CONSUMER], "and neither a receipt nor an error"
    a.send_message(b"later", 3)
    assert await a.silent()
    assert scene.a.broker.context.publishing.bytes == 0
    assert await scene.versions() == versions
    assert attempts == []
    assert seen == [(0, False)], "in the very step"
    assert scene.a.factory.managed_ledgers == {}
    await b.publish(b"m2", first=3)
    assert await b.payloads(1) == [b"m2"]


async def test_a_sleeper_does_not_take_the_topic_back_from_who_replaced_it(scene: Scene) -> None:
    """Its clients reconnect to it before it has detected its loss."""
    a, b = await scene.a.connect(), await scene.b.connect()
    await a.lookup()
    await a.producer()
    await a.publish(b"m0")
    scene.a.host.metadata.disconnect()
    scene.cluster.network.refuses.add("pulsar://a:6650")
    await b.lookup()
    await b.producer()
    await b.publish(b"m1")
    [topic] = scene.a.broker.topics.loaded()
    scene.a.broker.topics.close_soon(topic)
    scene.a.host.metadata.reconnect()
    a.ask_producer(producer_id=2)
    assert (await a.expect(C.CLOSE_PRODUCER)).close_producer.producer_id == 1
    assert (await a.error())[0] in (pb.ServiceNotReady, pb.MetadataError)
    await b.publish(b"m2", first=1)
    assert await b.silent()


async def test_a_moved_bundle_s_clients_are_told_where_to_go_and_find_everything_there(scene: Scene) -> None:
    a, b = await scene.a.connect(), await scene.b.connect()
    await a.lookup()
    await a.producer()
    await a.subscribe(subType=SUB.Shared)
    ids = await a.publish(b"m0", b"m1", b"m2")
    await a.answered_ack(ids[1])
    await scene.a.host.ownership.unload(BUNDLE, destination="b:8080")
    told = {}
    for _ in range(2):
        command, _ = await a.receive()
        told[command.type] = command
    assert told[C.CLOSE_PRODUCER].close_producer.assignedBrokerServiceUrl == "pulsar://b:6650"
    assert told[C.CLOSE_CONSUMER].close_consumer.assignedBrokerServiceUrl == "pulsar://b:6650"
    await b.producer()
    await b.subscribe(subType=SUB.Shared, permits=10)
    assert await b.payloads(2) == [b"m0", b"m2"]
    assert await a.refused_producer() == pb.ServiceNotReady


async def test_a_client_that_is_at_the_next_broker_before_its_bundle_waits_for_it(scene: Scene) -> None:
    a, b = await scene.a.connect(), await scene.b.connect()
    await a.lookup()
    await a.producer()
    unload = scene.a.host.ownership.on_unload

    async def slow(bundle: Bundle, url: str | None) -> None:
        await unload(bundle, url)
        await trio.sleep(0.3)

    scene.a.host.ownership.on_unload = slow
    move = partial(scene.a.host.ownership.unload, destination="b:8080")
    scene.cluster.nursery.start_soon(move, BUNDLE)
    closed = (await a.expect(C.CLOSE_PRODUCER)).close_producer
    assert closed.assignedBrokerServiceUrl == "pulsar://b:6650"
    await b.producer()
    assert scene.b.host.ownership.owned() == [BUNDLE]
    assert await a.refused_producer(producer_id=2) == pb.ServiceNotReady


async def test_topics_of_other_bundles_stay_when_one_is_unloaded(scene: Scene) -> None:
    a = await scene.a.connect()
    names = [topic_in(bundle).full for bundle in even(NAMESPACE, 4).all()]
    for number, name in enumerate(names):
        await a.lookup(name, authoritative=True)
        await a.producer(name, producer_id=number)
    await scene.a.host.ownership.unload(even(NAMESPACE, 4).all()[1])
    closed = (await a.expect(C.CLOSE_PRODUCER)).close_producer
    assert (closed.producer_id, closed.HasField("assignedBrokerServiceUrl")) == (1, False)
    assert len(scene.a.broker.topics.loaded()) == 3
    assert await a.silent()


async def test_producers_go_on_while_their_bundle_is_split(scene: Scene) -> None:
    a, b = await scene.a.connect(), await scene.b.connect()
    await a.lookup()
    await a.producer()
    await a.publish(b"m0")
    await scene.a.host.ownership.split(BUNDLE)
    await a.publish(b"m1", first=1)
    assert (await b.lookup()).brokerServiceUrl == "pulsar://a:6650"
    await a.subscribe(permits=10)
    assert await a.payloads(2) == [b"m0", b"m1"]


async def test_a_broker_that_stops_hands_its_topics_over(scene: Scene) -> None:
    a, b = await scene.a.connect(), await scene.b.connect()
    await a.lookup()
    await a.producer()
    await a.publish(b"m0")
    scene.a.broker.begin_close()
    await a.expect(C.CLOSE_PRODUCER)
    began = trio.current_time()
    assert (await b.lookup()).brokerServiceUrl == "pulsar://b:6650"
    assert trio.current_time() - began < 1.0
    await b.producer()
    await b.publish(b"m1")
    with trio.fail_after(5):
        await scene.a.broker.closed.wait()


@pytest.mark.parametrize("how", ["unloaded", "lost"])
async def test_a_bundle_that_goes_while_its_topic_is_opened_leaves_nothing_open(
    how: str, monkeypatch: pytest.MonkeyPatch, scene: Scene
) -> None:
    a = await scene.a.connect()
    await a.lookup()
    factory, ownership = scene.a.factory, scene.a.host.ownership
    open_log = factory.open
    opened: list[ManagedLedger] = []

    async def slow(*arguments: Any, **options: Any) -> ManagedLedger:
        opened.append(await open_log(*arguments, **options))
        if how == "lost":
            scene.a.host.metadata.disconnect()
            scene.cluster.network.refuses.add("pulsar://a:6650")
            assert (await scene.b.host.lookup()).mine
            scene.a.host.metadata.reconnect()
        else:
            scene.cluster.nursery.start_soon(ownership.unload, BUNDLE)
            await trio.sleep(1)
        return opened[0]

    monkeypatch.setattr(factory, "open", slow)
    await raises((ServiceNotReadyError, MetadataUnavailableError), scene.a.broker.topics.get(NAME))
    assert scene.a.broker.topics.loaded() == []
    assert not opened[0].is_usable
    await until(lambda: ownership.owned() == [], within=1)


async def test_only_the_owner_deletes_a_topic(scene: Scene) -> None:
    a = await scene.a.connect()
    await a.lookup()
    await a.producer()
    await raises(ServiceNotReadyError, scene.b.broker.topics.delete(NAME, force=True))
    await a.publish(b"m0")
    await scene.a.broker.topics.delete(NAME, force=True)
