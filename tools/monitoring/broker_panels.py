"""Rows of panels about brokers, which the dashboards of brokers and of a standalone server share."""

from __future__ import annotations

from typing import Final

from tools.monitoring.panels import Panel, Query, Row, Variable

HERE: Final = '{job=~"$job", instance=~"$instance"}'
TOPICS: Final = '{job=~"$job", instance=~"$instance", namespace=~"$namespace"}'
VARIABLES: Final = (
    Variable("job", "Job", "label_values(pulsar_version_info, job)"),
    Variable("instance", "Instance", 'label_values(pulsar_version_info{job=~"$job"}, instance)'),
    Variable("namespace", "Namespace", 'label_values(pulsar_producers_count{job=~"$job"}, namespace)'),
)


def rate(name: str, labels: str = HERE) -> str:
    """Return the rate of a counter per second, over the range that Grafana takes for the step."""
    return f"rate({name}{labels}[$__rate_interval])"


def quantile(share: float, name: str, labels: str = HERE) -> str:
    """Return a quantile of a histogram, of each instance."""
    return f"histogram_quantile({share}, sum by (instance, le) ({rate(name + '_bucket', labels)}))"


def mean(name: str, labels: str = HERE) -> str:
    """Return the mean of what a pair of _sum and _count counted, of each instance."""
    return f"sum by (instance) ({rate(name + '_sum', labels)}) / sum by (instance) ({rate(name + '_count', labels)})"


OVERVIEW: Final = Row(
    "Overview",
    (
        Panel(
            "Up",
            "short",
            "Processes that answer Prometheus. Fewer than were started: see QuireBrokerDown.",
            (Query('sum(up{job=~"$job", instance=~"$instance"})', "up"),),
            kind="stat",
            width=4,
            warning_below=1,
        ),
        Panel(
            "Health",
            "none",
            "Least result of the last health checks: 1 passed, 0 failed, -1 none was made yet.",
            (Query(f"min(pulsar_health{HERE})", "least"),),
            kind="stat",
            width=4,
        ),
        Panel(
            "Topics",
            "short",
            "Loaded topics, over all instances.",
            (Query(f"sum(pulsar_topics_count{HERE})", "topics"),),
            kind="stat",
            width=4,
        ),
        Panel(
            "Published",
            "ops",
            "Messages received from producers per second, over all topics.",
            (Query(f"sum({rate('pulsar_in_messages_total', TOPICS)})", "messages"),),
            kind="stat",
            width=4,
        ),
        Panel(
            "Delivered",
            "ops",
            "Messages sent to consumers per second, over all subscriptions.",
            (Query(f"sum({rate('pulsar_out_messages_total', TOPICS)})", "messages"),),
            kind="stat",
            width=4,
        ),
        Panel(
            "Backlog",
            "short",
            "Entries not acknowledged, over all subscriptions.",
            (Query(f"sum(pulsar_broker_msg_backlog{HERE})", "entries"),),
            kind="stat",
            width=4,
        ),
    ),
)
TRAFFIC: Final = Row(
    "Traffic",
    (
        Panel(
            "Messages",
            "ops",
            "Messages per second. Out is above in where topics have several subscriptions.",
            (
                Query(f"sum by (instance) ({rate('pulsar_in_messages_total', TOPICS)})", "in {{instance}}"),
                Query(f"sum by (instance) ({rate('pulsar_out_messages_total', TOPICS)})", "out {{instance}}"),
            ),
        ),
        Panel(
            "Bytes published",
            "Bps",
            "Bytes received from producers per second.",
            (Query(f"sum by (instance) ({rate('pulsar_in_bytes_total', TOPICS)})", "{{instance}}"),),
        ),
        Panel(
            "Busiest topics",
            "ops",
            "The ten topics with most published messages per second.",
            (Query(f"topk(10, sum by (topic) ({rate('pulsar_in_messages_total', TOPICS)}))", "{{topic}}"),),
        ),
        Panel(
            "Producers held by rate limits",
            "ops",
            "Times per second that a producer was held for the publish rate. Normal: 0.",
            (Query(f"sum by (topic) ({rate('pulsar_publish_rate_limit_times', TOPICS)})", "{{topic}}"),),
        ),
        Panel(
            "Time to store",
            "ms",
            "Time from the arrival of a message until the ack quorum of bookies has it on disk: half of them, and "
            "99 of 100.",
            (
                Query(quantile(0.5, "quire_publish_latency_ms"), "p50 {{instance}}"),
                Query(quantile(0.99, "quire_publish_latency_ms"), "p99 {{instance}}"),
            ),
            warning_above=250,
        ),
        Panel(
            "Time to deliver",
            "ms",
            "Time from the arrival of a message until it is given to the connection of a consumer that keeps up: 99 of "
            "100 messages.",
            (Query(quantile(0.99, "quire_dispatch_latency_ms"), "p99 {{instance}}"),),
        ),
        Panel(
            "Time to store acknowledgements",
            "ms",
            "Time to store acknowledgements in the ledger of a cursor: 99 of 100.",
            (Query(quantile(0.99, "quire_cursor_persist_latency_ms"), "p99 {{instance}}"),),
        ),
        Panel(
            "Storage",
            "bytes",
            "Bytes of payload kept, by namespace, without copies.",
            (Query(f"sum by (namespace) (pulsar_storage_size{TOPICS})", "{{namespace}}"),),
        ),
        Panel(
            "Producers and consumers",
            "short",
            "Producers, consumers and subscriptions that are open now.",
            (
                Query(f"sum(pulsar_producers_count{TOPICS})", "producers"),
                Query(f"sum(pulsar_consumers_count{TOPICS})", "consumers"),
                Query(f"sum(pulsar_subscriptions_count{TOPICS})", "subscriptions"),
            ),
        ),
    ),
)
SUBSCRIPTIONS: Final = Row(
    "Subscriptions",
    (
        Panel(
            "Largest backlogs",
            "short",
            "Entries not acknowledged, of the ten subscriptions with most. A line that only rises: see "
            "QuireSubscriptionStandsStill.",
            (Query(f"topk(10, pulsar_subscription_back_log{TOPICS})", "{{topic}} {{subscription}}"),),
        ),
        Panel(
            "Age of backlogs",
            "s",
            "Age of the oldest message that a subscription of the topic has not acknowledged, of the ten oldest. Above "
            "an hour, and growing: QuireBacklogAgeGrows.",
            (Query(f"topk(10, pulsar_storage_backlog_age_seconds{TOPICS})", "{{topic}}"),),
        ),
        Panel(
            "Backlog in bytes",
            "bytes",
            "Bytes that the slowest subscription of a topic is behind, of the ten topics with most.",
            (Query(f"topk(10, pulsar_storage_backlog_size{TOPICS})", "{{topic}}"),),
        ),
        Panel(
            "Unacknowledged",
            "short",
            "Messages that consumers hold, of the ten subscriptions with most. At maxUnackedMessagesPerConsumer "
            "nothing more is delivered.",
            (Query(f"topk(10, pulsar_subscription_unacked_messages{TOPICS})", "{{topic}} {{subscription}}"),),
        ),
        Panel(
            "Delivered again",
            "ops",
            "Messages per second that were delivered before, since a consumer asked for that or was lost. Normal: 0.",
            (
                Query(
                    f"topk(10, pulsar_subscription_msg_rate_redeliver{TOPICS})",
                    "{{topic}} {{subscription}}",
                ),
            ),
        ),
        Panel(
            "Acknowledged",
            "ops",
            "Messages acknowledged per second, of the ten fastest subscriptions.",
            (Query(f"topk(10, pulsar_subscription_msg_ack_rate{TOPICS})", "{{topic}} {{subscription}}"),),
        ),
        Panel(
            "Delayed",
            "short",
            "Entries that wait for their delivery time, of the ten subscriptions with most.",
            (Query(f"topk(10, pulsar_subscription_delayed{TOPICS})", "{{topic}} {{subscription}}"),),
        ),
        Panel(
            "Expired",
            "ops",
            "Entries per second that nobody consumed within the time to live.",
            (
                Query(
                    f"sum by (topic, subscription) ({rate('pulsar_subscription_total_msg_expired', TOPICS)})",
                    "{{topic}} {{subscription}}",
                ),
            ),
        ),
        Panel(
            "Entries read from bookies",
            "ops",
            "Reads that the tail cache could answer, and those that went to bookies. Consumers that keep up cause none "
            "of the latter.",
            (
                Query(f"sum by (instance) ({rate('pulsar_ml_cache_hits')})", "cache {{instance}}"),
                Query(f"sum by (instance) ({rate('pulsar_ml_ledger_reads')})", "bookies {{instance}}"),
            ),
        ),
    ),
)
CLIENTS: Final = Row(
    "Clients and lookups",
    (
        Panel(
            "Connections",
            "short",
            "Connections of clients that are open now.",
            (Query(f"pulsar_active_connections{HERE}", "{{instance}}"),),
        ),
        Panel(
            "New connections",
            "ops",
            "Connections per second that began and ended. Both high: clients reconnect all the time.",
            (
                Query(rate("pulsar_connection_created_total_count"), "begun {{instance}}"),
                Query(rate("pulsar_connection_closed_total_count"), "ended {{instance}}"),
            ),
        ),
        Panel(
            "Lookups",
            "ops",
            "Answers to lookups per second: the address of the owner, a redirection, or a refusal.",
            (
                Query(f"sum({rate('pulsar_broker_lookup_answers')})", "answered"),
                Query(f"sum({rate('pulsar_broker_lookup_redirects')})", "redirected"),
                Query(f"sum({rate('pulsar_broker_lookup_failures')})", "refused"),
            ),
        ),
        Panel(
            "Time of a lookup",
            "ms",
            "99 of 100 lookups took at most this long.",
            (Query(quantile(0.99, "pulsar_broker_lookup"), "p99 {{instance}}"),),
        ),
        Panel(
            "Time to load a topic",
            "ms",
            "99 of 100 loads took at most this long, without those that failed.",
            (Query(quantile(0.99, "pulsar_topic_load_times"), "p99 {{instance}}"),),
        ),
        Panel(
            "Time of a metadata operation",
            "ms",
            "99 of 100 operations of the metadata store took at most this long, by kind.",
            (
                Query(
                    "histogram_quantile(0.99, sum by (type, le) "
                    f"({rate('pulsar_metadata_store_ops_latency_ms_bucket')}))",
                    "p99 {{type}}",
                ),
            ),
        ),
        Panel(
            "Tail cache",
            "bytes",
            "Bytes in the tail caches of topics. Its bound is managedLedgerCacheSizeMB.",
            (Query(f"pulsar_ml_cache_used_size{HERE}", "{{instance}}"),),
        ),
        Panel(
            "Answers of the web port",
            "ops",
            "Answers per second by the first digit of their status. 5xx should be 0.",
            (Query(f"sum by (status) ({rate('quire_web_answers_total')})", "{{status}}"),),
        ),
    ),
)
