"""Metrics of the life of topics: quotas, deletion and unloading. Part of the broker's."""

from __future__ import annotations

from broker.server import Broker
from quire.service.metrics import Metrics


def register_life(metrics: Metrics, broker: Broker) -> None:
    """Add the families to `metrics`."""
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
