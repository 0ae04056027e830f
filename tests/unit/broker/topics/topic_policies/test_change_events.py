"""Policies of topics in `__change_events`: stored by the owner of that topic, known by every broker, over kills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio

from broker.errors import BrokerError, ServiceNotReadyError, UnsupportedPoliciesError
from broker.ownership.values import Json, encode_json
from broker.server import Broker
from broker.topics.compaction.leftovers import COMPACTION_CURSOR, LEDGER_PROPERTY
from broker.topics.schemas.avro_schema import parse
from broker.topics.topic import Topic
from broker.topics.topic_policies.change_events import ChangeEvents
from broker.topics.topic_policies.event_schema import event_schema
from broker.topics.topic_policies.events import event_entry, event_value
from broker.topics.topic_policies.source import CHANGES_MAX, announced_path, position_of
from managed_ledger.factory import ManagedLedgerFactory
from quire.ledger.position import Position
from quire.metadata.errors import MetadataUnavailableError as StoreUnavailableError
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.unit.broker.peers import OPTIONS, Room
from tests.unit.managed_ledger.cluster import Cluster, kill, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import fake_world, running

NAMESPACE = NamespaceName("public", "default")
NAME = TopicName.parse("persistent://public/default/orders")
EVENTS = TopicName.parse("persistent://public/default/__change_events")
KEPT = {"retentionTimeInMinutes": 90, "retentionSizeInMB": 50}


def with_ttl(seconds: int) -> Callable[[Json], Json]:
    return lambda own: {**own, "messageTTLInSeconds": seconds}


def retention_minutes(topic: Topic) -> int:
    """Return what holds for the ledgers of a loaded topic."""
    assert topic.policies is not None
    return topic.policies().retention_minutes


async def ttl(broker: Broker, name: TopicName = NAME) -> int | None:
    return (await broker.policies.get(name) or {}).get("messageTTLInSeconds")


@dataclass
class One:
    """One broker of several on the same metadata and ledgers."""

    broker: Broker
    factory: ManagedLedgerFactory


@asynccontextmanager
async def one_more(cluster: Cluster, **options: Any) -> AsyncIterator[One]:
    async with cluster.broker() as factory, trio.open_nursery() as nursery:
        broker = Broker(fake_world(), cluster.stores[-1], factory, replace(OPTIONS, **options), nursery)
        await nursery.start(broker.policies.run)
        yield One(broker, factory)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    with trio.fail_after(600):
        async with running(made.ledgers):
            await made.metadata.multi([Create(path="/admin/policies/public/default", make_parents=True)])
            yield made


async def test_a_change_is_an_event_in_the_log_and_holds_at_once_and_after_a_kill() -> None:
    async with cluster() as shared:
        async with one_more(shared) as first:
            topic = await first.broker.topics.get(NAME)
            assert retention_minutes(topic) == 0
            await first.broker.policies.update(NAME, lambda own: {**own, "retentionPolicies": KEPT})
            assert retention_minutes(topic) == 90
            log = await first.broker.topics.get(EVENTS)
            assert len(await read_all(log.ledger)) == 1
            assert await first.broker.topics.names(NAMESPACE, system=False) == [NAME]
            kill(first.factory)
        async with one_more(shared) as second:
            topic = await second.broker.topics.get(NAME)
            assert retention_minutes(topic) == 90
            await second.broker.policies.update(NAME, with_ttl(5))
            fields = {"isGlobal": False, "retentionPolicies": KEPT, "messageTTLInSeconds": 5}
            assert await second.broker.policies.get(NAME) == fields
            await second.broker.policies.update(NAME, with_ttl(5))
            log = await second.broker.topics.get(EVENTS)
            assert len(await read_all(log.ledger)) == 2, "what says nothing new is not written"


async def test_what_was_written_before_a_kill_and_not_announced_is_known_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as shared:
        async with one_more(shared) as first:
            await first.broker.policies.update(NAME, with_ttl(1))

            async def away(self: ChangeEvents, log: object) -> None:
                raise ServiceNotReadyError("killed before the announcement")

            with monkeypatch.context() as patch:
                patch.setattr(ChangeEvents, "_announce", away)
                await raises(BrokerError, first.broker.policies.update(NAME, with_ttl(2)), match="killed")
            kill(first.factory)
        async with one_more(shared) as second:
            assert await ttl(second.broker) == 2
            await trio.sleep(1)
            node = await node_at(shared.metadata, announced_path(NAMESPACE))
            places = encode_json(
                {"__change_events": str((await second.broker.topics.get(EVENTS)).ledger.last_confirmed)}
            )
            assert node.value.replace(b" ", b"") == places, "announced by the next owner"


async def test_a_write_that_was_not_answered_is_there_or_not_and_a_later_one_counts() -> None:
    async with cluster() as shared, one_more(shared) as one:
        await one.broker.policies.update(NAME, with_ttl(1))
        for seconds in range(2, 12):
            with trio.move_on_after(0):
                await one.broker.policies.update(NAME, with_ttl(seconds))
        await trio.sleep(5)
        await one.broker.policies.update(NAME, with_ttl(100))
        assert await ttl(one.broker) == 100


async def test_clients_that_ask_for_topics_do_not_get_the_log(room: Room) -> None:
    await room.broker.topics.get(NAME)
    await room.broker.policies.update(NAME, with_ttl(5))
    peer = await room.connect()
    request = pb.CommandGetTopicsOfNamespace(request_id=1, namespace="public/default")
    peer.send(pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request))
    answer = await peer.expect(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    assert list(answer.getTopicsOfNamespaceResponse.topics) == [NAME.full]


async def test_a_topic_that_was_unloaded_sees_what_was_changed_meanwhile(room: Room) -> None:
    topic = await room.broker.topics.get(NAME)
    room.broker.topics.close_soon(topic)
    await topic.ledger.closed.wait()
    await room.broker.policies.update(NAME, lambda own: {**own, "retentionPolicies": KEPT})
    topic = await room.broker.topics.get(NAME)
    assert retention_minutes(topic) == 90


async def test_policies_go_with_their_topic_and_stay_with_a_partition(room: Room) -> None:
    topics, policies = room.broker.topics, room.broker.policies
    await room.broker.administration.create_partitioned_topic(NAME, 2)
    await policies.update(NAME.with_partition(1), with_ttl(5))
    await room.broker.administration.delete_topic(NAME.with_partition(1))
    assert await ttl(room.broker) == 5
    await room.broker.administration.delete_partitioned_topic(NAME, True)
    assert await policies.get(NAME) is None
    await topics.get(NAME)
    await policies.update(NAME, with_ttl(6))
    await policies.update(NAME, with_ttl(7), is_global=True)
    await topics.delete(NAME, force=False)
    assert await policies.get(NAME) is await policies.get(NAME, is_global=True) is None
    log = await topics.get(EVENTS)
    last = (await read_all(log.ledger))[-2:]
    assert [
        pb.MessageMetadata.FromString(each[10 : 10 + int.from_bytes(each[6:10], "big")]).null_value for each in last
    ] == [True, True]


class Wire:
    """Other brokers, as the REST of each answers."""

    def __init__(self, owner: Broker) -> None:
        self.owner_broker = owner
        self.asked: list[tuple[str, str]] = []

    async def owner(self, name: TopicName) -> str | None:
        return "http://owner:8080"

    async def ask(self, web_url: str, method: str, name: TopicName, resource: str) -> Any:
        self.asked.append((method, resource))
        if method == "DELETE":
            await self.owner_broker.policies.delete(name)
            return None
        since = position_of(resource.partition("since=")[2])
        found = await self.owner_broker.policies.changes_here(name, since)
        policies = dict(found.policies)
        return {"whole": found.whole, "upto": str(found.upto), "policies": policies, "more": found.more}


async def test_other_brokers_ask_the_owner_and_hear_of_each_change() -> None:
    async with cluster() as shared, one_more(shared) as owner, one_more(shared) as other:
        wire = other.broker.change_events.elsewhere = Wire(owner.broker)
        await owner.broker.policies.update(NAME, with_ttl(1))
        held = await other.broker.policies.load(NAME)
        assert (held.of_topic or {})["messageTTLInSeconds"] == 1
        assert wire.asked == [("GET", "/quireTopicPolicies")]
        await owner.broker.policies.update(NAME, with_ttl(2))
        await trio.sleep(1)
        assert (held.of_topic or {})["messageTTLInSeconds"] == 2
        asked = len(wire.asked)
        assert await ttl(other.broker) == 2
        assert len(wire.asked) == asked, "it has what was announced"
        topic = await other.broker.topics.get(NAME)
        assert topic.policies is not None
        await other.broker.topics.delete(NAME, force=False)
        assert wire.asked[-1][0] == "DELETE" or ("DELETE", "/quireTopicPolicies") in wire.asked
        assert await owner.broker.policies.get(NAME) is None
        assert held.of_topic is None


async def test_many_policies_come_in_parts() -> None:
    count = 2 * CHANGES_MAX + 7
    names = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(count)]
    async with cluster() as shared, one_more(shared) as owner, one_more(shared) as other:
        wire = other.broker.change_events.elsewhere = Wire(owner.broker)
        older = {name.full: {"isGlobal": False, "messageTTLInSeconds": index + 1} for index, name in enumerate(names)}
        await owner.broker.change_events.update(NAME, with_ttl(9), is_global=False, older=older)
        for seconds in (10, 11):
            await owner.broker.policies.update(NAME, with_ttl(seconds))
        for index, name in enumerate(names):
            held = await other.broker.policies.load(name)
            assert (held.of_topic or {})["messageTTLInSeconds"] == index + 1
        assert await ttl(other.broker) == 11
        assert [method for method, _ in wire.asked] == ["GET"] * 3


async def test_the_log_begins_with_what_the_original_has_compacted() -> None:
    async with cluster() as shared:
        async with one_more(shared) as first:
            for seconds in (1, 2):
                await first.broker.policies.update(NAME, with_ttl(seconds))
            other = TopicName.parse("persistent://public/default/other")
            await first.broker.policies.update(other, with_ttl(7))
            log = (await first.broker.topics.get(EVENTS)).ledger
            entries = await read_all(log)
            upto = log.last_confirmed
            # As the original leaves it: one entry of each key in a ledger of its own, and the cursor behind them.
            writer = await shared.ledgers.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
            compacted = []
            for entry_id in (1, 2):
                place = pb.MessageIdData(ledgerId=upto.ledger_id, entryId=entry_id).SerializeToString()
                entry = entries[entry_id]
                compacted.append(len(place).to_bytes(4, "big") + place + len(entry).to_bytes(4, "big") + entry)
            done = trio.Event()
            writer.on_confirmed = lambda first, last: done.set() if last == 1 else None
            writer.append(compacted)
            await done.wait()
            await writer.close()
            cursor = await log.open_cursor(COMPACTION_CURSOR, initial="earliest")
            cursor.set_properties({LEDGER_PROPERTY: writer.ledger_id})
            cursor.ack_cumulative(upto)
            await cursor.wait_persisted()
            await first.broker.policies.update(other, with_ttl(8))
            await log.close()
        async with one_more(shared) as second:
            found = await second.broker.change_events.changes_here(EVENTS, None)
            assert [(fields or {})["messageTTLInSeconds"] for fields in found.policies.values()] == [2, 8]
            assert (await ttl(second.broker), await ttl(second.broker, other)) == (2, 8)
            # A place before what was compacted is answered with everything.
            assert (await second.broker.change_events.changes_here(EVENTS, Position(upto.ledger_id, 0))).whole
            later = await second.broker.change_events.changes_here(EVENTS, found.upto)
            assert (later.whole, later.policies) == (False, {})


async def test_events_that_cannot_be_read_keep_their_topic_from_being_served_and_no_other(room: Room) -> None:
    await room.broker.policies.update(NAME, with_ttl(5))
    log = (await room.broker.topics.get(EVENTS)).ledger
    [entry] = await read_all(log)
    await publish(log, entry[:-3], b"no entry at all", entry.replace(b"orders", b"orderz"))
    await room.broker.policies.get(NAME)
    await raises(UnsupportedPoliciesError, room.broker.topics.get(NAME), match="unreadableTopicPolicies")
    assert await room.broker.topics.get(TopicName.parse("persistent://public/default/other"))
    # What is written of the topic next counts.
    await room.broker.policies.update(NAME, lambda own: {"messageTTLInSeconds": 6})
    assert await room.broker.topics.get(NAME)


async def test_events_of_another_version_of_the_schema_are_read_by_it(room: Room) -> None:
    older = event_schema().data.replace(b'{"name":"messageTTLInSeconds","type":["null","int"],"default":null},', b"")
    schemas = room.broker.topics.schemas
    await room.broker.topics.create(EVENTS)
    version = await schemas.register(
        EVENTS, replace(event_schema(), data=older), schemas.defaults.rules(EVENTS, None, None)
    )
    log = (await room.broker.topics.get(EVENTS)).ledger
    entry = event_entry(
        NAME,
        event_value(NAME, {"maxMessageSize": 7}, "c"),
        is_global=False,
        cluster="c",
        kind=parse(older),
        version=version,
        producer="p",
        sequence_id=0,
        now_ms=1,
    )
    await publish(log, entry)
    await room.broker.policies.update(NAME, with_ttl(5))
    fields = {"isGlobal": False, "maxMessageSize": 7, "messageTTLInSeconds": 5}
    assert await room.broker.policies.get(NAME) == fields
    assert [each.schema.data for each in await schemas.versions(EVENTS)] == [older, event_schema().data]


async def test_a_namespace_whose_policies_nobody_obeys_is_refused_by_the_names_of_those_only(room: Room) -> None:
    await room.broker.policies.update(NAME, lambda own: {**own, "shadowTopics": ["a"]})
    await raises(UnsupportedPoliciesError, room.broker.topics.get(NAME), match="shadowTopics")
    assert await room.broker.topics.get(TopicName.parse("persistent://public/default/other"))


async def test_while_the_metadata_is_away_a_change_is_refused_or_unknown_and_later_ones_are_not(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    await room.broker.policies.update(NAME, with_ttl(1))
    store = room.cluster.stores[0]

    async def away(path: str, value: bytes, version: int) -> int:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", away)
        await raises(BrokerError, room.broker.policies.update(NAME, with_ttl(2)))
    assert await ttl(room.broker) == 2
    await room.broker.policies.update(NAME, with_ttl(3))
    assert await ttl(room.broker) == 3
