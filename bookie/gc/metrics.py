"""Metrics of garbage collection and compaction, under the original's names.

Source: BookKeeper's GarbageCollectorStats and BookKeeperServerStats, of 4.18 where 4.17 has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from bookie.config import BookieConfig
from bookie.db_ledger_storage.compaction.choice import BUCKETS, in_buckets
from bookie.db_ledger_storage.compaction.plan import CompactionKind
from bookie.db_ledger_storage.log_map import LogUsage
from bookie.db_ledger_storage.log_writing.ledger_logs import LedgerLogStats
from bookie.db_ledger_storage.options import StorageStats
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.garbage_rounds import GarbageRounds
from quire.service.measuring.outcomes import Outcomes
from quire.service.measuring.summaries import Times
from quire.service.metrics import Kind, Metrics

USAGES_KEPT_S: Final = 0.5
"""Seconds for which what is known about the entry logs serves all families: less than between two scrapes."""


def register_gc(metrics: Metrics, garbage: GarbageRounds, config: BookieConfig) -> None:
    """Register the metrics of all directories together, and by directory where the original has them so."""
    _register_directories(metrics, garbage, list(zip(config.ledger_directories, config.indexes, strict=True)))
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

    status = garbage.status
    for name, doc, outcomes in (
        ("bookie_THREAD_RUNTIME", "Milliseconds of rounds of garbage collection.", status.rounds),
        ("bookie_COMPACT_RUNTIME", "Milliseconds of compactions.", status.compactions),
    ):
        metrics.summary(name, doc, ("success",), outcomes.labelled)


class _Usages:
    """Use of the entry logs of all directories, looked up once for all families of a scrape: there may be thousands of
    logs."""

    def __init__(self) -> None:
        self._found: dict[DbLedgerStorage, tuple[float, list[LogUsage], tuple[int, ...]]] = {}

    def _of(self, storage: DbLedgerStorage) -> tuple[float, list[LogUsage], tuple[int, ...]]:
        now = trio.current_time()
        found = self._found.get(storage)
        if found is None or now >= found[0] + USAGES_KEPT_S:
            usages = storage.log_usages()
            found = self._found[storage] = now, usages, in_buckets(usages)
        return found

    def count(self, storage: DbLedgerStorage) -> int:
        return len(self._of(storage)[1])

    def needed(self, storage: DbLedgerStorage) -> int:
        return sum([usage.remaining for usage in self._of(storage)[1]])

    def total(self, storage: DbLedgerStorage) -> int:
        return sum([usage.total for usage in self._of(storage)[1]])

    def in_bucket(self, bucket: int, storage: DbLedgerStorage) -> int:
        return self._of(storage)[2][bucket]


def _register_directories(metrics: Metrics, garbage: GarbageRounds, marks: Sequence[tuple[str, str]]) -> None:
    usages = _Usages()
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
            usages.count,
        ),
        (
            "gauge",
            "ACTIVE_ENTRY_LOG_SPACE_BYTES",
            "Bytes in entry logs of ledgers that exist.",
            usages.needed,
        ),
        (
            "gauge",
            "ENTRY_LOG_SPACE_BYTES",
            "Bytes of records in entry logs, of deleted ledgers too.",
            usages.total,
        ),
        (
            "gauge",
            "ENTRY_LOG_COMPACT_RATIO",
            "Part of the chosen entry logs that the last compaction emptied.",
            lambda each: each.stats.compaction_ratio,
        ),
        *(
            (
                "gauge",
                f"entry_log_usage_buckets_le_{10 * bucket + 10}",
                "Entry logs of which less than so many percent are needed, and not less than in the bucket below.",
                partial(usages.in_bucket, bucket),
            )
            for bucket in range(BUCKETS)
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
    times: tuple[tuple[str, str, Callable[[StorageStats], Outcomes]], ...] = (
        (
            "GC_LEDGER_RUNTIME",
            "Milliseconds of searches for deleted ledgers, with their deletion.",
            lambda each: each.gc_ledgers,
        ),
        (
            "EXTRACT_META_RUNTIME",
            "Milliseconds in which the ledgers of all entry logs are looked up, and logs that none needs are deleted.",
            lambda each: each.gc_logs,
        ),
        (
            "get_last_entry_in_ledger",
            "Milliseconds of searches of the location index for the last entry of a ledger; false: it has none.",
            lambda each: each.last_entries,
        ),
    )
    for name, doc, outcomes in times:

        def read_times(of: Callable[[StorageStats], Outcomes] = outcomes) -> list[tuple[Sequence[str], Times]]:
            each_with_mark = zip(marks, garbage.storages, strict=True)
            return [series for mark, each in each_with_mark for series in of(each.stats).labelled(*mark)]

        metrics.summary(f"bookie_{name}", doc, ("success", "ledgerDir", "indexDir"), read_times)


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
