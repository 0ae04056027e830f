"""Metrics of the replication worker under the original's names, read at scrape time.

Source: BookKeeper's ReplicationStats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autorecovery.copying.replicator import Copied
from quire.service.measuring.summaries import Times
from quire.service.metrics import Metrics


@dataclass(slots=True)
class WorkerStats:
    """Counters of a worker since it began."""

    ledgers: int = 0
    """Marks removed."""
    deferred: int = 0
    failed: int = 0
    unreadable: int = 0
    """Fragments not repaired because an entry has no good copy."""
    copied: Copied = field(default_factory=Copied)
    repairs: Times = field(default_factory=Times)
    """Times of repairs in milliseconds; `_failed`: of those that are tried again later."""
    repairs_failed: Times = field(default_factory=Times)


def register(metrics: Metrics, stats: WorkerStats, scope: str = "") -> None:
    """Register all metrics. `scope`: in front of the names; in a bookie's process the original has "replication_"."""
    copied = stats.copied
    counters: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", "Ledgers that have all their copies again.", lambda: stats.ledgers),
        ("NUM_ENTRIES_READ", "Entries read to be copied.", lambda: copied.entries_read),
        ("NUM_ENTRIES_WRITTEN", "Copies of entries written.", lambda: copied.entries),
        (
            "NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION",
            "Fragments not repaired because an entry has no good copy.",
            lambda: stats.unreadable,
        ),
        (
            "NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER",
            "Ledgers that could not be repaired, and are tried again later.",
            lambda: stats.failed,
        ),
        ("OPEN_LEDGERS_DEFERRED", "Open ledgers left to their writers for the grace period.", lambda: stats.deferred),
    )
    for name, doc, read in counters:
        metrics.counter(f"{scope}replication_worker_{name}", doc, read)
    sizes: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("NUM_BYTES_READ_count", "Entries read to be copied.", lambda: copied.entries_read),
        ("NUM_BYTES_READ_sum", "Bytes of these, headers included.", lambda: copied.bytes_read),
        ("NUM_BYTES_WRITTEN_count", "Copies of entries written.", lambda: copied.entries),
        ("NUM_BYTES_WRITTEN_sum", "Bytes of these, headers included.", lambda: copied.bytes),
    )
    for name, doc, read in sizes:

        def good(read: Callable[[], float] = read) -> list[tuple[tuple[str, ...], float]]:
            return [(("true",), read())]

        metrics.family("counter", f"{scope}replication_worker_{name}", doc, ("success",), good)
    metrics.summary(
        f"{scope}replication_worker_rereplicate",
        "Milliseconds of repairs of marked ledgers.",
        ("success",),
        lambda: ((("true",), stats.repairs), (("false",), stats.repairs_failed)),
    )
