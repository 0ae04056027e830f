"""Policies of a namespace and of a topic: persistence, retention, deduplication, delayed delivery, expiry.

GET      {namespace}/persistence     {"bookkeeperEnsemble":3,"bookkeeperWriteQuorum":3,"bookkeeperAckQuorum":2,
                                      "managedLedgerMaxMarkDeleteRate":0.0}; 204 if none is set
POST     {namespace}/persistence     204; 400 an invalid value; 412 one that asks for more bookies than there can be
DELETE   {namespace}/persistence     204
GET, POST, DELETE   {namespace}/retention     {"retentionTimeInMinutes":10,"retentionSizeInMB":100}, the same way
GET, POST, DELETE   {topic}/persistence, {topic}/retention
                                     the same of a topic; GET with ?applied=true: the effective value
GET, POST, DELETE   {namespace}/deduplication, {topic}/deduplicationEnabled
                                     true or false, the same way: whether duplicates of a producer are dropped
GET, POST, DELETE   {namespace}/deduplicationSnapshotInterval, {topic}/deduplicationSnapshotInterval
                                     seconds
GET, POST, DELETE   {namespace}/delayedDelivery, {topic}/delayedDelivery
                                     {"tickTime":1000,"active":true,"maxDeliveryDelayInMillis":0}, the same way
GET, POST           {namespace}/encryptionRequired            true or false: producers and messages have to be encrypted
GET, POST, DELETE   {namespace}/messageTTL                    seconds; 0: messages do not expire; the same way
GET, POST, DELETE   {topic}/messageTTL                        the same; POST has it in its query, ?messageTTL=
GET, POST, DELETE   {namespace}/subscriptionExpirationTime    minutes; 0: subscriptions do not expire; the same way

A change of persistence or retention applies to the next ledger of every affected topic and to the next trimming of
ledgers; of deduplication at once; of delayed delivery to the next messages, and within 10 s to those that wait; of
expiry to the next check. Any broker answers.

Source: Pulsar's NamespacesBase, PersistentTopics, AdminResource.validatePersistencePolicies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, PreconditionError
from broker.admin.openapi.parameters import APPLIED, INT64_MAX, IS_GLOBAL
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall
from broker.admin.resource import Handler, answer
from broker.errors import TopicNotFoundError
from broker.ownership.values import Json
from broker.topics import policy_values
from broker.topics.delayed_delivery import (
    NAMESPACE_DELAYED,
    TOPIC_DELAYED,
    delayed_as_shown,
    delayed_delivery,
    delayed_of,
    delayed_of_topic,
)
from broker.topics.policies import Held
from broker.topics.policy_values import (
    PolicyError,
    interval,
    message_ttl,
    persistence,
    persistence_of,
    retention,
    retention_of,
    subscription_expiration,
    switch,
)
from broker.topics.topic_policies.catalog import MESSAGE_TTL
from quire.service.web.parameters import WholeNumber
from quire.wire.pulsar.names import PERSISTENT, TopicName

Checked = Callable[[object], Any]
"""Return the value as it is stored. Raises PolicyError."""
Shown = Callable[[AdminCall, Held], Any]
"""Return the effective value for a topic."""
Given = Callable[[AdminCall], Awaitable[object]]
"""Return the value that a request sets."""

_BAD_REQUEST: Final = frozenset((persistence, retention))
"""Checks whose refusals the original calls bad requests."""
_TTL = WholeNumber("messageTTL", "Seconds; 0: messages do not expire.", -INT64_MAX, INT64_MAX, needed=True)


@dataclass(frozen=True, slots=True)
class Handlers:
    """Handlers of one policy."""

    get: Handler
    post: Handler
    delete: Handler


def _of_namespace(key: str, checked: Checked) -> Handlers:
    async def get(call: AdminCall) -> Response | None:
        found = (await call.cluster.namespaces.policies(call.namespace())).get(key)
        return None if found is None else answer(found)

    async def post(call: AdminCall) -> None:
        namespace, value = call.namespace(), await _value(call, checked)
        await call.cluster.namespaces.update_policies(namespace, lambda policies: with_policy(policies, key, value))

    async def delete(call: AdminCall) -> None:
        namespace = call.namespace()
        await call.cluster.namespaces.update_policies(namespace, lambda policies: with_policy(policies, key, None))

    return Handlers(get, post, delete)


def _of_topic(key: str, checked: Checked, shown: Shown, given: Given = AdminCall.json) -> Handlers:
    async def get(call: AdminCall) -> Response | None:
        name = await policy_topic(call)
        if call.flag(APPLIED):
            return answer(shown(call, await call.cluster.policies.fresh(name)))
        found = (await own_policies(call, name) or {}).get(key)
        return None if found is None else answer(found)

    async def post(call: AdminCall) -> None:
        name, value = await policy_topic(call), check_policy(call, checked, await given(call), alone=True)
        await change_own(call, name, lambda policies: with_policy(policies, key, value))

    async def delete(call: AdminCall) -> None:
        await change_own(
            call, await policy_topic(call), lambda policies: with_policy(policies, key, None), removes=True
        )

    return Handlers(get, post, delete)


async def get_encryption(call: AdminCall) -> Response:
    return answer((await call.cluster.namespaces.policies(call.namespace())).get("encryption_required") or False)


async def delete_own(call: AdminCall) -> None:
    """Delete all policies that a topic has itself."""
    name = await policy_topic(call)
    if await call.cluster.policies.get(name) is None and await call.cluster.policies.get(name, is_global=True) is None:
        return
    await at_owner(call, await call.cluster.policies.log_of(name))
    await call.cluster.policies.delete(name)


async def _get_delayed_of_topic(call: AdminCall) -> Response | None:
    name = await policy_topic(call)
    if call.flag(APPLIED):
        return answer(delayed_as_shown((await call.cluster.policies.fresh(name)).delayed_delivery()))
    found = delayed_of_topic(await own_policies(call, name))
    return None if found is None else answer(found)


async def _post_delayed_of_topic(call: AdminCall) -> None:
    name, value = await policy_topic(call), await _value(call, delayed_delivery)
    await change_own(call, name, lambda policies: policies | delayed_of(value))


async def _delete_delayed_of_topic(call: AdminCall) -> None:
    def without(policies: Json) -> Json:
        return {key: value for key, value in policies.items() if key not in TOPIC_DELAYED}

    await change_own(call, await policy_topic(call), without, removes=True)


async def policy_topic(call: AdminCall) -> TopicName:
    """Return the topic's name. Raises TopicNotFoundError if there is no topic of that name, partitioned or not."""
    name = call.topic()
    if await call.administration.partitions(name):
        return name
    if name.domain == PERSISTENT:
        exists = await call.administration.exists(name)
    else:
        exists = name in await call.administration.direct.names_everywhere(name.namespace_name)
    if not exists:
        raise TopicNotFoundError(f"topic {name.full} does not exist")
    return name


async def own_policies(call: AdminCall, name: TopicName) -> Json | None:
    """Return the policies that a topic has itself: for this cluster, or with ?isGlobal=true for all clusters."""
    return await call.cluster.policies.get(name, is_global=call.flag(IS_GLOBAL))


async def change_own(
    call: AdminCall, name: TopicName, change: Callable[[Json], Json], *, removes: bool = False
) -> None:
    """Change the policies that a topic has itself, at the owner of the log that holds them. `removes`: nothing is to
    be done where there are none.

    Raises RedirectError if another broker has to do it."""
    is_global = call.flag(IS_GLOBAL)
    if removes and await call.cluster.policies.get(name, is_global=is_global) is None:
        return
    await at_owner(call, await call.cluster.policies.log_of(name))
    await call.cluster.policies.update(name, change, is_global=is_global)


async def _value(call: AdminCall, checked: Checked) -> Any:
    return check_policy(call, checked, await call.json(), alone=True)


async def _ttl_of_query(call: AdminCall) -> object:
    """Return the number of seconds, which a request about a topic has in its query. Raises ParameterError."""
    return call.whole(_TTL)


def _ttl_of(call: AdminCall, held: Held) -> int:
    return held.value(MESSAGE_TTL)


def _interval_or_none(value: object) -> int | None:
    """Return an interval; None takes it away. Source: Java's removeDeduplicationSnapshotInterval sends null."""
    return None if value is None else interval(value)


def check_policy(call: AdminCall, checked: Checked, value: object, *, alone: bool = False) -> Any:
    """Return the value as it is stored. Raises PreconditionError, also for a value with which no ledger could be
    created; MalformedRequestError if the value came `alone` and the original calls an invalid one a bad request."""
    try:
        found = checked(value)
    except PolicyError as error:
        if alone and checked in _BAD_REQUEST:
            raise MalformedRequestError(str(error)) from error
        raise PreconditionError(str(error)) from error
    most = call.cluster.ensemble_max
    if most and isinstance(found, dict) and found.get("bookkeeperEnsemble", 0) > most:
        raise PreconditionError(
            f"bookkeeperEnsemble={found['bookkeeperEnsemble']} is above the number of bookies here, {most}: no ledger "
            "could be created"
        )
    return found


def with_policy(policies: Json, key: str, value: Any) -> Json:
    """Return policies with one changed; None takes it away."""
    rest = {each: found for each, found in policies.items() if each != key or value is not None}
    return rest if value is None else {**rest, key: value}


NAMESPACE_PERSISTENCE = _of_namespace(policy_values.PERSISTENCE, persistence)
NAMESPACE_RETENTION = _of_namespace(policy_values.NAMESPACE_RETENTION, retention)
NAMESPACE_DEDUPLICATION = _of_namespace(policy_values.DEDUPLICATION, switch)
NAMESPACE_SNAPSHOT_INTERVAL = _of_namespace(policy_values.SNAPSHOT_INTERVAL, _interval_or_none)
NAMESPACE_DELAYED_DELIVERY = _of_namespace(NAMESPACE_DELAYED, delayed_delivery)
NAMESPACE_TTL = _of_namespace(policy_values.NAMESPACE_TTL, message_ttl)
SUBSCRIPTION_EXPIRATION = _of_namespace(policy_values.SUBSCRIPTION_EXPIRATION, subscription_expiration)
NAMESPACE_ENCRYPTION = _of_namespace("encryption_required", switch)
TOPIC_PERSISTENCE = _of_topic(policy_values.PERSISTENCE, persistence, lambda _, held: persistence_of(held()))
TOPIC_RETENTION = _of_topic(policy_values.TOPIC_RETENTION, retention, lambda _, held: retention_of(held()))
TOPIC_DEDUPLICATION = _of_topic(policy_values.DEDUPLICATION, switch, lambda _, held: held.asks_deduplication())
TOPIC_SNAPSHOT_INTERVAL = _of_topic(
    policy_values.SNAPSHOT_INTERVAL, interval, lambda _, held: held.snapshot_interval_s()
)
TOPIC_DELAYED_DELIVERY = Handlers(_get_delayed_of_topic, _post_delayed_of_topic, _delete_delayed_of_topic)
TOPIC_TTL = _of_topic(policy_values.TOPIC_TTL, message_ttl, _ttl_of, _ttl_of_query)
