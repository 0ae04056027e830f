"""The dashboard of streaming queries of Spark."""

from __future__ import annotations

from typing import Final

from tools.monitoring.panels import Dashboard, Panel, Query, Row, Variable

_SPARK: Final = '{subscription=~"$subscription"}'
_OF_QUERIES: Final = "and on (topic, namespace)"
SPARK: Final = Dashboard(
    "quire-spark",
    "Quire / Spark",
    "Streaming queries as the brokers see them: each keeps a durable subscription, which advances when a batch is in "
    "the checkpoint. Batches, rows and times of a query are in Spark's own user interface and metrics.",
    (
        Variable(
            "subscription",
            "Query",
            'label_values(pulsar_subscription_back_log{subscription=~".*spark.*"}, subscription)',
        ),
    ),
    (
        Row(
            "Lag",
            (
                Panel(
                    "Entries behind",
                    "short",
                    "Entries after the last committed batch of each query and topic. A saw is normal: it falls with "
                    "each commit. A line that only rises: see QuireSparkQueryLags.",
                    (Query(f"pulsar_subscription_back_log{_SPARK}", "{{subscription}} {{topic}}"),),
                    width=12,
                ),
                Panel(
                    "Entries behind, by query",
                    "short",
                    "Over all topics and partitions of a query.",
                    (Query(f"sum by (subscription) (pulsar_subscription_back_log{_SPARK})", "{{subscription}}"),),
                    width=12,
                ),
                Panel(
                    "Commits",
                    "short",
                    "Times within five minutes that the backlog of a query became smaller: a lower bound of its "
                    "commits. 0 while entries wait: the query does not run.",
                    (
                        Query(
                            f"max by (subscription) (resets(pulsar_subscription_back_log{_SPARK}[5m]))",
                            "{{subscription}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Bytes behind",
                    "bytes",
                    "Bytes that the slowest subscription of each topic of a query is behind. It may be another one.",
                    (
                        Query(
                            "max by (topic) (pulsar_storage_backlog_size "
                            f"{_OF_QUERIES} pulsar_subscription_back_log{_SPARK})",
                            "{{topic}}",
                        ),
                    ),
                    width=12,
                ),
            ),
        ),
        Row(
            "Load on brokers",
            (
                Panel(
                    "Published to the topics of queries",
                    "ops",
                    "Messages per second that producers send to topics that a query reads.",
                    (
                        Query(
                            "sum by (topic) (rate(pulsar_in_messages_total[$__rate_interval]) "
                            f"{_OF_QUERIES} pulsar_subscription_back_log{_SPARK})",
                            "{{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Reads from bookies",
                    "ops",
                    "Reads per second by brokers at bookies, for all readers. A query that is behind causes them.",
                    (Query("sum by (instance) (rate(pulsar_ml_ledger_reads[$__rate_interval]))", "{{instance}}"),),
                ),
                Panel(
                    "Requests of planners",
                    "ops",
                    "Answers of the web ports per second: each batch asks for the ledgers of its topics.",
                    (Query("sum by (status) (rate(quire_web_answers_total[$__rate_interval]))", "{{status}}"),),
                ),
            ),
        ),
    ),
)
