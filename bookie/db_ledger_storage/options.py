"""Bounds and counters of a ledger storage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Bounds. In brackets the original's key."""

    write_cache_bytes_max: int = 64 << 20
    """Bytes of both tables of the write cache, overhead included (dbStorage_writeCacheMaxSizeMb)."""
    flush_at_bytes: int = 16 << 20
    """Bytes in the filling table at which `on_flush_due` is called; the room above it is for what comes meanwhile."""
    read_cache_bytes_max: int = 16 << 20
    """Bytes of entries that were read ahead (dbStorage_readAheadCacheMaxSizeMb)."""
    read_ahead_entries: int = 100
    """Entries read by one read at least, as far as they lie together (dbStorage_readAheadCacheBatchSize)."""
    read_ahead_bytes: int = 256 << 10
    """Bytes that reading ahead adds up to at most (dbStorage_readAheadCacheBatchBytesSize)."""
    log_size_max: int = 1 << 30
    """Bytes after which an entry log is sealed (logSizeLimit)."""
    sync_every_bytes: int = 32 << 20
    """Bytes a flush writes between two syncs of the entry log."""
    page_cache_bytes: int = 256 << 20
    """Bytes of the newest pages of the entry logs that stay in the machine's memory; 0: no bound."""
    block_cache_bytes: int = 8 << 20
    """RocksDB's block cache for the location index (dbStorage_rocksDB_blockCacheSize)."""

    def __post_init__(self) -> None:
        assert 0 < self.flush_at_bytes <= self.write_cache_bytes_max
        assert 0 < self.log_size_max <= 1 << 30


@dataclass(slots=True)
class StorageStats:
    """Plain counters, read at scrape time."""

    flushes: int = 0
    flushed_entries: int = 0
    flushed_bytes: int = 0
    disk_reads: int = 0
    """Regions read from entry logs."""
    disk_read_bytes: int = 0
    garbage_steps: int = 0
    """Steps in which garbage collection looked through rows of the location index."""
