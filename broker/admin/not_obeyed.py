"""Resources about what this broker does not have: GET tells so, and what would ask for it is refused.

GET, PUT   {namespace}/offloadThreshold, offloadThresholdInSeconds, offloadDeletionLagMs (DELETE too)    -1; -1; nothing
GET, POST  {namespace}/offloadPolicies; DELETE {namespace}/removeOffloadPolicies                         nothing
GET, POST  {namespace}/replication, allowedClusters        names of clusters: this one alone
GET, POST, DELETE  {namespace}/allowedTopicPropertyKeysForMetrics                                        []
POST       {namespace}/migration
GET, PUT   {topic}/offload                                 {"status":"NOT_RUN","lastError":""}
GET, POST  {topic}/subscription/{subscription}/replicatedSubscriptionStatus      {"persistent://...":false}

A value that asks for nothing (no limit, none, false, this cluster alone) answers 204; any other 412, and is not stored.
GET has what a taken-over cluster has stored. 404 there is no such namespace, topic or subscription.
Source: Pulsar's Namespaces, NamespacesBase, PersistentTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, PreconditionError
from broker.admin.policies import policy_topic, with_policy
from broker.admin.positions.every import on_every, subscription_of
from broker.admin.requests import AdminCall
from broker.admin.resource import Handler, Resource, answer
from broker.errors import NotAllowedError
from broker.topics.topic import Topic
from quire.service.unsupported.policies import create_problem
from quire.service.web.parameters import Flag
from quire.service.web.shapes import Listing, Text, Truth

NO_OFFLOAD: Final = "run scripts/pipelines/offload, which offloads what is closed"
_OF_NAMESPACE: Final[tuple[tuple[str, str, str, Any], ...]] = (
    ("offloadThreshold", "PUT", "offload_threshold", -1),
    ("offloadThresholdInSeconds", "PUT", "offload_threshold_in_seconds", -1),
    ("offloadDeletionLagMs", "PUT", "offload_deletion_lag_ms", None),
    ("offloadPolicies", "POST", "offload_policies", None),
    ("allowedTopicPropertyKeysForMetrics", "POST", "allowed_topic_property_keys_for_metrics", []),
)
"""Resources of a namespace: name, method that sets it, key of the policies, and what holds if nothing is stored."""
_CLUSTERS: Final = {"replication": "replication_clusters", "allowedClusters": "allowed_clusters"}
_MIGRATED: Final = Flag("migrated", "Move the topics to another cluster; refused.")
_CLUSTER_NAMES: Final = Listing(Text())
_WANTED: Final = Truth()
_DELETABLE: Final = ("offloadDeletionLagMs", "allowedTopicPropertyKeysForMetrics")


def _refuse(key: str, value: object) -> None:
    """Raise PreconditionError if a policy asks for something."""
    problem = create_problem({key: value})
    if problem is not None:
        raise PreconditionError(problem)


async def _policies(call: AdminCall) -> dict[str, Any]:
    return await call.cluster.namespaces.policies(call.namespace())


async def _forget(call: AdminCall, key: str) -> None:
    await call.cluster.namespaces.update_policies(call.namespace(), lambda fields: with_policy(fields, key, None))


async def _get(call: AdminCall, key: str, default: object) -> Response | None:
    found = (await _policies(call)).get(key)
    found = default if found is None else found
    return None if found is None else answer(found)


async def _set(call: AdminCall, key: str) -> None:
    await _policies(call)
    _refuse(key, await call.json())


async def _get_clusters(call: AdminCall, key: str) -> Response:
    found = (await _policies(call)).get(key)
    default = [call.cluster.cluster_name] if key == "replication_clusters" else []
    return answer(default if found is None else found)


async def _set_clusters(call: AdminCall, key: str) -> None:
    await _policies(call)
    given = _CLUSTER_NAMES.check(await call.json(), "the body", MalformedRequestError)
    if any(each != call.cluster.cluster_name for each in given):
        raise PreconditionError(f"not obeyed by this broker: {key} (there is no replication between clusters)")


async def _migrate(call: AdminCall) -> None:
    await _policies(call)
    if call.flag(_MIGRATED) or await call.json() is True:
        raise PreconditionError("not obeyed by this broker: migrated (topics are not moved to another cluster)")


# Topics


async def _offload_status(call: AdminCall) -> Response:
    await policy_topic(call)
    return answer({"status": "NOT_RUN", "lastError": ""})


async def _offload(call: AdminCall) -> None:
    await policy_topic(call)
    raise PreconditionError(f"brokers do not offload: {NO_OFFLOAD}")


async def _replicated(call: AdminCall) -> Response:
    name = call.subscription()

    async def work(topic: Topic) -> dict[str, bool]:
        subscription_of(topic, name)
        return {topic.name.full: False}

    found: dict[str, bool] = {}
    for each in (await on_every(call, work)).values():
        found |= each
    return answer(found)


async def _replicate(call: AdminCall) -> None:
    name = call.subscription()
    wanted = _WANTED.check(await call.json(), "the body", MalformedRequestError)

    async def work(topic: Topic) -> None:
        subscription_of(topic, name)
        if wanted:
            raise NotAllowedError("subscriptions are not replicated: there is no replication between clusters")

    await on_every(call, work, body=wanted)


def resources(at: Callable[..., Resource], topic: str, namespace: str) -> Iterator[Resource]:
    """Return the resources. `topic` and `namespace`: the beginnings of their paths."""
    for resource, method, key, default in _OF_NAMESPACE:
        handlers: dict[str, Handler] = {"GET": partial(_get, key=key, default=default), method: partial(_set, key=key)}
        if resource in _DELETABLE:
            handlers["DELETE"] = partial(_forget, key=key)
        yield at(f"{namespace}/{resource}", **handlers)
    yield at(f"{namespace}/removeOffloadPolicies", DELETE=partial(_forget, key="offload_policies"))
    for resource, key in _CLUSTERS.items():
        yield at(f"{namespace}/{resource}", GET=partial(_get_clusters, key=key), POST=partial(_set_clusters, key=key))
    yield at(f"{namespace}/migration", POST=_migrate)
    yield at(f"{topic}/offload", GET=_offload_status, PUT=_offload)
    yield at(f"{topic}/subscription/{{subscription}}/replicatedSubscriptionStatus", GET=_replicated, POST=_replicate)
