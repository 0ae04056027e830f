"""Metrics of the life of topics: quotas, rates, deletion and unloading. Part of the broker's."""

from __future__ import annotations

from collections.abc import Callable

from broker.server import Broker
from broker.topics.quotas.backlog import quotas_of, size_of
from broker.topics.topic import Topic
from quire.service.metrics import Metrics, Samples

ByTopic = Callable[[Callable[[Topic], float]], Callable[[], Samples]]


def register_life(metrics: Metrics, broker: Broker, labels: tuple[str, ...], topics: ByTopic) -> None:
    """Add the families to `metrics`. `topics` makes samples, with `labels`, of a value of each topic."""
    metrics.family(
        "gauge", "pulsar_storage_backlog_size", "Bytes that the slowest subscription is behind", labels, topics(size_of)
    )
    metrics.family(
        "gauge",
        "pulsar_storage_backlog_quota_limit",
        "Bytes that it may be behind; -1: no limit",
        labels,
        topics(lambda topic: quotas_of(topic).storage.limit_bytes),
    )
    metrics.family(
        "gauge",
        "pulsar_storage_backlog_quota_limit_time",
        "Seconds for which a message may be left unacknowledged; -1: no limit",
        labels,
        topics(lambda topic: quotas_of(topic).age.limit_s),
    )
    metrics.family(
        "counter",
        "pulsar_publish_rate_limit_times",
        "Times that a publisher was held for the rate of the topic",
        labels,
        topics(lambda topic: 0 if topic.rates is None else topic.rates.times_limited),
    )
    exceeded = broker.quotas.exceeded
    metrics.family(
        "counter",
        "quire_backlog_quota_exceeded",
        "Topics that a check found above their quota",
        ("quota_type",),
        lambda: [((kind,), count) for kind, count in exceeded.items()],
    )
    metrics.counter("quire_inactive_topics_deleted", "Topics deleted for want of use", lambda: broker.idle.deleted)
    metrics.counter("quire_idle_topics_unloaded", "Topics that left memory unused", lambda: broker.idle.unloaded)
