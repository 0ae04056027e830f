"""Schemas of topics over fake ledgers: versions, strategies, deletions, crashes at every step, several brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from broker.context import Context
from broker.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    MetadataUnavailableError,
    NoRoomError,
    NoSchemaError,
    NotAllowedError,
    ServiceNotReadyError,
)
from broker.topics.policies import TopicPolicies
from broker.topics.schemas import registry, stored
from broker.topics.schemas.registry import Schemas
from broker.topics.schemas.schema import SCHEMA_BYTES_MAX, Schema, SchemaType
from broker.topics.schemas.storage import INTENTS, OTHERS_TURN_S, ledger_metadata
from broker.topics.schemas.strategies import SchemaRules, Strategy
from managed_ledger.config import LogConfig
from quire.ledger.errors import LedgerWriteError, NotEnoughBookiesError
from quire.metadata.local.memory import MemoryStore
from quire.wire.pulsar.names import NamespaceName, TopicName
from simulation.common.leaks import ledgers_of_schemas
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.unit.broker.peers import OPTIONS
from tests.unit.managed_ledger.cluster import CONFIG, Cluster, Session
from tests.unit.managed_ledger.fake_ledgers import fake_world, running

TOPIC = TopicName.parse("persistent://public/default/orders")
KEY = "public/default/orders"
RULES = SchemaRules()


def avro(*fields: str, kind: SchemaType = SchemaType.AVRO, default: str = "") -> Schema:
    """Return a schema of a record with int fields; with `default`, they have one."""
    said = ",".join(f'{{"name":"{each}","type":"int"{default}}}' for each in fields)
    return Schema(kind, f'{{"type":"record","name":"Order","fields":[{said}]}}'.encode())


DEFAULT = ',"default":0'
FIRST, SECOND = avro("a"), avro("a", "b", default=DEFAULT)


class OneBroker:
    """The schemas of one broker, and what is under them."""

    def __init__(self, cluster: Cluster, nursery: trio.Nursery, **options: Any) -> None:
        self.store = Session(cluster.tree)
        self.no_room = ""
        context = Context(fake_world(), OPTIONS, nursery, no_room=lambda: self.no_room)
        policies = TopicPolicies(self.store, LogConfig.of(CONFIG))
        self.schemas = Schemas(context, self.store, cluster.ledgers, CONFIG, policies)


@asynccontextmanager
async def in_cluster() -> AsyncIterator[tuple[Cluster, Callable[[], OneBroker]]]:
    cluster = Cluster()
    with trio.fail_after(10_000):
        async with running(cluster.ledgers), trio.open_nursery() as nursery:
            yield cluster, lambda: OneBroker(cluster, nursery)
            nursery.cancel_scope.cancel()


async def numbers(schemas: Schemas) -> list[int]:
    return [each.number for each in await schemas.versions(TOPIC)]


async def check_no_leak(cluster: Cluster) -> None:
    located, begun = await ledgers_of_schemas(cluster.metadata)
    assert located <= cluster.ledgers.listed()
    assert cluster.ledgers.listed() <= located | begun, "a ledger that no node names"


async def test_the_first_schema_is_version_0_and_the_same_schema_adds_none() -> None:
    async with in_cluster() as (cluster, start):
        schemas = start().schemas
        assert await schemas.newest(TOPIC) is None
        assert await schemas.register(TOPIC, FIRST, RULES) == 0
        assert await schemas.register(TOPIC, FIRST, RULES) == 0
        spaced = Schema(SchemaType.AVRO, FIRST.data.replace(b",", b" , "))
        assert await schemas.register(TOPIC, spaced, RULES) == 0, "the same schema in another text"
        assert await schemas.register(TOPIC, SECOND, RULES) == 1
        assert await start().schemas.register(TOPIC.with_partition(3), FIRST, RULES) == 0, "of a partition"
        found = await start().schemas.newest(TOPIC)
        assert found is not None
        assert (found.number, found.schema.data) == (1, SECOND.data)
        stored_ledger = cluster.ledgers.stored[0]
        assert stored_ledger.custom_metadata == tuple(ledger_metadata(KEY))
        assert stored_ledger.last_entry_id == 0, "the ledger is closed"
        assert len(cluster.ledgers.listed()) == 2
        await check_no_leak(cluster)


@pytest.mark.parametrize(
    ("strategy", "new", "accepted"),
    [
        (Strategy.ALWAYS_INCOMPATIBLE, SECOND, False),
        (Strategy.ALWAYS_COMPATIBLE, avro("z", kind=SchemaType.JSON), True),
        (Strategy.BACKWARD, SECOND, True),
        (Strategy.BACKWARD, avro("a", "b"), False),
        (Strategy.BACKWARD, avro(), True),
        (Strategy.FORWARD, avro("a", "b"), True),
        (Strategy.FORWARD, avro(), False),
        (Strategy.FULL, SECOND, True),
        (Strategy.FULL, avro("a", "b"), False),
        (Strategy.FULL, avro(), False),
        (Strategy.FULL, avro("a", kind=SchemaType.JSON), False),
    ],
)
async def test_a_strategy_decides_about_the_newest_schema(strategy: Strategy, new: Schema, accepted: bool) -> None:
    async with in_cluster() as (cluster, start):
        schemas, rules = start().schemas, SchemaRules(strategy=strategy)
        assert await schemas.register(TOPIC, FIRST, rules) == 0
        if accepted:
            assert await schemas.register(TOPIC, new, rules) == 1
        else:
            await raises(IncompatibleSchemaError, schemas.register(TOPIC, new, rules))
            assert await numbers(schemas) == [0]
            assert schemas.counts.incompatible["public/default"] == 1
        await check_no_leak(cluster)


@pytest.mark.parametrize(
    ("strategy", "first", "second", "third"),
    [
        (Strategy.BACKWARD, avro("a"), avro(), avro("b", default=DEFAULT)),
        (Strategy.BACKWARD, avro(), avro("a", default=DEFAULT), avro("a")),
        (Strategy.FORWARD, avro("a"), avro("a", default=DEFAULT), avro()),
        (Strategy.FULL, avro(), avro("a", default=DEFAULT), avro("a")),
    ],
)
async def test_a_transitive_strategy_looks_at_every_version(
    strategy: Strategy, first: Schema, second: Schema, third: Schema
) -> None:
    async with in_cluster() as (_, start):
        schemas = start().schemas
        anything = SchemaRules(strategy=Strategy.ALWAYS_COMPATIBLE)
        await schemas.register(TOPIC, first, anything)
        await schemas.register(TOPIC, second, anything)
        transitive = Strategy(f"{strategy.value}_TRANSITIVE")
        readable = third.data == avro("b", default=DEFAULT).data
        if not readable:
            await raises(IncompatibleSchemaError, schemas.register(TOPIC, third, SchemaRules(strategy=transitive)))
        assert await schemas.register(TOPIC, third, SchemaRules(strategy=strategy)) == 2


async def test_a_tombstone_ends_the_versions_and_their_numbers_go_on() -> None:
    async with in_cluster() as (cluster, start):
        schemas = start().schemas
        await schemas.register(TOPIC, FIRST, RULES)
        assert await schemas.delete(TOPIC) == 1
        assert await schemas.newest(TOPIC) is None
        assert await schemas.version(TOPIC, 0) is None
        assert not await schemas.has_schema(TOPIC)
        text = Schema(SchemaType.STRING)
        assert await schemas.register(TOPIC, text, RULES) == 2, "of any type"
        assert await numbers(schemas) == [2]
        assert [place.number for place in await schemas.places(TOPIC)] == [0, 1, 2]
        node = await node_at(cluster.metadata, stored.locator_path(KEY))
        assert stored.decode_locator(node.value).index[1].hash == b""


async def test_a_schema_may_be_added_only_where_that_is_allowed() -> None:
    async with in_cluster() as (_, start):
        schemas = start().schemas
        await schemas.register(TOPIC, FIRST, RULES)
        fixed = SchemaRules(auto_update=False)
        assert await schemas.register(TOPIC, FIRST, fixed) == 0
        await raises(IncompatibleSchemaError, schemas.register(TOPIC, SECOND, fixed), match="isAllowAutoUpdateSchema")


@pytest.mark.parametrize(
    "schema",
    [
        Schema(SchemaType.AVRO, b"{}"),
        Schema(SchemaType.AVRO, b'["null","int"]'),
        Schema(SchemaType.JSON, b'{"type":"object","id":"urn:jsonschema:A"}'),
        Schema(SchemaType.INT32, b"x"),
        Schema(SchemaType.STRING, b"x"),
        Schema(SchemaType.KEY_VALUE, b"\0\0\0\1"),
        Schema(SchemaType.PROTOBUF_NATIVE, b"{}"),
        Schema(SchemaType.AUTO_CONSUME),
        Schema(SchemaType.EXTERNAL, b"x" * (SCHEMA_BYTES_MAX + 1)),
    ],
)
async def test_what_is_no_schema_of_its_type_is_refused(schema: Schema) -> None:
    async with in_cluster() as (cluster, start):
        await raises(InvalidSchemaError, start().schemas.register(TOPIC, schema, RULES))
        assert not cluster.ledgers.listed()


async def test_a_consumer_has_to_read_what_is_there_and_adds_nothing() -> None:
    async with in_cluster() as (_, start):
        schemas = start().schemas
        await raises(NoSchemaError, schemas.check_consumer(TOPIC, FIRST, Strategy.FULL))
        await schemas.register(TOPIC, FIRST, RULES)
        for strategy in (Strategy.FULL, Strategy.FORWARD, Strategy.FORWARD_TRANSITIVE, Strategy.BACKWARD):
            await schemas.check_consumer(TOPIC, avro(), strategy)
            await raises(IncompatibleSchemaError, schemas.check_consumer(TOPIC, avro("b"), strategy))
        with pytest.raises(IncompatibleSchemaError):
            await schemas.check_consumer(TOPIC, avro("a", kind=SchemaType.JSON), Strategy.FULL)
        await raises(IncompatibleSchemaError, schemas.check_consumer(TOPIC, avro(), Strategy.FULL_TRANSITIVE))
        await schemas.check_consumer(TOPIC, avro("b"), Strategy.ALWAYS_COMPATIBLE)
        assert await numbers(schemas) == [0]


async def test_bounds_on_versions_and_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_cluster() as (_, start):
        broker = start()
        monkeypatch.setattr(registry, "VERSIONS_MAX", 1)
        await broker.schemas.register(TOPIC, FIRST, RULES)
        await raises(NotAllowedError, broker.schemas.register(TOPIC, SECOND, RULES), match="the maximum")
        broker.no_room = "the disk is full"
        with pytest.raises(NoRoomError):
            await broker.schemas.register(TopicName.parse("persistent://public/default/other"), FIRST, RULES)


@pytest.mark.parametrize("error", [NotEnoughBookiesError("one bookie"), LedgerWriteError("full")])
@pytest.mark.parametrize("step", ["create", "close"])
async def test_bookies_that_are_away_refuse_a_schema_for_now_and_leave_nothing(step: str, error: Exception) -> None:
    async with in_cluster() as (cluster, start):
        schemas = start().schemas
        cluster.ledgers.failures[step] = [error]
        await raises(MetadataUnavailableError, schemas.register(TOPIC, FIRST, RULES))
        assert not cluster.ledgers.listed()
        assert schemas.counts.puts_failed["public/default"] == 1
        assert await schemas.register(TOPIC, FIRST, RULES) == 0
        await check_no_leak(cluster)


async def test_a_topic_that_goes_meanwhile_gets_no_schema() -> None:
    async with in_cluster() as (cluster, start):
        schemas = start().schemas

        def check() -> None:
            raise ServiceNotReadyError("the topic is being closed")

        await raises(ServiceNotReadyError, schemas.register(TOPIC, FIRST, RULES, check), match="closed")
        assert await schemas.newest(TOPIC) is None
        assert not cluster.ledgers.listed()
        assert await schemas.register(TOPIC, FIRST, RULES) == 0


async def test_two_brokers_that_add_schemas_at_a_time_get_versions_one_after_the_other() -> None:
    async with in_cluster() as (cluster, start):
        brokers = [start() for _ in range(4)]
        cluster.ledgers.delay_s = 0.05
        made: list[int] = []

        async def add(broker: OneBroker, number: int) -> None:
            schema = avro(*(f"f{each}" for each in range(number)), default=DEFAULT)
            made.append(await broker.schemas.register(TOPIC, schema, RULES))

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(add, brokers[number % 4], number)
        assert sorted(made) == list(range(8))
        assert await numbers(brokers[0].schemas) == list(range(8))
        await check_no_leak(cluster)
        assert await cluster.metadata.get(f"{INTENTS}/{KEY}") is None


async def test_the_same_schema_added_by_two_brokers_at_a_time_is_one_version() -> None:
    async with in_cluster() as (cluster, start):
        cluster.ledgers.delay_s = 0.05
        made: list[int] = []

        async def add(broker: OneBroker) -> None:
            made.append(await broker.schemas.register(TOPIC, FIRST, RULES))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(add, start())
        assert made == [0, 0, 0]
        assert len(cluster.ledgers.listed()) == 1


class Crashed(BaseException):
    """The broker is killed here."""


async def _crashed_at(point: int, work: str) -> bool:
    """Kill a broker at the given step of a change; return whether there was one. What is left is named and usable."""
    async with in_cluster() as (cluster, start):
        first = start()
        assert await first.schemas.register(TOPIC, FIRST, RULES) == 0
        steps = 0
        died = trio.Event()

        async def step() -> None:
            nonlocal steps
            steps += 1
            if steps >= point:
                died.set()
                await trio.sleep_forever()

        doomed = start()
        async with trio.open_nursery() as nursery:
            cluster.ledgers.point = doomed.store.point = step

            async def change() -> None:
                if work == "register":
                    await doomed.schemas.register(TOPIC, SECOND, RULES)
                elif work == "tombstone":
                    await doomed.schemas.delete(TOPIC)
                else:
                    await doomed.schemas.delete_all(TOPIC)
                nursery.cancel_scope.cancel()

            async def kill() -> None:
                await died.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(kill)
            nursery.start_soon(change)
        cluster.ledgers.point = None
        located, begun = await ledgers_of_schemas(cluster.metadata)
        assert cluster.ledgers.listed() <= located | begun, f"leak at step {point}"
        next_one = start().schemas
        began = trio.current_time()
        newest = await next_one.newest(TOPIC)
        if work == "register":
            assert newest is not None
            assert newest.schema.data in (FIRST.data, SECOND.data)
        assert await next_one.register(TOPIC, SECOND, RULES) >= 0
        assert trio.current_time() - began <= OTHERS_TURN_S + 1
        await check_no_leak(cluster)
        assert await cluster.metadata.get(f"{INTENTS}/{KEY}") is None
        await next_one.delete_all(TOPIC)
        assert not cluster.ledgers.listed()
        return died.is_set()


@pytest.mark.parametrize("work", ["register", "tombstone", "delete_all"])
async def test_a_crash_at_any_step_leaves_the_old_or_the_new_schemas_and_no_ledger_without_a_name(work: str) -> None:
    crashes = 0
    while await _crashed_at(crashes + 1, work):
        crashes += 1
    assert crashes >= 3


@pytest.mark.parametrize("early", [False, True])
async def test_a_writer_that_comes_back_late_does_not_undo_what_others_did(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back when the other has written; with `early`, while the other removes its ledger."""
    async with in_cluster() as (cluster, start):
        slow, other = start(), start()
        ledgers = cluster.ledgers
        deleted = ledgers.delete

        async def delete(ledger_id: int) -> None:
            if early:
                ledgers.release()
                await trio.testing.wait_all_tasks_blocked()
            await deleted(ledger_id)

        monkeypatch.setattr(ledgers, "delete", delete)
        ledgers.hold = True
        async with trio.open_nursery() as nursery:
            made: list[int] = []

            async def late() -> None:
                made.append(await slow.schemas.register(TOPIC, FIRST, RULES))

            nursery.start_soon(late)
            await trio.testing.wait_all_tasks_blocked()
            ledgers.hold = False
            made.append(await other.schemas.register(TOPIC, SECOND, RULES))
            ledgers.release()
        assert sorted(made) == [0, 1]
        assert await numbers(other.schemas) == [0, 1]
        await check_no_leak(cluster)


@pytest.mark.expect_error("version of a schema lost")
async def test_a_version_whose_ledger_is_gone_is_passed_over() -> None:
    async with in_cluster() as (cluster, start):
        schemas = start().schemas
        await schemas.register(TOPIC, FIRST, RULES)
        await schemas.register(TOPIC, SECOND, RULES)
        await cluster.ledgers.delete(0)
        again = start().schemas
        assert await numbers(again) == [1]
        assert await again.version(TOPIC, 0) is None


async def test_the_schemas_of_a_deleted_namespace_go() -> None:
    async with in_cluster() as (cluster, start):
        schemas = start().schemas
        for name in ("a", "b"):
            await schemas.register(TopicName.parse(f"persistent://t/n/{name}"), FIRST, RULES)
        await schemas.register(TOPIC, FIRST, RULES)
        await schemas.delete_namespace(NamespaceName.parse("t/n"))
        assert len(cluster.ledgers.listed()) == 1
        assert await cluster.metadata.get("/schemas/t/n") is None


async def test_a_locator_that_cannot_be_read_is_an_error_and_nothing_is_changed() -> None:
    async with in_cluster() as (cluster, start):
        store = MemoryStore(cluster.tree)
        await store.create(stored.locator_path(KEY), b"\xff", make_parents=True)
        await raises(MetadataUnavailableError, start().schemas.newest(TOPIC))
        await raises(MetadataUnavailableError, start().schemas.register(TOPIC, FIRST, RULES))
        assert not cluster.ledgers.listed()
