"""Resource quotas of bundles: the load that they are expected to have; see broker.ownership.affinity.quotas.

GET, POST           /resource-quotas                                  of bundles that have none of their own
GET, POST, DELETE   /resource-quotas/{tenant}/{namespace}/{bundle}    the bundle's, or the default; 412 no such bundle

    {"msgRateIn":40.0,"msgRateOut":120.0,"bandwidthIn":100000.0,"bandwidthOut":300000.0,"memory":80.0,"dynamic":true}

A POST or DELETE answers 204. Source: Pulsar's ResourceQuotasBase, BundlesQuotas (the default, and the paths).
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, PreconditionError
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import TopicNotFoundError, translated
from broker.ownership.affinity.quotas import DEFAULT as DEFAULT_NAME
from broker.ownership.affinity.quotas import QUOTAS, SHAPE
from broker.ownership.values import encode_json
from broker.topics.policy_values import decode
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION

DEFAULT: Final[dict[str, Any]] = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    "dynamic": True,
}
"""Quota of a bundle of which nothing is stored."""
UNSET: Final[dict[str, Any]] = {**dict.fromkeys(DEFAULT, 0.0), "dynamic": True}
"""Values of what a given quota leaves out."""


async def default_quota(call: AdminCall) -> Response:
    """Answer the quota of bundles that have none of their own."""
    return answer(await _quota(call, DEFAULT_NAME) or DEFAULT)


async def quota(call: AdminCall) -> Response:
    """Answer the quota of a bundle."""
    return answer(await _quota(call, await _bundle(call)) or await _quota(call, DEFAULT_NAME) or DEFAULT)


async def put_default_quota(call: AdminCall) -> None:
    """Set the quota of bundles that have none of their own."""
    await _put(call, DEFAULT_NAME, await _given(call))


async def put_quota(call: AdminCall) -> None:
    """Set the quota of a bundle."""
    bundle = await _bundle(call)
    await _put(call, bundle, await _given(call))


async def delete_quota(call: AdminCall) -> None:
    """Delete the stored quota of a bundle, if there is one."""
    bundle = await _bundle(call)
    with translated(f"quota of {bundle}"):
        try:
            await call.cluster.metadata.delete(f"{QUOTAS}/{bundle}", ANY_VERSION)
        except NoNodeError:
            pass


async def _given(call: AdminCall) -> dict[str, Any]:
    given = SHAPE.check(await call.json(), "a resource quota", MalformedRequestError)
    return {**UNSET, **given}


async def _put(call: AdminCall, name: str, quota: dict[str, Any]) -> None:
    path, metadata = f"{QUOTAS}/{name}", call.cluster.metadata
    with translated(path):
        try:
            await metadata.create(path, encode_json(quota), make_parents=True)
        except NodeExistsError:
            await metadata.put(path, encode_json(quota), ANY_VERSION)


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


async def _quota(call: AdminCall, name: str) -> dict[str, Any] | None:
    return await _stored(call, f"{QUOTAS}/{name}")


async def _stored(call: AdminCall, path: str) -> dict[str, Any] | None:
    with translated(path):
        node = await call.cluster.metadata.get(path)
    return None if node is None else decode(node.value)
