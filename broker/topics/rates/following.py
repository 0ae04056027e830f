"""The rates of a loaded topic: made from its policies when it is loaded and when they change.

A topic without any rate has nothing of this, and its messages pass without a look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import trio

from broker.config import BrokerOptions
from broker.context import Context
from broker.dispatch.subscription import Subscription
from broker.errors import NotAllowedError
from broker.measures import NOTHING, Rates
from broker.topics.policies import Held
from broker.topics.rates.broker_rates import BrokerRates
from broker.topics.rates.bucket import Rate, RateBucket, SubscribeWindow
from broker.topics.rates.dispatching import DispatchLimit
from broker.topics.rates.groups import ResourceGroup
from broker.topics.rates.publishing import Client, PublishThrottle
from broker.topics.system_names import is_system_topic
from broker.topics.topic_policies.catalog import (
    DISPATCH_RATE,
    PUBLISH_RATE,
    RESOURCE_GROUP,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIPTION_POLICIES,
)
from broker.topics.topic_policies.kinds import DispatchRate, PublishRate, SubscribeRate
from broker.topics.topic_policies.known import value_of
from quire.wire.pulsar.names import TopicName


class TopicRates:
    """The rates of one topic, of which some may be none. `shared`: those of the broker."""

    __slots__ = ("dispatch", "group", "publish", "published_at", "shared", "subscribe", "subscriptions")

    def __init__(self, shared: BrokerRates, measured: Rates = NOTHING) -> None:
        self.shared = shared
        self.published_at = (measured.messages_in, measured.bytes_in)
        """Messages and bytes that are published a second, to which relative rates are added. See `measured`."""
        self.publish: PublishThrottle | None = None
        self.dispatch: RateBucket | None = None
        self.group: ResourceGroup | None = None
        self.subscribe: SubscribeWindow | None = None
        self.subscriptions: dict[str, RateBucket] = {}
        """Rates of single subscriptions."""

    def published(self, connection: Client, messages: int, size: int) -> None:
        """Count what was published, and hold the connection if that is too much."""
        for throttle in (self.publish, self.shared.publish):
            if throttle is not None:
                throttle.spent(connection, messages, size)
        if self.group is not None:
            self.group.publish.spent(connection, messages, size)

    def measured(self, rates: Rates, now: float) -> None:
        """Follow the rate at which is published, as it was measured: at once when it rises, by halves when it falls.

        Source: Pulsar's PersistentTopic.updateRates (lastUpdatedAvgPublishRateInMsg)."""
        found = zip(self.published_at, (rates.messages_in, rates.bytes_in), strict=True)
        messages, size = (new if new > old else (new + old) / 2 for old, new in found)
        self.published_at = (messages, size)
        for bucket in (self.dispatch, *self.subscriptions.values()):
            if bucket is not None:
                bucket.follow(self.published_at, now)

    def bucket(self, known: RateBucket | None, rate: Rate, now: float) -> RateBucket | None:
        """Return the account of a rate: the known one if the rate has stayed; None if nothing is limited."""
        if not rate:
            return None
        if known is not None and known.rate == rate:
            return known
        made = RateBucket(rate, now)
        made.follow(self.published_at, now)
        return made

    def buckets(self, subscription: str) -> list[RateBucket]:
        """Return the rates that hold for a subscription."""
        of_group = None if self.group is None else self.group.dispatch
        every = (self.subscriptions.get(subscription), self.dispatch, of_group, self.shared.dispatch)
        return [each for each in every if each is not None]

    @property
    def times_limited(self) -> int:
        """Times that a publisher was held for the rate of this topic."""
        return 0 if self.publish is None else self.publish.times


class _Said(NamedTuple):
    """The rates that policies name for a topic; those of single subscriptions are not among them."""

    publish: Rate
    dispatch: Rate
    subscribe: SubscribeRate
    group: str
    """Name of the resource group; "" for none."""
    limited: bool
    """True if any of them is a limit, or the rate that each subscription has, or there is a resource group."""


def _said(
    publish: PublishRate, dispatch: DispatchRate, subscribe: SubscribeRate, each: DispatchRate, group: str = ""
) -> _Said:
    of_topic, of_dispatch = Rate(*publish), _rate(dispatch)
    limited = bool(of_topic or of_dispatch or subscribe.limits or each.limits or group)
    return _Said(of_topic, of_dispatch, subscribe, group, limited)


def _rates_of(held: Held) -> _Said:
    value = held.value
    return _said(
        value(PUBLISH_RATE),
        value(DISPATCH_RATE),
        value(SUBSCRIBE_RATE),
        value(SUBSCRIPTION_DISPATCH_RATE),
        value(RESOURCE_GROUP),
    )


def _rates_of_broker(options: BrokerOptions) -> _Said:
    return _said(
        PUBLISH_RATE.of_broker(options),
        DISPATCH_RATE.of_broker(options),
        SUBSCRIBE_RATE.of_broker(options),
        SUBSCRIPTION_DISPATCH_RATE.of_broker(options),
    )


class DirectTopic(Protocol):
    """Non-persistent topic as its rates use it."""

    rates: TopicRates | None

    @property
    def name(self) -> TopicName: ...

    @property
    def context(self) -> Context: ...

    @property
    def policies(self) -> Held | None: ...


class RatedTopic(DirectTopic, Protocol):
    """Topic as its rates use it."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...


def follow_rates(topic: RatedTopic, shared: BrokerRates) -> None:
    """Hold a topic to the rates that its policies have now. What was used of a rate that stays counts on."""
    if is_system_topic(topic.name):
        return
    held = topic.policies
    said = _rates_of_broker(topic.context.options) if held is None else held.derived(_rates_of)
    limited = said.limited or _has_own_rates(held) or shared.publish or shared.dispatch
    if topic.rates is None and not limited:
        return  # the rule
    publish, dispatch, subscribe, group, _ = said
    now = trio.current_time()
    rates = topic.rates = topic.rates or TopicRates(shared, topic.context.measures.of(topic))
    _publish_at(topic, rates, publish)
    rates.group = shared.groups.of(group) if group else None
    rates.dispatch = rates.bucket(rates.dispatch, dispatch, now)
    if rates.subscribe is None or (rates.subscribe.count, rates.subscribe.period_s) != subscribe:
        rates.subscribe = SubscribeWindow(*subscribe, now) if subscribe.limits else None
    for name, subscription in list(topic.subscriptions.items()):
        bucket = rates.bucket(rates.subscriptions.get(name), _rate_of_subscription(topic, name), now)
        rates.subscriptions.pop(name, None)
        if bucket is not None:
            rates.subscriptions[name] = bucket
        if subscription.consumers:
            subscription.held_to(limit_of(topic, subscription))


def follow_direct(topic: DirectTopic, shared: BrokerRates) -> None:
    """Hold a non-persistent topic to the rates that its policies have now, which are those of publishing: rates of
    dispatch and of subscribing concern persistent topics only. Source: Pulsar's AbstractTopic, NonPersistentTopic."""
    publish = Rate(*value_of(topic.policies, PUBLISH_RATE, topic.context.options))
    group = value_of(topic.policies, RESOURCE_GROUP, topic.context.options)
    if topic.rates is None and not (publish or shared.publish or group):
        return
    rates = topic.rates = topic.rates or TopicRates(shared)
    rates.group = shared.groups.of(group) if group else None
    _publish_at(topic, rates, publish)


def _publish_at(topic: DirectTopic, rates: TopicRates, publish: Rate) -> None:
    if rates.publish is None or rates.publish.rate != publish:
        if rates.publish is not None:
            rates.publish.end()
        rates.publish = PublishThrottle(publish, topic.context.nursery, topic.name.full) if publish else None


def limit_of(topic: RatedTopic, subscription: Subscription) -> DispatchLimit | None:
    """Return the limit of a subscription; None: there is none."""
    rates = topic.rates
    if rates is None:
        return None
    name = subscription.name
    found = rates.bucket(rates.subscriptions.get(name), _rate_of_subscription(topic, name), trio.current_time())
    if found is not None:
        rates.subscriptions[name] = found
    buckets = rates.buckets(name)
    if not buckets:
        return None
    options = topic.context.options
    return DispatchLimit(
        buckets,
        topic.context.nursery,
        subscription.pump,
        by_entry=options.dispatch_counts_batches,
        only_backlog=not options.dispatch_limits_tail,
    )


def check_subscribe(topic: RatedTopic, consumer: tuple[str, str, int]) -> None:
    """Count an attempt to subscribe by a consumer (address, name, id). Raises NotAllowedError if it is one too many.

    Source: Pulsar's PersistentTopic.internalSubscribe."""
    rates = topic.rates
    if rates is None or rates.subscribe is None or rates.subscribe.take(consumer, trio.current_time()):
        return
    raise NotAllowedError(f"Subscribe limited by subscribe rate limit per consumer: {topic.name.full}")


def _rate(rate: DispatchRate) -> Rate:
    return Rate(rate.messages, rate.bytes, rate.period_s, rate.relative)


def _rate_of_subscription(topic: RatedTopic, subscription: str) -> Rate:
    held = topic.policies
    if held is None:
        return _rate(SUBSCRIPTION_DISPATCH_RATE.of_broker(topic.context.options))
    return _rate(held.subscription_dispatch_rate(subscription))


def _has_own_rates(held: Held | None) -> bool:
    """Return whether any subscription has policies of its own."""
    own = None if held is None else held.of_topic
    return bool(own and own.get(SUBSCRIPTION_POLICIES))
