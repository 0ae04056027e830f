"""Metrics of the directories of a bookie under the original's names.

Those of a journal have the label `journalIndex`, those of a ledger directory `ledgerDir` and `indexDir`. Latencies are
recorded by pass of the journal's thread and by flush, never by entry; the rest is read at a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from bookie.config import BookieConfig
from bookie.db_ledger_storage.options import StorageStats
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.health import DirectoryHealth
from bookie.directories.journals import LedgerJournal
from bookie.directories.storage import LedgerStorage
from bookie.disks.watch import DiskWatch
from bookie.journal.writer import Journal
from quire.service.measuring.summaries import Times
from quire.service.metrics import Kind, Metrics

Part = TypeVar("Part")


class MeasuredBookie(Protocol):
    """The part of the bookie that these metrics read."""

    @property
    def config(self) -> BookieConfig: ...

    @property
    def storage(self) -> LedgerStorage: ...

    @property
    def journal(self) -> LedgerJournal: ...

    @property
    def disks(self) -> DiskWatch: ...

    @property
    def directories(self) -> DirectoryHealth: ...

    @property
    def journals(self) -> DirectoryHealth: ...


def register_directories(metrics: Metrics, bookie: MeasuredBookie) -> None:
    """Register the metrics of journals and ledger directories."""
    config = bookie.config
    metrics.gauge("bookie_JOURNAL_DIRS", "Folders of the journals.", lambda: len(config.journal_directories))
    metrics.gauge(
        "bookie_ledger_writable_dirs",
        "Folders of entry logs that take entries.",
        lambda: min(bookie.disks.writable_directories, len(bookie.directories.usable)),
    )
    metrics.gauge("bookie_ledger_num_dirs", "Folders of entry logs.", lambda: len(config.ledger_directories))
    metrics.family(
        "gauge",
        "quire_bookie_directory_unusable",
        "1: the folder has failed or does not answer, and its ledgers are refused; 0: it serves.",
        ("folder",),
        lambda: [
            ((folder,), 1 if reason else 0)
            for health in (bookie.journals, bookie.directories)
            for folder, reason in zip(health.folders, health.reasons, strict=True)
        ],
    )
    _register_journals(metrics, bookie.journal.journals, config.journal.queue_size_max)
    _register_storages(metrics, bookie.storage.directories, config)


def _register_journals(metrics: Metrics, journals: Sequence[Journal], memory_max: int) -> None:
    marks = [(str(index),) for index in range(len(journals))]

    def times(
        good: Callable[[Journal], Times], bad: Callable[[Journal], Times] | None = None
    ) -> Callable[[], Iterable[tuple[Sequence[str], Times]]]:
        def read() -> Iterable[tuple[Sequence[str], Times]]:
            for mark, journal in zip(marks, journals, strict=True):
                yield ("true", *mark), good(journal)
                if bad is not None:
                    yield ("false", *mark), bad(journal)

        return read

    for name, doc, read in (
        (
            "JOURNAL_ADD_ENTRY",
            "Milliseconds from the arrival of entries until they are in the journal.",
            times(lambda each: each.times.adds, lambda each: each.times.adds_failed),
        ),
        (
            "JOURNAL_QUEUE_LATENCY",
            "Milliseconds from the arrival of entries until their write begins.",
            times(lambda each: each.times.queued),
        ),
        (
            "JOURNAL_SYNC",
            "Milliseconds of a write of a group with its sync.",
            times(lambda each: each.times.syncs, lambda each: each.times.syncs_failed),
        ),
        ("JOURNAL_CREATION_LATENCY", "Milliseconds of beginning a file.", times(lambda each: each.creations)),
        ("JOURNAL_FORCE_WRITE_BATCH_ENTRIES", "Entries of a group.", times(lambda each: each.times.group_entries)),
        ("JOURNAL_FORCE_WRITE_BATCH_BYTES", "Bytes of a group.", times(lambda each: each.times.group_bytes)),
    ):
        metrics.summary(f"bookie_journal_{name}", doc, ("success", "journalIndex"), read)
    numbers: tuple[tuple[Kind, str, str, Callable[[Journal], float]], ...] = (
        ("counter", "WRITE_BYTES", "Bytes written to the journal.", lambda each: each.times.written_bytes),
        ("counter", "QUEUE_SIZE", "Records that wait for the journal now.", lambda each: each.waiting_items),
        (
            "counter",
            "NUM_FLUSH_EMPTY_QUEUE",
            "Groups written because nothing else waited.",
            lambda each: each.times.flushed_empty,
        ),
        (
            "counter",
            "NUM_FLUSH_MAX_OUTSTANDING_BYTES",
            "Groups written because they were large enough.",
            lambda each: each.times.flushed_full,
        ),
        (
            "counter",
            "NUM_FLUSH_MAX_WAIT",
            "Groups written because their time was over.",
            lambda each: each.times.flushed_waited,
        ),
        ("gauge", "MEMORY_USED", "Bytes that wait for the journal.", lambda each: each.queued_bytes),
        ("gauge", "MEMORY_MAX", "Bytes that may wait for the journal.", lambda _: memory_max // len(journals)),
    )
    for kind, name, doc, of in numbers:
        metrics.family(
            kind, f"bookie_journal_JOURNAL_{name}", doc, ("journalIndex",), partial(_values, journals, marks, of)
        )
    metrics.family(
        "gauge",
        "quire_bookie_journal_backlog_bytes",
        "Bytes written since the start to journal files that are still needed, or could not be deleted.",
        ("journalIndex",),
        partial(_values, journals, marks, lambda journal: journal.backlog_bytes),
    )


def _values(
    parts: Sequence[Part], marks: Sequence[Sequence[str]], of: Callable[[Part], float]
) -> list[tuple[Sequence[str], float]]:
    return [(mark, of(each)) for mark, each in zip(marks, parts, strict=True)]


def _register_storages(metrics: Metrics, storages: Sequence[DbLedgerStorage], config: BookieConfig) -> None:
    labels = ("ledgerDir", "indexDir")
    marks = list(zip(config.ledger_directories, config.indexes, strict=True))

    def times(of: Callable[[StorageStats], Times]) -> Callable[[], Iterable[tuple[Sequence[str], Times]]]:
        return lambda: [(("true", *mark), of(each.stats)) for mark, each in zip(marks, storages, strict=True)]

    for name, doc, read in (
        ("", "Milliseconds of flushes of the write cache to entry logs.", times(lambda each: each.flush_times)),
        ("_entrylog", "Milliseconds in which a flush writes entry logs.", times(lambda each: each.log_times)),
        (
            "_locations_index",
            "Milliseconds in which a flush writes the location index.",
            times(lambda each: each.locations_times),
        ),
        (
            "_ledger_index",
            "Milliseconds in which a flush writes the ledger index.",
            times(lambda each: each.ledger_rows_times),
        ),
    ):
        metrics.summary(f"bookie_flush{name}", doc, ("success", *labels), read)
    cache_max = (config.write_cache_mb << 20) // len(storages)
    numbers: tuple[tuple[Kind, str, str, Callable[[DbLedgerStorage], float]], ...] = (
        ("gauge", "read_cache_size", "Bytes in the read-ahead cache.", lambda each: each.read_cache_bytes),
        ("gauge", "write_cache_size", "Bytes in the write cache.", lambda each: each.write_cache_bytes),
        ("gauge", "write_cache_count", "Entries in the write cache.", lambda each: each.parts.cache.entries),
        ("gauge", "ledgers_count", "Ledgers known here.", lambda each: len(each.parts.ledgers)),
        ("gauge", "ACTIVE_LEDGER_TOTAL", "Ledgers known here.", lambda each: len(each.parts.ledgers)),
        ("counter", "DELETED_LEDGER_TOTAL", "Ledgers deleted.", lambda each: each.stats.deleted_ledgers),
        (
            "counter",
            "RECLAIMED_DELETION_SPACE_BYTES",
            "Bytes of entry logs that garbage collection deleted.",
            lambda each: each.stats.reclaimed_bytes,
        ),
    )
    for kind, name, doc, of in numbers:
        metrics.family(kind, f"bookie_{name}", doc, labels, partial(_values, storages, marks, of))
    metrics.gauge("bookie_write_cache_max_size", "Bytes that each write cache may have.", lambda: cache_max)
    metrics.family(
        "counter",
        "bookie_flush_size_sum",
        "Bytes flushed to entry logs.",
        ("success", *labels),
        lambda: [(("true", *mark), each.stats.flushed_bytes) for mark, each in zip(marks, storages, strict=True)],
    )
