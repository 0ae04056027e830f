"""The live brokers and their leader."""

from __future__ import annotations

import json

import trio

from quire.metadata.store import Kind
from tests.support.nodes import node_at
from tests.support.waiting import until
from tests.unit.broker.ownership.cluster import SESSION_S, Cluster


async def test_brokers_know_each_other_and_one_leads(cluster: Cluster) -> None:
    hosts = await cluster.start_many("a", "b", "c")
    for host in hosts:
        assert sorted(host.ownership.brokers.reports) == ["a:8080", "b:8080", "c:8080"]
        assert host.ownership.brokers.reports["b:8080"].broker == hosts[1].me
    await until(lambda: {host.ownership.brokers.leader for host in hosts} == {"a:8080"}, within=1)
    assert [host.ownership.brokers.is_leader for host in hosts] == [True, False, False]
    node = await node_at(cluster.store, "/loadbalance/leader")
    assert json.loads(node.value) == {"brokerId": "a:8080", "serviceUrl": "http://a:8080"}


async def test_another_leads_when_the_leader_is_gone(cluster: Cluster) -> None:
    a, b, c = await cluster.start_many("a", "b", "c")
    a.kill()
    killed_at = trio.current_time()
    await until(lambda: "a:8080" not in b.ownership.brokers.reports)
    await until(lambda: b.ownership.brokers.leader == c.ownership.brokers.leader != "a:8080")
    assert trio.current_time() - killed_at < SESSION_S + 0.5
    assert b.ownership.brokers.is_leader != c.ownership.brokers.is_leader


async def test_a_broker_is_registered_again_after_its_session_expired(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    a.metadata.disconnect()
    await until(lambda: "a:8080" not in b.ownership.brokers.reports)
    assert b.ownership.brokers.reports.keys() == {"b:8080"}
    a.metadata.reconnect()
    await until(lambda: "a:8080" in b.ownership.brokers.reports, within=1)
    await until(lambda: a.ownership.brokers.leader == "b:8080", within=1)


async def test_an_id_that_another_broker_has_is_waited_for(cluster: Cluster) -> None:
    value = b'{"pulsarServiceUrl":"pulsar://z:1","webServiceUrl":"http://z:2"}'
    path = "/loadbalance/brokers/a:8080"
    await cluster.store.create(path, value, kind=Kind.EPHEMERAL, make_parents=True)
    a = cluster.add("a")
    registered = cluster.start_soon(a)
    await trio.sleep(5)
    assert not registered.is_set()
    await cluster.store.delete(path)
    await until(registered.is_set, within=1)
    assert a.ownership.brokers.reports["a:8080"].broker == a.me


async def test_a_report_that_cannot_be_read_hides_that_broker_alone(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a")
    await cluster.store.create("/loadbalance/brokers/z:1", b"{", kind=Kind.EPHEMERAL)
    b = await cluster.start("b")
    await until(lambda: a.ownership.brokers.reports.keys() == {"a:8080", "b:8080"}, within=1)
    assert b.ownership.brokers.reports.keys() == {"a:8080", "b:8080"}


async def test_who_leaves_before_being_registered_is_not_waited_for(cluster: Cluster) -> None:
    a = cluster.add("a")
    a.metadata.disconnect()
    registered = cluster.start_soon(a)
    await trio.sleep(5)
    assert not registered.is_set()
    await a.ownership.release_all()
    await until(registered.is_set, within=1)
    a.metadata.reconnect()
    await trio.sleep(5)
    assert await cluster.store.get("/loadbalance/brokers/a:8080") is None
