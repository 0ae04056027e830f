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
from broker.admin.openapi.parameters import FORCE
from broker.admin.permissions.handlers import used
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from quire.service.web.shapes import Listing, Record, Text

_BODY = Record({"allowedClusters": Listing(Text()), "adminRoles": Listing(Text())})


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
    if call.flag(FORCE):
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
    given = _BODY.check(body, "a tenant", MalformedRequestError)
    allowed, roles = (list(dict.fromkeys(given.get(each, ()))) for each in _BODY.fields)
    if not allowed or not all(name.strip() for name in allowed):
        raise PreconditionError("Clusters can not be empty")
    if missing := sorted(set(allowed) - set(await clusters.known(call))):
        raise PreconditionError(f"Clusters do not exist: {', '.join(missing)}")
    return {**body, "allowedClusters": allowed, "adminRoles": roles}
