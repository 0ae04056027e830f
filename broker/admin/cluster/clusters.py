"""/admin/v2/clusters: the clusters and their addresses.

GET      clusters                    names
GET      clusters/{cluster}          ClusterData; 404
PUT      clusters/{cluster}          200; 409
POST     clusters/{cluster}          200; 404
DELETE   clusters/{cluster}          204; 404, 412 a tenant may use it
GET      clusters/{cluster}/peers    nothing; POST 204, 412 any cluster: there is no replication
GET      clusters/{cluster}/migrate  404; POST 412

Fields that are not known are kept: what the original's tools write there is theirs.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker.admin.errors import ExistsError, MalformedRequestError, NotThereError, PreconditionError
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import translated
from broker.ownership.affinity.store import domains_path
from broker.ownership.values import encode_json
from broker.topics.policy_values import decode
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION

ROOT = "/admin/clusters"


async def names(call: AdminCall) -> Response:
    return answer(await known(call))


async def get(call: AdminCall) -> Response:
    name = call.cluster_name()
    with translated(f"cluster {name}"):
        node = await call.cluster.metadata.get(f"{ROOT}/{name}")
    if node is None:
        raise _no_such(name)
    return answer(decode(node.value))


async def create(call: AdminCall) -> Response:
    name, data = call.cluster_name(), await _data(call)
    with translated(f"cluster {name}"):
        try:
            await call.cluster.metadata.create(f"{ROOT}/{name}", encode_json(data), make_parents=True)
        except NodeExistsError as error:
            raise ExistsError(f"Cluster already exists: {name}") from error
    return Response()


async def update(call: AdminCall) -> Response:
    name, data = call.cluster_name(), await _data(call)
    with translated(f"cluster {name}"):
        try:
            await call.cluster.metadata.put(f"{ROOT}/{name}", encode_json(data), ANY_VERSION)
        except NoNodeError as error:
            raise _no_such(name) from error
    return Response()


async def delete(call: AdminCall) -> None:
    name, namespaces = call.cluster_name(), call.cluster.namespaces
    for tenant in await namespaces.tenants():
        if name in ((await namespaces.tenant(tenant)).get("allowedClusters") or ()):
            raise PreconditionError(f"Cluster not empty: tenant {tenant} may use it")
    with translated(f"cluster {name}"):
        try:
            for domain in await _children(call, domains_path(name)):
                await call.cluster.metadata.delete(f"{domains_path(name)}/{domain}")
            for child in await _children(call, f"{ROOT}/{name}"):
                await call.cluster.metadata.delete(f"{ROOT}/{name}/{child}")
            await call.cluster.metadata.delete(f"{ROOT}/{name}")
        except NoNodeError as error:
            raise _no_such(name) from error


async def _children(call: AdminCall, path: str) -> list[str]:
    """Return the names below a node: failure domains, and isolation policies."""
    try:
        return await call.cluster.metadata.children(path)
    except NoNodeError:
        return []


async def peers(call: AdminCall) -> None:
    """Answer nothing: there is no replication between clusters."""
    await get(call)


async def put_peers(call: AdminCall) -> None:
    """Refuse clusters that would take over from this one."""
    await get(call)
    if await call.json():
        raise PreconditionError("not obeyed by this broker: peer clusters (there is no replication between clusters)")


async def migrated(call: AdminCall) -> None:
    """Answer that the cluster was not moved to another one."""
    await get(call)
    raise NotThereError("the cluster is not being migrated: topics are not moved to another cluster")


async def migrate(call: AdminCall) -> None:
    """Refuse to move to another cluster."""
    await get(call)
    raise PreconditionError("not obeyed by this broker: migration (topics are not moved to another cluster)")


async def known(call: AdminCall) -> list[str]:
    """Return cluster names, sorted. `global` is a marker of older versions, not a cluster."""
    with translated("clusters"):
        try:
            found = await call.cluster.metadata.children(ROOT)
        except NoNodeError:
            return []
    return [name for name in found if name != "global"]


async def _data(call: AdminCall) -> dict[str, Any]:
    data = await call.json()
    if not isinstance(data, dict):
        raise MalformedRequestError("cluster data must be a JSON object with serviceUrl and brokerServiceUrl")
    return data


def _no_such(name: str) -> NotThereError:
    return NotThereError(f"Cluster does not exist: {name}")
