"""The broker's numbers under Pulsar's metric names, read when somebody scrapes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.server import Broker
from broker.subscription import Subscription
from broker.topic import Topic
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts

TOPIC_LABELS = ("cluster", "namespace", "topic")
SUBSCRIPTION_LABELS = (*TOPIC_LABELS, "subscription")


def register(metrics: Metrics, broker: Broker, counts: ConnectionCounts, cluster: str) -> None:
    """Add the broker's families to `metrics`."""

    def topics(read: Callable[[Topic], float]) -> Callable[[], Iterator[tuple[tuple[str, ...], float]]]:
        def samples() -> Iterator[tuple[tuple[str, ...], float]]:
            for topic in broker.topics.loaded():
                yield (cluster, topic.name.namespace_path, topic.name.full), read(topic)

        return samples

    def subscriptions(read: Callable[[Subscription], float]) -> Callable[[], Iterator[tuple[tuple[str, ...], float]]]:
        def samples() -> Iterator[tuple[tuple[str, ...], float]]:
            for topic in broker.topics.loaded():
                for subscription in list(topic.subscriptions.values()):
                    labels = (cluster, topic.name.namespace_path, topic.name.full, subscription.name)
                    yield labels, read(subscription)

        return samples

    metrics.gauge("pulsar_active_connections", "Connections served now", lambda: counts.active)
    metrics.counter("pulsar_connection_created_total_count", "Connections accepted", lambda: counts.opened)
    metrics.gauge("pulsar_topics_count", "Topics loaded", lambda: len(broker.topics.loaded()))
    metrics.family("counter", "pulsar_in_messages", "Messages published", TOPIC_LABELS, topics(lambda t: t.messages_in))
    metrics.family("counter", "pulsar_in_bytes", "Bytes published", TOPIC_LABELS, topics(lambda t: t.bytes_in))
    metrics.family("gauge", "pulsar_producers_count", "Producers", TOPIC_LABELS, topics(lambda t: len(t.producers)))
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
        "counter",
        "pulsar_out_messages",
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
    metrics.counter(
        "pulsar_ml_cache_hits",
        "Entries read from the tail caches",
        lambda: sum(topic.ledger.cache.hits for topic in broker.topics.loaded()),
    )
    metrics.counter(
        "pulsar_ml_cache_misses",
        "Reads that found nothing in the tail caches",
        lambda: sum(topic.ledger.cache.misses for topic in broker.topics.loaded()),
    )
    metrics.counter("pulsar_ml_ledger_reads", "Reads that went to bookies", broker.ledger_reads)
