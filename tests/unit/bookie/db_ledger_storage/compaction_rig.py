"""Storages with logs of ten entries, of which some are deleted: for tests of compaction."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from bookie.db_ledger_storage.compaction.plan import CompactionKind, CompactionOptions, CompactionResult
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import NoEntryError, NoLedgerError
from simulation.machines.host import Host
from tests.unit.bookie.db_ledger_storage.conftest import run_of

BIG = 1 << 30
FOLDER = "/b/current"
LOG_SIZE = 1024 + 10 * 44
"""Ten entries."""


def options(**settings: Any) -> StorageOptions:
    compaction = CompactionOptions(**{"rate": 0, **settings})
    return StorageOptions(log_size_max=LOG_SIZE, compaction=compaction)


def live(*ledgers: int) -> Callable[[], AsyncGenerator[int, None]]:
    async def ledger_ids() -> AsyncGenerator[int, None]:
        for ledger_id in ledgers:
            yield ledger_id

    return ledger_ids


async def fill(storage: DbLedgerStorage, entries: dict[int, Iterable[int]], version: int = 0) -> None:
    """Flush these entries, one run each."""
    for ledger_id, ids in entries.items():
        storage.set_master_key(ledger_id, b"k")
        for entry_id in ids:
            storage.add(run_of(ledger_id, [entry_id], version=version))
    await storage.flush()


async def compact(storage: DbLedgerStorage, *living: int, threshold: float = 0.9) -> CompactionResult:
    """Collect garbage and compact."""
    await storage.collect_garbage(live(*living))
    return await storage.compact(CompactionKind.MAJOR, threshold)


def held(storage: DbLedgerStorage, ledger_id: int, ids: Iterable[int]) -> dict[int, bytes]:
    """Return those entries that can be read. Damage raises."""
    found = {}
    for entry_id in ids:
        try:
            found[entry_id] = bytes(storage.reader.read_entry(ledger_id, entry_id))
        except (NoEntryError, NoLedgerError):
            continue
    return found


def logs_of(host: Host) -> list[str]:
    return [path.rpartition("/")[2] for path in host.disk.paths() if ".log" in path]
