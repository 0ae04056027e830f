"""/admin/v2/clusters/{cluster}/namespaceIsolationPolicies: the brokers that may serve a namespace.

GET      {policies}                      {name: NamespaceIsolationData}; 404 there were never any
GET      {policies}/{policy}             NamespaceIsolationData; 404
POST     {policies}/{policy}             204; 400 it cannot be obeyed, 404 no such cluster
DELETE   {policies}/{policy}             204
GET      {policies}/brokers              [BrokerNamespaceIsolationData] of all registered brokers
GET      {policies}/brokers/{broker}     the same of one

A policy holds at once for bundles without an owner; those that are served elsewhere are moved by the leader at its
next round (loadBalancerSheddingIntervalMinutes). A standalone server has one broker: a policy is refused there (412).
Source: Pulsar's ClustersBase.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker.admin.cluster import brokers, clusters
from broker.admin.errors import MalformedRequestError, NotThereError, PreconditionError
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.ownership.isolation import Isolation, IsolationError, isolation_policy
from broker.ownership.isolation_store import IsolationStore
from broker.ownership.values import Json

BODY_BYTES_MAX = 1 << 20


async def every(call: AdminCall) -> Response:
    """Answer all policies of a cluster."""
    name = await _cluster(call)
    found = await _store(call).stored(name)
    if found is None:
        raise NotThereError(f"NamespaceIsolationPolicies for cluster {name} does not exist")
    return answer(found)


async def one(call: AdminCall) -> Response:
    """Answer one policy of a cluster."""
    policies, policy = await _stored(call), call.part("policy")
    if policy not in policies:
        raise NotThereError(f"NamespaceIsolationPolicies for policy {policy[:100]} does not exist")
    return answer(policies[policy])


async def put(call: AdminCall) -> None:
    """Set one policy of a cluster."""
    name, policy, data = await _cluster(call), call.part("policy"), await call.json(BODY_BYTES_MAX)
    try:
        isolation_policy(data)
        if not call.cluster.broker_id:
            raise PreconditionError("a standalone server has one broker: there is none to isolate")
        await _store(call).change(name, lambda policies: {**policies, policy: data})
    except IsolationError as error:
        raise MalformedRequestError(str(error)) from error


async def delete(call: AdminCall) -> None:
    """Remove one policy of a cluster."""
    name, policy = await _cluster(call), call.part("policy")

    def without(policies: Json) -> Json:
        return {each: data for each, data in policies.items() if each != policy}

    if await _store(call).stored(name) is not None:
        await _store(call).change(name, without)


async def every_broker(call: AdminCall) -> Response:
    """Answer the namespaces of all brokers."""
    policies = await _stored(call)
    return answer([_broker(each, policies) for each in await brokers.living(call)])


async def one_broker(call: AdminCall) -> Response:
    """Answer the namespaces of one broker."""
    return answer(_broker(call.part("broker"), await _stored(call)))


def _broker(broker_id: str, policies: Json) -> dict[str, Any]:
    expressions, is_primary = Isolation.of(policies).namespaces_of(broker_id, policies)
    return {"brokerName": broker_id, "namespaceRegex": expressions, "primary": is_primary}


async def _cluster(call: AdminCall) -> str:
    name = call.cluster_name()
    if name not in await clusters.known(call):
        raise NotThereError(f"Cluster {name} does not exist")
    return name


async def _stored(call: AdminCall) -> Json:
    return await _store(call).stored(await _cluster(call)) or {}


def _store(call: AdminCall) -> IsolationStore:
    return IsolationStore(call.cluster.metadata)
