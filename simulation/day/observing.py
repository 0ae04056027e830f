"""Observation of what bookies write and compact: not visible at their doors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from bookie.db_ledger_storage.compaction.plan import CompactionResult
from bookie.db_ledger_storage.log_writing.flush import FlushJob
from bookie.db_ledger_storage.storage import DbLedgerStorage
from quire.wire.bookkeeper.run import Run
from simulation.common.patching import patched
from simulation.machines.scheduler import HOST


class StorageObserver(Protocol):
    """Receiver of events of storages."""

    def compacted(self, host: str, storage: DbLedgerStorage, result: CompactionResult) -> None:
        """Handle the end of a compaction, before the bookie does anything else."""

    def written_again(self, host: str, ledger_id: int, size: int) -> None:
        """Handle entries of which the entry logs have a copy already, or one that no row will point to."""


@contextmanager
def storages_observed(story: StorageObserver) -> Iterator[None]:
    """Observe compactions, and what is written again: by repairs, replays, and flushes that failed half-way."""
    compact: Callable[..., Awaitable[CompactionResult]] = DbLedgerStorage.compact
    add, flush = DbLedgerStorage.add, FlushJob.run

    async def compacted(self: DbLedgerStorage, *args: Any, **options: Any) -> CompactionResult:
        result = await compact(self, *args, **options)
        story.compacted(HOST.get(), self, result)
        return result

    def added(self: DbLedgerStorage, run: Run) -> None:
        if self._locations.get(run.ledger_id, run.first):
            story.written_again(HOST.get(), run.ledger_id, run.size)
        add(self, run)

    def flushed(self: FlushJob) -> None:
        try:
            flush(self)
        except BaseException:
            for run in self.table.sorted_runs():
                story.written_again(HOST.get(), run.ledger_id, run.size)
            raise

    with patched(
        [
            (DbLedgerStorage, compact.__name__, compacted),
            (DbLedgerStorage, add.__name__, added),
            (FlushJob, flush.__name__, flushed),
        ]
    ):
        yield
