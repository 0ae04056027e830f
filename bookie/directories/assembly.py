"""Parts of a bookie that depend on the number of its directories: one of each kind is used directly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from bookie.config import BookieConfig
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.health import DirectoryHealth
from bookie.directories.journals import LedgerJournal, SpreadJournal
from bookie.directories.routes import Routes
from bookie.directories.storage import LedgerStorage, SpreadStorage
from bookie.disks.watch import DiskWatch
from bookie.journal.writer import Journal
from quire.world.doors import World


class Parts(NamedTuple):
    """Storage and journal of a bookie, and the state of their directories."""

    storage: LedgerStorage
    journal: LedgerJournal
    routes: Routes
    directories: DirectoryHealth
    journals: DirectoryHealth

    @property
    def is_spread(self) -> bool:
        """Return whether there are several directories of a kind."""
        return self.routes.directories > 1 or self.routes.journals > 1

    async def open(self, served: Sequence[bool], sealed: Sequence[bool]) -> None:
        """Open the storage: see `SpreadStorage.open`."""
        if isinstance(self.storage, SpreadStorage):
            await self.storage.open(served=served, sealed=sealed)
        else:
            await self.storage.open(has_served=served[0], has_seal=sealed[0])


def parts(world: World, config: BookieConfig, disks: DiskWatch) -> Parts:
    """Make storage and journal as configured. Caches and queues of all directories of a kind are bounded together."""
    routes = Routes(len(config.ledger_directories), len(config.journal_directories))
    directories = DirectoryHealth("ledger directory", config.ledger_directories)
    journals = DirectoryHealth("journal directory", config.journal_directories)
    storages = [
        DbLedgerStorage(world, folder, _options(config, number), index_directory=index)
        for number, (folder, index) in enumerate(zip(config.ledger_directories, config.indexes, strict=True))
    ]
    journal_config = replace(
        config.journal,
        preallocate=disks.journal_ahead,
        queue_size_max=config.journal.queue_size_max // routes.journals,
    )
    written = [Journal(world, f"{folder}/current", journal_config) for folder in config.journal_directories]
    for journal in written:
        journal.economize(disks.is_full)
    if routes.directories == 1 and routes.journals == 1:
        return Parts(storages[0], written[0], routes, directories, journals)
    storage = SpreadStorage(storages, routes, directories)
    return Parts(storage, SpreadJournal(written, routes), routes, directories, journals)


def _options(config: BookieConfig, number: int) -> StorageOptions:
    count = len(config.ledger_directories)
    log_map = config.log_map_directory
    write_cache = (config.write_cache_mb << 20) // count
    return StorageOptions(
        write_cache_bytes_max=write_cache,
        flush_at_bytes=write_cache // 4,
        read_cache_bytes_max=(config.read_cache_mb << 20) // count,
        read_ahead_entries=config.read_ahead_entries,
        log_size_max=config.entry_log_size_max,
        page_cache_bytes=(config.page_cache_mb << 20) // count,
        block_cache_bytes=config.rocksdb_cache_bytes // count,
        log_ahead=config.log_ahead,
        ledger_logs=config.ledger_logs,
        compaction=config.compaction(config.entry_log_size_max),
        keep_log_map=config.keep_log_map,
        index_keys=config,
        read_ahead_bytes=config.read_ahead_bytes_max,
        sequential_ahead_bytes=config.sequential_ahead_bytes_max,
        sync_every_bytes=config.flush_sync_bytes or write_cache,
        log_map_folder=f"{log_map}/{number}" if log_map and count > 1 else log_map,
    )
