"""Everything of which rates are taken, with its counts since it was loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from broker.measures import Rates
from broker.topics.exclusive import AnyTopic
from broker.topics.non_persistent.subscription import NonPersistentSubscription
from broker.topics.topic import Topic

AnySubscription: TypeAlias = Subscription | NonPersistentSubscription


def counted(topics: Iterable[AnyTopic]) -> Iterator[tuple[object, Rates]]:
    """Yield topics, their producers, subscriptions and consumers, each with its counts."""
    for topic in topics:
        if not (topic.messages_in or topic.subscriptions):
            continue
        sums = [0.0] * 5
        subscriptions: Iterable[AnySubscription] = list(topic.subscriptions.values())
        for subscription in subscriptions:
            yield from _of_subscription(subscription, sums)
        read, missed = _read(topic)
        yield (
            topic,
            Rates(topic.messages_in, topic.bytes_in, topic.chunks_in, *sums)._replace(
                entries_in=topic.entries_in, entries_read=read, cache_missed=missed
            ),
        )
        for producer in list(topic.producers.values()):
            yield producer, Rates(producer.messages_in, producer.bytes_in, producer.chunks_in)


def _read(topic: AnyTopic) -> tuple[int, int]:
    """Return the entries read and the reads that found nothing in the cache."""
    if not isinstance(topic, Topic):
        return 0, 0
    return topic.ledger.cache_hits + topic.ledger.ledger_reads[1], topic.ledger.cache_misses


def _of_subscription(subscription: AnySubscription, sums: list[float]) -> Iterator[tuple[object, Rates]]:
    expiry = subscription.known_expiry if isinstance(subscription, Subscription) else None
    counts = (
        subscription.messages_out,
        subscription.counts.bytes_out,
        subscription.counts.redelivered,
        subscription.counts.acked,
        0 if expiry is None else expiry.expired,
    )
    sums[:] = map(sum, zip(sums, counts, strict=True))
    yield subscription, Rates(0, 0, 0, *counts)
    consumers: Iterable[Consumer[Any]] = list(subscription.consumers)
    for each in consumers:
        yield each, Rates(0, 0, 0, each.messages_out, each.bytes_out, each.redelivered, each.acked)
