"""Limits, rates, quotas and rules of a namespace and of a topic, as broker.topics.topic_policies.catalog has them.

GET, POST, DELETE   {topic}/RESOURCE        what the topic says itself, 204 if nothing; with ?applied=true what holds;
                                            with ?isGlobal=true what it says for all clusters
GET, POST, DELETE   {namespace}/RESOURCE    the same of a namespace
GET                 .../backlogQuotaMap     {"destination_storage":{"limitSize":9,"limitTime":-1,"policy":"..."}}
POST, DELETE        .../backlogQuota?backlogQuotaType=     one of them; 412: it is above the retention
GET, POST, DELETE   {topic}/{subscription}/dispatchRate    of one subscription
GET, DELETE         .../offloadPolicies, {topic}/replication, {topic}/shadowTopics     204: there are none
GET, POST, DELETE   non-persistent/.../{topic}/RESOURCE    OF_DIRECT_TOPIC
GET, POST, DELETE   {topic}/quireTopicPolicies             between brokers

A POST answers 204; 412 an invalid value, or one that would not be obeyed, which is then not stored. The owner of the
topic's `__change_events` carries out a change of a topic's policies; other brokers redirect to it (307). A namespace's
rates are stored for this cluster.

Source: Pulsar's PersistentTopics, PersistentTopicsBase, Namespaces, NamespacesBase.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, NotThereError, PreconditionError
from broker.admin.openapi.parameters import APPLIED
from broker.admin.policies import Handlers, change_own, check_policy, own_policies, policy_topic, with_policy
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall
from broker.admin.resource import Handler, Resource, answer
from broker.ownership.values import Json
from broker.topics.policy_values import NAMESPACE_RETENTION, retention_of
from broker.topics.quotas.quota import fits
from broker.topics.topic_policies import catalog
from broker.topics.topic_policies.catalog import SUBSCRIPTION_POLICIES, Policy
from broker.topics.topic_policies.kinds import DESTINATION_STORAGE, QUOTA_TYPES
from broker.topics.topic_policies.source import is_change_events, position_of
from quire.service.unsupported.policies import create_problem
from quire.service.web.parameters import OneOf, Parameter

OF_TOPIC: Final[dict[str, Policy[Any]]] = {
    "maxProducers": catalog.MAX_PRODUCERS,
    "maxConsumers": catalog.MAX_CONSUMERS,
    "maxSubscriptionsPerTopic": catalog.MAX_SUBSCRIPTIONS,
    "maxConsumersPerSubscription": catalog.MAX_CONSUMERS_OF_SUBSCRIPTION,
    "maxUnackedMessagesOnConsumer": catalog.MAX_UNACKED_OF_CONSUMER,
    "maxUnackedMessagesOnSubscription": catalog.MAX_UNACKED_OF_SUBSCRIPTION,
    "maxMessageSize": catalog.MAX_MESSAGE_SIZE,
    "subscriptionExpirationTime": catalog.SUBSCRIPTION_EXPIRATION,
    "compactionThreshold": catalog.COMPACTION_THRESHOLD,
    "dispatchRate": catalog.DISPATCH_RATE,
    "subscriptionDispatchRate": catalog.SUBSCRIPTION_DISPATCH_RATE,
    "replicatorDispatchRate": catalog.REPLICATOR_DISPATCH_RATE,
    "publishRate": catalog.PUBLISH_RATE,
    "subscribeRate": catalog.SUBSCRIBE_RATE,
    "inactiveTopicPolicies": catalog.INACTIVE_TOPICS,
    "autoSubscriptionCreation": catalog.AUTO_SUBSCRIPTION_CREATION,
    "subscriptionTypesEnabled": catalog.SUBSCRIPTION_TYPES,
    "entryFilters": catalog.ENTRY_FILTERS,
    "dispatcherPauseOnAckStatePersistent": catalog.PAUSE_ON_ACK_STATE,
}
OF_DIRECT_TOPIC: Final = (
    "maxProducers",
    "maxConsumers",
    "maxSubscriptionsPerTopic",
    "maxConsumersPerSubscription",
    "maxMessageSize",
    "publishRate",
    "inactiveTopicPolicies",
)
"""Resources of non-persistent topics: others have no effect where nothing is stored. Their values outlive the topic."""
OF_NAMESPACE: Final[dict[str, Policy[Any]]] = {
    "maxProducersPerTopic": catalog.MAX_PRODUCERS,
    "maxConsumersPerTopic": catalog.MAX_CONSUMERS,
    "maxSubscriptionsPerTopic": catalog.MAX_SUBSCRIPTIONS,
    "maxConsumersPerSubscription": catalog.MAX_CONSUMERS_OF_SUBSCRIPTION,
    "maxUnackedMessagesPerConsumer": catalog.MAX_UNACKED_OF_CONSUMER,
    "maxUnackedMessagesPerSubscription": catalog.MAX_UNACKED_OF_SUBSCRIPTION,
    "maxTopicsPerNamespace": catalog.MAX_TOPICS,
    "compactionThreshold": catalog.COMPACTION_THRESHOLD,
    "dispatchRate": catalog.DISPATCH_RATE,
    "subscriptionDispatchRate": catalog.SUBSCRIPTION_DISPATCH_RATE,
    "replicatorDispatchRate": catalog.REPLICATOR_DISPATCH_RATE,
    "publishRate": catalog.PUBLISH_RATE,
    "subscribeRate": catalog.SUBSCRIBE_RATE,
    "inactiveTopicPolicies": catalog.INACTIVE_TOPICS,
    "autoTopicCreation": catalog.AUTO_TOPIC_CREATION,
    "autoSubscriptionCreation": catalog.AUTO_SUBSCRIPTION_CREATION,
    "subscriptionTypesEnabled": catalog.SUBSCRIPTION_TYPES,
    "entryFilters": catalog.ENTRY_FILTERS,
    "dispatcherPauseOnAckStatePersistent": catalog.PAUSE_ON_ACK_STATE,
}
_SET_BY_PUT: Final = frozenset(("compactionThreshold",))
"""Resources of a namespace."""
_SET_WITHOUT_BODY: Final = frozenset(("dispatcherPauseOnAckStatePersistent",))
"""A POST without a body means true."""
_EMPTY: Final[Mapping[str, object]] = {"subscriptionTypesEnabled": []}
"""Values that a topic with policies shows of those not set; of the others it shows nothing."""
_UNSET_OF_NAMESPACE: Final[Mapping[str, object]] = {
    "maxTopicsPerNamespace": 0,
    "subscriptionTypesEnabled": [],
    "dispatcherPauseOnAckStatePersistent": False,
}
"""Values that a namespace shows of those not set. Pulsar's Java client fails at an empty answer for a number."""
_EXPIRATION: Final = Parameter("subscriptionExpirationTime", "Minutes; 0: subscriptions are kept. In place of a body.")
_IN_QUERY: Final = frozenset((_EXPIRATION.name,))
"""Resources of a topic whose value Pulsar's clients send as a parameter of their name, without a body."""
_NOT_OF_TOPIC: Final = {
    "offloadPolicies": "offloadPolicies",
    "replication": "replicationClusters",
    "shadowTopics": "shadowTopics",
}
"""Resources of policies that are not obeyed, with their keys."""
_QUOTA_TYPE: Final = OneOf("backlogQuotaType", "Quota that is meant.", QUOTA_TYPES, DESTINATION_STORAGE)
_SINCE: Final = Parameter("since", "Position from which on changes are wanted, ledger:entry.")
_QUOTAS: Final = dict(zip(QUOTA_TYPES, (catalog.BACKLOG_SIZE_QUOTA, catalog.BACKLOG_TIME_QUOTA), strict=True))

Change = Callable[[Json], Json]


def with_value(fields: Json, key: str, entry: str, value: Any) -> Json:
    """Return policies with one value changed, or one entry of it; None takes it away.

    >>> with_value({"a": {"x": 1}}, "a", "x", None)
    {}
    >>> with_value({"a": {"x": 1}}, "a", "y", 2)
    {'a': {'x': 1, 'y': 2}}
    """
    if not entry:
        return with_policy(fields, key, value)
    before = fields.get(key)
    return with_policy(fields, key, with_policy(before if isinstance(before, dict) else {}, entry, value) or None)


def checked(call: AdminCall, policy: Policy[Any], value: object, key: str, entry: str) -> Any:
    """Return the stored form of a value. Raises PreconditionError if it may not be set, or would not be obeyed."""
    stored = check_policy(call, partial(policy.checked, options=call.cluster.policies.defaults.options), value)
    problem = create_problem({key: {entry: stored} if entry else stored})
    if problem is not None:
        raise PreconditionError(problem)
    return stored


async def _given(call: AdminCall, resource: str) -> object:
    body = await call.json()
    if body is None and resource in _IN_QUERY:
        text = call.given(_EXPIRATION) or ""
        return int(text) if re.fullmatch("-?[0-9]{1,10}", text) else body
    return True if body is None and resource in _SET_WITHOUT_BODY else body


def _topic_handlers(resource: str, policy: Policy[Any]) -> Handlers:
    async def get(call: AdminCall) -> Response | None:
        name = await policy_topic(call)
        if call.flag(APPLIED):
            held = await call.cluster.policies.fresh(name)
            counts = policy.counts(held.defaults.options)
            return answer(policy.to_json(held.value(policy) if counts else held.defaults.value(policy)))
        own = await own_policies(call, name)
        found = None if own is None else own.get(policy.topic, _EMPTY.get(resource))
        if found is None and resource == "dispatcherPauseOnAckStatePersistent":
            found = False
        return None if found is None else answer(found)

    async def post(call: AdminCall) -> None:
        name = await policy_topic(call)
        value = checked(call, policy, await _given(call, resource), policy.topic, "")
        await change_own(call, name, lambda fields: with_policy(fields, policy.topic, value))

    async def delete(call: AdminCall) -> None:
        name = await policy_topic(call)
        await change_own(call, name, lambda fields: with_policy(fields, policy.topic, None), removes=True)

    return Handlers(get, post, delete)


def _namespace_handlers(resource: str, policy: Policy[Any]) -> Handlers:
    def entry(call: AdminCall) -> str:
        return call.cluster.cluster_name if policy.by_cluster else ""

    async def change(call: AdminCall, value: Any) -> None:
        """Set the policy under each of its keys, of which older brokers read the later ones; None takes it away."""

        def changed(fields: Json) -> Json:
            for key in policy.namespace:
                fields = with_value(fields, key, entry(call), value)
            return fields

        await _change_namespace(call, changed)

    async def get(call: AdminCall) -> Response | None:
        fields = await call.cluster.namespaces.policies(call.namespace())
        for each in policy.namespace:
            found = fields.get(each)
            if found is not None and policy.by_cluster:
                found = found.get(entry(call)) if isinstance(found, dict) else None
            if found is not None:
                return answer(found)
        return answer(_UNSET_OF_NAMESPACE[resource]) if resource in _UNSET_OF_NAMESPACE else None

    async def post(call: AdminCall) -> None:
        await change(call, checked(call, policy, await _given(call, resource), policy.namespace[0], entry(call)))

    async def delete(call: AdminCall) -> None:
        await change(call, None)

    return Handlers(get, post, delete)


async def _change_namespace(call: AdminCall, change: Change) -> None:
    await call.cluster.namespaces.update_policies(call.namespace(), change)


# Quotas


def _quota_type(call: AdminCall) -> str:
    return call.choice(_QUOTA_TYPE)


async def _given_quota(call: AdminCall, kind: str, key: str, retention: Mapping[str, Any] | None) -> Any:
    """Return the quota that a request sets. Raises PreconditionError, also for one that the retention exceeds."""
    policy = _QUOTAS[kind]
    value = checked(call, policy, await call.json(), key, kind)
    if not fits(policy.read(value), retention):
        raise PreconditionError(
            "Backlog Quota exceeds configured retention quota. Please increase retention quota and retry"
        )
    return value


async def _topic_quotas(call: AdminCall) -> Response:
    name = await policy_topic(call)
    if call.flag(APPLIED):
        held = await call.cluster.policies.fresh(name)
        return answer({kind: policy.to_json(held.value(policy)) for kind, policy in _QUOTAS.items()})
    return answer((await own_policies(call, name) or {}).get(catalog.BACKLOG_SIZE_QUOTA.topic) or {})


async def _namespace_quotas(call: AdminCall) -> Response:
    fields = await call.cluster.namespaces.policies(call.namespace())
    return answer(fields.get(catalog.BACKLOG_SIZE_QUOTA.namespace[0]) or {})


async def _put_topic_quota(call: AdminCall) -> None:
    name, kind = await policy_topic(call), _quota_type(call)
    key, held = catalog.BACKLOG_SIZE_QUOTA.topic, await call.cluster.policies.fresh(name)
    value = await _given_quota(call, kind, key, retention_of(held()))
    await change_own(call, name, lambda fields: with_value(fields, key, kind, value))


async def _delete_topic_quota(call: AdminCall) -> None:
    name, kind = await policy_topic(call), _quota_type(call)
    key = catalog.BACKLOG_SIZE_QUOTA.topic
    await change_own(call, name, lambda fields: with_value(fields, key, kind, None), removes=True)


async def _put_namespace_quota(call: AdminCall) -> None:
    kind, key = _quota_type(call), catalog.BACKLOG_SIZE_QUOTA.namespace[0]
    kept = (await call.cluster.namespaces.policies(call.namespace())).get(NAMESPACE_RETENTION)
    value = await _given_quota(call, kind, key, kept)
    await _change_namespace(call, lambda fields: with_value(fields, key, kind, value))


async def _delete_namespace_quota(call: AdminCall) -> None:
    kind, key = _quota_type(call), catalog.BACKLOG_SIZE_QUOTA.namespace[0]
    await _change_namespace(call, lambda fields: with_value(fields, key, kind, None))


# One subscription of a topic


async def _get_subscription_rate(call: AdminCall) -> Response | None:
    name, subscription = await policy_topic(call), call.subscription()
    if call.flag(APPLIED):
        rate = (await call.cluster.policies.fresh(name)).subscription_dispatch_rate(subscription)
        return answer(catalog.SUBSCRIPTION_DISPATCH_RATE.to_json(rate))
    found = catalog.subscription_dispatch_rate(await own_policies(call, name), subscription)
    return None if found is None else answer(catalog.SUBSCRIPTION_DISPATCH_RATE.to_json(found))


async def _put_subscription_rate(call: AdminCall) -> None:
    name, subscription = await policy_topic(call), call.subscription()
    policy = catalog.SUBSCRIPTION_DISPATCH_RATE
    value = {"dispatchRate": checked(call, policy, await call.json(), SUBSCRIPTION_POLICIES, subscription)}
    await change_own(call, name, lambda fields: with_value(fields, SUBSCRIPTION_POLICIES, subscription, value))


async def _delete_subscription_rate(call: AdminCall) -> None:
    name, subscription = await policy_topic(call), call.subscription()
    await change_own(
        call, name, lambda fields: with_value(fields, SUBSCRIPTION_POLICIES, subscription, None), removes=True
    )


# What is not obeyed


def _refused_of_topic(key: str) -> Handlers:
    async def get(call: AdminCall) -> Response | None:
        found = (await own_policies(call, await policy_topic(call)) or {}).get(key)
        if found is None and key == "replicationClusters" and call.flag(APPLIED):
            found = [call.cluster.cluster_name]
        return None if found is None else answer(found)

    async def post(call: AdminCall) -> None:
        await policy_topic(call)
        problem = create_problem({key: await call.json()})
        if problem is not None:
            raise PreconditionError(problem)

    async def delete(call: AdminCall) -> None:
        name = await policy_topic(call)
        await change_own(call, name, lambda fields: with_policy(fields, key, None), removes=True)

    return Handlers(get, post, delete)


# Between brokers


async def _changes(call: AdminCall) -> Response:
    """Answer a broker that wants to know what a log of this broker says."""
    name, text = call.topic(), call.given(_SINCE)
    since = None if text is None else position_of(text)
    if text is not None and since is None:
        raise MalformedRequestError(f"since must be ledger:entry, not {text[:100]!a}")
    if not is_change_events(name):
        raise NotThereError(f"topic {name.full} holds no policies of topics")
    await at_owner(call, name)
    found = await call.cluster.policies.changes_here(name, since)
    return answer({"whole": found.whole, "upto": str(found.upto), "policies": dict(found.policies), "more": found.more})


async def _forget(call: AdminCall) -> None:
    """Delete the policies of a topic that another broker deletes."""
    name = call.topic()
    await at_owner(call, await call.cluster.policies.log_of(name))
    await call.cluster.policies.delete(name)


def direct_resources(at: Callable[..., Resource], topic: str) -> Iterator[Resource]:
    """Return the resources of non-persistent topics. `topic`: the beginning of their paths."""
    for resource in OF_DIRECT_TOPIC:
        handlers = _topic_handlers(resource, OF_TOPIC[resource])
        yield at(f"{topic}/{resource}", GET=handlers.get, POST=handlers.post, DELETE=handlers.delete)


def resources(at: Callable[..., Resource], topic: str, namespace: str) -> Iterator[Resource]:
    """Return the resources. `topic` and `namespace`: the beginnings of their paths."""

    def of(pattern: str, handlers: Handlers, by: str = "POST") -> Resource:
        methods: dict[str, Handler] = {"GET": handlers.get, by: handlers.post, "DELETE": handlers.delete}
        return at(pattern, **methods)

    for resource, policy in OF_TOPIC.items():
        yield of(f"{topic}/{resource}", _topic_handlers(resource, policy))
    for resource, policy in OF_NAMESPACE.items():
        by = "PUT" if resource in _SET_BY_PUT else "POST"
        yield of(f"{namespace}/{resource}", _namespace_handlers(resource, policy), by)
    for resource, key in _NOT_OF_TOPIC.items():
        yield of(f"{topic}/{resource}", _refused_of_topic(key))
    yield at(f"{topic}/backlogQuotaMap", GET=_topic_quotas)
    yield at(f"{topic}/backlogQuota", POST=_put_topic_quota, DELETE=_delete_topic_quota)
    yield at(f"{namespace}/backlogQuotaMap", GET=_namespace_quotas)
    yield at(f"{namespace}/backlogQuota", POST=_put_namespace_quota, DELETE=_delete_namespace_quota)
    yield at(
        f"{topic}/{{subscription}}/dispatchRate",
        GET=_get_subscription_rate,
        POST=_put_subscription_rate,
        DELETE=_delete_subscription_rate,
    )
    yield at(f"{topic}/quireTopicPolicies", GET=_changes, DELETE=_forget)
