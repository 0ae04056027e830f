"""Families of metrics of topics, subscriptions, producers and consumers, under Pulsar's names: in the order of the
values that `broker.series.rows` makes.

Source: Pulsar's TopicStats and NamespaceStatsAggregator; a counter without _total has the original's name, and is
exposed without a type.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quire.service.metrics import LATENCY_MS, Type


class Column(NamedTuple):
    """One family."""

    type: Type
    name: str
    doc: str


def _columns(*rows: tuple[Type, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


ROUND: Final = "in the last statsUpdateFrequencyInSecs"
SIZE_NAMES: Final = ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb", "overflow")
LATENCY_NAMES: Final = tuple(f"le_{bound:g}".replace(".", "_") for bound in LATENCY_MS)

OF_TOPIC: Final = _columns(
    ("gauge", "pulsar_subscriptions_count", "Subscriptions"),
    ("gauge", "pulsar_producers_count", "Producers"),
    ("gauge", "pulsar_consumers_count", "Consumers"),
    ("gauge", "pulsar_rate_in", f"Messages published per second, {ROUND}"),
    ("gauge", "pulsar_rate_out", f"Messages delivered per second, {ROUND}"),
    ("gauge", "pulsar_throughput_in", f"Bytes published per second, {ROUND}"),
    ("gauge", "pulsar_throughput_out", f"Bytes delivered per second, {ROUND}"),
    ("gauge", "pulsar_average_msg_size", f"Mean size of a published message in bytes, {ROUND}"),
    ("counter", "pulsar_in_messages_total", "Messages published since the topic was loaded"),
    ("counter", "pulsar_in_bytes_total", "Bytes published since the topic was loaded"),
    ("counter", "pulsar_publish_rate_limit_times", "Times that a publisher was held for the rate of the topic"),
)
"""Families of persistent and non-persistent topics."""

OF_STORED_TOPIC: Final = _columns(
    ("gauge", "pulsar_msg_backlog", "Entries not acknowledged, over all subscriptions"),
    ("gauge", "pulsar_storage_size", "Bytes of payload kept, one copy of them"),
    ("gauge", "pulsar_storage_logical_size", "Bytes of payload kept, one copy of them"),
    ("gauge", "pulsar_storage_backlog_size", "Bytes that the slowest durable subscription is behind"),
    ("gauge", "pulsar_storage_backlog_quota_limit", "Bytes that it may be behind; -1: no limit"),
    (
        "gauge",
        "pulsar_storage_backlog_quota_limit_time",
        "Seconds for which a message may be left unacknowledged; -1: no limit",
    ),
    (
        "gauge",
        "pulsar_storage_backlog_age_seconds",
        "Age of the oldest unacknowledged entry of durable subscriptions; 0: there is none, -1: not known yet",
    ),
    ("gauge", "pulsar_storage_write_rate", f"Entries stored per second, {ROUND}"),
    ("gauge", "pulsar_storage_read_rate", f"Entries read per second, from the cache or at bookies, {ROUND}"),
    (
        "gauge",
        "pulsar_storage_read_cache_misses_rate",
        f"Reads per second that found nothing in the cache, {ROUND}",
    ),
    ("gauge", "pulsar_delayed_message_index_size_bytes", "Memory of the indexes of delayed entries, about"),
    *(
        (
            "gauge",
            f"pulsar_storage_write_latency_{name}",
            f"Entries stored within so many milliseconds of their arrival and not within the next lower bound, {ROUND}",
        )
        for name in LATENCY_NAMES
    ),
    (
        "gauge",
        "pulsar_storage_write_latency_overflow",
        f"Entries stored later than all bounds after their arrival, {ROUND}",
    ),
    ("gauge", "pulsar_storage_write_latency_count", f"Entries stored {ROUND}"),
    ("gauge", "pulsar_storage_write_latency_sum", f"Sum of their latencies in microseconds, {ROUND}"),
    *(
        (
            "gauge",
            f"pulsar_entry_size_le_{name}",
            f"Entries published of at most that size and above the next lower bound, {ROUND}",
        )
        for name in SIZE_NAMES
    ),
    ("gauge", "pulsar_entry_size_count", f"Entries published {ROUND}"),
    ("gauge", "pulsar_entry_size_sum", f"Their bytes, {ROUND}"),
    ("counter", "pulsar_compaction_succeed_count", "Compactions of the topic"),
    ("counter", "pulsar_compaction_failed_count", "Compactions of the topic that failed"),
    ("counter", "pulsar_compaction_removed_event_count", "Messages that compactions left out"),
    ("counter", "pulsar_compaction_compacted_entries_count", "Entries that compactions wrote"),
    ("counter", "pulsar_compaction_compacted_entries_size", "Bytes that compactions wrote"),
    ("gauge", "pulsar_compaction_duration_time_in_mills", "Duration of the last compaction in milliseconds"),
)
"""Families of persistent topics alone, behind those of OF_TOPIC."""

OF_SUBSCRIPTION: Final = _columns(
    ("counter", "pulsar_out_messages_total", "Messages sent to consumers since the topic was loaded"),
    ("counter", "pulsar_out_bytes_total", "Bytes sent to consumers since the topic was loaded"),
    ("gauge", "pulsar_subscription_consumers_count", "Consumers"),
    ("gauge", "pulsar_subscription_msg_rate_out", f"Messages delivered per second, {ROUND}"),
    ("gauge", "pulsar_subscription_msg_throughput_out", f"Bytes delivered per second, {ROUND}"),
    ("gauge", "pulsar_subscription_msg_rate_redeliver", f"Messages delivered again per second, {ROUND}"),
    ("gauge", "pulsar_subscription_msg_ack_rate", f"Messages acknowledged per second, {ROUND}"),
    ("gauge", "pulsar_subscription_last_consumed_timestamp", "Time of the last delivery in ms since 1970; 0: none"),
    ("gauge", "pulsar_subscription_last_consumed_flow_timestamp", "Time of the last FLOW in ms since 1970; 0: none"),
    ("gauge", "pulsar_subscription_last_acked_timestamp", "Time of the last ACK in ms since 1970; 0: none"),
    (
        "gauge",
        "pulsar_subscription_msg_drop_rate",
        "Messages per second of a non-persistent topic that no consumer had permits for",
    ),
)

OF_STORED_SUBSCRIPTION: Final = _columns(
    ("gauge", "pulsar_subscription_back_log", "Entries not acknowledged"),
    ("gauge", "pulsar_subscription_back_log_no_delayed", "Entries not acknowledged, without those that are delayed"),
    ("gauge", "pulsar_subscription_delayed", "Entries that wait for their delivery time"),
    ("gauge", "pulsar_subscription_in_replay", "Entries that wait to be delivered again"),
    ("gauge", "pulsar_subscription_unacked_messages", "Messages sent and not acknowledged"),
    (
        "gauge",
        "pulsar_subscription_blocked_on_unacked_messages",
        "1: nothing is delivered, because too many messages are not acknowledged",
    ),
    ("gauge", "pulsar_subscription_msg_rate_expired", f"Entries that expired per second, {ROUND}"),
    ("counter", "pulsar_subscription_total_msg_expired", "Entries that expired since the topic was loaded"),
    ("gauge", "pulsar_subscription_last_expire_timestamp", "Time of the last expiry in ms since 1970; 0: none"),
    ("counter", "pulsar_subscription_filter_processed_msg_count", "Messages that entry filters were asked about"),
    ("counter", "pulsar_subscription_filter_accepted_msg_count", "Messages that entry filters accepted"),
    ("counter", "pulsar_subscription_filter_rejected_msg_count", "Messages that entry filters rejected"),
    ("counter", "pulsar_subscription_filter_rescheduled_msg_count", "Messages that entry filters rescheduled"),
)
"""Families of subscriptions of persistent topics alone, behind those of OF_SUBSCRIPTION."""

BACKLOG_BYTES: Final = Column(
    "gauge",
    "quire_subscription_back_log_bytes",
    "Bytes that the subscription is behind (exposeSubscriptionBacklogSizeInPrometheus)",
)

OF_CONSUMER: Final = _columns(
    ("gauge", "pulsar_consumer_msg_rate_redeliver", f"Messages delivered again per second, {ROUND}"),
    ("gauge", "pulsar_consumer_unacked_messages", "Messages sent and not acknowledged"),
    ("gauge", "pulsar_consumer_blocked_on_unacked_messages", "1: it gets nothing, because it holds too many messages"),
    ("gauge", "pulsar_consumer_msg_rate_out", f"Messages delivered per second, {ROUND}"),
    ("gauge", "pulsar_consumer_msg_throughput_out", f"Bytes delivered per second, {ROUND}"),
    ("gauge", "pulsar_consumer_msg_ack_rate", f"Messages acknowledged per second, {ROUND}"),
    ("gauge", "pulsar_consumer_available_permits", "Messages that it may still be sent"),
)
"""With exposeConsumerLevelMetricsInPrometheus."""

OF_PRODUCER: Final = _columns(
    ("gauge", "pulsar_producer_msg_rate_in", f"Messages published per second, {ROUND}"),
    ("gauge", "pulsar_producer_msg_throughput_in", f"Bytes published per second, {ROUND}"),
    ("gauge", "pulsar_producer_msg_average_Size", f"Mean size of a message in bytes, {ROUND}"),
)
"""With exposeProducerLevelMetricsInPrometheus."""

OF_CURSOR: Final = _columns(
    ("counter", "pulsar_ml_cursor_persistLedgerSucceed", "Entries written to ledgers of the cursor"),
    ("counter", "pulsar_ml_cursor_writeLedgerSize", "Bytes written to ledgers of the cursor"),
    (
        "gauge",
        "pulsar_ml_cursor_nonContiguousDeletedMessagesRange",
        "Ranges acknowledged behind an unacknowledged entry",
    ),
)
"""With exposeManagedCursorMetricsInPrometheus; labels of the original."""

BY_NAMESPACE: Final = _columns(
    ("gauge", "pulsar_ml_AddEntryMessagesRate", f"Entries stored per second, {ROUND}"),
    ("gauge", "pulsar_ml_AddEntryBytesRate", f"Bytes published per second, {ROUND}"),
    ("gauge", "pulsar_ml_ReadEntriesRate", f"Entries read per second, {ROUND}"),
    (
        "gauge",
        "pulsar_ml_ReadEntriesOpsCacheMissesRate",
        f"Reads per second that found nothing in the cache, {ROUND}",
    ),
    ("gauge", "pulsar_ml_NumberOfMessagesInBacklog", "Entries not acknowledged, over all subscriptions"),
    ("gauge", "pulsar_ml_StoredMessagesSize", "Bytes of payload kept"),
)
"""With exposeManagedLedgerMetricsInPrometheus."""

OF_BROKER: Final = _columns(
    ("gauge", "pulsar_broker_topics_count", "Topics loaded"),
    ("gauge", "pulsar_broker_subscriptions_count", "Their subscriptions"),
    ("gauge", "pulsar_broker_producers_count", "Their producers"),
    ("gauge", "pulsar_broker_consumers_count", "Their consumers"),
    ("gauge", "pulsar_broker_rate_in", f"Messages published per second, {ROUND}"),
    ("gauge", "pulsar_broker_rate_out", f"Messages delivered per second, {ROUND}"),
    ("gauge", "pulsar_broker_throughput_in", f"Bytes published per second, {ROUND}"),
    ("gauge", "pulsar_broker_throughput_out", f"Bytes delivered per second, {ROUND}"),
    ("gauge", "pulsar_broker_msg_backlog", "Entries not acknowledged"),
    ("gauge", "pulsar_broker_storage_size", "Bytes of payload kept, one copy of them"),
    ("gauge", "pulsar_broker_storage_logical_size", "Bytes of payload kept, one copy of them"),
    ("gauge", "pulsar_broker_storage_write_rate", f"Entries stored per second, {ROUND}"),
    ("gauge", "pulsar_broker_storage_read_rate", f"Entries read per second, {ROUND}"),
    ("gauge", "pulsar_broker_storage_read_cache_misses_rate", f"Reads that found nothing in the cache, {ROUND}"),
)
