"""Metrics of the replication worker under the original's names, read at scrape time.

Source: BookKeeper's ReplicationStats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autorecovery.copying.replicator import Copied
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


def register(metrics: Metrics, stats: WorkerStats) -> None:
    """Register all metrics."""
    counters: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", "Ledgers that have all their copies again.", lambda: stats.ledgers),
        ("NUM_ENTRIES_WRITTEN", "Copies of entries written.", lambda: stats.copied.entries),
        ("NUM_BYTES_WRITTEN", "Bytes of these, headers included.", lambda: stats.copied.bytes),
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
        metrics.counter(f"replication_worker_{name}", doc, read)
