"""The stored configuration of brokers: watched by each, obeyed at once, refused at a start if it cannot be obeyed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from broker.dynamic.conf import DynamicConf
from broker.dynamic.configuration import PATH, DynamicConfiguration
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import ANY_VERSION
from quire.servers.broker.config import BROKER, BrokerConfig
from quire.service.errors import ConfigError
from tests.support.refusals import raises
from tests.support.waiting import until


def made(store: MemoryStore) -> DynamicConfiguration:
    return DynamicConfiguration(store, DynamicConf(BROKER, BROKER.build({"clusterName": "c"})))


def config(of: DynamicConfiguration) -> BrokerConfig:
    found: BrokerConfig = of.conf.config
    return found


async def store_values(store: MemoryStore, **values: Any) -> None:
    value = json.dumps(values).encode()
    if await store.get(PATH) is None:
        await store.create(PATH, value, make_parents=True)
    else:
        await store.put(PATH, value, ANY_VERSION)


async def test_every_broker_obeys_a_stored_value_within_a_second() -> None:
    tree = MemoryTree()
    brokers = [made(MemoryStore(tree)) for _ in range(2)]
    told: list[frozenset[str]] = []
    brokers[1].on_change = told.append
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tree.run)
        for each in brokers:
            await each.load()
            nursery.start_soon(each.run)
        await trio.testing.wait_all_tasks_blocked()
        await brokers[0].put("maxTopicsPerNamespace", "5")
        assert config(brokers[0]).broker.topics_per_namespace_max == 5, "the broker that stores it obeys at once"
        await until(lambda: config(brokers[1]).broker.topics_per_namespace_max == 5, within=1)
        assert told == [frozenset(["maxTopicsPerNamespace"])]
        await brokers[1].delete("maxTopicsPerNamespace")
        await until(lambda: config(brokers[0]).broker.topics_per_namespace_max == 0, within=1)
        nursery.cancel_scope.cancel()


async def test_values_that_are_stored_hold_from_the_start() -> None:
    store = MemoryStore(MemoryTree())
    await store_values(store, maxTopicsPerNamespace="5", loadBalancerSheddingEnabled="false", theirOwn="x")
    broker = made(store)
    await broker.load()
    assert config(broker).broker.topics_per_namespace_max == 5
    assert not config(broker).ownership.auto_shed


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("maxTopicsPerNamespace", "many", "not a number"),
        ("clusterName", "other", "cannot be changed while a broker runs"),
        ("loadManagerClassName", "org.example.Mine", "it would have no effect here"),
        ("maxTenants", "5", "it would have no effect here"),
    ],
)
async def test_a_stored_value_that_cannot_be_obeyed_ends_the_start_and_is_named(name: str, text: str, why: str) -> None:
    store = MemoryStore(MemoryTree())
    await store_values(store, **{name: text})
    await raises(ConfigError, made(store).load(), match=f"(?s){PATH}: {name}={text}: .*{why}")


@pytest.mark.parametrize(("name", "text"), [("clusterName", "c"), ("maxTenants", "0"), ("numIOThreads", "7")])
async def test_a_stored_value_that_asks_for_nothing_is_taken(name: str, text: str) -> None:
    store = MemoryStore(MemoryTree())
    await store_values(store, **{name: text})
    await made(store).load()


async def test_what_is_no_json_ends_the_start() -> None:
    store = MemoryStore(MemoryTree())
    await store.create(PATH, b"{", make_parents=True)
    await raises(ConfigError, made(store).load(), match="cannot be read")


async def test_a_bad_value_of_another_program_leaves_the_last_good_one(
    expect_error: Callable[[str], None],
) -> None:
    expect_error("stored configuration not obeyed")
    expect_error("stored configuration not read")
    tree = MemoryTree()
    store = MemoryStore(tree)
    broker = made(store)
    await broker.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tree.run)
        nursery.start_soon(broker.run)
        await trio.testing.wait_all_tasks_blocked()
        await store_values(store, maxTopicsPerNamespace="5", defaultNumPartitions="2")
        await until(lambda: config(broker).broker.topics_per_namespace_max == 5, within=1)
        await store_values(store, maxTopicsPerNamespace="many", defaultNumPartitions="3")
        await until(lambda: config(broker).broker.partitions_default == 3, within=1)
        assert config(broker).broker.topics_per_namespace_max == 5
        await store.put(PATH, b"[]", ANY_VERSION)
        await trio.sleep(1)
        assert config(broker).broker.partitions_default == 3
        await store_values(store)
        await until(lambda: config(broker).broker.partitions_default == 1, within=1)
        assert config(broker).broker.topics_per_namespace_max == 0
        nursery.cancel_scope.cancel()
