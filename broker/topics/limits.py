"""Limits of a topic (pure): producers, subscriptions and consumers. A limit of 0 is none."""

from __future__ import annotations

from collections.abc import Collection

from broker.errors import ConsumerBusyError, NotAllowedError, ProducerBusyError, TopicBusyError


def check_producers(topic: str, name: str, names: Collection[str], limit: int) -> None:
    """Raise ProducerBusyError if a producer of that name would be one too many beside those of `names`."""
    if limit and name not in names and len(names) >= limit:
        raise ProducerBusyError(f"Topic '{topic}' reached max producers limit ({limit}, maxProducersPerTopic)")


def check_subscriptions(topic: str, count: int, limit: int) -> None:
    """Raise NotAllowedError if there are so many subscriptions, with those being created, that one more is too many."""
    if limit and count >= limit:
        raise NotAllowedError(
            f"Exceed the maximum number of subscriptions of the topic: {topic} ({limit}, maxSubscriptionsPerTopic)"
        )


def check_consumers(topic: str, count: int, limit: int) -> None:
    """Raise ConsumerBusyError if there are so many consumers that one more is too many."""
    if limit and count >= limit:
        raise ConsumerBusyError(f"Topic '{topic}' reached max consumers limit ({limit}, maxConsumersPerTopic)")


def check_unused(topic: str, producers: int, consumers: int) -> None:
    """Raise TopicBusyError if producers or consumers are connected."""
    if producers or consumers:
        counts = f"{producers} producers and {consumers} consumers"
        raise TopicBusyError(f"topic {topic} has {counts} connected")
