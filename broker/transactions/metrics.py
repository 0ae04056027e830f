"""Metrics of transactions, under Pulsar's names. Part of the broker's.

Source: Pulsar's TransactionAggregator, NamespaceStatsAggregator, PendingAckHandleStatsImpl and
TransactionBufferClientStatsImpl, whose summaries with quantiles are histograms here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from broker.topics.topic import Topic
from broker.transactions.buffer_state import BufferState
from broker.transactions.coordinator import EXECUTION_BOUNDS_MS, Coordinator
from broker.transactions.pending_acks import AcksInTransactions
from broker.transactions.service import TransactionService
from broker.transactions.told_ends import EndsOfTopic, ToldEnds
from broker.transactions.topic_transactions import TransactionsOfTopic
from quire.service.metrics import Histogram, Kind, Metrics, Samples

Loaded = Callable[[], list[Topic]]


def register_transactions(metrics: Metrics, service: TransactionService, loaded: Loaded, cluster: str) -> None:
    """Add the families to `metrics`. `loaded`: returns the topics of the broker."""

    def coordinators(read: Callable[[Coordinator], float]) -> Callable[[], Samples]:
        return lambda: [((cluster, str(number)), read(each)) for number, each in sorted(service.coordinators.items())]

    labels = ("cluster", "coordinator_id")
    metrics.family(
        "gauge",
        "pulsar_txn_active_count",
        "Transactions that are not over",
        labels,
        coordinators(lambda each: len(each.state.transactions)),
    )
    counts: tuple[tuple[str, str, Callable[[Coordinator], float]], ...] = (
        ("created", "Transactions opened", lambda each: each.state.created),
        ("committed", "Transactions that were committed everywhere", lambda each: each.state.committed),
        ("aborted", "Transactions that were aborted everywhere", lambda each: each.state.aborted),
        ("timeout", "Transactions aborted for their time-out", lambda each: each.state.timed_out),
        ("append_log", "Records written to the log of the coordinator", lambda each: each.records.appended),
    )
    for name, text, read in counts:
        metrics.family("counter", f"pulsar_txn_{name}_total", text, labels, coordinators(read))
    for number, bound in enumerate([*(f"{bound:.0f}" for bound in EXECUTION_BOUNDS_MS), "overflow"]):
        metrics.family(
            "counter",
            f"pulsar_txn_execution_latency_le_{bound}",
            "Transactions that took at most so many milliseconds from their begin to their end, and more than the next"
            " lower bound",
            labels,
            coordinators(partial(_executed, number)),
        )

    def topics(read: Callable[[BufferState], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for topic, found in _with_transactions(loaded):
                if found.buffer is not None:
                    yield (cluster, topic.name.namespace_path, topic.name.full), read(found.buffer.state)

        return samples

    of_topic: tuple[tuple[Kind, str, str, Callable[[BufferState], float]], ...] = (
        ("gauge", "active", "Transactions that are open on the topic", lambda state: len(state.open)),
        ("counter", "committed", "Transactions committed on the topic", lambda state: state.committed),
        ("counter", "aborted", "Transactions aborted on the topic", lambda state: state.aborted_count),
    )
    for kind, name, text, of_state in of_topic:
        metrics.family(kind, f"pulsar_txn_tb_{name}_total", text, ("cluster", "namespace", "topic"), topics(of_state))

    def subscriptions(read: Callable[[AcksInTransactions], tuple[int, int]]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for topic, found in _with_transactions(loaded):
                for name, acks in list(found.acks.items()):
                    base = (cluster, topic.name.namespace_path, topic.name.full, name)
                    succeeded, failed = read(acks)
                    yield (*base, "succeed"), succeeded
                    yield (*base, "failed"), failed

        return samples

    of_subscription: tuple[tuple[str, str, Callable[[AcksInTransactions], tuple[int, int]]], ...] = (
        ("committed", "Commits of what a subscription acknowledged", lambda acks: acks.commits),
        ("aborted", "Aborts of what a subscription acknowledged", lambda acks: acks.aborts),
    )
    for name, text, of_acks in of_subscription:
        metrics.family(
            "counter",
            f"pulsar_txn_tp_{name}_count_total",
            text,
            ("cluster", "namespace", "topic", "subscription", "status"),
            subscriptions(of_acks),
        )

    def commit_times() -> Iterator[tuple[Sequence[str], Histogram]]:
        for topic, found in _with_transactions(loaded):
            for name, acks in list(found.acks.items()):
                yield (cluster, topic.name.namespace_path, topic.name.full, name), acks.commit_us

    metrics.histogram_family(
        "pulsar_txn_tp_commit_latency",
        "Times to store the commits of what a subscription acknowledged, in microseconds",
        ("cluster", "namespace", "topic", "subscription"),
        commit_times,
    )
    _register_told(metrics, service.told, cluster)


def _register_told(metrics: Metrics, told: ToldEnds, cluster: str) -> None:
    """Add what coordinators told participants."""

    def labels(ends: EndsOfTopic) -> Sequence[str]:
        return cluster, ends.name.namespace_path, ends.name.full

    names = ("cluster", "namespace", "topic")
    kinds: tuple[tuple[str, Callable[[EndsOfTopic], float], Callable[[EndsOfTopic], Histogram]], ...] = (
        ("commit", lambda ends: ends.commits_failed, lambda ends: ends.commit_ns),
        ("abort", lambda ends: ends.aborts_failed, lambda ends: ends.abort_ns),
    )
    for kind, failed, times in kinds:
        metrics.family(
            "counter",
            f"pulsar_txn_tb_client_{kind}_failed_total",
            f"Requests to {kind} a transaction on a topic that failed, and are made again",
            names,
            partial(_samples, told, labels, failed),
        )
        metrics.histogram_family(
            f"pulsar_txn_tb_client_{kind}_latency",
            f"Times of requests to {kind} a transaction on a topic, in nanoseconds",
            names,
            partial(_histograms, told, labels, times),
        )
    metrics.family(
        "gauge",
        "pulsar_txn_tb_client_pending_requests",
        "Requests to end transactions on topics that are not answered yet",
        ("cluster",),
        lambda: [((cluster,), told.pending)],
    )


def _samples(
    told: ToldEnds, labels: Callable[[EndsOfTopic], Sequence[str]], read: Callable[[EndsOfTopic], float]
) -> Samples:
    for ends in list(told.topics.values()):
        yield labels(ends), read(ends)


def _histograms(
    told: ToldEnds, labels: Callable[[EndsOfTopic], Sequence[str]], read: Callable[[EndsOfTopic], Histogram]
) -> Iterator[tuple[Sequence[str], Histogram]]:
    for ends in list(told.topics.values()):
        yield labels(ends), read(ends)


def _executed(number: int, coordinator: Coordinator) -> float:
    return coordinator.execution_ms.counts[number]


def _with_transactions(loaded: Loaded) -> Iterator[tuple[Topic, TransactionsOfTopic]]:
    for topic in loaded():
        found = topic.transactions
        if isinstance(found, TransactionsOfTopic):
            yield topic, found
