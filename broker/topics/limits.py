"""Limits of a topic: producers, subscriptions and consumers. A limit of 0 is none.

    policies of a namespace         "max_producers_per_topic", "max_consumers_per_topic", "max_subscriptions_per_topic",
                                    "max_consumers_per_subscription"
    policies of one topic and its partitions
                                    "maxProducerPerTopic", "maxConsumerPerTopic", "maxSubscriptionsPerTopic",
                                    "maxConsumersPerSubscription"

Order: topic, namespace, broker.conf. Source: Pulsar's AbstractTopic (isProducersExceeded, isConsumersExceeded), which
leaves out topics of the servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from typing import Protocol

from broker.context import Context
from broker.errors import ConsumerBusyError, NotAllowedError, ProducerBusyError, TopicBusyError
from broker.topics.policies import Held
from broker.topics.system_names import is_system_topic
from broker.topics.topic_policies.catalog import (
    MAX_CONSUMERS,
    MAX_CONSUMERS_OF_SUBSCRIPTION,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    SUBSCRIPTION_TYPES,
    Policy,
)
from broker.topics.topic_policies.known import value_of
from broker.topics.topic_policies.source import is_change_events
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName


class Limited(Protocol):
    """Topic as its limits use it."""

    @property
    def name(self) -> TopicName: ...

    @property
    def context(self) -> Context: ...

    @property
    def policies(self) -> Held | None: ...


def limit_of(topic: Limited, policy: Policy[int]) -> int:
    """Return the limit that holds for a topic; 0: none, as for topics of the servers."""
    found = value_of(topic.policies, policy, topic.context.options)
    return 0 if found and is_system_topic(topic.name) else found


def check_type(topic: Limited, kind: pb.CommandSubscribe.SubType) -> None:
    """Raise NotAllowedError if subscriptions of that type are not allowed, whether or not it exists.

    Source: Pulsar's PersistentTopic.internalSubscribe; non-persistent topics have no such check there either."""
    options, name = topic.context.options, pb.CommandSubscribe.SubType.Name(kind)
    if kind == pb.CommandSubscribe.Key_Shared and not options.key_shared:
        raise NotAllowedError("Key_Shared subscription is disabled by broker.")
    if name not in value_of(topic.policies, SUBSCRIPTION_TYPES, options) and not is_change_events(topic.name):
        raise NotAllowedError(f"Topic[{{{topic.name.full}}}] doesn't support {name} sub type!")


class Used(Protocol):
    """Subscription as the limits use it."""

    @property
    def consumers(self) -> Sized: ...


def check_producers(topic: Limited, name: str, names: Collection[str]) -> None:
    """Raise ProducerBusyError if a producer of that name would be one too many beside those of `names`."""
    limit = limit_of(topic, MAX_PRODUCERS)
    if limit and name not in names and len(names) >= limit:
        raise ProducerBusyError(
            f"Topic '{topic.name.full}' reached max producers limit ({limit}, maxProducersPerTopic)"
        )


def check_subscriptions(topic: Limited, count: int) -> None:
    """Raise NotAllowedError if there are so many subscriptions, with those being created, that one more is too many."""
    limit = limit_of(topic, MAX_SUBSCRIPTIONS)
    if limit and count >= limit:
        raise NotAllowedError(
            f"Exceed the maximum number of subscriptions of the topic: {topic.name.full} ({limit}, "
            "maxSubscriptionsPerTopic)"
        )


def check_consumers(topic: Limited, subscription: str, count: int, subscriptions: Iterable[Used]) -> None:
    """Raise ConsumerBusyError if one more consumer is too many, for the topic or for a subscription with `count`."""
    limit = limit_of(topic, MAX_CONSUMERS_OF_SUBSCRIPTION)
    if limit and count >= limit:
        raise ConsumerBusyError(f"subscription {subscription!r} has {limit} consumers, the maximum")
    limit = limit_of(topic, MAX_CONSUMERS)
    if limit and _consumers(subscriptions) >= limit:
        raise ConsumerBusyError(
            f"Topic '{topic.name.full}' reached max consumers limit ({limit}, maxConsumersPerTopic)"
        )


def check_unused(topic: Limited, producers: int, subscriptions: Iterable[Used]) -> None:
    """Raise TopicBusyError if producers or consumers are connected."""
    consumers = _consumers(subscriptions)
    if producers or consumers:
        counts = f"{producers} producers and {consumers} consumers"
        raise TopicBusyError(f"topic {topic.name.full} has {counts} connected")


def _consumers(subscriptions: Iterable[Used]) -> int:
    return sum(len(each.consumers) for each in subscriptions)
