"""Metrics of the broker under Pulsar's names, read at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import TypeAlias

import trio

from broker.dispatch.filtering import Filtered, filtered_by
from broker.dispatch.subscription import Subscription
from broker.life_metrics import register_life
from broker.security.metrics import register_authentication
from broker.server import Broker
from broker.topics.compaction.counts import CompactionCounts
from broker.topics.exclusive import AnyTopic
from broker.topics.non_persistent.subscription import NonPersistentSubscription
from broker.topics.topic import Topic
from quire import installed_version
from quire.service.metrics import Metrics, Samples
from quire.service.serve import ConnectionCounts

TOPIC_LABELS = ("cluster", "namespace", "topic")
TOPICS_IN_STEP = 200
"""Topics that a sum reads before other tasks run."""
SUBSCRIPTION_LABELS = (*TOPIC_LABELS, "subscription")
FILTER_COUNTS: Mapping[str, Callable[[Filtered], int]] = {
    "processed": lambda filtered: filtered.processed,
    "accepted": lambda filtered: filtered.accepted,
    "rejected": lambda filtered: filtered.rejected,
    "rescheduled": lambda filtered: filtered.rescheduled,
}

AnySubscription: TypeAlias = Subscription | NonPersistentSubscription


def register(metrics: Metrics, broker: Broker, counts: ConnectionCounts, cluster: str) -> None:
    """Add the broker's families to `metrics`."""

    def version() -> Samples:
        yield (cluster, installed_version()), 1

    def topics(read: Callable[[Topic], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for topic in broker.topics.loaded():
                yield (cluster, topic.name.namespace_path, topic.name.full), read(topic)

        return samples

    def of_both(read: Callable[[AnyTopic], float]) -> Callable[[], Samples]:
        """Read persistent and non-persistent topics."""

        def samples() -> Samples:
            found: Iterable[AnyTopic] = chain(broker.topics.loaded(), broker.direct.loaded())
            for topic in found:
                yield (cluster, topic.name.namespace_path, topic.name.full), read(topic)

        return samples

    def of_both_kinds(read: Callable[[AnySubscription], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            found: Iterable[AnyTopic] = chain(broker.topics.loaded(), broker.direct.loaded())
            for topic in found:
                subscriptions: Iterable[AnySubscription] = list(topic.subscriptions.values())
                for subscription in subscriptions:
                    labels = (cluster, topic.name.namespace_path, topic.name.full, subscription.name)
                    yield labels, read(subscription)

        return samples

    def drop_rates() -> Samples:
        for topic in broker.direct.loaded():
            for subscription in list(topic.subscriptions.values()):
                labels = (cluster, topic.name.namespace_path, topic.name.full, subscription.name)
                yield labels, subscription.dropped.rate(trio.current_time())

    def by_namespace(counted: Counter[str]) -> Callable[[], Samples]:
        return lambda: [((cluster, namespace), count) for namespace, count in counted.items()]

    def subscriptions(read: Callable[[Subscription], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for topic in broker.topics.loaded():
                for subscription in list(topic.subscriptions.values()):
                    labels = (cluster, topic.name.namespace_path, topic.name.full, subscription.name)
                    yield labels, read(subscription)

        return samples

    metrics.family("gauge", "pulsar_version_info", "Which Quire this is", ("cluster", "version"), version)
    metrics.gauge("pulsar_active_connections", "Connections served now", lambda: counts.active)
    metrics.counter("pulsar_connection_created_total_count", "Connections accepted", lambda: counts.opened)
    metrics.counter("pulsar_connection_closed_total_count", "Connections ended", lambda: counts.closed)
    metrics.counter(
        "pulsar_connection_create_success_count", "Connections that said CONNECT", lambda: broker.context.connects
    )
    metrics.counter("quire_frames", "Frames of clients that were handled", lambda: broker.context.frames)
    metrics.counter(
        "quire_requests_not_permitted",
        "Commands and requests refused because their role lacks a permission",
        lambda: 0 if broker.authorizer is None else broker.authorizer.refused,
    )
    metrics.counter(
        "quire_permissions_taken_away",
        "Producers, consumers and watchers ended because their role has lost a permission",
        lambda: 0 if broker.takeaway is None else broker.takeaway.ended,
    )
    if broker.context.authentication is not None:
        register_authentication(metrics, broker.context.authentication)
    metrics.gauge("pulsar_health", "What the last health check found: 1, 0; -1: none yet", lambda: broker.health)
    lookups, loaded = broker.lookups, broker.topics
    metrics.histogram("pulsar_broker_lookup", "Lookups over the binary protocol, in milliseconds", lookups.times)
    metrics.counter("pulsar_broker_lookup_answers", "Of them, told who serves it", lambda: lookups.answers)
    metrics.counter("pulsar_broker_lookup_redirects", "Of them, told whom to ask", lambda: lookups.redirects)
    metrics.counter("pulsar_broker_lookup_failures", "Of them, refused", lambda: lookups.failures)
    metrics.gauge("pulsar_broker_lookup_pending_requests", "Lookups not answered yet", lambda: lookups.pending)
    metrics.histogram("pulsar_topic_load_times", "Loading a topic, in milliseconds", loaded.load_times)
    metrics.counter("pulsar_topic_load_failed_count", "Topics not loaded", lambda: loaded.loads_failed)
    metrics.gauge("pulsar_topics_count", "Topics loaded", lambda: loaded.count)
    metrics.gauge(
        "quire_namespaces_with_unsupported_policies",
        "Namespaces whose topics are not loaded, since stored policies of theirs are not obeyed",
        lambda: len(broker.topics.takeover.refused),
    )

    def total(read: Callable[[Topic], float], *labels: str) -> Callable[[], Samples]:
        def samples() -> Samples:
            found = 0.0
            for count, topic in enumerate(broker.topics.loaded(), 1):
                found += read(topic)
                if count % TOPICS_IN_STEP == 0:
                    yield None
            yield labels, found

        return samples

    def consumers(topic: AnyTopic) -> int:
        return sum(len(subscription.consumers) for subscription in topic.subscriptions.values())

    def backlog(topic: Topic) -> int:
        return sum(subscription.backlog for subscription in topic.subscriptions.values())

    reads: tuple[tuple[str, str, Callable[[Topic], float]], ...] = (
        ("pulsar_broker_topics_count", "Topics loaded", lambda topic: 1),
        ("pulsar_broker_subscriptions_count", "Their subscriptions", lambda topic: len(topic.subscriptions)),
        ("pulsar_broker_producers_count", "Their producers", lambda topic: len(topic.producers)),
        ("pulsar_broker_consumers_count", "Their consumers", consumers),
        ("pulsar_broker_msg_backlog", "Entries not acknowledged", backlog),
    )
    for name, text, read in reads:
        metrics.family("gauge", name, text, ("cluster",), total(read, cluster))
    metrics.family(
        "counter", "pulsar_in_messages_total", "Messages published", TOPIC_LABELS, of_both(lambda t: t.messages_in)
    )
    metrics.family("counter", "pulsar_in_bytes_total", "Bytes published", TOPIC_LABELS, of_both(lambda t: t.bytes_in))
    metrics.family("gauge", "pulsar_producers_count", "Producers", TOPIC_LABELS, of_both(lambda t: len(t.producers)))
    metrics.family("gauge", "pulsar_consumers_count", "Consumers", TOPIC_LABELS, of_both(consumers))
    metrics.family("gauge", "pulsar_msg_backlog", "Entries not acknowledged", TOPIC_LABELS, topics(backlog))
    metrics.family(
        "gauge", "pulsar_storage_size", "Bytes of payload kept", TOPIC_LABELS, topics(lambda t: t.ledger.size)
    )
    metrics.family(
        "gauge",
        "pulsar_subscriptions_count",
        "Subscriptions",
        TOPIC_LABELS,
        of_both(lambda t: len(t.subscriptions)),
    )
    metrics.family(
        "gauge",
        "pulsar_subscription_back_log",
        "Entries not acknowledged",
        SUBSCRIPTION_LABELS,
        subscriptions(lambda s: s.backlog),
    )
    metrics.family(
        "gauge",
        "pulsar_subscription_delayed",
        "Entries that wait for their delivery time",
        SUBSCRIPTION_LABELS,
        subscriptions(lambda s: s.delayed),
    )
    metrics.family(
        "gauge",
        "pulsar_delayed_message_index_size_bytes",
        "Memory of the index of delayed entries",
        SUBSCRIPTION_LABELS,
        subscriptions(lambda s: s.delayed_index_bytes),
    )
    metrics.family(
        "counter",
        "pulsar_out_messages_total",
        "Messages sent to consumers",
        SUBSCRIPTION_LABELS,
        of_both_kinds(lambda s: s.messages_out),
    )
    metrics.family(
        "gauge",
        "pulsar_subscription_consumers_count",
        "Consumers",
        SUBSCRIPTION_LABELS,
        of_both_kinds(lambda s: len(s.consumers)),
    )
    metrics.family(
        "gauge",
        "pulsar_subscription_msg_drop_rate",
        "Messages of non-persistent topics that no consumer had permits for, per second",
        SUBSCRIPTION_LABELS,
        drop_rates,
    )
    metrics.gauge(
        "quire_watched_namespaces", "Namespaces of which clients watch topic lists", lambda: broker.topic_lists.count
    )
    metrics.family(
        "gauge",
        "pulsar_subscription_unacked_messages",
        "Messages sent and not acknowledged",
        SUBSCRIPTION_LABELS,
        subscriptions(lambda s: sum(s.unacked_of(consumer) for consumer in s.consumers)),
    )
    metrics.family(
        "counter",
        "pulsar_subscription_total_msg_expired",
        "Entries that expired",
        SUBSCRIPTION_LABELS,
        subscriptions(lambda s: 0 if s.known_expiry is None else s.known_expiry.expired),
    )
    if broker.context.filters.standard or broker.context.filters.may_be_overridden:
        for result, count in FILTER_COUNTS.items():
            metrics.family(
                "counter",
                f"pulsar_subscription_filter_{result}_msg_count",
                f"Messages that entry filters have {result}",
                SUBSCRIPTION_LABELS,
                subscriptions(partial(_filtered, count)),
            )
    metrics.family(
        "counter",
        "quire_entries_passed_over",
        "Stored entries that no consumer could take, acknowledged in place of the consumers",
        ("cluster", "reason"),
        lambda: [((cluster, reason), count) for reason, count in broker.context.passed_over.items()],
    )

    def compactions(read: Callable[[CompactionCounts], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for count, topic in enumerate(broker.topics.loaded(), 1):
                if count % TOPICS_IN_STEP == 0:
                    yield None
                if topic.compaction is not None:
                    labels = (cluster, topic.name.namespace_path, topic.name.full)
                    yield labels, read(topic.compaction.counts)

        return samples

    counts_read: tuple[tuple[str, str, Callable[[CompactionCounts], float]], ...] = (
        ("pulsar_compaction_succeed_count", "Compactions of the topic", lambda c: c.succeeded),
        ("pulsar_compaction_failed_count", "Those that failed", lambda c: c.failed),
        ("pulsar_compaction_removed_event_count", "Messages they left out", lambda c: c.removed),
        ("pulsar_compaction_compacted_entries_count", "Entries they wrote", lambda c: c.entries_written),
        ("pulsar_compaction_compacted_entries_size", "Bytes they wrote", lambda c: c.written_bytes),
    )
    for name, text, of_topic in counts_read:
        metrics.family("counter", name, text, TOPIC_LABELS, compactions(of_topic))
    metrics.family(
        "gauge",
        "pulsar_compaction_duration_time_in_mills",
        "Duration of the last compaction",
        TOPIC_LABELS,
        compactions(lambda c: c.duration_ms),
    )
    if broker.transactions is not None:
        from broker.transactions.metrics import register_transactions  # off by default

        register_transactions(metrics, broker.transactions, broker.topics.loaded, cluster)
    register_life(metrics, broker, TOPIC_LABELS, topics)
    schemas = broker.topics.schemas.counts
    for name, text, counted in (
        ("pulsar_schema_compatible_total", "Schemas compared and found compatible", schemas.compatible),
        ("pulsar_schema_incompatible_total", "Schemas refused as incompatible", schemas.incompatible),
        ("pulsar_schema_get_ops_failed_total", "Failed queries for schemas", schemas.gets_failed),
        ("pulsar_schema_put_ops_failed_total", "Failed registrations of schemas", schemas.puts_failed),
        ("pulsar_schema_del_ops_failed_total", "Failed deletions of schemas", schemas.deletes_failed),
    ):
        metrics.family("counter", name, text, ("cluster", "namespace"), by_namespace(counted))
    for name, text, read in (
        ("pulsar_ml_cache_hits", "Entries read from the tail caches", lambda topic: topic.ledger.cache_hits),
        (
            "pulsar_ml_cache_misses",
            "Reads that found nothing in the tail caches",
            lambda topic: topic.ledger.cache_misses,
        ),
        ("pulsar_ml_ledger_reads", "Reads that went to bookies", lambda topic: topic.ledger.ledger_reads),
    ):
        metrics.family("counter", name, text, (), total(read))


def _filtered(count: Callable[[Filtered], int], subscription: Subscription) -> int:
    return count(filtered_by(subscription))
