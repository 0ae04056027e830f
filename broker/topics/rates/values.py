"""Rates of a topic, and where they come from (pure).

    /admin/policies/<t>/<ns>, of all topics of a namespace, by cluster
        "publishMaxMessageRate"     {"c":{"publishThrottlingRateInMsg":100,"publishThrottlingRateInByte":-1}}
        "topicDispatchRate"         {"c":{"dispatchThrottlingRateInMsg":100,"dispatchThrottlingRateInByte":-1,
                                          "relativeToPublishRate":false,"ratePeriodInSecond":1}}
        "clusterDispatchRate"       the same, from before there was topicDispatchRate
        "subscriptionDispatchRate"  the same
        "clusterSubscribeRate"      {"c":{"subscribeThrottlingRatePerConsumer":5,"ratePeriodInSecond":30}}
    policies of one topic and its partitions
        "publishRate", "dispatchRate", "subscriptionDispatchRate", "subscribeRate"   one of these values each
        "subscriptionPolicies"      {"<subscription>":{"dispatchRate":{...}}}

Order: topic, namespace, broker.conf. The first that limits anything holds. What cannot be read counts as not said. Each
rate holds for one topic, or partition, or subscription of it. Rates of a whole broker hold beside these.

Source: Pulsar's PublishRate, DispatchRateImpl, SubscribeRate, DispatchRateLimiter.getPoliciesDispatchRate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from broker.life_config import LifeOptions
from broker.ownership.values import Json
from broker.topics.policy_values import INT32_MAX, PolicyError
from broker.topics.rates.bucket import Rate

NAMESPACE_PUBLISH: Final = "publishMaxMessageRate"
NAMESPACE_DISPATCH: Final = "topicDispatchRate"
NAMESPACE_DISPATCH_OLD: Final = "clusterDispatchRate"
NAMESPACE_SUBSCRIPTION: Final = "subscriptionDispatchRate"
NAMESPACE_SUBSCRIBE: Final = "clusterSubscribeRate"
TOPIC_PUBLISH: Final = "publishRate"
TOPIC_DISPATCH: Final = "dispatchRate"
TOPIC_SUBSCRIPTION: Final = "subscriptionDispatchRate"
TOPIC_SUBSCRIBE: Final = "subscribeRate"
OF_SUBSCRIPTIONS: Final = "subscriptionPolicies"
BYTES_MAX: Final = 1 << 53

Policies = Mapping[str, Any] | None


def publish_rate(value: object) -> Json:
    """Return a checked publish rate. Raises PolicyError."""
    fields = _fields(value, "a publish rate")
    return {
        "publishThrottlingRateInMsg": _number(fields, "publishThrottlingRateInMsg", -1, INT32_MAX),
        "publishThrottlingRateInByte": _number(fields, "publishThrottlingRateInByte", -1, BYTES_MAX),
    }


def dispatch_rate(value: object) -> Json:
    """Return a checked dispatch rate. Raises PolicyError."""
    fields = _fields(value, "a dispatch rate")
    if fields.get("relativeToPublishRate") not in (None, False):
        raise PolicyError("relativeToPublishRate is not served: set a rate of its own")
    return {
        "dispatchThrottlingRateInMsg": _number(fields, "dispatchThrottlingRateInMsg", -1, INT32_MAX),
        "dispatchThrottlingRateInByte": _number(fields, "dispatchThrottlingRateInByte", -1, BYTES_MAX),
        "relativeToPublishRate": False,
        "ratePeriodInSecond": _number(fields, "ratePeriodInSecond", 1, INT32_MAX, 1),
    }


def subscribe_rate(value: object) -> Json:
    """Return a checked subscribe rate. Raises PolicyError."""
    fields = _fields(value, "a subscribe rate")
    return {
        "subscribeThrottlingRatePerConsumer": _number(fields, "subscribeThrottlingRatePerConsumer", -1, INT32_MAX),
        "ratePeriodInSecond": _number(fields, "ratePeriodInSecond", 1, INT32_MAX, 30),
    }


def publish_shown(rate: Rate) -> Json:
    """Return a rate as it is answered."""
    return {"publishThrottlingRateInMsg": rate.messages, "publishThrottlingRateInByte": rate.bytes}


def dispatch_shown(rate: Rate) -> Json:
    """Return a rate as it is answered."""
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.bytes,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": rate.period_s,
    }


def subscribe_shown(rate: Rate) -> Json:
    """Return a rate as it is answered."""
    return {"subscribeThrottlingRatePerConsumer": rate.messages, "ratePeriodInSecond": rate.period_s}


class RateRules:
    """The rates of one broker's topics by their policies. `cluster`: the key of the namespaces' values."""

    def __init__(self, cluster: str, options: LifeOptions) -> None:
        self._cluster = cluster
        self._publish = Rate(options.topic_publish_messages, options.topic_publish_bytes)
        self._dispatch = Rate(options.topic_dispatch_messages, options.topic_dispatch_bytes)
        self._subscription = Rate(options.subscription_dispatch_messages, options.subscription_dispatch_bytes)
        self._subscribe = Rate(options.subscribe_attempts, 0, options.subscribe_period_s)

    def publish(self, namespace: Policies, topic: Policies) -> Rate:
        """Return the rate of all producers of a topic together."""
        said = (_of(topic, TOPIC_PUBLISH), self._own(namespace, NAMESPACE_PUBLISH))
        return _first(_publish, said, self._publish)

    def dispatch(self, namespace: Policies, topic: Policies) -> Rate:
        """Return the rate of all subscriptions of a topic together."""
        said = (
            _of(topic, TOPIC_DISPATCH),
            self._own(namespace, NAMESPACE_DISPATCH),
            self._own(namespace, NAMESPACE_DISPATCH_OLD),
        )
        return _first(_dispatch, said, self._dispatch)

    def subscription(self, namespace: Policies, topic: Policies, name: str) -> Rate:
        """Return the rate of one subscription of a topic; `name` is "" for those without policies of their own."""
        own = _of(_of(topic, OF_SUBSCRIPTIONS), name)
        said = (
            _of(own, TOPIC_DISPATCH),
            _of(topic, TOPIC_SUBSCRIPTION),
            self._own(namespace, NAMESPACE_SUBSCRIPTION),
        )
        return _first(_dispatch, said, self._subscription)

    def subscribe(self, namespace: Policies, topic: Policies) -> Rate:
        """Return the rate of attempts to subscribe to a topic by one consumer."""
        said = (_of(topic, TOPIC_SUBSCRIBE), self._own(namespace, NAMESPACE_SUBSCRIBE))
        return _first(_subscribe, said, self._subscribe)

    def _own(self, namespace: Policies, key: str) -> object:
        return _of(_of(namespace, key), self._cluster)


def _of(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _first(read: Callable[[Json], Rate], said: tuple[object, ...], default: Rate) -> Rate:
    for each in said:
        if each is not None:
            try:
                found = read(_fields(each, "a rate"))
            except PolicyError:
                continue
            if found:
                return found
    return default


def _publish(value: Json) -> Rate:
    return Rate(*_values(publish_rate(value)))


def _dispatch(value: Json) -> Rate:
    messages, size, _, period_s = _values(dispatch_rate(value))
    return Rate(messages, size, period_s)


def _subscribe(value: Json) -> Rate:
    count, period_s = _values(subscribe_rate(value))
    return Rate(count, 0, period_s)


def _values(fields: Json) -> Iterator[Any]:
    return iter(fields.values())


def _fields(value: object, what: str) -> Json:
    if not isinstance(value, Mapping):
        raise PolicyError(f"{what} must be an object")
    return dict(value)


def _number(fields: Json, name: str, minimum: int, maximum: int, default: int = -1) -> int:
    found = fields.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or not minimum <= found <= maximum:
        raise PolicyError(f"{name} must be a whole number between {minimum} and {maximum}, not {str(found)[:40]!a}")
    return found
