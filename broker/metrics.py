"""Metrics of the broker under Pulsar's names, read at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from broker.dispatch.subscription import Subscription
from broker.life_metrics import register_life
from broker.server import Broker
from broker.topics.topic import Topic
from quire import installed_version
from quire.service.metrics import Metrics, Samples
from quire.service.serve import ConnectionCounts

TOPIC_LABELS = ("cluster", "namespace", "topic")
TOPICS_IN_STEP = 200
"""Topics that a sum reads before other tasks run."""
SUBSCRIPTION_LABELS = (*TOPIC_LABELS, "subscription")


def register(metrics: Metrics, broker: Broker, counts: ConnectionCounts, cluster: str) -> None:
    """Add the broker's families to `metrics`."""

    def version() -> Samples:
        yield (cluster, installed_version()), 1

    def topics(read: Callable[[Topic], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for topic in broker.topics.loaded():
                yield (cluster, topic.name.namespace_path, topic.name.full), read(topic)

        return samples

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

    def consumers(topic: Topic) -> int:
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
        "counter", "pulsar_in_messages_total", "Messages published", TOPIC_LABELS, topics(lambda t: t.messages_in)
    )
    metrics.family("counter", "pulsar_in_bytes_total", "Bytes published", TOPIC_LABELS, topics(lambda t: t.bytes_in))
    metrics.family("gauge", "pulsar_producers_count", "Producers", TOPIC_LABELS, topics(lambda t: len(t.producers)))
    metrics.family("gauge", "pulsar_consumers_count", "Consumers", TOPIC_LABELS, topics(consumers))
    metrics.family("gauge", "pulsar_msg_backlog", "Entries not acknowledged", TOPIC_LABELS, topics(backlog))
    metrics.family(
        "gauge", "pulsar_storage_size", "Bytes of payload kept", TOPIC_LABELS, topics(lambda t: t.ledger.size)
    )
    metrics.family(
        "gauge", "pulsar_subscriptions_count", "Subscriptions", TOPIC_LABELS, topics(lambda t: len(t.subscriptions))
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
        subscriptions(lambda s: s.messages_out),
    )
    metrics.family(
        "gauge",
        "pulsar_subscription_consumers_count",
        "Consumers",
        SUBSCRIPTION_LABELS,
        subscriptions(lambda s: len(s.consumers)),
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
    metrics.family(
        "counter",
        "quire_entries_passed_over",
        "Stored entries that no consumer could take, acknowledged in place of the consumers",
        ("cluster", "reason"),
        lambda: [((cluster, reason), count) for reason, count in broker.context.passed_over.items()],
    )
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
        ("pulsar_ml_cache_hits", "Entries read from the tail caches", lambda topic: topic.ledger.cache.hits),
        (
            "pulsar_ml_cache_misses",
            "Reads that found nothing in the tail caches",
            lambda topic: topic.ledger.cache.misses,
        ),
        ("pulsar_ml_ledger_reads", "Reads that went to bookies", lambda topic: topic.ledger.ledger_reads),
    ):
        metrics.family("counter", name, text, (), total(read))
