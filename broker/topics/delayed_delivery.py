"""Rules for the delayed messages of a topic (pure).

    /admin/policies/<t>/<ns>                                            of all topics of a namespace
        "delayed_delivery_policies"   {"tickTime":1000,"active":true,"maxDeliveryDelayInMillis":0}
    /admin/topic-policies/local/<t>/<ns>/persistent/<topic, escaped>    of one topic and its partitions
        "delayedDeliveryEnabled"             true
        "delayedDeliveryTickTimeMillis"      1000
        "delayedDeliveryMaxDelayInMillis"    0

Order: topic, namespace, broker.conf; each value by itself. What cannot be read counts as not said.

Source: Pulsar's DelayedDeliveryPolicies, TopicPolicies and HierarchyTopicPolicies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.config import BrokerOptions
from broker.ownership.values import Json
from broker.topics.policy_values import PolicyError
from quire.service.web.shapes import Record, Truth, Whole

NAMESPACE_DELAYED = "delayed_delivery_policies"
TOPIC_ENABLED = "delayedDeliveryEnabled"
TOPIC_TICK = "delayedDeliveryTickTimeMillis"
TOPIC_MAX_DELAY = "delayedDeliveryMaxDelayInMillis"
TOPIC_DELAYED = (TOPIC_ENABLED, TOPIC_TICK, TOPIC_MAX_DELAY)

TIME_MAX = 1 << 53
"""Milliseconds; JSON cannot say more exactly."""
TICK_MAX = 24 * 3600 * 1000
_EVERYTHING = 1 << 63
DELAYED_SHAPE = Record(
    {"tickTime": Whole(0, TICK_MAX), "active": Truth(), "maxDeliveryDelayInMillis": Whole(0, TIME_MAX)}
)


class DelayedDelivery(NamedTuple):
    """Effective values for one topic. Times in milliseconds."""

    active: bool
    """True if messages wait for their time at all."""
    tick_ms: int
    """Precision: a message may be delivered so much early, and the subscription is woken no more often."""
    max_delay_ms: int
    """A message delayed by more is refused; 0: no limit."""
    strict: bool = False
    """True if no message is delivered early."""

    def cutoff_ms(self, now_ms: int) -> int:
        """Return the time up to which messages are due."""
        if not self.active:
            return _EVERYTHING
        return now_ms if self.strict else now_ms + self.tick_ms


DELAYED_DELIVERY_DEFAULT = DelayedDelivery(True, 1000, 0)
"""Values of a broker.conf that says nothing."""


def of_broker(options: BrokerOptions) -> DelayedDelivery:
    """Return the values of broker.conf."""
    return DelayedDelivery(
        options.delayed_delivery, options.delayed_tick_ms, options.delayed_max_ms, options.delayed_strict
    )


def effective_delayed(
    default: DelayedDelivery, namespace: Mapping[str, Any] | None, topic: Mapping[str, Any] | None
) -> DelayedDelivery:
    """Return the effective values.

    >>> effective_delayed(DelayedDelivery(True, 1000, 0), None, {"delayedDeliveryTickTimeMillis": 50})
    DelayedDelivery(active=True, tick_ms=50, max_delay_ms=0, strict=False)
    """
    active, tick_ms, max_delay_ms, strict = default
    of_namespace = None if namespace is None else namespace.get(NAMESPACE_DELAYED)
    said: list[Json] = []
    if of_namespace is not None:
        try:
            said.append(delayed_of(delayed_delivery(of_namespace)))
        except PolicyError:
            pass
    if topic is not None:
        said.append({key: topic.get(key) for key in TOPIC_DELAYED})
    for each in said:
        if isinstance(each[TOPIC_ENABLED], bool):
            active = each[TOPIC_ENABLED]
        if _is_time(each[TOPIC_TICK]):
            tick_ms = min(max(1, each[TOPIC_TICK]), TICK_MAX)
        if _is_time(each[TOPIC_MAX_DELAY]):
            max_delay_ms = each[TOPIC_MAX_DELAY]
    return DelayedDelivery(active, tick_ms, max_delay_ms, strict)


def delayed_delivery(value: object) -> Json:
    """Return a checked `delayedDelivery` value, as clients of the admin API send and see it. Raises PolicyError."""
    given = DELAYED_SHAPE.check(value, "delayedDelivery", PolicyError)
    return {"tickTime": 0, "active": False, "maxDeliveryDelayInMillis": 0, **given}


def delayed_as_shown(delayed: DelayedDelivery) -> Json:
    """Return the equivalent `delayedDelivery` value."""
    return {
        "tickTime": delayed.tick_ms,
        "active": delayed.active,
        "maxDeliveryDelayInMillis": delayed.max_delay_ms,
    }


def delayed_of(value: Mapping[str, Any]) -> Json:
    """Return the fields of a topic's policies that say the same as a checked `delayedDelivery` value."""
    return {
        TOPIC_ENABLED: value["active"],
        TOPIC_TICK: value["tickTime"],
        TOPIC_MAX_DELAY: value["maxDeliveryDelayInMillis"],
    }


def delayed_of_topic(fields: Mapping[str, Any] | None) -> Json | None:
    """Return the `delayedDelivery` value of a topic's own policies; None if they say nothing of it."""
    if fields is None or fields.get(TOPIC_ENABLED) is None:
        return None
    return {
        "tickTime": fields.get(TOPIC_TICK) or 0,
        "active": fields[TOPIC_ENABLED],
        "maxDeliveryDelayInMillis": fields.get(TOPIC_MAX_DELAY) or 0,
    }


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TIME_MAX
