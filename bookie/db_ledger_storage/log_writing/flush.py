"""One flush: from the write cache to the entry log, to the location index, to the ledger index. Blocking: a worker runs
it.

A crash may interrupt this order anywhere. Entries are durable before an index row points to them, and everything is
durable before the caller moves the journal's mark. Entries that a crash leaves without rows are waste; they are deleted
with their log.

Source: BookKeeper's SingleDirectoryDbLedgerStorage.checkpoint; unlike there, the ledger index is written even when no
entry waits. Otherwise the mark would pass a fence that only the journal has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.db_ledger_storage.parts import StorageParts, change_maps
from bookie.db_ledger_storage.write_cache import RunTable
from quire.service.log import get_logger
from quire.world.doors import Offload

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """One flush. `table` does not change while the job runs; `ledgers` are the changed rows of the ledger index."""

    parts: StorageParts
    table: RunTable
    ledgers: Sequence[tuple[int, LedgerRow]]
    now: Callable[[], float]
    """Clock of the event loop, in seconds; it may be read in any thread."""

    def run(self) -> None:
        """Write everything; durable on return. OSError or StorageFailedError: nothing counts, it may be tried again."""
        parts, stats, began = self.parts, self.parts.stats, self.now()
        if self.table.entries:
            rows = parts.logs.append(self.table.sorted_runs())
            logged = self.now()
            parts.locations.put(rows)
            stored = self.now()
            stats.log_times.observe(1000 * (logged - began))
            stats.locations_times.observe(1000 * (stored - logged))
            began = stored
        if self.ledgers:
            parts.ledgers.write(self.ledgers)
            stats.ledger_rows_times.observe(1000 * (self.now() - began))


async def make_log_ahead(offload: Offload, logs: EntryLogs) -> None:
    """Make the next entry log, if one is soon needed. Not at the same time as a flush. StorageFailedError."""
    if logs.wants_ahead:
        try:
            await change_maps(offload, logs.make_ahead, "next entry log")
        except OSError as error:
            log.warning("next entry log cannot be made ahead", reason=str(error))  # a flush makes it, or fails
