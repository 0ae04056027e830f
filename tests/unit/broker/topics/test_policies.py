"""Policies of a topic's ledgers: cached in memory, and up to date a moment after a change."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.errors import MetadataUnavailableError, ServiceNotReadyError
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
from broker.topics.topic_policies.source import PolicyChanges
from managed_ledger.config import LogConfig
from quire.ledger.position import Position
from quire.metadata.errors import NotAllowedError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Op
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.policy_logs import MemoryPolicies, policies_on
from tests.support.refusals import raises

NAME = TopicName.parse("persistent://t/n/my orders")
PARTITION = TopicName.parse("persistent://t/n/my orders-partition-3")
DEFAULT = LogConfig(ensemble_size=2, write_quorum=2, ack_quorum=2, retention_minutes=0, retention_mb=0)
ANNOUNCED = "/quire/topic-policies/t/n"
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
    policies = policies_on(tree, store, DEFAULT)
    async with trio.open_nursery() as nursery:
        await nursery.start(policies.run)
        with trio.fail_after(60):
            yield tree, store, policies
        nursery.cancel_scope.cancel()


def another(tree: MemoryTree) -> TopicPolicies:
    """The policies of another broker."""
    return policies_on(tree, MemoryStore(tree), DEFAULT)


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
        others = another(tree)
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


async def test_a_change_made_while_the_namespace_is_read_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched() as (tree, store, policies):
        get, reads = store.get, [ANNOUNCED]

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
            await another(tree).update(NAME, with_copies(3))
        await trio.sleep(5)
        assert asks[0]().ensemble_size == 3


async def test_while_the_store_is_away_what_was_known_holds_and_nothing_new_is_loaded() -> None:
    async with watched() as (tree, store, policies):
        await policies.update(NAME, with_copies(3))
        ask = await policies.load(NAME)
        store.disconnect()
        await trio.sleep(5)
        assert ask().ensemble_size == 3
        await raises(MetadataUnavailableError, policies.load(TopicName.parse("persistent://other/n/t")))
        store.reconnect()
        await another(tree).update(NAME, with_copies(4))
        await trio.sleep(5)
        assert ask().ensemble_size == 4
        assert (await policies.load(TopicName.parse("persistent://other/n/t")))() == DEFAULT


async def test_what_is_read_for_the_rest_call_is_what_any_broker_has_answered_by_then() -> None:
    async with watched() as (tree, _, policies):
        held = await policies.load(NAME)
        await another(tree).update(NAME, with_copies(3))
        assert (await policies.get(NAME) or {})["persistence"] == copies(3)
        assert held().ensemble_size == (await policies.fresh(NAME))().ensemble_size == 3


async def test_policies_in_nodes_count_until_the_first_change_which_moves_them_all() -> None:
    async with watched() as (tree, store, policies):
        other = TopicName.parse("persistent://t/n/another")
        await store.create(NODE, encode_json({"persistence": copies(3), "unheard_of": 1}), make_parents=True)
        ask, ask_other = await policies.load(NAME), await policies.load(other)
        await wait_all_tasks_blocked()
        assert ask().ensemble_size == 3
        await another(tree).update(other, with_copies(4))
        await wait_all_tasks_blocked()
        assert await store.get(NODE) is None
        assert (ask().ensemble_size, ask_other().ensemble_size) == (3, 4)
        assert (await policies.get(NAME) or {})["unheard_of"] == 1
        await policies.delete(NAME)
        assert ask() == DEFAULT


async def test_policies_for_all_clusters_count_where_the_topic_has_none_for_this_one() -> None:
    async with watched() as (_, _, policies):
        ask = await policies.load(PARTITION)
        await policies.update(NAME, with_copies(4), is_global=True)
        assert ask().ensemble_size == 4
        before = ask.changes
        await policies.update(NAME, with_copies(3))
        assert (ask().ensemble_size, ask.changes > before) == (3, True)
        assert (await policies.get(NAME, is_global=True) or {})["persistence"] == copies(4)
        await policies.delete(NAME)  # both
        assert (ask(), await policies.get(NAME, is_global=True)) == (DEFAULT, None)


async def test_a_log_that_cannot_be_read_holds_up_what_is_not_known_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched() as (tree, store, policies):
        await store.create("/admin/policies/other/n", b"{}", make_parents=True)
        ask = await policies.load(NAME)
        await policies.update(NAME, with_copies(3))
        elsewhere = TopicName.parse("persistent://other/n/t")
        await another(tree).update(elsewhere, with_copies(4))
        assert isinstance(policies.source, MemoryPolicies)
        away = True

        async def changes(log: TopicName, since: Position | None, announced: Position | None) -> PolicyChanges:
            if away:
                raise ServiceNotReadyError("no owner")
            return await MemoryPolicies.changes_here(cast("MemoryPolicies", policies.source), log, since)

        monkeypatch.setattr(policies.source, "changes", changes)
        await raises(MetadataUnavailableError, policies.load(elsewhere), match="no owner")
        log_topic = TopicName.parse("persistent://other/n/__change_events")
        held = await policies.load(log_topic)  # the log itself is loaded all the same
        assert (held().retention_minutes, held().retention_mb) == (-1, -1)
        assert ask().ensemble_size == 3
        away = False
        assert (await policies.load(elsewhere))().ensemble_size == 4


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
            await policies.update(topic, with_copies(3))
        await store.create(NODE, b"{}", make_parents=True)
        await policies.delete_namespace(NamespaceName("t", "n"))
        assert await store.children("/admin/topic-policies/local/t/n") == []
        assert await store.get(ANNOUNCED) is None


async def test_a_topic_of_a_namespace_that_is_being_deleted_leaves_its_policies_to_that() -> None:
    async with watched() as (_, store, policies):
        await policies.update(NAME, with_copies(3))
        assert isinstance(policies.source, MemoryPolicies)
        events = policies.source.logs_by_name["persistent://t/n/__change_events"]
        await store.put("/admin/policies/t/n", b'{"deleted":true}', -1)
        await policies.delete(NAME)
        assert len(events) == 1


async def test_policies_that_are_made_while_those_of_their_namespace_are_deleted_go_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched() as (tree, store, policies):
        await store.create(NODE, b"{}", make_parents=True)
        multi = store.multi

        async def late(ops: Sequence[Op]) -> list[str]:
            monkeypatch.setattr(store, "multi", multi)
            await MemoryStore(tree).create(f"{NODE}2", b"{}")
            return await multi(ops)

        monkeypatch.setattr(store, "multi", late)
        await policies.delete_namespace(NamespaceName("t", "n"))
        assert await store.children("/admin/topic-policies/local/t/n") == []


async def test_a_store_that_refuses_to_delete_the_policies_of_a_namespace_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched() as (_, store, policies):
        await store.create(NODE, b"{}", make_parents=True)
        asked: list[Sequence[Op]] = []

        async def refuse(ops: Sequence[Op]) -> list[str]:
            await trio.lowlevel.checkpoint()
            asked.append(ops)
            assert len(asked) < 10
            raise NotAllowedError("credentials")

        monkeypatch.setattr(store, "multi", refuse)
        await raises(MetadataUnavailableError, policies.delete_namespace(NamespaceName("t", "n")), match="credentials")
        assert len(asked) == 1


@pytest.mark.real_clock
async def test_without_anybody_watching_everything_is_read_when_it_is_asked_for() -> None:
    tree = MemoryTree()
    store = MemoryStore(tree)
    policies = policies_on(tree, store, DEFAULT)
    assert (await policies.load(NAME))() == DEFAULT
    await store.create("/admin/policies/t/n", encode_json({"persistence": copies(3)}), make_parents=True)
    assert (await policies.load(NAME))().ensemble_size == 3
    await another(tree).update(NAME, with_copies(4))
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
