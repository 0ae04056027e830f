"""The brokers that may serve a namespace, by isolation policies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.errors import ServiceNotReadyError
from broker.ownership.bundles import even
from broker.ownership.errors import NoBrokerError
from broker.ownership.isolation import Isolation, IsolationError, isolation_policy
from broker.ownership.isolation_store import IsolationStore, isolation_path
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.peers import topic_in
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.broker.ownership.cluster import NAMESPACE, OPTIONS, TOPIC, Cluster, Host

BROKERS = {"a-1:8080", "a-2:8080", "b-1:8080", "c-1:8080"}


def policy(namespaces: str, primary: str, secondary: str = "", at_least: int = 1) -> dict[str, Any]:
    return {
        "namespaces": [namespaces],
        "primary": [primary],
        "secondary": [secondary] if secondary else [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": str(at_least), "usage_threshold": "80"},
        },
    }


def isolation(**policies: dict[str, Any]) -> Isolation:
    return Isolation.of(policies)


@pytest.mark.parametrize(
    ("policies", "namespace", "hosts"),
    [
        ({}, "x/y", "a-1 a-2 b-1 c-1"),
        ({"p": policy("x/.*", "a-.*")}, "x/y", "a-1 a-2"),
        ({"p": policy("x/.*", "a-.*")}, "z/x/y", "b-1 c-1"),
        ({"p": policy("x/.*", "a-.*")}, "x", "b-1 c-1"),
        ({"p": policy("x/y", "a")}, "x/y", "a-1 a-2 b-1 c-1"),
        ({"p": policy("x/y", "a-.*", at_least=3)}, "x/y", "a-1 a-2 b-1 c-1"),
        ({"p": policy("x/y", "d", "b-.*", at_least=0)}, "x/y", ""),
        ({"p": policy("x/y", "a-1"), "q": policy("x/z", "b-1")}, "x/z", "b-1"),
        ({"p": policy("x/y", "a-1"), "q": policy("x/z", "b-1")}, "x/w", "a-2 c-1"),
        ({"p": policy("x/y", "d", "a-1"), "q": policy("x/z", "a-.*")}, "x/y", "a-1 b-1 c-1"),
        ({"q": policy("x/.*", "b-1"), "p": policy("x/y", "a-1")}, "x/y", "a-1"),
    ],
)
def test_the_brokers_that_may_serve_a_namespace(policies: dict[str, Any], namespace: str, hosts: str) -> None:
    assert isolation(**policies).allowed(namespace, BROKERS) == {f"{each}:8080" for each in hosts.split()}


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {},
        {**policy("a", "b"), "namespaces": []},
        {**policy("a", "b"), "primary": []},
        {**policy("a", "b"), "primary": "b"},
        {**policy("a", "b"), "secondary": [1]},
        policy("(", "b"),
        policy("a", "b" * 1001),
        {**policy("a", "b"), "auto_failover_policy": {"policy_type": "other", "parameters": {"min_limit": "1"}}},
        {**policy("a", "b"), "auto_failover_policy": {"policy_type": "min_available", "parameters": {}}},
    ],
)
def test_a_policy_that_cannot_be_obeyed_is_refused(broken: object) -> None:
    with pytest.raises(IsolationError):
        isolation_policy(broken)


async def set_policies(host: Host, **policies: dict[str, Any]) -> None:
    store = IsolationStore(host.metadata)
    await store.change(OPTIONS.cluster_name, lambda before: before | policies)


async def test_a_free_bundle_is_given_to_a_broker_that_may_have_it(cluster: Cluster) -> None:
    a, b, c = await cluster.start_many("a", "b", "c")
    await set_policies(a, p=policy("public/default", "c"))
    assert await a.lookup() == Redirect(c.me.broker_url, c.me.web_url, authoritative=True)
    assert (await c.lookup(authoritative=True)).mine
    await set_policies(a, p=policy("other/.*", "a|c"))
    others = [topic_in(bundle) for bundle in even(NAMESPACE, 4).all() if not bundle.has(TOPIC)]
    assert await a.lookup(others[0]) == Redirect(b.me.broker_url, b.me.web_url, authoritative=True)


async def test_without_a_broker_that_may_have_it_a_bundle_waits(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a")
    await set_policies(a, p=policy("public/default", "b", at_least=0))
    await raises(NoBrokerError, a.lookup())
    await set_policies(a, p=policy("public/default", "b", at_least=1))
    assert (await a.lookup()).mine, "a shared broker, as too few primary ones are there"


async def test_policies_that_cannot_be_read_choose_no_broker(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a")
    value = json.dumps({"p": {**policy("x", "y"), "primary": ["("]}}).encode()
    await a.metadata.create(isolation_path(OPTIONS.cluster_name), value, make_parents=True)
    await raises(ServiceNotReadyError, a.lookup(), match="isolation policy 'p'")


async def test_the_leader_moves_bundles_that_are_in_the_wrong_place(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b", shed_interval_s=20.0, load_balancing=False)
    assert await a.lookup() == Connect(a.me.broker_url, a.me.web_url, mine=True)
    await set_policies(a, p=policy("public/.*", "b"))
    await until(lambda: len(b.ownership.owned()) == 1, within=60)
    assert a.ownership.owned() == []
