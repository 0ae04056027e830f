"""Resource quotas of bundles, and resource groups: what a taken-over cluster has stored is shown and can be deleted.

GET      /resource-quotas                                      the original's default, or what is stored
GET      /resource-quotas/{tenant}/{namespace}/{bundle}        the bundle's, or the default; 412 no such bundle
POST     both                                                  412: bundles are placed by their measured load
DELETE   /resource-quotas/{tenant}/{namespace}/{bundle}        204
GET      /resourcegroups                                       names of the stored groups
GET      /resourcegroups/{group}                               ResourceGroup; 404
PUT      /resourcegroups/{group}                               412: rates are those of topics, namespaces and brokers
DELETE   /resourcegroups/{group}                               204; 404, 412 a namespace names it

Source: Pulsar's ResourceQuotasBase, BundlesQuotas (the default), ResourceGroupsBase, LoadBalanceResources and
ResourceGroupResources (the paths).
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from broker.admin.errors import NotThereError, PreconditionError
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import TopicNotFoundError, translated
from broker.topics.policy_values import decode
from quire.metadata.errors import NoNodeError
from quire.metadata.store import ANY_VERSION

QUOTAS: Final = "/loadbalance/resource-quota"
GROUPS: Final = "/admin/resourcegroups"
DEFAULT: Final[dict[str, Any]] = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    "dynamic": True,
}
"""Quota of a bundle of which nothing is stored."""


async def default_quota(call: AdminCall) -> Response:
    """Answer the quota of bundles that have none of their own."""
    return answer(await _quota(call, "default") or DEFAULT)


async def quota(call: AdminCall) -> Response:
    """Answer the quota of a bundle."""
    return answer(await _quota(call, await _bundle(call)) or await _quota(call, "default") or DEFAULT)


async def put_default_quota(call: AdminCall) -> None:
    """Refuse a quota."""
    raise _no_quotas()


async def put_quota(call: AdminCall) -> None:
    """Refuse a quota."""
    await _bundle(call)
    raise _no_quotas()


async def delete_quota(call: AdminCall) -> None:
    """Delete the stored quota of a bundle, if there is one."""
    bundle = await _bundle(call)
    with translated(f"quota of {bundle}"):
        try:
            await call.cluster.metadata.delete(f"{QUOTAS}/{bundle}", ANY_VERSION)
        except NoNodeError:
            pass


async def groups(call: AdminCall) -> Response:
    """Answer the names of the stored groups."""
    with translated("resource groups"):
        try:
            return answer(await call.cluster.metadata.children(GROUPS))
        except NoNodeError:
            return answer([])


async def group(call: AdminCall) -> Response:
    """Answer a stored group."""
    found = await _stored(call, f"{GROUPS}/{_group(call)}")
    if found is None:
        raise _no_such_group(call)
    return answer(found)


async def put_group(call: AdminCall) -> None:
    """Refuse a group."""
    _group(call)
    raise PreconditionError(
        "not obeyed by this broker: resource groups; set publishRate and dispatchRate of the namespaces or topics"
    )


async def delete_group(call: AdminCall) -> None:
    """Delete a stored group that no namespace names."""
    name = _group(call)
    if await _stored(call, f"{GROUPS}/{name}") is None:
        raise _no_such_group(call)
    namespaces = call.cluster.namespaces
    for tenant in await namespaces.tenants():
        for each in await namespaces.names(tenant):
            if (await namespaces.policies(each)).get("resource_group_name") == name:
                raise PreconditionError(f"resource group {name} is in use by namespace {each}")
    with translated(f"resource group {name}"):
        try:
            await call.cluster.metadata.delete(f"{GROUPS}/{name}", ANY_VERSION)
        except NoNodeError as error:
            raise _no_such_group(call) from error


def _no_quotas() -> PreconditionError:
    return PreconditionError(
        "not obeyed by this broker: resource quotas (bundles are placed by their measured load alone); set publishRate "
        "and dispatchRate of the namespace to limit it"
    )


async def _bundle(call: AdminCall) -> str:
    """Return the bundle of the path. Raises PreconditionError if there is no such bundle."""
    namespace = call.namespace()
    try:
        found = await call.cluster.namespaces.bundles(namespace)
    except TopicNotFoundError as error:
        raise PreconditionError(str(error)) from error
    wanted = f"{namespace}/{call.part('bundle')}"
    if wanted not in map(str, found.all()):
        raise PreconditionError(f"{call.part('bundle')[:100]!a} is no bundle of {namespace}")
    return wanted


def _group(call: AdminCall) -> str:
    name = call.part("group")
    if not name or "/" in name:
        raise PreconditionError(f"{name[:100]!a} cannot be the name of a resource group")
    return name


def _no_such_group(call: AdminCall) -> NotThereError:
    return NotThereError(f"ResourceGroup does not exist: {_group(call)[:100]}")


async def _quota(call: AdminCall, name: str) -> dict[str, Any] | None:
    return await _stored(call, f"{QUOTAS}/{name}")


async def _stored(call: AdminCall, path: str) -> dict[str, Any] | None:
    with translated(path):
        node = await call.cluster.metadata.get(path)
    return None if node is None else decode(node.value)
