"""Rates as causes: those of dispatch and of publishing, of a subscription, a topic, a resource group or the whole
broker."""

from __future__ import annotations

from math import ceil

import trio

from broker.dispatch.subscription import Subscription
from broker.explain import causes
from broker.explain.causes import Reason
from broker.topics.rates.bucket import Rate
from broker.topics.topic import Topic

_DISPATCH_SETTINGS = {
    "subscription": "the policy subscriptionDispatchRate, or dispatchThrottlingRatePerSubscriptionInMsg and"
    " dispatchThrottlingRatePerSubscriptionInByte",
    "topic": "the policy dispatchRate, or dispatchThrottlingRatePerTopicInMsg and dispatchThrottlingRatePerTopicInByte",
    "resource group": "dispatchRateInMsgs and dispatchRateInBytes of the resource group",
    "broker": "dispatchThrottlingRateInMsg and dispatchThrottlingRateInByte",
}

_PUBLISH_SETTINGS = {
    "topic": "the policy publishRate, or maxPublishRatePerTopicInMessages and maxPublishRatePerTopicInBytes",
    "resource group": "publishRateInMsgs and publishRateInBytes of the resource group",
    "broker": "brokerPublisherThrottlingMaxMessageRate and brokerPublisherThrottlingMaxByteRate",
}


class RateDoor:
    """The rates of one broker; see `doors`."""

    def why_not_delivered(self, topic: Topic, subscription: Subscription) -> Reason | None:
        if not subscription.consumers:
            return _refused(topic)
        bucket = None if subscription.limit is None else subscription.limit.used_up()
        if bucket is None:
            return None
        level, rates = "broker", topic.rates
        if rates is not None and bucket is rates.subscriptions.get(subscription.name):
            level = "subscription"
        elif rates is not None and bucket is rates.dispatch:
            level = "topic"
        elif rates is not None and rates.group is not None and bucket is rates.group.dispatch:
            level = "resource group"
        wait_s = bucket.wait_s(trio.current_time())
        details = _details(level, bucket.present, _DISPATCH_SETTINGS[level], wait_s)
        if bucket.rate.relative and rates is not None:
            details["publish_rate_messages"], details["publish_rate_bytes"] = map(round, rates.published_at)
            details["setting"] = f"{details['setting']}, to which the rate of publishing is added"
        return Reason(causes.DISPATCH_RATE, details)

    def why_not_published(self, topic: Topic) -> Reason | None:
        rates = topic.rates
        if rates is None:
            return None
        of_group = None if rates.group is None else rates.group.publish
        for level, throttle in (
            ("topic", rates.publish),
            ("resource group", of_group),
            ("broker", rates.shared.publish),
        ):
            if throttle is None:
                continue
            held = next((name for name, each in topic.producers.items() if throttle.holds(each.connection)), None)
            if held is not None:
                details = _details(level, throttle.rate, _PUBLISH_SETTINGS[level], throttle.wait_s())
                return Reason(causes.PUBLISH_RATE, {**details, "producer": held})
        return None


def _refused(topic: Topic) -> Reason | None:
    """Return the rate of subscribing if it has refused consumers of a topic in its period."""
    window = None if topic.rates is None else topic.rates.subscribe
    left_s = 0.0 if window is None else window.left_s(trio.current_time())
    if window is None or not window.refused or left_s <= 0:
        return None
    details = {
        "refused": window.refused,
        "rate_attempts": window.count,
        "period_s": window.period_s,
        "wait_ms": ceil(1000 * left_s),
    }
    return Reason(causes.SUBSCRIBE_RATE, details)


def _details(level: str, rate: Rate, setting: str, wait_s: float) -> dict[str, object]:
    return {
        "wait_ms": ceil(1000 * wait_s),
        "rate_of": level,
        "rate_messages": rate.messages,
        "rate_bytes": rate.bytes,
        "period_s": rate.period_s,
        "setting": setting,
    }
