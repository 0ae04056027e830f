"""Values of one topic, subscription, consumer or producer, in the order of `broker.series.columns`.

One call reads everything of a thing, because a call per value takes most of the time of a scrape. A value is a number;
nothing is awaited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import trio

from broker.context import Context
from broker.dispatch.consumer import Consumer
from broker.dispatch.filtering import filtered_by
from broker.dispatch.many_consumers import ManyConsumers
from broker.dispatch.subscription import Subscription
from broker.series.backlog_ages import BacklogAges
from broker.series.published import NOTHING
from broker.topics.backlog_size import size_behind
from broker.topics.compaction.counts import CompactionCounts
from broker.topics.exclusive import AnyTopic
from broker.topics.non_persistent.subscription import NonPersistentSubscription
from broker.topics.producer import Producer
from broker.topics.quotas.backlog import quotas_of, size_of
from broker.topics.topic import Topic

Row: TypeAlias = Sequence[float]
AnySubscription: TypeAlias = Subscription | NonPersistentSubscription

_NEVER: Final = CompactionCounts()


def of_topic(topic: AnyTopic, ages: BacklogAges) -> Row:
    """Return OF_TOPIC, and of a persistent topic OF_STORED_TOPIC behind them."""
    rates = topic.context.measures.of(topic)
    subscriptions: Sequence[AnySubscription] = list(topic.subscriptions.values())
    common = (
        len(subscriptions),
        len(topic.producers),
        sum([len(each.consumers) for each in subscriptions]),
        rates.messages_in,
        rates.messages_out,
        rates.bytes_in,
        rates.bytes_out,
        rates.bytes_in / rates.messages_in if rates.messages_in else 0,
        topic.messages_in,
        topic.bytes_in,
        0 if topic.rates is None else topic.rates.times_limited,
    )
    if not isinstance(topic, Topic):
        return common
    backlog = index_bytes = 0
    for subscription in topic.subscriptions.values():
        backlog += subscription.backlog
        index_bytes += subscription.delayed_index_bytes
    size, quotas = topic.ledger.size, quotas_of(topic)
    counts = _NEVER if topic.compaction is None else topic.compaction.counts
    return (
        *common,
        backlog,
        size,
        size,
        size_of(topic) if backlog else 0,
        quotas.storage.limit_bytes,
        quotas.age.limit_s,
        ages.of(topic),
        rates.entries_in,
        rates.entries_read,
        rates.cache_missed,
        index_bytes,
        *(NOTHING if topic.published is None else topic.published.last_round),
        counts.succeeded,
        counts.failed,
        counts.removed,
        counts.entries_written,
        counts.written_bytes,
        counts.duration_ms,
    )


def of_subscription(subscription: AnySubscription, wall_ms: int) -> Row:
    """Return OF_SUBSCRIPTION, and of a subscription with a position OF_STORED_SUBSCRIPTION behind them.

    `wall_ms`: the time now in ms since 1970."""
    counts, now = subscription.counts, trio.current_time()
    rates = subscription.topic.context.measures.of(subscription)
    common = (
        subscription.messages_out,
        counts.bytes_out,
        len(subscription.consumers),
        rates.messages_out,
        rates.bytes_out,
        rates.redelivered,
        rates.acked,
        wall_ms - round(1000 * (now - counts.consumed_at)) if counts.consumed_at else 0,
        wall_ms - round(1000 * (now - counts.flowed_at)) if counts.flowed_at else 0,
        wall_ms - round(1000 * (now - counts.acked_at)) if counts.acked_at else 0,
        0 if isinstance(subscription, Subscription) else subscription.dropped.rate(now),
    )
    if not isinstance(subscription, Subscription):
        return common
    many = subscription if isinstance(subscription, ManyConsumers) else None
    backlog, delayed, expiry, filtered = (
        subscription.backlog,
        subscription.delayed,
        subscription.known_expiry,
        filtered_by(subscription),
    )
    return (
        *common,
        backlog,
        max(0, backlog - delayed),
        delayed,
        many.waiting_again if many is not None else 0,
        sum([subscription.unacked_of(each) for each in subscription.consumers]),
        int(many is not None and many.is_blocked),
        rates.expired,
        0 if expiry is None else expiry.expired,
        0 if expiry is None else expiry.last_ms,
        filtered.processed,
        filtered.accepted,
        filtered.rejected,
        filtered.rescheduled,
    )


def backlog_bytes(subscription: Subscription) -> int:
    """Return the bytes that a subscription is behind."""
    return size_behind(subscription.topic.ledger, subscription.cursor.mark_delete)


def of_consumer(context: Context, consumer: Consumer[Any], permits: int, unacked: int) -> Row:
    """Return OF_CONSUMER."""
    rates = context.measures.of(consumer)
    return (
        rates.redelivered,
        unacked,
        int(consumer.blocked),
        rates.messages_out,
        rates.bytes_out,
        rates.acked,
        permits,
    )


def of_producer(context: Context, producer: Producer) -> Row:
    """Return OF_PRODUCER."""
    rates = context.measures.of(producer)
    return (rates.messages_in, rates.bytes_in, rates.bytes_in / rates.messages_in if rates.messages_in else 0)


def of_cursor(subscription: Subscription) -> Row | None:
    """Return OF_CURSOR of a durable subscription."""
    store = subscription.cursor.store
    if store is None:
        return None
    return (store.entries_written, store.bytes_written, subscription.cursor.range_count)
