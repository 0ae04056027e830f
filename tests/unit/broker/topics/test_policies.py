"""Policies of a topic's ledgers: cached in memory, and up to date a moment after a change."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.errors import MetadataUnavailableError
from broker.ownership.values import Json, encode_json
from broker.topics.policies import TopicPolicies, topic_path
from broker.topics.policy_values import (
    PolicyError,
    effective,
    persistence,
    persistence_of,
    retention,
    retention_of,
)
from managed_ledger.config import LogConfig
from quire.metadata.errors import NotAllowedError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Node, Op
from quire.wire.pulsar.names import NamespaceName, TopicName
from simulation.common.patching import patched

NAME = TopicName.parse("persistent://t/n/my orders")
PARTITION = TopicName.parse("persistent://t/n/my orders-partition-3")
DEFAULT = LogConfig(ensemble_size=2, write_quorum=2, ack_quorum=2, retention_minutes=0, retention_mb=0)
NODE = "/admin/topic-policies/local/t/n/persistent/my+orders"


def copies(ensemble: int, write: int = 1, ack: int = 1) -> dict[str, object]:
    return {"bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}


def with_copies(ensemble: int) -> Callable[[Json], Json]:
    return lambda own: {**own, "persistence": copies(ensemble)}


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[MemoryTree, MemoryStore, TopicPolicies]]:
    tree = MemoryTree()
    store = MemoryStore(tree)
    await store.create("/admin/policies/t/n", b"{}", make_parents=True)
    policies = TopicPolicies(store, DEFAULT)
    async with trio.open_nursery() as nursery:
        await nursery.start(policies.run)
        with trio.fail_after(60):
            yield tree, store, policies
        nursery.cancel_scope.cancel()


def test_each_policy_is_the_topics_else_the_namespaces_else_the_brokers() -> None:
    topic = {"persistence": copies(4)}
    namespace = {"persistence": copies(3), "retention_policies": retention_of(DEFAULT)}
    assert effective(DEFAULT, None, None) == DEFAULT
    assert effective(DEFAULT, namespace, None).ensemble_size == 3
    assert effective(DEFAULT, namespace, topic).ensemble_size == 4
    kept = effective(
        DEFAULT,
        {"retention_policies": {"retentionTimeInMinutes": 5, "retentionSizeInMB": 6}},
        {"retention_policies": {"retentionTimeInMinutes": 7, "retentionSizeInMB": 8}},
    )
    assert (kept.retention_minutes, kept.retention_mb) == (5, 6)  # a topic's policy has the name retentionPolicies
    kept = effective(DEFAULT, None, {"retentionPolicies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}})
    assert (kept.retention_minutes, kept.retention_mb) == (-1, -1)


def test_what_cannot_be_read_counts_as_not_said() -> None:
    damaged = {"persistence": {"bookkeeperEnsemble": "x"}, "retention_policies": 7, "retentionPolicies": None}
    assert effective(DEFAULT, damaged, damaged) == DEFAULT


def test_values_are_checked_as_the_original_does() -> None:
    assert persistence(persistence_of(DEFAULT))["bookkeeperEnsemble"] == 2
    assert retention({"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}) == retention_of(DEFAULT)
    with pytest.raises(PolicyError, match="must hold"):
        persistence(copies(1, 2, 1))
    with pytest.raises(PolicyError, match="either both"):
        retention({"retentionTimeInMinutes": -1, "retentionSizeInMB": 0})


def test_a_partition_has_the_policies_of_its_topic() -> None:
    assert topic_path(PARTITION) == topic_path(NAME) == NODE


async def test_a_change_by_anybody_is_known_without_asking() -> None:
    async with watched() as (tree, store, policies):
        others = TopicPolicies(MemoryStore(tree), DEFAULT)
        ask = await policies.load(PARTITION)
        assert ask() == DEFAULT
        await store.put("/admin/policies/t/n", encode_json({"persistence": copies(3)}), -1)
        await wait_all_tasks_blocked()
        assert ask().ensemble_size == 3
        for ensemble in (4, 5):  # the first creates the node, the second changes it
            await others.update(NAME, with_copies(ensemble))
            await wait_all_tasks_blocked()
            assert ask().ensemble_size == ensemble
        await others.delete(NAME)
        await wait_all_tasks_blocked()
        assert ask().ensemble_size == 3


async def test_our_own_change_is_known_when_it_is_stored() -> None:
    async with watched() as (_, _, policies):
        ask = await policies.load(NAME)
        await policies.update(NAME, with_copies(3))
        assert ask().ensemble_size == 3
        await policies.delete(NAME)
        assert ask() == DEFAULT
        await policies.delete(NAME)
        assert await policies.get(NAME) is None


async def test_a_change_made_while_the_topic_is_read_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched() as (tree, store, policies):
        await policies.load(TopicName.parse("persistent://t/n/another"))
        get, reads = store.get, [NODE]

        async def slow(path: str) -> object:
            found = await get(path)
            if path in reads:
                reads.remove(path)  # only the first answer is late
                await trio.sleep(2)
            return found

        monkeypatch.setattr(store, "get", slow)
        asks: list[Callable[[], LogConfig]] = []

        async def load() -> None:
            asks.append(await policies.load(NAME))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            await trio.sleep(0.5)
            await TopicPolicies(MemoryStore(tree), DEFAULT).update(NAME, with_copies(3))
        await trio.sleep(5)
        assert asks[0]().ensemble_size == 3


async def test_while_the_store_is_away_what_was_known_holds_and_nothing_new_is_loaded() -> None:
    async with watched() as (tree, store, policies):
        await policies.update(NAME, with_copies(3))
        ask = await policies.load(NAME)
        store.disconnect()
        await trio.sleep(5)
        assert ask().ensemble_size == 3
        with pytest.raises(MetadataUnavailableError):
            await policies.load(TopicName.parse("persistent://other/n/t"))
        store.reconnect()
        await TopicPolicies(MemoryStore(tree), DEFAULT).update(NAME, with_copies(4))
        await trio.sleep(5)
        assert ask().ensemble_size == 4
        assert (await policies.load(TopicName.parse("persistent://other/n/t")))() == DEFAULT


async def test_a_topic_is_loaded_with_policies_that_were_reported_and_are_not_read_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched() as (tree, store, policies):
        await policies.load(TopicName.parse("persistent://t/n/another"))
        children = store.children

        async def slow(path: str) -> list[str]:
            await trio.sleep(2)
            return await children(path)

        with monkeypatch.context() as patch:
            patch.setattr(store, "children", slow)
            await TopicPolicies(MemoryStore(tree), DEFAULT).update(NAME, with_copies(3))
            await trio.sleep(1)  # the refresh is under way
            assert policies.known(NAME) is None
            assert (await policies.load(NAME))().ensemble_size == 3
            await trio.sleep(5)
        other = TopicName.parse("persistent://t/n/a third")
        known = policies.known(other)
        assert known is not None
        assert known() == DEFAULT
        await policies.update(other, with_copies(4))
        assert known().ensemble_size == 4
        again = policies.known(other)
        assert again is not None
        assert again().ensemble_size == 4
        await TopicPolicies(MemoryStore(tree), DEFAULT).update(other, with_copies(5))
        await trio.sleep(5)
        assert (known().ensemble_size, again().ensemble_size) == (5, 5)
        await policies.delete(other)
        assert (known(), again()) == (DEFAULT, DEFAULT)
        await TopicPolicies(MemoryStore(tree), DEFAULT).update(other, with_copies(3))
        await trio.sleep(5)
        assert (known().ensemble_size, again().ensemble_size) == (3, 3)


async def test_only_topics_that_have_policies_are_kept_and_only_while_they_are_in_use() -> None:
    async with watched() as (tree, _, policies):
        await TopicPolicies(MemoryStore(tree), DEFAULT).update(NAME, with_copies(3))
        ask = await policies.load(NAME)
        other = await policies.load(TopicName.parse("persistent://t/n/another"))
        namespace = policies._namespaces["t/n"]
        assert (list(namespace.topics), namespace.uses) == ([NODE], 2)
        assert (ask().ensemble_size, other()) == (3, DEFAULT)
        del ask
        gc.collect()
        assert (list(namespace.topics), namespace.uses) == ([], 1)


async def test_a_change_reads_only_the_topics_that_have_policies_of_their_own() -> None:
    async with watched() as (_, store, policies):
        asks = [await policies.load(TopicName.parse(f"persistent://t/n/t{number}")) for number in range(300)]
        await policies.update(TopicName.parse("persistent://t/n/t7"), with_copies(3))
        await trio.sleep(1)
        read: list[str] = []
        get = MemoryStore.get

        async def counted(self: MemoryStore, path: str) -> Node | None:
            read.append(path)
            return await get(self, path)

        with patched([(MemoryStore, "get", counted)]):
            await store.put("/admin/policies/t/n", b'{"persistence": {}}', 0)
            await trio.sleep(1)
        assert sorted(set(read)) == ["/admin/policies/t/n", "/admin/topic-policies/local/t/n/persistent/t7"]
        assert [ask().ensemble_size for ask in asks] == [3 if number == 7 else 2 for number in range(300)]


async def test_a_namespace_that_is_deleted_is_watched_no_longer_and_one_made_again_is() -> None:
    async with watched() as (_, store, policies):
        ask = await policies.load(NAME)
        await store.delete("/admin/policies/t/n")
        await trio.sleep(1)
        assert list(policies._namespaces) == ["t/n"]
        del ask
        gc.collect()
        await store.create("/admin/policies/t/n", b"{}")
        await store.delete("/admin/policies/t/n")
        await trio.sleep(1)
        assert list(policies._namespaces) == []
        await store.create("/admin/policies/t/n", b"{}")
        ask = await policies.load(NAME)
        await policies.update(NAME, with_copies(4))
        assert ask().ensemble_size == 4


async def test_policies_of_a_namespace_that_is_gone_go_with_it() -> None:
    async with watched() as (_, store, policies):
        await policies.delete_namespace(NamespaceName("t", "n"))
        for topic in (NAME, TopicName.parse("persistent://t/n/b")):
            await policies.update(topic, lambda own: own)
        await policies.delete_namespace(NamespaceName("t", "n"))
        assert await store.children("/admin/topic-policies/local/t/n") == []


async def test_policies_that_are_made_while_those_of_their_namespace_are_deleted_go_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched() as (tree, store, policies):
        await policies.update(NAME, with_copies(3))
        multi = store.multi

        async def late(ops: Sequence[Op]) -> list[str]:
            monkeypatch.setattr(store, "multi", multi)
            await TopicPolicies(MemoryStore(tree), DEFAULT).update(
                TopicName.parse("persistent://t/n/b"), with_copies(3)
            )
            return await multi(ops)

        monkeypatch.setattr(store, "multi", late)
        await policies.delete_namespace(NamespaceName("t", "n"))
        assert await store.children("/admin/topic-policies/local/t/n") == []


async def test_a_store_that_refuses_to_delete_the_policies_of_a_namespace_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched() as (_, store, policies):
        await policies.update(NAME, lambda own: own)
        asked: list[Sequence[Op]] = []

        async def refuse(ops: Sequence[Op]) -> list[str]:
            await trio.lowlevel.checkpoint()
            asked.append(ops)
            assert len(asked) < 10
            raise NotAllowedError("credentials")

        monkeypatch.setattr(store, "multi", refuse)
        with pytest.raises(MetadataUnavailableError, match="credentials"):
            await policies.delete_namespace(NamespaceName("t", "n"))
        assert len(asked) == 1


@pytest.mark.real_clock
async def test_without_anybody_watching_everything_is_read_when_it_is_asked_for() -> None:
    tree = MemoryTree()
    store = MemoryStore(tree)
    policies = TopicPolicies(store, DEFAULT)
    assert (await policies.load(NAME))() == DEFAULT
    await store.create("/admin/policies/t/n", encode_json({"persistence": copies(3)}), make_parents=True)
    assert (await policies.load(NAME))().ensemble_size == 3
    await TopicPolicies(MemoryStore(tree), DEFAULT).update(NAME, with_copies(4))
    assert (await policies.load(NAME))().ensemble_size == 4


async def test_whether_duplicates_are_to_be_dropped_is_known_a_moment_after_anybody_changes_it() -> None:
    async with watched() as (_, store, policies):
        held = await policies.load(PARTITION)  # as the log of a loaded topic holds it
        assert not (await policies.load(PARTITION)).asks_deduplication()
        await store.put("/admin/policies/t/n", encode_json({"deduplicationEnabled": True}), -1)
        await wait_all_tasks_blocked()
        store.disconnect()
        assert (await policies.load(PARTITION)).asks_deduplication()
        store.reconnect()
        await policies.update(NAME, lambda own: {**own, "deduplicationEnabled": False})
        assert not (await policies.load(PARTITION)).asks_deduplication()
        await policies.update(NAME, lambda own: {**own, "deduplicationEnabled": "x"})
        assert (await policies.load(PARTITION)).asks_deduplication()
        held()
