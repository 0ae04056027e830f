"""Metrics of a bookie under the original's names, read at scrape time.

Latencies are not measured per request, because that would cost the hot path more than the request does. Clients measure
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookie.bookie import Bookie
from bookie.disks.metrics import register_disks
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts


def register(metrics: Metrics, bookie: Bookie, counts: ConnectionCounts) -> None:
    """Register all metrics: the original's names, with its label `success` where it has one, and ours, which begin with
    `quire_`.
    """
    stats, storage = bookie.stats, bookie.storage
    journal = bookie.journal

    def outcome(name: str, doc: str, passed: Callable[[], float], failed: Callable[[], float] | None = None) -> None:
        def read() -> Sequence[tuple[Sequence[str], float]]:
            good = (("true",), passed())
            return (good,) if failed is None else (good, (("false",), failed()))

        metrics.family("counter", name, doc, ("success",), read)

    metrics.counter("quire_bookie_frames", "Requests handled, refused ones too.", lambda: stats.frames)
    outcome(
        "bookkeeper_server_ADD_ENTRY_REQUEST_count",
        "Entries that clients asked to add.",
        lambda: stats.adds,
        lambda: stats.adds_refused,
    )
    outcome(
        "bookkeeper_server_READ_ENTRY_REQUEST_count",
        "Read requests, refused ones too; batches once.",
        lambda: stats.reads,
    )
    outcome("bookkeeper_server_READ_ENTRY_FENCE_REQUEST_count", "Fences written.", lambda: stats.fences)
    outcome("bookkeeper_server_WRITE_LAC_REQUEST_count", "Explicit LACs taken.", lambda: stats.explicit_lacs)
    outcome("bookkeeper_server_FORCE_LEDGER_REQUEST_count", "Forces taken.", lambda: stats.forces)
    outcome("bookkeeper_server_READ_ENTRY_LONG_POLL_REQUEST_count", "Reads that waited.", lambda: stats.long_polls)
    metrics.gauge("bookkeeper_server_READ_ENTRY_IN_PROGRESS", "Reads in workers.", lambda: bookie.reads_in_flight)
    metrics.gauge("bookie_SERVER_STATUS", "1: writable, 0: read-only.", lambda: 0 if bookie.read_only else 1)
    metrics.counter("bookie_WRITE_BYTES", "Bytes of entries added.", lambda: stats.add_bytes)
    metrics.counter("bookie_READ_BYTES", "Bytes read from entry logs.", lambda: storage.stats.disk_read_bytes)
    metrics.gauge("bookie_ledgers_count", "Ledgers known here.", lambda: len(storage.ledgers()))
    metrics.gauge("bookie_JOURNAL_DIRS", "Folders of the journal.", lambda: 1)
    metrics.gauge("bookie_ledger_num_dirs", "Folders of entry logs.", lambda: 1)

    outcome("bookie_journal_JOURNAL_SYNC_count", "Groups written to the journal.", lambda: journal.groups)
    metrics.gauge(
        "bookie_journal_JOURNAL_MEMORY_USED", "Bytes that wait for the journal.", lambda: journal.queued_bytes
    )
    metrics.gauge(
        "bookie_journal_JOURNAL_MEMORY_MAX",
        "Bytes that may wait for the journal.",
        lambda: bookie.config.journal.queue_size_max,
    )
    outcome("bookie_flush_count", "Checkpoints of the storage.", lambda: stats.checkpoints)
    outcome("bookie_flush_size_sum", "Bytes flushed to entry logs.", lambda: storage.stats.flushed_bytes)
    metrics.gauge("bookie_write_cache_size", "Bytes in the write cache.", lambda: storage.write_cache_bytes)
    metrics.gauge("bookie_write_cache_max_size", "Bytes it may have.", lambda: bookie.config.write_cache_mb << 20)

    metrics.family(
        "counter",
        "quire_bookie_job_failures",
        "Background jobs that failed for an unforeseen reason, and were tried again.",
        ("job",),
        lambda: [((job,), count) for job, count in sorted(bookie.job_failures.counts.items())],
    )
    register_disks(metrics, bookie.disks)
    metrics.gauge("quire_bookie_connections", "Connections of clients.", lambda: counts.active)
    metrics.gauge("quire_bookie_long_polls", "Reads that wait for a LAC now.", lambda: bookie.long_polls)
    metrics.counter(
        "quire_bookie_reads_from_memory", "Read requests answered from the caches.", lambda: stats.reads_cached
    )
    metrics.counter("quire_bookie_reads_from_disk", "Reads from entry logs.", lambda: storage.stats.disk_reads)
    metrics.counter(
        "quire_bookie_journal_write_failures", "Groups that could not be written.", lambda: journal.write_failures
    )
