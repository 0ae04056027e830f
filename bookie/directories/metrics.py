"""Metrics of the directories of a bookie under the original's names.

With several journals, those of a journal have the label `journalIndex`; with several ledger directories, those of a
directory have the label `ledgerDir`. With one of a kind there is no such label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from bookie.config import BookieConfig
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.health import DirectoryHealth
from bookie.directories.journals import LedgerJournal
from bookie.directories.storage import LedgerStorage
from bookie.disks.watch import DiskWatch
from bookie.journal.writer import Journal, JournalTimes
from quire.service.measuring.summaries import Times
from quire.service.metrics import Metrics


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
    labels = ("journalIndex",) if len(journals) > 1 else ()
    marks = [(str(index),) if labels else () for index in range(len(journals))]

    def times(
        good: Callable[[JournalTimes], Times], bad: Callable[[JournalTimes], Times] | None = None
    ) -> Callable[[], Iterable[tuple[Sequence[str], Times]]]:
        def read() -> Iterable[tuple[Sequence[str], Times]]:
            for mark, journal in zip(marks, journals, strict=True):
                yield ("true", *mark), good(journal.times)
                if bad is not None:
                    yield ("false", *mark), bad(journal.times)

        return read

    for name, doc, read in (
        (
            "JOURNAL_ADD_ENTRY",
            "Milliseconds from the arrival of entries until they are in the journal.",
            times(lambda each: each.adds, lambda each: each.adds_failed),
        ),
        (
            "JOURNAL_SYNC",
            "Milliseconds of a write of a group with its sync.",
            times(lambda each: each.syncs, lambda each: each.syncs_failed),
        ),
        ("JOURNAL_FORCE_WRITE_BATCH_ENTRIES", "Entries of a group.", times(lambda each: each.group_entries)),
        ("JOURNAL_FORCE_WRITE_BATCH_BYTES", "Bytes of a group.", times(lambda each: each.group_bytes)),
    ):
        metrics.summary(f"bookie_journal_{name}", doc, ("success", *labels), read)

    def values(of: Callable[[Journal], float]) -> Callable[[], Iterable[tuple[Sequence[str], float]]]:
        return lambda: [(mark, of(journal)) for mark, journal in zip(marks, journals, strict=True)]

    metrics.family(
        "counter",
        "bookie_journal_JOURNAL_WRITE_BYTES",
        "Bytes written to the journal.",
        labels,
        values(lambda journal: journal.times.written_bytes),
    )
    metrics.family(
        "gauge",
        "quire_bookie_journal_backlog_bytes",
        "Bytes written since the start to journal files that are still needed, or could not be deleted.",
        labels,
        values(lambda journal: journal.backlog_bytes),
    )
    metrics.family(
        "gauge",
        "bookie_journal_JOURNAL_MEMORY_USED",
        "Bytes that wait for the journal.",
        labels,
        values(lambda journal: journal.queued_bytes),
    )
    metrics.family(
        "gauge",
        "bookie_journal_JOURNAL_MEMORY_MAX",
        "Bytes that may wait for the journal.",
        labels,
        values(lambda _: memory_max // len(journals)),
    )


def _register_storages(metrics: Metrics, storages: Sequence[DbLedgerStorage], config: BookieConfig) -> None:
    labels = ("ledgerDir",) if len(storages) > 1 else ()
    marks = [(folder,) if labels else () for folder in config.ledger_directories]
    metrics.summary(
        "bookie_flush",
        "Milliseconds of flushes of the write cache to entry logs.",
        ("success", *labels),
        lambda: [(("true", *mark), each.stats.flush_times) for mark, each in zip(marks, storages, strict=True)],
    )

    def values(of: Callable[[DbLedgerStorage], float]) -> Callable[[], Iterable[tuple[Sequence[str], float]]]:
        return lambda: [(mark, of(each)) for mark, each in zip(marks, storages, strict=True)]

    for name, doc, of in (
        ("bookie_read_cache_size", "Bytes in the read-ahead cache.", lambda each: each.read_cache_bytes),
        ("bookie_write_cache_size", "Bytes in the write cache.", lambda each: each.write_cache_bytes),
        (
            "bookie_write_cache_max_size",
            "Bytes it may have.",
            lambda _: (config.write_cache_mb << 20) // len(storages),
        ),
    ):
        metrics.family("gauge", name, doc, labels, values(of))
