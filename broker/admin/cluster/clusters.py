"""/admin/v2/clusters: the clusters and their addresses.

GET      clusters                    names
GET      clusters/{cluster}          ClusterData; 404
PUT      clusters/{cluster}          200; 400 a URL of another scheme, 409
POST     clusters/{cluster}          200; 404
DELETE   clusters/{cluster}          204; 404, 412 a tenant may use it
GET      clusters/{cluster}/peers    nothing; POST 204, 412 any cluster: there is no replication
GET      clusters/{cluster}/migrate  404; POST 412

Fields that are not known are kept: what the original's tools write there is theirs.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from broker.admin.errors import ExistsError, MalformedRequestError, NotThereError, PreconditionError
from broker.admin.requests import AdminCall
from broker.admin.resource import Empty, answer
from broker.errors import translated
from broker.ownership.affinity.store import domains_path
from broker.ownership.values import encode_json
from broker.topics.policy_values import decode
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION
from quire.service.web.shapes import Anything, Record

_BODY = Record(
    {name: Anything() for name in ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls")}
)
ROOT = "/admin/clusters"
_SCHEMES = {
    "serviceUrl": "http",
    "serviceUrlTls": "https",
    "brokerServiceUrl": "pulsar",
    "brokerServiceUrlTls": "pulsar+ssl",
}
"""URLs of a cluster. Source: Pulsar's ClusterDataImpl.checkPropertiesIfPresent."""


async def names(call: AdminCall) -> Response:
    return answer(await known(call))


async def get(call: AdminCall) -> Response:
    name = call.cluster_name()
    with translated(f"cluster {name}"):
        node = await call.cluster.metadata.get(f"{ROOT}/{name}")
    if node is None:
        raise _no_such(name)
    data = decode(node.value)
    if not call.cluster.broker_id and name == call.cluster.cluster_name:
        data = {**_own_urls(call), **data}
    return answer(data)


async def create(call: AdminCall) -> Empty:
    name, data = call.cluster_name(), await _data(call)
    with translated(f"cluster {name}"):
        try:
            await call.cluster.metadata.create(f"{ROOT}/{name}", encode_json(data), make_parents=True)
        except NodeExistsError as error:
            raise ExistsError(f"Cluster already exists: {name}") from error
    return Empty()


async def update(call: AdminCall) -> Empty:
    name, data = call.cluster_name(), await _data(call)
    with translated(f"cluster {name}"):
        try:
            await call.cluster.metadata.put(f"{ROOT}/{name}", encode_json(data), ANY_VERSION)
        except NoNodeError as error:
            raise _no_such(name) from error
    return Empty()


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
    _BODY.check(data, "cluster data", MalformedRequestError)
    found: dict[str, Any] = data
    for name, scheme in _SCHEMES.items():
        url = found.get(name)
        if url and (not isinstance(url, str) or urlsplit(url).scheme != scheme):
            raise MalformedRequestError(f"{name} must begin with {scheme}://, unlike {str(url)[:100]!a}")
    return found


def _own_urls(call: AdminCall) -> dict[str, str]:
    """Return the addresses of a standalone server, which may have others at each start and does not store them."""
    service = call.service
    found = (service.web_url(), service.web_url_tls(), service.broker_url(), service.broker_url_tls())
    return {name: url for name, url in zip(_SCHEMES, found, strict=True) if url}


def _no_such(name: str) -> NotThereError:
    return NotThereError(f"Cluster does not exist: {name}")
