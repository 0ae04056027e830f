"""Policies about the schemas of a namespace and of a topic.

GET, PUT            {namespace}/schemaCompatibilityStrategy            "FORWARD"; "UNDEFINED": broker.conf's
GET, PUT            {namespace}/schemaAutoUpdateCompatibilityStrategy  "Forward": the older form; 204 not set
GET, POST           {namespace}/isAllowAutoUpdateSchema                true
GET, POST           {namespace}/schemaValidationEnforced               false; GET with ?applied=true: broker.conf counts
GET, PUT, DELETE    {topic}/schemaCompatibilityStrategy                the same of a topic; GET with ?applied=true: the
GET, POST, DELETE   {topic}/schemaValidationEnforced                   effective value; 204 not set

Each PUT, POST and DELETE answers 204; 412 an invalid value. A change holds for the next producer, consumer or schema.
Any broker answers. Source: Pulsar's NamespacesBase, PersistentTopics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from broker.admin.errors import PreconditionError
from broker.admin.openapi.parameters import APPLIED
from broker.admin.policies import change_own, own_policies, policy_topic, with_policy
from broker.admin.requests import AdminCall
from broker.admin.resource import Handler, answer
from broker.config import STRATEGIES
from broker.topics.schemas.strategies import (
    AUTO_UPDATE_STRATEGIES,
    NAMESPACE_AUTO_UPDATE,
    NAMESPACE_AUTO_UPDATE_STRATEGY,
    NAMESPACE_ENFORCED,
    NAMESPACE_STRATEGY,
    TOPIC_ENFORCED,
    TOPIC_STRATEGY,
)
from quire.service.web.shapes import OneText, Shape, Truth


async def get_strategy(call: AdminCall) -> Response:
    found = (await call.cluster.namespaces.policies(call.namespace())).get(NAMESPACE_STRATEGY)
    return answer(found or "UNDEFINED")


async def get_auto_update_strategy(call: AdminCall) -> Response | None:
    found = (await call.cluster.namespaces.policies(call.namespace())).get(NAMESPACE_AUTO_UPDATE_STRATEGY)
    return None if found is None else answer(found)


async def get_auto_update(call: AdminCall) -> Response:
    found = (await call.cluster.namespaces.policies(call.namespace())).get(NAMESPACE_AUTO_UPDATE)
    return answer(found if isinstance(found, bool) else call.administration.schemas.defaults.auto_update)


async def get_enforced(call: AdminCall) -> Response:
    policies = await call.cluster.namespaces.policies(call.namespace())
    if call.flag(APPLIED):
        return answer(call.administration.schemas.defaults.enforces(policies, None))
    return answer(policies.get(NAMESPACE_ENFORCED) is True)


def _put(key: str, shape: Shape) -> Handler:
    """Return the handler that stores a value for a namespace."""

    async def put(call: AdminCall) -> None:
        namespace, value = call.namespace(), shape.check(await call.json(), key, PreconditionError)
        await call.cluster.namespaces.update_policies(namespace, lambda policies: with_policy(policies, key, value))

    return put


NAMESPACE_CHOICES: Final[Mapping[str, Shape]] = {
    NAMESPACE_STRATEGY: OneText(STRATEGIES),
    NAMESPACE_AUTO_UPDATE_STRATEGY: OneText(AUTO_UPDATE_STRATEGIES),
    NAMESPACE_AUTO_UPDATE: Truth(),
    NAMESPACE_ENFORCED: Truth(),
}
"""Values of the policies of a namespace."""
put_strategy = _put(NAMESPACE_STRATEGY, NAMESPACE_CHOICES[NAMESPACE_STRATEGY])
put_auto_update_strategy = _put(NAMESPACE_AUTO_UPDATE_STRATEGY, NAMESPACE_CHOICES[NAMESPACE_AUTO_UPDATE_STRATEGY])
post_auto_update = _put(NAMESPACE_AUTO_UPDATE, Truth())
post_enforced = _put(NAMESPACE_ENFORCED, Truth())


async def get_topic_strategy(call: AdminCall) -> Response | None:
    name = await policy_topic(call)
    if call.flag(APPLIED):
        return answer(
            call.administration.schemas.rules_of(name, await call.cluster.policies.fresh(name)).strategy.value
        )
    found = (await own_policies(call, name) or {}).get(TOPIC_STRATEGY)
    return None if found is None else answer(found)


async def get_topic_enforced(call: AdminCall) -> Response | None:
    name = await policy_topic(call)
    if call.flag(APPLIED):
        return answer(call.administration.schemas.rules_of(name, await call.cluster.policies.fresh(name)).enforced)
    return answer(bool((await own_policies(call, name) or {}).get(TOPIC_ENFORCED)))


def _put_topic(key: str, shape: Shape) -> Handler:
    async def put(call: AdminCall) -> None:
        name, value = await policy_topic(call), shape.check(await call.json(), key, PreconditionError)
        await change_own(call, name, lambda policies: with_policy(policies, key, value))

    return put


def _delete_topic(key: str) -> Handler:
    async def delete(call: AdminCall) -> None:
        await change_own(
            call, await policy_topic(call), lambda policies: with_policy(policies, key, None), removes=True
        )

    return delete


put_topic_strategy = _put_topic(TOPIC_STRATEGY, OneText(STRATEGIES))
delete_topic_strategy = _delete_topic(TOPIC_STRATEGY)
post_topic_enforced = _put_topic(TOPIC_ENFORCED, Truth())
delete_topic_enforced = _delete_topic(TOPIC_ENFORCED)
