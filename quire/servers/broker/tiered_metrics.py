"""Counts of reads and deletions of objects, by namespace, under Pulsar's names.

Source: Pulsar's LedgerOffloaderStatsImpl, with the labels of exposeTopicLevelMetricsInPrometheus=false: a topic reads
its objects rarely, and the log names it with each failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from quire.service.measuring.summaries import BOUNDS, WINDOW_S, Times
from quire.service.metrics import Metrics, Samples

NAMESPACES_MAX: Final = 1000
"""Namespaces with series of their own: each has about 5 KB."""
REST: Final = "quire_rest"
"""Namespace of all others."""
_MICROSECONDS: Final = tuple(1000 * bound for bound in BOUNDS)


class NamespaceCounts:
    """Counts of one namespace."""

    def __init__(self) -> None:
        self.read_errors = 0
        self.bytes_read = 0
        self.deleted = 0
        self.deletions_failed = 0
        self.opens = Times(_MICROSECONDS)
        """Times in microseconds to open an object and check its end."""
        self.reads = Times(_MICROSECONDS)
        """Times in microseconds to read a run of entries."""
        self._began = trio.current_time()
        self._base = 0
        self._rate = 0.0
        self._is_first = True

    def rate(self, now: float) -> float:
        """Return the bytes per second of the last complete window, or of the first one before it is complete."""
        passed = now - self._began
        if passed >= WINDOW_S or (self._is_first and passed > 0):
            self._rate = (self.bytes_read - self._base) / passed
        if passed >= WINDOW_S:
            self._began, self._base, self._is_first = now, self.bytes_read, False
        return self._rate


class ObjectCounts:
    """Counts of a storage since the broker was started."""

    def __init__(self) -> None:
        self.namespaces: dict[str, NamespaceCounts] = {}

    def of(self, log_name: str) -> NamespaceCounts:
        """Return the counts of the namespace of a log."""
        namespace = "/".join(log_name.split("/", 2)[:2])
        found = self.namespaces.get(namespace)
        if found is None:
            if len(self.namespaces) >= NAMESPACES_MAX:
                namespace = REST
            found = self.namespaces.setdefault(namespace, NamespaceCounts())
        return found

    @contextmanager
    def reading(self, log_name: str, timed: Callable[[NamespaceCounts], Times]) -> Iterator[NamespaceCounts]:
        """Measure a read that fails by an exception, if it is not cancelled."""
        counts, began = self.of(log_name), trio.current_time()
        try:
            yield counts
        except Exception:
            counts.read_errors += 1
            raise
        timed(counts).observe((trio.current_time() - began) * 1e6)


def register_objects(metrics: Metrics, counts: ObjectCounts | None, cluster: str) -> None:
    """Add the families of a storage of objects; None: there is none, and they have no series."""
    labels = ("cluster", "namespace")

    def each() -> Iterable[tuple[str, NamespaceCounts]]:
        return () if counts is None else list(counts.namespaces.items())

    def numbers(read: Callable[[NamespaceCounts], float]) -> Callable[[], Samples]:
        return lambda: [((cluster, namespace), read(found)) for namespace, found in each()]

    metrics.family(
        "counter",
        "brk_ledgeroffloader_read_offload_error_total",
        "Reads of objects of offloaded ledgers that failed: of entries, or of a whole object before its ledger leaves "
        "the bookies",
        labels,
        numbers(lambda found: found.read_errors),
    )
    metrics.family(
        "gauge",
        "brk_ledgeroffloader_read_offload_rate",
        "Bytes of entries read from objects, per second of the last full minute",
        labels,
        numbers(lambda found: found.rate(trio.current_time())),
    )
    metrics.family(
        "counter",
        "quire_offloaded_bytes_read",
        "Bytes of entries read from objects",
        labels,
        numbers(lambda found: found.bytes_read),
    )
    metrics.summary(
        "brk_ledgeroffloader_read_offload_index_latency",
        "Microseconds to open an object and check its end",
        labels,
        lambda: [((cluster, namespace), found.opens) for namespace, found in each()],
    )
    metrics.summary(
        "brk_ledgeroffloader_read_offload_data_latency",
        "Microseconds to read a run of entries from an object",
        labels,
        lambda: [((cluster, namespace), found.reads) for namespace, found in each()],
    )

    def deletions() -> Samples:
        for namespace, found in each():
            yield (cluster, namespace, "succeed"), found.deleted
            yield (cluster, namespace, "failed"), found.deletions_failed

    metrics.family(
        "counter",
        "brk_ledgeroffloader_delete_offload_ops_total",
        "Deletions of objects whose ledgers their topics have no more; a failed one is repeated",
        (*labels, "status"),
        deletions,
    )
