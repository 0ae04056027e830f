"""What a bookie counts, under the original's names, read when somebody scrapes.

Latencies are not measured per request: that would cost the hot path more than the request does. Clients measure them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookie.bookie import Bookie
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts


def register(metrics: Metrics, bookie: Bookie, counts: ConnectionCounts) -> None:
    """Expose all of it."""
    stats, storage = bookie.stats, bookie.storage
    journal = bookie.journal

    def outcome(name: str, doc: str, passed: Callable[[], float], failed: Callable[[], float]) -> None:
        def read() -> Sequence[tuple[Sequence[str], float]]:
            return ((("true",), passed()), (("false",), failed()))

        metrics.family("counter", name, doc, ("success",), read)

    outcome(
        "bookkeeper_server_ADD_ENTRY_REQUEST_count",
        "Entries that clients asked to add.",
        lambda: stats.adds,
        lambda: stats.adds_refused,
    )
    metrics.counter("bookie_WRITE_BYTES", "Bytes of entries added.", lambda: stats.add_bytes)
    metrics.counter(
        "bookkeeper_server_READ_ENTRY_REQUEST_count", "Read requests, batches counted once.", lambda: stats.reads
    )
    metrics.counter("bookkeeper_server_READ_ENTRY_FENCE_REQUEST_count", "Fences written.", lambda: stats.fences)
    metrics.counter("bookkeeper_server_WRITE_LAC_count", "Explicit LACs taken.", lambda: stats.explicit_lacs)
    metrics.counter("bookkeeper_server_FORCE_LEDGER_count", "Forces taken.", lambda: stats.forces)
    metrics.counter(
        "bookkeeper_server_READ_ENTRY_LONG_POLL_REQUEST_count", "Reads that waited.", lambda: stats.long_polls
    )
    metrics.gauge("bookkeeper_server_READ_ENTRY_IN_PROGRESS", "Reads in workers.", lambda: bookie.reads_in_flight)
    metrics.gauge("bookkeeper_server_LONG_POLL_IN_PROGRESS", "Reads that wait for a LAC.", lambda: bookie.long_polls)
    metrics.gauge("bookkeeper_server_CONNECTIONS", "Connections of clients.", lambda: counts.active)
    metrics.gauge("bookie_SERVER_STATUS", "1: writable, 0: read-only.", lambda: 0 if bookie.read_only else 1)
    metrics.counter("bookie_journal_JOURNAL_SYNC_count", "Groups written to the journal.", lambda: journal.groups)
    metrics.counter(
        "bookie_journal_JOURNAL_WRITE_FAILURES", "Groups that could not be written.", lambda: journal.write_failures
    )
    metrics.gauge(
        "bookie_journal_JOURNAL_MEMORY_USED", "Bytes that wait for the journal.", lambda: journal.queued_bytes
    )
    metrics.gauge(
        "bookie_journal_JOURNAL_MEMORY_MAX",
        "Bytes that may wait for the journal.",
        lambda: bookie.config.journal.queue_size_max,
    )
    metrics.counter("bookie_flush_count", "Checkpoints of the storage.", lambda: stats.checkpoints)
    metrics.counter("bookie_flush_size_sum", "Bytes flushed to entry logs.", lambda: storage.stats.flushed_bytes)
    metrics.gauge("bookie_write_cache_size", "Bytes in the write cache.", lambda: storage.write_cache_bytes)
    metrics.counter("bookie_read_cache_hits_count", "Reads answered from memory.", lambda: stats.reads_cached)
    metrics.counter("bookie_read_entrylog_count", "Reads from entry logs.", lambda: storage.stats.disk_reads)
    metrics.counter("bookie_READ_BYTES", "Bytes read from entry logs.", lambda: storage.stats.disk_read_bytes)
    metrics.gauge("bookie_ledgers_count", "Ledgers known here.", lambda: len(storage.ledgers()))
