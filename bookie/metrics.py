"""Metrics of a bookie under the original's names, read at scrape time.

Latencies are recorded per pass of the journal and per read in a worker. So the time of an add is that of its pass, and
does not include a wait for room, which `bookkeeper_server_ADD_ENTRY_BLOCKED` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from bookie.bookie import Bookie
from bookie.directories.metrics import register_directories
from bookie.disks.metrics import register_disks
from bookie.gc.metrics import register_gc
from quire.service.measuring.summaries import Times
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts


def register(metrics: Metrics, bookie: Bookie, counts: ConnectionCounts) -> None:
    """Register all metrics: the original's names, with its label `success` where it has one, and ours, which begin with
    `quire_`.
    """
    stats, storage = bookie.stats, bookie.storage

    def outcome(name: str, doc: str, passed: Callable[[], float], failed: Callable[[], float] | None = None) -> None:
        def read() -> Sequence[tuple[Sequence[str], float]]:
            good = (("true",), passed())
            return (good,) if failed is None else (good, (("false",), failed()))

        metrics.family("counter", name, doc, ("success",), read)

    metrics.counter("quire_bookie_frames", "Requests handled, refused ones too.", lambda: stats.frames)
    added, refused = Times(), Times()

    def adds() -> Iterable[tuple[Sequence[str], Times]]:
        refused.observe(0.0, stats.adds_refused - sum(refused.counts))
        written = [each.times.adds for each in bookie.journal.journals]
        added.counts = [sum(parts) for parts in zip(*(each.counts for each in written), strict=True)]
        added.total = sum(each.total for each in written)
        return (("true",), added), (("false",), refused)

    metrics.summary(
        "bookkeeper_server_ADD_ENTRY_REQUEST",
        "Milliseconds from the arrival of entries until they are in the journal; false: refused ones, at once.",
        ("success",),
        adds,
    )
    reads = Times()

    def read_requests() -> Iterable[tuple[Sequence[str], Times]]:
        """Reads from memory are answered at once; those of workers are added as they were measured."""
        in_workers = [sum(parts) for parts in zip(*(each.counts for each in chain(*bookie.read_times)), strict=True)]
        reads.counts = in_workers
        reads.counts[0] += max(0, stats.reads - sum(in_workers))
        reads.total = sum(each.total for each in chain(*bookie.read_times))
        return ((("true",), reads),)

    metrics.summary(
        "bookkeeper_server_READ_ENTRY_REQUEST",
        "Milliseconds of read requests, refused ones too; batches once.",
        ("success",),
        read_requests,
    )
    _register_pressure(metrics, bookie)
    outcome("bookkeeper_server_READ_ENTRY_FENCE_REQUEST_count", "Fences written.", lambda: stats.fences)
    outcome("bookkeeper_server_WRITE_LAC_REQUEST_count", "Explicit LACs taken.", lambda: stats.explicit_lacs)
    outcome("bookkeeper_server_FORCE_LEDGER_REQUEST_count", "Forces taken.", lambda: stats.forces)
    outcome("bookkeeper_server_READ_LAC_REQUEST_count", "READ_LACs, refused ones too.", lambda: stats.lac_reads)
    outcome("bookkeeper_server_GET_BOOKIE_INFO_REQUEST_count", "Questions for free space.", lambda: stats.info_requests)
    outcome(
        "bookkeeper_server_GET_LIST_OF_ENTRIES_OF_LEDGER_REQUEST_count",
        "Requests for the entries of a ledger.",
        lambda: stats.list_requests,
    )
    outcome("bookie_BOOKIE_ADD_ENTRY_BYTES_count", "Entries added.", lambda: stats.adds)
    outcome("bookie_BOOKIE_ADD_ENTRY_BYTES_sum", "Bytes of these.", lambda: stats.add_bytes)
    metrics.counter("bookie_BOOKIE_FORCE_LEDGER", "Forces taken.", lambda: stats.forces)
    outcome("bookkeeper_server_READ_ENTRY_LONG_POLL_REQUEST_count", "Reads that waited.", lambda: stats.long_polls)
    metrics.gauge("bookkeeper_server_READ_ENTRY_IN_PROGRESS", "Reads in workers.", lambda: bookie.reads_in_flight)
    metrics.gauge("bookie_SERVER_STATUS", "1: writable, 0: read-only.", lambda: 0 if bookie.read_only else 1)
    metrics.counter("bookie_WRITE_BYTES", "Bytes of entries added.", lambda: stats.add_bytes)
    metrics.counter("bookie_READ_BYTES", "Bytes read from entry logs.", lambda: storage.stats.disk_read_bytes)
    register_directories(metrics, bookie)
    metrics.counter("quire_bookie_checkpoints", "Checkpoints of the storage.", lambda: stats.checkpoints)

    metrics.family(
        "counter",
        "quire_bookie_job_failures",
        "Background jobs that failed for an unforeseen reason, and were tried again.",
        ("job",),
        lambda: [((job,), count) for job, count in sorted(bookie.job_failures.counts.items())],
    )
    register_disks(metrics, bookie.disks)
    register_gc(metrics, bookie.garbage, bookie.config)
    metrics.gauge("quire_bookie_connections", "Connections of clients.", lambda: counts.active)
    metrics.gauge("quire_bookie_long_polls", "Reads that wait for a LAC now.", lambda: bookie.long_polls)
    metrics.counter(
        "quire_bookie_reads_from_memory", "Read requests answered from the caches.", lambda: stats.reads_cached
    )
    metrics.counter("quire_bookie_reads_from_disk", "Reads from entry logs.", lambda: storage.stats.disk_reads)
    metrics.counter(
        "quire_bookie_journal_write_failures",
        "Groups that could not be written.",
        lambda: bookie.journal.write_failures,
    )


def _register_pressure(metrics: Metrics, bookie: Bookie) -> None:
    """Register requests in progress, those that wait for room, and those that got none."""
    stats, adds = bookie.stats, bookie.adds
    waits, refused = Times(), Times()

    def waited() -> Iterable[tuple[Sequence[str], Times]]:
        for times, parts in (
            (waits, [each.waits for each in adds.queues]),
            (refused, [each.waits_refused for each in adds.queues]),
        ):
            times.counts = [sum(column) for column in zip(*(each.counts for each in parts), strict=True)]
            times.total = sum(each.total for each in parts)
        return (("true",), waits), (("false",), refused)

    metrics.gauge(
        "bookkeeper_server_ADD_ENTRY_IN_PROGRESS", "Entries in the journal's hands.", lambda: adds.in_progress
    )
    metrics.gauge("bookkeeper_server_ADD_ENTRY_BLOCKED", "Entries that wait for room.", lambda: adds.waiting_entries)
    metrics.gauge("quire_bookie_adds_waiting_bytes", "Bytes of adds that wait for room.", lambda: adds.waiting_bytes)
    metrics.summary(
        "bookkeeper_server_ADD_ENTRY_BLOCKED_WAIT",
        "Milliseconds that adds waited for room in the write cache and the journal; false: and got none.",
        ("success",),
        waited,
    )
    metrics.counter(
        "bookkeeper_server_ADD_ENTRY_REJECTED", "Adds refused for want of room.", lambda: stats.adds_rejected
    )
    metrics.gauge(
        "bookkeeper_server_READ_ENTRY_BLOCKED",
        "Connections that wait for fewer reads (maxReadsInProgressLimit).",
        lambda: bookie.read_limit.paused,
    )
    metrics.counter(
        "bookkeeper_server_READ_ENTRY_REJECTED", "Reads refused: too many waited.", lambda: stats.reads_rejected
    )
