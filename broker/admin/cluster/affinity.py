"""Brokers and bookies of a namespace: the group of namespaces that it is kept apart from, and its groups of bookies.

GET      {namespace}/antiAffinity                     "group"; nothing if there is none
POST     {namespace}/antiAffinity                     204, "": none; 412 no name
DELETE   {namespace}/antiAffinity                     204
GET      /namespaces/{cluster}/antiAffinity/{group}   ?tenant= names of the tenant's namespaces in the group
GET      {namespace}/persistence/bookieAffinity       BookieAffinityGroupData; nothing if there is none
POST     {namespace}/persistence/bookieAffinity       204; 412
DELETE   {namespace}/persistence/bookieAffinity       204

Groups of bookies are those of /admin/v2/bookies/racks-info. They hold for ledgers created from now on. The
anti-affinity group holds at once for bundles without an owner, and at the leader's next round for others. A standalone
server has one broker and one bookie: both are refused there (412). The values are in LocalPolicies.
Source: Pulsar's NamespacesBase.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from broker.admin.cluster import clusters
from broker.admin.errors import MalformedRequestError, PreconditionError
from broker.admin.permissions.access import check_tenant_admin
from broker.admin.requests import AdminCall
from broker.admin.resource import answer, text
from broker.ownership.affinity.store import GROUP
from broker.topics.policy_values import BOOKIE_AFFINITY, PolicyError, bookie_affinity
from quire.service.web.parameters import Parameter
from quire.service.web.shapes import Text
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName

LISTED: Final = "/admin/v2/namespaces/{cluster}/antiAffinity/{affinity_group}"
NAME_MAX: Final = 256
_NAME: Final = Text()
_TENANT: Final = Parameter("tenant", "Tenant whose namespaces are wanted; needed.")


async def group(call: AdminCall) -> Response | None:
    """Answer the anti-affinity group of a namespace."""
    found = await _get(call, GROUP)
    return None if found is None else text(str(found))


async def put_group(call: AdminCall) -> None:
    """Set the anti-affinity group of a namespace."""
    namespace, name = call.namespace(), await call.name()
    await call.cluster.namespaces.local_policies(namespace)
    if len(_NAME.check(name, "an anti-affinity group", PreconditionError)) > NAME_MAX:
        raise PreconditionError(f"the name of an anti-affinity group has at most {NAME_MAX} characters")
    if name and not call.cluster.broker_id:
        raise PreconditionError("a standalone server has one broker: no namespace can be kept apart")
    await _put(call, namespace, GROUP, name or None)


async def delete_group(call: AdminCall) -> None:
    """Take a namespace out of its anti-affinity group."""
    await _put(call, call.namespace(), GROUP, None)


async def listed(call: AdminCall) -> Response:
    """Answer the namespaces of a tenant that are in a group."""
    cluster, wanted = call.cluster_name(), call.part("affinity_group").lower()
    tenant = call.given(_TENANT) or ""
    try:
        of_tenant = NamespaceName.parse(f"{tenant}/x")
    except InvalidNameError as error:
        raise MalformedRequestError("the parameter tenant must name a tenant") from error
    await check_tenant_admin(call, of_tenant, LISTED)
    if cluster not in await clusters.known(call):
        raise PreconditionError(f"Cluster {cluster} does not exist")
    found = []
    for each in await call.cluster.namespaces.names(tenant):
        if str((await call.cluster.namespaces.local_policies(each)).get(GROUP) or "").lower() == wanted:
            found.append(str(each))
    return answer(found)


async def bookies(call: AdminCall) -> Response | None:
    """Answer the groups of bookies of a namespace."""
    found = await _get(call, BOOKIE_AFFINITY)
    return None if found is None else answer(found)


async def put_bookies(call: AdminCall) -> None:
    """Set the groups of bookies of a namespace."""
    namespace, value = call.namespace(), await call.json()
    await call.cluster.namespaces.local_policies(namespace)
    try:
        wanted = bookie_affinity(value)
    except PolicyError as error:
        raise PreconditionError(str(error)) from error
    if wanted is not None and call.cluster.ensemble_max:
        raise PreconditionError("a standalone server has one bookie, which holds all topics")
    await _put(call, namespace, BOOKIE_AFFINITY, wanted)


async def delete_bookies(call: AdminCall) -> None:
    """Let the ledgers of a namespace be on any bookie."""
    await _put(call, call.namespace(), BOOKIE_AFFINITY, None)


async def _get(call: AdminCall, key: str) -> Any:
    return (await call.cluster.namespaces.local_policies(call.namespace())).get(key)


async def _put(call: AdminCall, namespace: NamespaceName, key: str, value: object) -> None:
    def changed(fields: dict[str, object]) -> dict[str, object]:
        left = {name: each for name, each in fields.items() if name != key}
        return left if value is None else {**left, key: value}

    await call.cluster.namespaces.update_local(namespace, changed)
