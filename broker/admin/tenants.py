"""/admin/v2/tenants: tenants, and the clusters on which they may have namespaces.

GET      tenants                     names
GET      tenants/{tenant}            {"allowedClusters":["c"],"adminRoles":[]}; 404
PUT      tenants/{tenant}            204; 409, 412 no clusters, or unknown ones
POST     tenants/{tenant}            204; 404, 412
DELETE   tenants/{tenant}?force=     204; 404, 409 it has namespaces, 405 force is not allowed

Source: Pulsar's TenantsBase.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker.admin import namespaces
from broker.admin.cluster import clusters
from broker.admin.errors import MalformedRequestError, NotPermittedError, PreconditionError
from broker.admin.permissions.handlers import used
from broker.admin.requests import AdminCall
from broker.admin.resource import answer


async def names(call: AdminCall) -> Response:
    return answer(await call.cluster.namespaces.tenants())


async def get(call: AdminCall) -> Response:
    return answer(await call.cluster.namespaces.tenant(call.tenant()))


async def create(call: AdminCall) -> None:
    tenant = call.tenant()
    await call.cluster.namespaces.create_tenant(tenant, await _info(call))
    await used(call, tenant)


async def update(call: AdminCall) -> None:
    tenant = call.tenant()
    await call.cluster.namespaces.put_tenant(tenant, await _info(call))
    await used(call, tenant)


async def delete(call: AdminCall) -> None:
    tenant, cluster = call.tenant(), call.cluster
    if call.flag("force"):
        if not cluster.force_delete_tenant():
            raise NotPermittedError("Broker doesn't allow forced deletion of tenants")
        for namespace in await cluster.namespaces.names(tenant):
            await namespaces.delete_with_topics(call, namespace)
    await cluster.namespaces.delete_tenant(tenant)


async def _info(call: AdminCall) -> dict[str, Any]:
    """Return the checked TenantInfo of a body."""
    body = await call.json()
    if body is None:
        raise PreconditionError("Clusters can not be empty")
    if not isinstance(body, dict):
        raise MalformedRequestError("a tenant must be a JSON object with allowedClusters and adminRoles")
    allowed, roles = _strings(body, "allowedClusters"), _strings(body, "adminRoles")
    if not allowed or not all(name.strip() for name in allowed):
        raise PreconditionError("Clusters can not be empty")
    if missing := sorted(set(allowed) - set(await clusters.known(call))):
        raise PreconditionError(f"Clusters do not exist: {', '.join(missing)}")
    return {**body, "allowedClusters": allowed, "adminRoles": roles}


def _strings(body: dict[str, Any], name: str) -> list[str]:
    found = body.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise MalformedRequestError(f"{name} must be a list of strings")
    return list(dict.fromkeys(found))
