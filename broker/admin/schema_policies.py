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
    if call.flag("applied"):
        return answer(call.administration.schemas.defaults.enforces(policies, None))
    return answer(policies.get(NAMESPACE_ENFORCED) is True)


def _put(key: str, choices: tuple[str, ...] | None) -> Handler:
    """Return the handler that stores one of `choices`, or true or false, for a namespace."""

    async def put(call: AdminCall) -> None:
        namespace, value = call.namespace(), checked(await call.json(), key, choices)
        await call.cluster.namespaces.update_policies(namespace, lambda policies: with_policy(policies, key, value))

    return put


NAMESPACE_CHOICES: Final[Mapping[str, tuple[str, ...] | None]] = {
    NAMESPACE_STRATEGY: STRATEGIES,
    NAMESPACE_AUTO_UPDATE_STRATEGY: AUTO_UPDATE_STRATEGIES,
    NAMESPACE_AUTO_UPDATE: None,
    NAMESPACE_ENFORCED: None,
}
"""Values of the policies of a namespace; None: true or false."""
put_strategy = _put(NAMESPACE_STRATEGY, STRATEGIES)
put_auto_update_strategy = _put(NAMESPACE_AUTO_UPDATE_STRATEGY, AUTO_UPDATE_STRATEGIES)
post_auto_update = _put(NAMESPACE_AUTO_UPDATE, None)
post_enforced = _put(NAMESPACE_ENFORCED, None)


async def get_topic_strategy(call: AdminCall) -> Response | None:
    name = await policy_topic(call)
    if call.flag("applied"):
        return answer(
            call.administration.schemas.rules_of(name, await call.cluster.policies.fresh(name)).strategy.value
        )
    found = (await own_policies(call, name) or {}).get(TOPIC_STRATEGY)
    return None if found is None else answer(found)


async def get_topic_enforced(call: AdminCall) -> Response | None:
    name = await policy_topic(call)
    if call.flag("applied"):
        return answer(call.administration.schemas.rules_of(name, await call.cluster.policies.fresh(name)).enforced)
    return answer(bool((await own_policies(call, name) or {}).get(TOPIC_ENFORCED)))


def _put_topic(key: str, choices: tuple[str, ...] | None) -> Handler:
    async def put(call: AdminCall) -> None:
        name, value = await policy_topic(call), checked(await call.json(), key, choices)
        await change_own(call, name, lambda policies: with_policy(policies, key, value))

    return put


def _delete_topic(key: str) -> Handler:
    async def delete(call: AdminCall) -> None:
        await change_own(
            call, await policy_topic(call), lambda policies: with_policy(policies, key, None), removes=True
        )

    return delete


put_topic_strategy = _put_topic(TOPIC_STRATEGY, STRATEGIES)
delete_topic_strategy = _delete_topic(TOPIC_STRATEGY)
post_topic_enforced = _put_topic(TOPIC_ENFORCED, None)
delete_topic_enforced = _delete_topic(TOPIC_ENFORCED)


def checked(value: object, key: str, choices: tuple[str, ...] | None) -> str | bool:
    """Return a value that may be stored. Raises PreconditionError."""
    if choices is None:
        if not isinstance(value, bool):
            raise PreconditionError(f"{key} must be true or false, not {str(value)[:100]!a}")
        return value
    if not isinstance(value, str) or value not in choices:
        raise PreconditionError(f"{key} must be one of {', '.join(choices)}, not {str(value)[:100]!a}")
    return value
