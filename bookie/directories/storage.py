"""Entry storage over several ledger directories, each of which is a DbLedgerStorage of its own.

A bookie with one directory uses its DbLedgerStorage directly. With several, whatever concerns one ledger goes to the
storage of its directory, and the rest to all of them. Adds of clients do not come through here: adds.py gives them
straight to the storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import trio

from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.db_ledger_storage.options import StorageStats
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.health import DirectoryHealth
from bookie.directories.limbo import SpreadLimbo
from bookie.directories.reader import SpreadReader
from bookie.directories.routes import Routes
from bookie.requests import lac_of_package
from quire.service.log import get_logger
from quire.wire.bookkeeper.run import Run
from quire.world.unwrap import leaves

log = get_logger(__name__)


class SpreadStorage:
    """Storages of several directories as one. `health` says which of them can be used."""

    def __init__(self, storages: Sequence[DbLedgerStorage], routes: Routes, health: DirectoryHealth) -> None:
        self.directories = tuple(storages)
        """The storages of all directories."""
        self.routes = routes
        self.health = health
        self.reader = SpreadReader(self.directories, routes, health)
        self.limbo = SpreadLimbo(self.directories, routes)
        self.held_ledgers = _HeldLedgers(self)

    # --- life

    async def open(self, *, served: Sequence[bool], sealed: Sequence[bool]) -> None:
        """Open all storages, and find out which ledgers each has. Arguments as of `DbLedgerStorage.open`, for each.

        Raises: StorageDamagedError, OSError.
        """
        opened: list[DbLedgerStorage] = []
        try:
            for storage, has_served, has_seal in zip(self.directories, served, sealed, strict=True):
                await storage.open(has_served=has_served, has_seal=has_seal)
                opened.append(storage)
        except BaseException:
            with trio.CancelScope(shield=True):
                for storage in opened:
                    await storage.close()
            raise
        self._settle()

    def _settle(self) -> None:
        routes = self.routes
        routes.settle([storage.known_ledgers() for storage in self.directories])
        for index, storage in enumerate(self.directories):
            for ledger_id in storage.remembered_fences():
                home = self.of(ledger_id)
                if home is not storage and home.ledger(ledger_id) is not None and storage.is_fenced(ledger_id):
                    home.set_fenced(ledger_id)
                elif home is not storage:
                    routes.keep(ledger_id, index)
        for ledger_id in routes.split_ledgers():
            self._join(ledger_id)

    def _join(self, ledger_id: int) -> None:
        """Bring the facts of a ledger that is in several directories into its own: a fence counts wherever it is."""
        own = self.of(ledger_id)
        for index in self.routes.others(ledger_id):
            row = self.directories[index].ledger(ledger_id)
            if row is None:
                continue
            if not own.master_key(ledger_id):
                own.set_master_key(ledger_id, row.master_key)
            if row.fenced:
                own.set_fenced(ledger_id)
            if row.limbo:
                own.limbo.put(ledger_id, row.master_key)
            known = own.explicit_lac(ledger_id)
            if row.explicit_lac is not None and (
                known is None or lac_of_package(row.explicit_lac) > lac_of_package(known)
            ):
                own.set_explicit_lac(ledger_id, row.explicit_lac)

    async def close(self) -> None:
        """Close all storages; a directory that cannot be used is abandoned. OSError of the others."""
        for index, storage in enumerate(self.directories):
            if not self.health.reasons[index]:
                await storage.close()

    # --- one ledger

    def of(self, ledger_id: int) -> DbLedgerStorage:
        """Return the storage of the ledger's directory."""
        return self.directories[self.routes.directory(ledger_id)]

    def by_directory(self, places: list[tuple[int, int]]) -> Sequence[list[tuple[int, int]]]:
        """Return the (ledger id, entry id) in groups, each of one directory."""
        groups: dict[int, list[tuple[int, int]]] = {}
        for place in places:
            groups.setdefault(self.routes.directory(place[0]), []).append(place)
        return list(groups.values())

    def add(self, run: Run) -> None:
        """Add a run to the write cache of its directory. WriteCacheFullError."""
        self.of(run.ledger_id).add(run)

    def ledger(self, ledger_id: int) -> LedgerRow | None:
        """Return the state of a ledger besides its entries, None if it is unknown."""
        return self.of(ledger_id).ledger(ledger_id)

    def master_key(self, ledger_id: int) -> bytes | None:
        """Return the master key of the ledger, None if the ledger is unknown; b"" if it is known without a key."""
        return self.of(ledger_id).master_key(ledger_id)

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        """Make the ledger known."""
        self.of(ledger_id).set_master_key(ledger_id, key)

    def is_fenced(self, ledger_id: int) -> bool:
        """Return whether the ledger is fenced, or was when it was forgotten."""
        return self.of(ledger_id).is_fenced(ledger_id)

    def set_fenced(self, ledger_id: int) -> None:
        """Fence the ledger permanently."""
        self.of(ledger_id).set_fenced(ledger_id)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """Return the last explicit LAC package of the ledger."""
        return self.of(ledger_id).explicit_lac(ledger_id)

    def set_explicit_lac(self, ledger_id: int, package: bytes) -> None:
        self.of(ledger_id).set_explicit_lac(ledger_id, package)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Forget a ledger and its entries, in all directories."""
        await self.of(ledger_id).delete_ledger(ledger_id)
        for index in self.routes.others(ledger_id):
            await self.directories[index].delete_ledger(ledger_id)

    # --- all of them

    def ledgers(self) -> list[int]:
        """Return the ids of all known ledgers, sorted."""
        return sorted({ledger_id for storage in self.directories for ledger_id in storage.known_ledgers()})

    async def local_ledgers(self) -> set[int]:
        """Return every ledger with any data in any directory."""
        return {ledger_id for storage in self.directories for ledger_id in await storage.local_ledgers()}

    async def flush(self) -> None:
        """Flush all directories. OSError or StorageFailedError, of the first that failed: see `DbLedgerStorage`."""
        try:
            async with trio.open_nursery() as nursery:
                for storage in self.directories:
                    nursery.start_soon(storage.flush, name="flush of a directory")
        except BaseExceptionGroup as group:
            for error in leaves(group):
                raise error from None

    @property
    def flush_due(self) -> bool:
        """Return whether any write cache is full enough for a flush to begin."""
        return any([storage.flush_due for storage in self.directories])

    def end_log_later(self) -> None:
        """End the entry logs with the next flush."""
        for storage in self.directories:
            storage.end_log_later()

    @property
    def read_cache_bytes(self) -> int:
        """Return the cost of the runs in the read-ahead caches."""
        return sum(storage.read_cache_bytes for storage in self.directories)

    @property
    def write_cache_bytes(self) -> int:
        """Return the cost of the write caches in bytes."""
        return sum(storage.write_cache_bytes for storage in self.directories)

    @property
    def unflushed_bytes(self) -> int:
        """Return the bytes in the write caches that are not in an entry log yet."""
        return self.write_cache_bytes

    @property
    def stats(self) -> StorageStats:
        """Return the sums of the counters."""
        return StorageStats.sum([storage.stats for storage in self.directories])


class _HeldLedgers:
    """Forgotten ledgers that accept no adds before a checkpoint."""

    def __init__(self, storage: SpreadStorage) -> None:
        self._storage = storage

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._storage.of(ledger_id).held_ledgers


LedgerStorage: TypeAlias = DbLedgerStorage | SpreadStorage
"""Storage of a bookie: that of its only directory, or one over several."""
