"""The metadata of partitioned topics: one write creates a whole topic, and a partial one is never visible."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from broker.errors import (
    BeingDeletedError,
    InvalidTopicError,
    MetadataRefusedError,
    MetadataUnavailableError,
    NotPartitionedError,
    PartitionCountError,
    TopicExistsError,
)
from broker.topics.partitioned_topics import NAME_TTL_S, PartitionedTopics, Partitioning, decode, encode
from quire.metadata.errors import MetadataError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Op
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.nodes import node_at
from tests.support.refusals import raises

NAME = TopicName.parse("persistent://public/default/my orders")
NODE = "/admin/partitioned-topics/public/default/persistent/my+orders"
LOG = "/managed-ledgers/public/default/persistent/my+orders"


@asynccontextmanager
async def in_store(partitions_max: int = 0) -> AsyncIterator[tuple[MemoryStore, PartitionedTopics]]:
    store = MemoryStore(MemoryTree())
    yield store, PartitionedTopics(store, partitions_max=partitions_max)


async def cursor(store: MemoryStore, partition: int, name: str, **properties: str) -> None:
    info = pb.ManagedCursorInfo(cursorsLedgerId=7, markDeleteLedgerId=5, markDeleteEntryId=3)
    for key, text in properties.items():
        info.cursorProperties.add(name=key, value=text)
    await store.create(f"{LOG}-partition-{partition}/{name}", info.SerializeToString())


def test_the_value_is_pulsars_and_what_others_added_is_passed_over() -> None:
    value = Partitioning(partitions=3, deleted=True, properties=(("a", "b"),))
    assert encode(value) == b'{"partitions":3,"deleted":true,"properties":{"a":"b"}}'
    assert decode(encode(value)) == value
    assert decode(b'{"partitions": 2, "new": [1]}') == Partitioning(partitions=2)
    assert decode(b'{"partitions": 2, "properties": null}') == Partitioning(partitions=2)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"partitions":"2"}', b'{"partitions":2,"properties":[1]}', b"\xff"]
)
def test_a_value_that_cannot_be_read_is_an_error_and_not_a_topic_without_partitions(value: bytes) -> None:
    with pytest.raises(MetadataRefusedError):
        decode(value)


async def test_a_topic_is_made_with_the_logs_of_its_partitions_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_store() as (store, topics):
        writes: list[int] = []
        multi = store.multi

        async def counted(ops: Sequence[Op]) -> list[str]:
            writes.append(len(ops))
            return await multi(ops)

        monkeypatch.setattr(store, "multi", counted)
        await topics.create(NAME, 3, {"a": "b"})
        assert writes == [4]
        node = await node_at(store, NODE)
        assert node.value == b'{"partitions":3,"deleted":false,"properties":{"a":"b"}}'
        logs = await store.children("/managed-ledgers/public/default/persistent")
        assert logs == [f"my+orders-partition-{index}" for index in range(3)]
        for log in logs:
            made = await node_at(store, f"/managed-ledgers/public/default/persistent/{log}")
            assert made.value == b""
        assert await topics.get(NAME) == 3
        assert await topics.names(NamespaceName("public", "default")) == [NAME]
        assert await topics.names(NamespaceName("public", "other")) == []


async def test_what_exists_in_either_kind_is_not_made_again() -> None:
    async with in_store() as (store, topics):
        await store.create(LOG, make_parents=True)
        await raises(TopicExistsError, topics.create(NAME, 1), match="not partitioned")
        await store.delete(LOG)
        await topics.create(NAME, 1)
        await raises(TopicExistsError, topics.create(NAME, 1), match="partitioned topic")


async def test_partitions_whose_node_was_lost_are_taken_over_if_all_of_them_fit() -> None:
    async with in_store() as (store, topics):
        await store.create(f"{LOG}-partition-2", b"old", make_parents=True)
        await store.create(f"{LOG}-partition-x", b"another topic")
        await raises(TopicExistsError, topics.create(NAME, 2), match="3 partitions")
        assert await store.get(NODE) is None
        await topics.create(NAME, 3)
        kept = await node_at(store, f"{LOG}-partition-2")
        assert kept.value == b"old"


async def test_counts_and_names_that_cannot_be_are_refused() -> None:
    async with in_store(partitions_max=8) as (_, topics):
        for count in (0, -1, 9):
            await raises(PartitionCountError, topics.create(NAME, count))
        for local in ("x-partition-1", "x-partition-y"):
            await raises(InvalidTopicError, topics.create(TopicName.parse(local), 2))
        await topics.create(NAME, 8)
        for count in (7, 0, 9):
            await raises(PartitionCountError, topics.grow(NAME, count))
        await raises(NotPartitionedError, topics.grow(TopicName.parse("other"), 2))


async def test_new_partitions_get_every_subscription_at_the_first_entry_in_the_write_that_makes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with in_store() as (store, topics):
        await topics.create(NAME, 2)
        await cursor(store, 0, "s+1", team="x")
        await cursor(store, 1, "s+1", team="y")
        await cursor(store, 1, "t")
        versions: list[list[bool]] = []
        multi = store.multi

        async def watched(ops: Sequence[Op]) -> list[str]:
            done = await multi(ops)
            versions.append([await store.get(f"{LOG}-partition-{index}/t") is not None for index in (2, 3)])
            return done

        monkeypatch.setattr(store, "multi", watched)
        assert await topics.grow(NAME, 4) == 2
        assert versions == [[True, True]]
        assert await topics.get(NAME) == 4
        for index in (2, 3):
            assert await store.children(f"{LOG}-partition-{index}") == ["s+1", "t"]
            node = await node_at(store, f"{LOG}-partition-{index}/s+1")
            info = pb.ManagedCursorInfo.FromString(node.value)
            assert (info.cursorsLedgerId, info.markDeleteLedgerId, info.markDeleteEntryId) == (-1, -1, -1)
            assert [(pair.name, pair.value) for pair in info.cursorProperties] == [("team", "x")]
            assert await topics.subscriptions(NAME.with_partition(index)) == ["s 1", "t"]
        assert await store.children(f"{LOG}-partition-0") == ["s+1"]


async def test_growing_to_as_many_as_there_are_makes_only_the_logs_that_are_missing() -> None:
    async with in_store() as (store, topics):
        await topics.create(NAME, 3)
        await cursor(store, 0, "s")
        await store.delete(f"{LOG}-partition-1")
        assert await topics.grow(NAME, 3) == 3
        assert await store.children(f"{LOG}-partition-1") == []
        node = await node_at(store, NODE)
        assert node.version == 0


async def test_a_count_is_remembered_for_a_while_and_dropped_with_every_change() -> None:
    async with in_store() as (store, topics):
        assert topics.known(NAME) is None
        assert await topics.get(NAME) == 0
        assert topics.known(NAME) == 0
        await topics.create(NAME, 2)
        assert topics.known(NAME) is None
        assert await topics.get(NAME) == 2
        await topics.grow(NAME, 3)
        assert await topics.get(NAME) == 3
        await store.put(NODE, b'{"partitions":5}', -1)  # another broker
        assert await topics.get(NAME) == 3
        await trio.sleep(NAME_TTL_S + 0.1)
        assert await topics.get(NAME) == 5


async def test_an_answer_that_was_on_its_way_when_the_topic_changed_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with in_store() as (store, topics):
        get = store.get

        async def slow(path: str) -> object:
            node = await get(path)
            await trio.sleep(1)
            return node

        async with trio.open_nursery() as nursery:
            with monkeypatch.context() as patch:
                patch.setattr(store, "get", slow)
                nursery.start_soon(topics.get, NAME)
                await trio.sleep(0.5)
            await topics.create(NAME, 2)
        assert await topics.get(NAME) == 2


async def test_a_topic_that_is_being_deleted_is_neither_used_nor_made_and_its_finder_is_told() -> None:
    async with in_store() as (_, topics):
        told: list[TopicName] = []
        topics.on_half_deleted = told.append
        await topics.create(NAME, 2, {"a": "b"})
        assert await topics.get(NAME) == 2
        await topics.mark(NAME, deleted=True)
        await raises(BeingDeletedError, topics.get(NAME))
        assert told == [NAME]
        await raises(BeingDeletedError, topics.create(NAME, 2))
        await raises(BeingDeletedError, topics.grow(NAME, 4))
        assert await topics.find(NAME) == Partitioning(partitions=2, deleted=True, properties=(("a", "b"),))
        await topics.mark(NAME, deleted=False)
        assert await topics.get(NAME) == 2
        await topics.delete(NAME)
        await topics.delete(NAME)
        assert await topics.get(NAME) == 0
        await raises(NotPartitionedError, topics.mark(NAME, deleted=True))


async def test_who_loses_a_race_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_store() as (store, topics):
        other = PartitionedTopics(store)
        multi = store.multi

        async def create_first(ops: Sequence[Op]) -> list[str]:
            monkeypatch.setattr(store, "multi", multi)
            await other.create(NAME, 5)
            return await multi(ops)

        async def grow_first(ops: Sequence[Op]) -> list[str]:
            monkeypatch.setattr(store, "multi", multi)
            await other.grow(NAME, 6)
            return await multi(ops)

        monkeypatch.setattr(store, "multi", create_first)
        await raises(TopicExistsError, topics.create(NAME, 2))
        monkeypatch.setattr(store, "multi", grow_first)
        assert await topics.grow(NAME, 8) == 6
        assert await topics.get(NAME) == 8
        assert len(await topics.existing_partitions(NAME)) == 8


async def test_a_store_that_is_away_is_said_to_be_so() -> None:
    async with in_store() as (store, topics):
        await topics.create(NAME, 2)

        async def away(*_: object) -> None:
            raise MetadataError("away")

        for method in ("get", "children", "multi", "delete"):
            setattr(store, method, away)
        for call in (
            topics.get(NAME),
            topics.names(NAME.namespace_name),
            topics.existing_partitions(NAME),
            topics.create(NAME, 2),
            topics.grow(NAME, 3),
            topics.mark(NAME, deleted=True),
            topics.delete(NAME),
            topics.subscriptions(NAME.with_partition(0)),
        ):
            await raises(MetadataUnavailableError, call)


async def test_changes_of_one_topic_wait_for_each_other_and_of_two_do_not() -> None:
    async with in_store() as (_, topics):
        order: list[str] = []

        async def change(name: TopicName, tag: str) -> None:
            async with topics.changing(name):
                order.append(f"{tag} begins")
                await trio.sleep(1)
                order.append(f"{tag} ends")

        async with trio.open_nursery() as nursery:
            for tag in ("a", "b"):
                nursery.start_soon(change, NAME, tag)
        assert order in (["a begins", "a ends", "b begins", "b ends"], ["b begins", "b ends", "a begins", "a ends"])
        order.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change, NAME, "a")
            nursery.start_soon(change, TopicName.parse("other"), "b")
        assert [each.split()[1] for each in order] == ["begins", "begins", "ends", "ends"]
        assert not topics.is_changing(NAME)
