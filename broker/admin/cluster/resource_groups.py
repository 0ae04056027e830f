"""Resource groups: rates that the topics of some namespaces share.

GET      /resourcegroups                                 names
GET      /resourcegroups/{group}                         ResourceGroup; 404
PUT      /resourcegroups/{group}                         204: made, or those of its rates changed that are given
DELETE   /resourcegroups/{group}                         204; 404, 412 a namespace names it
GET      {namespace}/resourcegroup                       name, or nothing
POST     {namespace}/resourcegroup/{group}               204; 412 there is no such group
DELETE   {namespace}/resourcegroup                       204

    {"publishRateInMsgs":10,"publishRateInBytes":1000,"dispatchRateInMsgs":20,"dispatchRateInBytes":2000}

-1 is no limit. What the original has beside these rates concerns replication between clusters, and is refused.
Source: Pulsar's ResourceGroupsBase, ResourceGroupResources (the path), NamespacesBase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, NotThereError, PreconditionError
from broker.admin.openapi.parameters import INT32_MAX, INT64_MAX
from broker.admin.policies import with_policy
from broker.admin.requests import AdminCall
from broker.admin.resource import Resource, answer, text
from broker.errors import translated
from broker.ownership.values import encode_json
from broker.topics.policy_values import decode
from broker.topics.rates.group_following import GROUPS, RATES
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION
from quire.metadata.update_loop import update_node
from quire.service.web.shapes import ByName, Record, Whole

KEY: Final = "resource_group_name"
_BODY: Final = Record(
    {
        "publishRateInMsgs": Whole(-1, INT32_MAX),
        "publishRateInBytes": Whole(-1, INT64_MAX),
        "dispatchRateInMsgs": Whole(-1, INT32_MAX),
        "dispatchRateInBytes": Whole(-1, INT64_MAX),
        "replicationDispatchRateInMsgs": Whole(-1, -1),
        "replicationDispatchRateInBytes": Whole(-1, -1),
        "replicatorDispatchRate": ByName(Record({})),
    }
)
_UNSET: Final = dict.fromkeys(RATES, -1)


async def names(call: AdminCall) -> Response:
    """Answer the names of the groups."""
    with translated("resource groups"):
        try:
            return answer(await call.cluster.metadata.children(GROUPS))
        except NoNodeError:
            return answer([])


async def get(call: AdminCall) -> Response:
    """Answer a group."""
    name = _name(call)
    found = await _stored(call, name)
    if found is None:
        raise _no_such_group(name)
    return answer(found)


async def put(call: AdminCall) -> None:
    """Make a group, or change those rates of it that are given."""
    path = f"{GROUPS}/{_name(call)}"
    given = _BODY.check(await call.json(), "a resource group", MalformedRequestError)
    if given.get("replicatorDispatchRate"):
        raise PreconditionError("not obeyed by this broker: replicatorDispatchRate (there is no replication)")
    rates = {key: value for key, value in given.items() if value is not None and key in _BODY.fields}
    metadata = call.cluster.metadata
    with translated(path):
        try:
            await update_node(metadata, path, lambda value: encode_json({**decode(value), **rates}))
        except NoNodeError:
            try:
                await metadata.create(path, encode_json({**_UNSET, **rates}), make_parents=True)
            except NodeExistsError:
                await update_node(metadata, path, lambda value: encode_json({**decode(value), **rates}))


async def delete(call: AdminCall) -> None:
    """Delete a group that no namespace names."""
    name = _name(call)
    if await _stored(call, name) is None:
        raise _no_such_group(name)
    namespaces = call.cluster.namespaces
    for tenant in await namespaces.tenants():
        for each in await namespaces.names(tenant):
            if (await namespaces.policies(each)).get(KEY) == name:
                raise PreconditionError(f"resource group {name} is in use by namespace {each}")
    with translated(f"resource group {name}"):
        try:
            await call.cluster.metadata.delete(f"{GROUPS}/{name}", ANY_VERSION)
        except NoNodeError as error:
            raise _no_such_group(name) from error


async def of_namespace(call: AdminCall) -> Response | None:
    """Answer the name of the group that a namespace is in."""
    found = (await call.cluster.namespaces.policies(call.namespace())).get(KEY)
    return None if found is None else text(found)


async def put_namespace(call: AdminCall) -> None:
    """Put a namespace into a group."""
    name = _name(call)
    await call.cluster.namespaces.policies(call.namespace())
    if await _stored(call, name) is None:
        raise PreconditionError(f"ResourceGroup does not exist: {name[:100]}")
    await call.cluster.namespaces.update_policies(call.namespace(), lambda fields: with_policy(fields, KEY, name))


async def delete_namespace(call: AdminCall) -> None:
    """Take a namespace out of its group."""
    await call.cluster.namespaces.update_policies(call.namespace(), lambda fields: with_policy(fields, KEY, None))


def _name(call: AdminCall) -> str:
    name = call.part("group")
    if not name or "/" in name or name in (".", ".."):
        raise PreconditionError(f"{name[:100]!a} cannot be the name of a resource group")
    return name


def _no_such_group(name: str) -> NotThereError:
    return NotThereError(f"ResourceGroup does not exist: {name[:100]}")


async def _stored(call: AdminCall, name: str) -> dict[str, Any] | None:
    path = f"{GROUPS}/{name}"
    with translated(path):
        node = await call.cluster.metadata.get(path)
    return None if node is None else decode(node.value)


def resources(at: Callable[..., Resource], namespace: str) -> Iterator[Resource]:
    """Return the resources. `namespace`: the beginning of the paths of a namespace."""
    yield at("/admin/v2/resourcegroups", GET=names)
    yield at("/admin/v2/resourcegroups/{group}", GET=get, PUT=put, DELETE=delete)
    yield at(f"{namespace}/resourcegroup", GET=of_namespace, DELETE=delete_namespace)
    yield at(f"{namespace}/resourcegroup/{{group}}", POST=put_namespace)
