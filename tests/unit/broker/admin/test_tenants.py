"""Tenants over REST"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.nodes import node_at
from tests.unit.broker.admin.cluster_fakes import ClusterRest, on_cluster

TENANTS = "/admin/v2/tenants"
INFO = {"allowedClusters": ["c"], "adminRoles": ["a"]}


async def test_a_tenant_is_made_read_changed_and_deleted(rest: ClusterRest) -> None:
    assert await rest.status("PUT", f"{TENANTS}/acme", json=INFO) == 204
    assert await rest.get(TENANTS) == ["acme", "public"]
    assert await rest.get(f"{TENANTS}/acme") == INFO
    node = await node_at(rest.store, "/admin/policies/acme")
    assert node.value == b'{"allowedClusters":["c"],"adminRoles":["a"]}'
    assert await rest.status("POST", f"{TENANTS}/acme", json={"allowedClusters": ["c"]}) == 204
    assert await rest.get(f"{TENANTS}/acme") == {"allowedClusters": ["c"], "adminRoles": []}
    assert await rest.status("DELETE", f"{TENANTS}/acme") == 204
    assert await rest.get(TENANTS) == ["public"]


async def test_a_tenant_that_is_there_or_not_there_is_told_so(rest: ClusterRest) -> None:
    assert "exists" in await rest.refused("PUT", f"{TENANTS}/public", 409, json=INFO)
    for method in ("GET", "DELETE"):
        assert "does not exist" in await rest.refused(method, f"{TENANTS}/nobody", 404)
    assert "does not exist" in await rest.refused("POST", f"{TENANTS}/nobody", 404, json=INFO)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (None, 412),
        ({}, 412),
        ({"allowedClusters": []}, 412),
        ({"allowedClusters": [" "]}, 412),
        ({"allowedClusters": ["c", "d"]}, 412),
        ({"allowedClusters": "c"}, 400),
        ([], 400),
    ],
)
async def test_a_tenant_without_clusters_that_are_there_is_refused(body: Any, status: int, rest: ClusterRest) -> None:
    options = {} if body is None else {"json": body}
    await rest.refused("PUT", f"{TENANTS}/acme", status, **options)
    assert await rest.get(TENANTS) == ["public"]


async def test_a_tenant_with_namespaces_goes_only_by_force_and_that_only_if_it_is_allowed() -> None:
    async def kept(rest: ClusterRest) -> None:
        assert "has namespaces" in await rest.refused("DELETE", f"{TENANTS}/public", 409)
        assert "forced" in await rest.refused("DELETE", f"{TENANTS}/public?force=true", 405)

    async with on_cluster() as rest:
        await kept(rest)

    async def gone(rest: ClusterRest) -> None:
        rest.administration.partitioned_names = []
        assert await rest.status("DELETE", f"{TENANTS}/public?force=true") == 204
        assert ("delete_wherever", "persistent://public/default/a") in rest.administration.asked
        assert await rest.get(TENANTS) == []

    async with on_cluster(force_delete_tenant=True) as rest:
        await gone(rest)


@pytest.mark.parametrize("name", ["a%2Fb", "a%20b", "%00"])
async def test_a_name_that_no_tenant_can_have_is_refused(name: str, rest: ClusterRest) -> None:
    await rest.refused("PUT", f"{TENANTS}/{name}", 412, json=INFO)
