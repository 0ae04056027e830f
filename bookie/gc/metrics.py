"""Metrics of garbage collection and compaction, under the original's names.

Source: BookKeeper's GarbageCollectorStats and BookKeeperServerStats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from bookie.config import BookieConfig
from bookie.db_ledger_storage.compaction.choice import in_buckets
from bookie.db_ledger_storage.compaction.plan import CompactionKind
from bookie.db_ledger_storage.log_map import LogUsage
from bookie.db_ledger_storage.log_writing.ledger_logs import LedgerLogStats
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.garbage_rounds import GarbageRounds
from quire.service.measuring.summaries import Times
from quire.service.metrics import Kind, Metrics


def register_gc(metrics: Metrics, garbage: GarbageRounds, config: BookieConfig) -> None:
    """Register the metrics of all directories together, and by directory where the original has them so."""
    _register_directories(metrics, garbage, list(zip(config.ledger_directories, config.indexes, strict=True)))

    def usages() -> list[LogUsage]:
        return [usage for storage in garbage.storages for usage in storage.log_usages()]

    metrics.gauge(
        "quire_bookie_entry_log_space_bytes",
        "Bytes of records in entry logs, of deleted ledgers too.",
        lambda: sum([usage.total for usage in usages()]),
    )
    metrics.gauge(
        "quire_bookie_entry_log_compact_ratio",
        "Part of the chosen entry logs that the last compaction emptied.",
        lambda: max([storage.stats.compaction_ratio for storage in garbage.storages], default=0),
    )

    def buckets() -> Iterable[tuple[Sequence[str], float]]:
        return [((f"{10 * index + 10}",), count) for index, count in enumerate(in_buckets(usages()))]

    metrics.family(
        "gauge",
        "quire_bookie_entry_log_usage",
        "Entry logs by the part of them that is needed, up to this many percent.",
        ("percent",),
        buckets,
    )
    _register_ledger_logs(metrics, garbage)
    metrics.counter(
        "quire_bookie_overreplicated_ledgers_deleted",
        "Ledgers deleted because other bookies have all their copies.",
        lambda: garbage.overreplicated.deleted,
    )
    metrics.counter(
        "quire_bookie_overreplicated_ledgers_kept",
        "Times that a ledger of other bookies was kept, because a copy there was not certain.",
        lambda: garbage.overreplicated.kept,
    )

    def of(good: Times, bad: Times) -> Callable[[], Iterable[tuple[Sequence[str], Times]]]:
        return lambda: ((("true",), good), (("false",), bad))

    status = garbage.status
    for name, doc, read in (
        (
            "bookie_THREAD_RUNTIME",
            "Milliseconds of rounds of garbage collection.",
            of(status.rounds, status.rounds_failed),
        ),
        (
            "quire_bookie_gc_ledgers_ms",
            "Milliseconds of searches for deleted ledgers and unneeded entry logs.",
            of(status.collections, status.collections_failed),
        ),
        (
            "quire_bookie_compactions_ms",
            "Milliseconds of compactions.",
            of(status.compactions, status.compactions_failed),
        ),
    ):
        metrics.summary(name, doc, ("success",), read)


def _register_directories(metrics: Metrics, garbage: GarbageRounds, marks: Sequence[tuple[str, str]]) -> None:
    compactions: tuple[tuple[Kind, str, str, Callable[[DbLedgerStorage], float]], ...] = tuple(
        (
            "counter",
            f"{kind.name}_COMPACTION_TOTAL",
            f"{kind.value.capitalize()} compactions.",
            partial(_compactions, kind),
        )
        for kind in CompactionKind
    )
    numbers: tuple[tuple[Kind, str, str, Callable[[DbLedgerStorage], float]], ...] = (
        (
            "gauge",
            "ACTIVE_ENTRY_LOG_TOTAL",
            "Entry logs that are no longer written.",
            lambda each: len(each.log_usages()),
        ),
        (
            "gauge",
            "ACTIVE_ENTRY_LOG_SPACE_BYTES",
            "Bytes in entry logs of ledgers that exist.",
            lambda each: sum([usage.remaining for usage in each.log_usages()]),
        ),
        *compactions,
        (
            "counter",
            "ENTRY_LOCATION_COMPACTION_TOTAL",
            "Compactions of the location index.",
            lambda each: each.stats.location_compactions,
        ),
        (
            "counter",
            "RECLAIM_FAILED_TO_DELETE",
            "Times that an entry log could not be read or deleted.",
            lambda each: each.stats.failed_logs,
        ),
        (
            "counter",
            "RECLAIMED_COMPACTION_SPACE_BYTES",
            "Bytes of entry logs that compactions deleted, without what they copied.",
            lambda each: each.stats.compacted_bytes,
        ),
    )
    for kind, name, doc, of in numbers:

        def read(of: Callable[[DbLedgerStorage], float] = of) -> list[tuple[Sequence[str], float]]:
            return [(mark, of(each)) for mark, each in zip(marks, garbage.storages, strict=True)]

        metrics.family(kind, f"bookie_{name}", doc, ("ledgerDir", "indexDir"), read)


def _compactions(kind: CompactionKind, storage: DbLedgerStorage) -> float:
    return storage.stats.compactions[kind]


def _register_ledger_logs(metrics: Metrics, garbage: GarbageRounds) -> None:
    """Register the metrics of entryLogPerLedgerEnabled. The original has some of them under other names."""

    def total(read: Callable[[LedgerLogStats], int]) -> Callable[[], int]:
        return lambda: sum([read(storage.ledger_log_stats) for storage in garbage.storages])

    metrics.gauge(
        "quire_bookie_ledger_logs_active", "Ledgers whose own entry log is written.", total(lambda each: each.active)
    )
    for name, doc, read in (
        (
            "quire_bookie_ledger_logs_ended_idle",
            "Entry logs of single ledgers ended because no entry came for long.",
            total(lambda each: each.ended_idle),
        ),
        (
            "quire_bookie_ledger_logs_ended_for_room",
            "Entry logs of single ledgers ended because too many were written.",
            total(lambda each: each.ended_for_room),
        ),
        (
            "quire_bookie_ledgers_with_several_logs",
            "Ledgers that got a second entry log of their own.",
            total(lambda each: each.ledgers_with_several),
        ),
    ):
        metrics.counter(name, doc, read)
    metrics.summary(
        "quire_bookie_logs_per_ledger",
        "Entry logs of each ledger that is no longer counted.",
        ("success",),
        lambda: [(("true",), storage.ledger_log_stats.logs_per_ledger) for storage in garbage.storages],
    )
