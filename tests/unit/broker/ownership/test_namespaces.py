"""Tenants, namespaces, and the boundaries of their bundles."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio

from broker.errors import MetadataRefusedError, TopicNotFoundError
from broker.ownership import namespaces as namespaces_module
from broker.ownership.bundles import Bundles, even
from broker.ownership.errors import BundlesChangedError, NamespaceBusyError, NamespaceExistsError
from broker.ownership.namespaces import Namespaces, heartbeat_broker, heartbeat_namespace
from broker.ownership.values import Json
from quire.metadata.store import Op
from quire.wire.pulsar.names import NamespaceName
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.broker.ownership.cluster import NAMESPACE, OPTIONS, Cluster


async def following(cluster: Cluster) -> Namespaces:
    namespaces = Namespaces(cluster.store, OPTIONS)
    await cluster.nursery.start(namespaces.run)
    return namespaces


async def test_local_policies_are_made_on_first_use_from_the_policies(cluster: Cluster) -> None:
    namespaces = await following(cluster)
    await namespaces.create(NamespaceName("public", "eight"), {"bundles": {"numBundles": 8}})
    assert namespaces.known_bundles(NAMESPACE) is None
    assert await namespaces.bundles(NAMESPACE) == even(NAMESPACE, 4)
    assert namespaces.known_bundles(NAMESPACE) == even(NAMESPACE, 4)
    eight = NamespaceName("public", "eight")
    assert await namespaces.bundles(eight) == even(eight, 8)
    node = await node_at(cluster.store, "/admin/local-policies/public/eight")
    assert len(json.loads(node.value)["bundles"]["boundaries"]) == 9
    await raises(TopicNotFoundError, namespaces.bundles(NamespaceName("public", "none")))


async def test_a_split_by_another_broker_is_seen_and_told(cluster: Cluster) -> None:
    ours, theirs = await following(cluster), await following(cluster)
    told: list[Bundles | None] = []
    ours.on_change = lambda _, bundles: told.append(bundles)
    before = await ours.bundles(NAMESPACE)
    assert await theirs.bundles(NAMESPACE) == before
    after = await theirs.update_bundles(before, lambda each: each.split(each.all()[0], [0x1000]))
    assert theirs.known_bundles(NAMESPACE) == after
    await until(lambda: ours.known_bundles(NAMESPACE) == after, within=1)
    assert told == [after]


async def test_two_who_change_the_boundaries_at_once_do_not_undo_each_other(cluster: Cluster) -> None:
    ours, theirs = await following(cluster), await following(cluster)
    before = await ours.bundles(NAMESPACE)
    assert await theirs.bundles(NAMESPACE) == before
    outcomes: list[str] = []

    async def split(namespaces: Namespaces, index: int) -> None:
        try:
            await namespaces.update_bundles(
                before, lambda each: each.split(each.all()[index], [each.all()[index].low + 9])
            )
            outcomes.append("done")
        except BundlesChangedError:
            outcomes.append("changed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(split, ours, 0)
        nursery.start_soon(split, theirs, 1)
    assert sorted(outcomes) == ["changed", "done"]
    assert len(await ours.bundles(NAMESPACE)) == 5


async def test_what_was_known_is_answered_while_the_service_is_away(cluster: Cluster) -> None:
    namespaces = await following(cluster)
    await namespaces.bundles(NAMESPACE)
    cluster.store.disconnect()
    await trio.sleep(100)
    assert await namespaces.bundles(NAMESPACE) == even(NAMESPACE, 4)


async def test_policies_are_changed_with_fields_we_do_not_know_kept(cluster: Cluster) -> None:
    namespaces = await following(cluster)
    await cluster.store.put("/admin/policies/public/default", b'{"bundles":{"numBundles":2},"strange":[1]}', -1)

    def change(policies: Json) -> Json:
        return policies | {"retention_policies": {"retentionTimeInMinutes": 5, "retentionSizeInMB": 6}}

    stored = await namespaces.update_policies(NAMESPACE, change)
    assert stored["strange"] == [1]
    assert (await namespaces.policies(NAMESPACE))["retention_policies"]["retentionSizeInMB"] == 6
    node = await node_at(cluster.store, "/admin/policies/public/default")
    assert json.loads(node.value) == stored
    await raises(TopicNotFoundError, namespaces.update_policies(NamespaceName("public", "none"), change))


async def test_policies_that_become_unreadable_leave_what_was_known(cluster: Cluster) -> None:
    namespaces = await following(cluster)
    await namespaces.bundles(NAMESPACE)
    await cluster.store.put("/admin/local-policies/public/default", b"{", -1)
    await trio.sleep(1)
    assert await namespaces.bundles(NAMESPACE) == even(NAMESPACE, 4)
    await raises(MetadataRefusedError, (await following(cluster)).bundles(NAMESPACE))


async def test_a_namespace_is_made_once_and_deleted_only_without_topics(cluster: Cluster) -> None:
    namespaces = await following(cluster)
    orders = NamespaceName("public", "orders")
    await namespaces.create(orders)
    assert (await namespaces.policies(orders))["replication_clusters"] == ["test"]
    await raises(NamespaceExistsError, namespaces.create(orders))
    await raises(TopicNotFoundError, namespaces.create(NamespaceName("nobody", "orders")))
    await namespaces.bundles(orders)
    await cluster.store.create("/managed-ledgers/public/orders/persistent/a", make_parents=True)
    await raises(NamespaceBusyError, namespaces.delete(orders))
    assert await namespaces.names("public") == [NAMESPACE, orders]
    await cluster.store.delete("/managed-ledgers/public/orders/persistent/a")
    told: list[Bundles | None] = []
    namespaces.on_change = lambda _, bundles: told.append(bundles)
    await namespaces.delete(orders)
    assert namespaces.known_bundles(orders) is None
    assert told == [None]
    assert await cluster.store.get("/admin/local-policies/public/orders") is None
    await raises(TopicNotFoundError, namespaces.delete(orders))
    await namespaces.create(orders, {"bundles": {"numBundles": 2}})
    assert len(await namespaces.bundles(orders)) == 2


async def test_a_namespace_is_deleted_although_what_belongs_to_it_goes_meanwhile(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    namespaces = await following(cluster)
    await namespaces.bundles(NAMESPACE)
    multi = cluster.store.multi

    async def late(ops: Sequence[Op]) -> list[str]:
        monkeypatch.setattr(cluster.store, "multi", multi)
        await cluster.store.delete("/admin/local-policies/public/default")
        return await multi(ops)

    monkeypatch.setattr(cluster.store, "multi", late)
    await namespaces.delete(NAMESPACE)
    assert await namespaces.names("public") == []


async def test_a_namespace_that_is_marked_as_deleted_keeps_its_bundles_until_it_is_deleted(cluster: Cluster) -> None:
    namespaces = await following(cluster)
    before = await namespaces.bundles(NAMESPACE)
    await namespaces.mark_deleted(NAMESPACE)
    await namespaces.mark_deleted(NAMESPACE)
    assert (await namespaces.policies(NAMESPACE))["deleted"] is True
    assert await namespaces.bundles(NAMESPACE) == before
    await namespaces.delete(NAMESPACE)
    await raises(TopicNotFoundError, namespaces.mark_deleted(NAMESPACE))


async def test_no_more_namespaces_are_followed_than_the_bound(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    monkeypatch.setattr(namespaces_module, "FOLLOWED_MAX", 1)
    namespaces = await following(cluster)
    other = NamespaceName("public", "other")
    await namespaces.create(other)
    await namespaces.bundles(NAMESPACE)
    await namespaces.bundles(other)
    assert namespaces.known_bundles(NAMESPACE) is None
    assert namespaces.known_bundles(other) == even(other, 4)
    assert await namespaces.bundles(NAMESPACE) == even(NAMESPACE, 4)


async def test_tenants_are_made_changed_and_deleted_when_they_are_empty(cluster: Cluster) -> None:
    namespaces = Namespaces(cluster.store, OPTIONS)
    await namespaces.create_tenant("acme", {"adminRoles": ["x"], "allowedClusters": ["test"]})
    await raises(NamespaceExistsError, namespaces.create_tenant("acme", {}))
    await namespaces.put_tenant("acme", {"adminRoles": []})
    assert await namespaces.tenant("acme") == {"adminRoles": [], "allowedClusters": ["test"]}
    assert await namespaces.tenants() == ["acme", "public"]
    await namespaces.create(NamespaceName("acme", "n"))
    await raises(NamespaceBusyError, namespaces.delete_tenant("acme"))
    await namespaces.delete(NamespaceName("acme", "n"))
    await namespaces.delete_tenant("acme")
    for gone in (namespaces.tenant("acme"), namespaces.delete_tenant("acme"), namespaces.names("acme")):
        await raises(TopicNotFoundError, gone)


async def test_a_heartbeat_namespace_is_one_bundle_and_needs_no_policies(cluster: Cluster) -> None:
    namespace = heartbeat_namespace("127.0.0.1:8080")
    assert heartbeat_broker(namespace) == "127.0.0.1:8080"
    assert heartbeat_broker(NamespaceName("pulsar", "system")) is None
    assert heartbeat_broker(NamespaceName("public", "a:8080")) is None
    namespaces = await following(cluster)
    assert await namespaces.bundles(namespace) == even(namespace, 1)
    assert await namespaces.boundaries_check(even(namespace, 1)) == []
    assert namespace.tenant not in await namespaces.tenants()
