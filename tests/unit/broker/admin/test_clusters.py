"""Clusters over REST"""

from __future__ import annotations

from tests.unit.broker.admin.cluster_fakes import ClusterRest


async def test_clusters_are_made_changed_and_deleted_unless_a_tenant_may_use_them(rest: ClusterRest) -> None:
    root = "/admin/v2/clusters"
    data = {"serviceUrl": "http://d:8080", "unheardOf": [1]}
    assert await rest.status("PUT", f"{root}/d", json=data) == 204
    assert await rest.status("PUT", f"{root}/d", json=data) == 409
    assert await rest.get(root) == ["c", "d"]
    assert await rest.get(f"{root}/d") == data
    assert await rest.status("POST", f"{root}/d", json={"serviceUrl": "http://e:8080"}) == 204
    assert await rest.get(f"{root}/d") == {"serviceUrl": "http://e:8080"}
    assert await rest.status("POST", f"{root}/x", json=data) == 404
    assert await rest.status("GET", f"{root}/x") == 404
    assert await rest.status("DELETE", f"{root}/x") == 404
    assert await rest.status("PUT", f"{root}/x", json=[]) == 400
    assert "tenant public" in await rest.refused("DELETE", f"{root}/c", 412)
    assert await rest.status("DELETE", f"{root}/d") == 204
    assert await rest.get(root) == ["c"]
