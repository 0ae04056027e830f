"""The storage of a bookie as configured."""

from __future__ import annotations

from bookie.config import BookieConfig
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from quire.world.doors import World


def storage_of(world: World, config: BookieConfig) -> DbLedgerStorage:
    """Return the storage of a bookie, not opened yet."""
    write_cache = config.write_cache_mb << 20
    options = StorageOptions(
        write_cache_bytes_max=write_cache,
        flush_at_bytes=write_cache // 4,
        read_cache_bytes_max=config.read_cache_mb << 20,
        read_ahead_entries=config.read_ahead_entries,
        log_size_max=config.entry_log_size_max,
        page_cache_bytes=config.page_cache_mb << 20,
        block_cache_bytes=config.rocksdb_cache_bytes,
        compaction=config.compaction(config.entry_log_size_max),
        keep_log_map=config.keep_log_map,
        log_map_folder=config.log_map_directory,
        index_keys=config,
        read_ahead_bytes=config.read_ahead_bytes_max,
        sync_every_bytes=config.flush_sync_bytes or write_cache,
    )
    return DbLedgerStorage(world, config.ledger_directory, options, index_directory=config.index_directory)
