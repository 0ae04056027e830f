"""Rates of a namespace, of a topic and of a subscription.

GET, POST, DELETE   {namespace}/dispatchRate, subscriptionDispatchRate   {"dispatchThrottlingRateInMsg":100,
                    "dispatchThrottlingRateInByte":-1,"relativeToPublishRate":false,"ratePeriodInSecond":1}
GET, POST, DELETE   {namespace}/subscribeRate       {"subscribeThrottlingRatePerConsumer":5,"ratePeriodInSecond":30}
GET, POST           {namespace}/publishRate         {"publishThrottlingRateInMsg":100,"publishThrottlingRateInByte":-1}
GET, POST, DELETE   {topic}/dispatchRate, subscriptionDispatchRate, subscribeRate, publishRate
                                                    the same of a topic; ?applied=true: the effective rate
GET, POST, DELETE   {topic}/{subscription}/dispatchRate
                                                    the same of one subscription

A value of a namespace is stored for this cluster. 204: none is set, or done; 412: an invalid rate. DELETE of a
namespace's publishRate is served as well; the original's clients send it.

Source: Pulsar's NamespacesBase (internalSetTopicDispatchRate writes clusterDispatchRate too), PersistentTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.responses import Response

from broker.admin.life_policies.handlers import change_namespace, change_topic, namespace_policies, of_topic
from broker.admin.policies import Checked, Handlers, check_policy, policy_topic, with_policy
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.ownership.values import Json
from broker.topics.policies import Held
from broker.topics.rates import values
from broker.topics.rates.bucket import Rate
from broker.topics.rates.values import RateRules

Read = Callable[[RateRules, Held], Rate]


def _in_map(policies: Json, key: str, entry: str, value: Any) -> Json:
    """Return policies with one entry of a map changed; None takes it away."""
    known = policies.get(key)
    return {**policies, key: with_policy(known if isinstance(known, dict) else {}, entry, value)}


def _of_namespace(checked: Checked, *keys: str) -> Handlers:
    """Return the handlers of a rate that is stored under all of `keys`; the first that has it is shown."""

    async def get(call: AdminCall) -> Response | None:
        policies = await namespace_policies(call)
        cluster = call.cluster.cluster_name
        found = (known.get(cluster) for key in keys if isinstance(known := policies.get(key), dict))
        value = next((each for each in found if each is not None), None)
        return None if value is None else answer(value)

    async def change(call: AdminCall, value: Any) -> None:
        def changed(policies: Json) -> Json:
            for key in keys:
                policies = _in_map(policies, key, call.cluster.cluster_name, value)
            return policies

        await change_namespace(call, changed)

    async def post(call: AdminCall) -> None:
        await change(call, check_policy(call, checked, await call.json()))

    async def delete(call: AdminCall) -> None:
        await change(call, None)

    return Handlers(get, post, delete)


def _of_topic(key: str, checked: Checked, read: Read, shown: Callable[[Rate], Json]) -> Handlers:
    def applied(call: AdminCall, held: Held) -> Json:
        return shown(read(RateRules(call.cluster.cluster_name, call.administration.options), held))

    return of_topic(key, checked, applied)


async def _get_subscription(call: AdminCall) -> Response | None:
    name, subscription = await policy_topic(call), call.subscription()
    if call.flag("applied"):
        held = await call.cluster.policies.load(name)
        rules = RateRules(call.cluster.cluster_name, call.administration.options)
        return answer(values.dispatch_shown(rules.subscription(held.of_namespace, held.of_topic, subscription)))
    own = (await call.cluster.policies.get(name) or {}).get(values.OF_SUBSCRIPTIONS) or {}
    found = (own.get(subscription) or {}).get(values.TOPIC_DISPATCH)
    return None if found is None else answer(found)


async def _post_subscription(call: AdminCall) -> None:
    name, value = call.subscription(), check_policy(call, values.dispatch_rate, await call.json())
    entry = {values.TOPIC_DISPATCH: value}
    await change_topic(call, lambda policies: _in_map(policies, values.OF_SUBSCRIPTIONS, name, entry))


async def _delete_subscription(call: AdminCall) -> None:
    name = call.subscription()
    await change_topic(
        call, lambda policies: _in_map(policies, values.OF_SUBSCRIPTIONS, name, None), only_existing=True
    )


OF_NAMESPACE: Final[Mapping[str, Handlers]] = {
    "publishRate": _of_namespace(values.publish_rate, values.NAMESPACE_PUBLISH),
    "dispatchRate": _of_namespace(values.dispatch_rate, values.NAMESPACE_DISPATCH, values.NAMESPACE_DISPATCH_OLD),
    "subscriptionDispatchRate": _of_namespace(values.dispatch_rate, values.NAMESPACE_SUBSCRIPTION),
    "subscribeRate": _of_namespace(values.subscribe_rate, values.NAMESPACE_SUBSCRIBE),
}
OF_TOPIC: Final[Mapping[str, Handlers]] = {
    "publishRate": _of_topic(
        values.TOPIC_PUBLISH,
        values.publish_rate,
        lambda rules, held: rules.publish(held.of_namespace, held.of_topic),
        values.publish_shown,
    ),
    "dispatchRate": _of_topic(
        values.TOPIC_DISPATCH,
        values.dispatch_rate,
        lambda rules, held: rules.dispatch(held.of_namespace, held.of_topic),
        values.dispatch_shown,
    ),
    "subscriptionDispatchRate": _of_topic(
        values.TOPIC_SUBSCRIPTION,
        values.dispatch_rate,
        lambda rules, held: rules.subscription(held.of_namespace, held.of_topic, ""),
        values.dispatch_shown,
    ),
    "subscribeRate": _of_topic(
        values.TOPIC_SUBSCRIBE,
        values.subscribe_rate,
        lambda rules, held: rules.subscribe(held.of_namespace, held.of_topic),
        values.subscribe_shown,
    ),
}
OF_SUBSCRIPTION: Final = Handlers(_get_subscription, _post_subscription, _delete_subscription)
