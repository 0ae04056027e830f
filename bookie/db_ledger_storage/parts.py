"""The parts of one open storage, as its upkeep and its compaction use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.forgotten_fences import ForgottenFences
from bookie.db_ledger_storage.ledger_index import LedgerIndex
from bookie.db_ledger_storage.ledger_removal import LedgerRemoval
from bookie.db_ledger_storage.location_index import LocationIndex
from bookie.db_ledger_storage.log_map import LogMap
from bookie.db_ledger_storage.options import StorageStats
from bookie.db_ledger_storage.read_cache import ReadCache
from bookie.db_ledger_storage.write_cache import WriteCache
from bookie.errors import StorageFailedError
from quire.world.doors import NotSyncedError, Offload, World

BETWEEN_STEPS_S: Final = 0.002
"""Seconds between two steps of garbage collection.

It works in steps of about half a millisecond of the interpreter, and pauses between them to use at most a fifth of it.
"""


async def change_maps(offload: Offload, job: Callable[[], object], name: str) -> None:
    """Run a job that writes to the indexes. StorageFailedError if a sync of an index failed."""
    try:
        await offload.run(job, name=name)
    except NotSyncedError as error:
        raise StorageFailedError(f"an index cannot be synced: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageParts:
    """`flushing` is held by whoever changes rows of the location index: a flush, a deletion, a step of compaction."""

    world: World
    folder: str
    """Folder of the entry logs."""
    cache: WriteCache
    read_cache: ReadCache
    logs: EntryLogs
    log_map: LogMap
    locations: LocationIndex
    ledgers: LedgerIndex
    removal: LedgerRemoval
    forgotten_fences: ForgottenFences
    stats: StorageStats
    flushing: trio.Lock
