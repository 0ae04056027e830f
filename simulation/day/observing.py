"""Observation of what bookies compact: not visible at their doors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from bookie.db_ledger_storage.compaction.plan import CompactionResult
from bookie.db_ledger_storage.storage import DbLedgerStorage
from simulation.common.patching import patched
from simulation.machines.scheduler import HOST


class CompactionObserver(Protocol):
    """Receiver of ended compactions."""

    def compacted(self, host: str, storage: DbLedgerStorage, result: CompactionResult) -> None: ...


@contextmanager
def compactions_observed(story: CompactionObserver) -> Iterator[None]:
    """Observe the end of each compaction, before its bookie does anything else."""
    compact: Callable[..., Awaitable[CompactionResult]] = DbLedgerStorage.compact

    async def observed(self: DbLedgerStorage, *args: Any, **options: Any) -> CompactionResult:
        result = await compact(self, *args, **options)
        story.compacted(HOST.get(), self, result)
        return result

    with patched([(DbLedgerStorage, compact.__name__, observed)]):
        yield
