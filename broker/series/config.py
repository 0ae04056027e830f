"""Choice of the metrics that a broker exposes, and of the number of topics in them. Names and defaults of the keys are
Pulsar's."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    """Options of /metrics."""

    topics: bool = conf_key(
        "exposeTopicLevelMetricsInPrometheus",
        True,
        doc="Expose metrics of topics and subscriptions. false: sums of namespaces only.",
    )
    consumers: bool = conf_key(
        "exposeConsumerLevelMetricsInPrometheus", False, doc="Expose metrics of single consumers too."
    )
    producers: bool = conf_key(
        "exposeProducerLevelMetricsInPrometheus", False, doc="Expose metrics of single producers too."
    )
    managed_ledgers: bool = conf_key(
        "exposeManagedLedgerMetricsInPrometheus",
        True,
        doc="Expose metrics of managed ledgers (pulsar_ml_...), as sums of namespaces.",
    )
    cursors: bool = conf_key(
        "exposeManagedCursorMetricsInPrometheus",
        False,
        doc="Expose metrics of the cursors of subscriptions (pulsar_ml_cursor_...).",
    )
    backlog_bytes: bool = conf_key(
        "exposeSubscriptionBacklogSizeInPrometheus",
        False,
        doc="Expose the bytes that each subscription is behind.",
    )
    ledger_client: bool = conf_key(
        "bookkeeperClientExposeStatsToPrometheus",
        False,
        doc="Expose metrics of the client of the bookies (pulsar_managedLedger_client_bookkeeper_client_...).",
    )
    split_partition: bool = conf_key(
        "splitTopicAndPartitionLabelInPrometheus",
        False,
        doc="Label partitions with the name of their topic, and the number of the partition in a label of its own "
        "(partition, -1 for a topic without partitions).",
    )
    topics_max: int = conf_key(
        "quireMaxTopicsInMetrics",
        2000,
        minimum=0,
        doc="Topics with series of their own in /metrics. All others are summed in one series of each namespace, with "
        "the topic quire_rest.",
    )
    parts_max: int = conf_key(
        "quireMaxSubscriptionsInMetrics",
        5000,
        minimum=0,
        doc="Subscriptions, consumers and producers, each for itself, with series of their own in /metrics. All other "
        "subscriptions are summed with the name quire_rest, other consumers and producers are left out.",
    )
