"""The worker's metrics."""

from __future__ import annotations

from autorecovery.copying.metrics import WorkerStats, register
from quire.service.metrics import Metrics


async def test_what_is_counted_is_told_under_the_originals_names() -> None:
    metrics, stats = Metrics(), WorkerStats()
    register(metrics, stats)
    stats.ledgers, stats.failed, stats.unreadable, stats.deferred = 1, 2, 3, 4
    stats.copied.entries, stats.copied.bytes = 5, 6
    stats.copied.entries_read, stats.copied.bytes_read = 7, 8
    stats.repairs.observe(9)
    told = metrics.exposition().decode()
    for name, value in (
        ("NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", 1),
        ("NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER", 2),
        ("NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION", 3),
        ("OPEN_LEDGERS_DEFERRED", 4),
        ("NUM_ENTRIES_WRITTEN", 5),
        ('NUM_BYTES_WRITTEN_count{success="true"}', 5),
        ('NUM_BYTES_WRITTEN_sum{success="true"}', 6),
        ("NUM_ENTRIES_READ", 7),
        ('NUM_BYTES_READ_sum{success="true"}', 8),
        ('rereplicate_sum{success="true"}', 9),
    ):
        assert any(
            line.startswith(f"replication_worker_{name}") and float(line.split()[-1]) == value
            for line in told.splitlines()
        ), name
