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

from collections.abc import Collection, Iterable, Mapping, Sized
from typing import Any, Final, NamedTuple, Protocol

from broker.config import BrokerOptions
from broker.context import Context
from broker.errors import ConsumerBusyError, NotAllowedError, ProducerBusyError, TopicBusyError
from broker.topics.policies import Held
from broker.topics.policy_values import first_said, whole
from broker.topics.system_names import is_system_topic
from quire.wire.pulsar.names import TopicName


class Limited(Protocol):
    """Topic as its limits use it."""

    @property
    def name(self) -> TopicName: ...

    @property
    def context(self) -> Context: ...

    @property
    def policies(self) -> Held | None: ...


class Limit(NamedTuple):
    """A limit, under the names that it has in the policies and in broker.conf."""

    key: str
    of_namespace: str
    of_topic: str
    field: str

    def effective(
        self, options: BrokerOptions, namespace: Mapping[str, Any] | None, topic: Mapping[str, Any] | None
    ) -> int:
        """Return what holds.

        >>> PRODUCERS.effective(BrokerOptions(), {"max_producers_per_topic": 7}, {"maxProducerPerTopic": None})
        7
        """
        default: int = getattr(options, self.field)
        return first_said((topic or {}).get(self.of_topic), (namespace or {}).get(self.of_namespace), default=default)

    def of(self, topic: Limited) -> int:
        """Return what holds for a topic."""
        held, options = topic.policies, topic.context.options
        found = self.effective(options, *((None, None) if held is None else (held.of_namespace, held.of_topic)))
        return 0 if found and is_system_topic(topic.name) else found

    def checked(self, value: object) -> int:
        """Return a value that may be stored. Raises PolicyError."""
        return whole(value, self.key)


PRODUCERS: Final = Limit(
    "maxProducersPerTopic", "max_producers_per_topic", "maxProducerPerTopic", "producers_per_topic_max"
)
CONSUMERS: Final = Limit(
    "maxConsumersPerTopic", "max_consumers_per_topic", "maxConsumerPerTopic", "consumers_per_topic_max"
)
SUBSCRIPTIONS: Final = Limit(
    "maxSubscriptionsPerTopic", "max_subscriptions_per_topic", "maxSubscriptionsPerTopic", "subscriptions_per_topic_max"
)
CONSUMERS_OF_SUBSCRIPTION: Final = Limit(
    "maxConsumersPerSubscription",
    "max_consumers_per_subscription",
    "maxConsumersPerSubscription",
    "consumers_per_subscription_max",
)


class Used(Protocol):
    """Subscription as the limits use it."""

    @property
    def consumers(self) -> Sized: ...


def check_producers(topic: Limited, name: str, names: Collection[str]) -> None:
    """Raise ProducerBusyError if a producer of that name would be one too many beside those of `names`."""
    limit = PRODUCERS.of(topic)
    if limit and name not in names and len(names) >= limit:
        raise ProducerBusyError(
            f"Topic '{topic.name.full}' reached max producers limit ({limit}, maxProducersPerTopic)"
        )


def check_subscriptions(topic: Limited, count: int) -> None:
    """Raise NotAllowedError if there are so many subscriptions, with those being created, that one more is too many."""
    limit = SUBSCRIPTIONS.of(topic)
    if limit and count >= limit:
        raise NotAllowedError(
            f"Exceed the maximum number of subscriptions of the topic: {topic.name.full} ({limit}, "
            "maxSubscriptionsPerTopic)"
        )


def check_consumers(topic: Limited, subscription: str, count: int, subscriptions: Iterable[Used]) -> None:
    """Raise ConsumerBusyError if one more consumer is too many, for the topic or for a subscription with `count`."""
    limit = CONSUMERS_OF_SUBSCRIPTION.of(topic)
    if limit and count >= limit:
        raise ConsumerBusyError(f"subscription {subscription!r} has {limit} consumers, the maximum")
    limit = CONSUMERS.of(topic)
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
