"""Bounds and counters of a ledger storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bookie.db_ledger_storage.compaction.plan import CompactionKind, CompactionOptions
from bookie.db_ledger_storage.log_writing.ledger_logs import LedgerLogOptions
from bookie.settings.indexes import IndexKeys
from quire.service.measuring.outcomes import Outcomes
from quire.service.measuring.summaries import Times
from quire.world.doors import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Bounds of the storage. The original's key is in brackets."""

    write_cache_bytes_max: int = 64 << 20
    """Bytes of both tables of the write cache, overhead included (dbStorage_writeCacheMaxSizeMb)."""
    flush_at_bytes: int = 16 << 20
    """Bytes in the filling table at which `on_flush_due` is called.

    The room above it takes adds that arrive during the flush.
    """
    read_cache_bytes_max: int = 16 << 20
    """Bytes of entries read ahead (dbStorage_readAheadCacheMaxSizeMb)."""
    read_ahead_entries: int = 100
    """Entries read by one disk read, as far as they are adjacent (dbStorage_readAheadCacheBatchSize)."""
    read_ahead_bytes: int = 256 << 10
    """Largest number of bytes read ahead at a time (dbStorage_readAheadCacheBatchBytesSize)."""
    sequential_ahead_bytes: int = 256 << 10
    """The same, for a reader that goes on where the last region ended (the same key)."""
    log_size_max: int = 1 << 30
    """Bytes after which an entry log is sealed (logSizeLimit)."""
    sync_every_bytes: int = 32 << 20
    """Bytes a flush writes between two syncs of the entry log."""
    page_cache_bytes: int = 256 << 20
    """Bytes of the newest pages of the entry logs that stay in the machine's memory; 0: no bound."""
    block_cache_bytes: int = 8 << 20
    """RocksDB's block cache for the location index (dbStorage_rocksDB_blockCacheSize)."""
    log_ahead: bool = False
    """Make the next entry log when the present one is half full (entryLogFilePreallocationEnabled)."""
    ledger_logs: LedgerLogOptions | None = None
    """Bounds of the logs of single ledgers; None: all ledgers share one (entryLogPerLedgerEnabled)."""
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    keep_log_map: bool = False
    """Keep the ledgers of each log in an ordered map (gcEntryLogMetadataCacheEnabled)."""
    log_map_folder: str = ""
    """Folder of that map; empty: that of the entry logs (gcEntryLogMetadataCachePath)."""
    index_keys: IndexKeys = field(default_factory=IndexKeys)
    """Shape and memory of the indexes besides."""

    @property
    def copies_sync_every(self) -> int:
        """Return the bytes that a compaction writes between two syncs: at most as many as a flush."""
        return min(self.sync_every_bytes, self.compaction.sync_every)

    def index_shapes(self, disk: Disk) -> dict[str, dict[str, Any]]:
        """Return, by the name of each index, what it is opened with. Blocking. IndexOptionsError, OSError."""
        files = self.index_keys.index_files(disk)
        return {
            "ledgers": {"cache_bytes": 1 << 20, "tuning": files.ledgers},
            "locations": {
                "cache_bytes": self.block_cache_bytes,
                "write_buffer_bytes": files.write_buffer_bytes,
                "tuning": files.locations,
            },
        }

    def __post_init__(self) -> None:
        assert 0 < self.flush_at_bytes <= self.write_cache_bytes_max
        assert 0 < self.log_size_max <= 1 << 30


@dataclass(slots=True)
class StorageStats:
    """Plain counters, read at scrape time."""

    flushes: int = 0
    flush_times: Times = field(default_factory=Times)
    """Times of flushes of the write cache, in milliseconds."""
    log_times: Times = field(default_factory=Times)
    """Times of writing the entry logs of a flush, in milliseconds; below, of its index rows. Changed in the flush."""
    locations_times: Times = field(default_factory=Times)
    ledger_rows_times: Times = field(default_factory=Times)
    flushed_entries: int = 0
    flushed_bytes: int = 0
    disk_reads: int = 0
    """Regions read from entry logs."""
    disk_read_bytes: int = 0
    deleted_ledgers: int = 0
    reclaimed_bytes: int = 0
    """Bytes of entry logs that garbage collection deleted."""
    compacted_bytes: int = 0
    """Bytes of entry logs that compaction deleted, without their copies."""
    compactions: dict[CompactionKind, int] = field(default_factory=lambda: dict.fromkeys(CompactionKind, 0))
    compaction_ratio: float = 0.0
    """Part of the chosen logs that the last compaction deleted."""
    location_compactions: int = 0
    """Compactions of the location index."""
    failed_logs: int = 0
    """Times that a log could not be read or deleted."""
    gc_ledgers: Outcomes = field(default_factory=Outcomes)
    """Times of searches for deleted ledgers, with their deletion, in milliseconds..."""
    gc_logs: Outcomes = field(default_factory=Outcomes)
    """...and of what follows: the ledgers of each log are looked up, and logs that none needs are deleted."""
    last_entries: Outcomes = field(default_factory=Outcomes)
    """Times of searches of the location index for the last entry of a ledger, in milliseconds. Changed by workers."""
    garbage_steps: int = 0
    """Steps of garbage collection over rows of the location index."""

    @classmethod
    def sum(cls, parts: Sequence[StorageStats]) -> StorageStats:
        """Return the sums of the counters, without the times."""
        return cls(
            flushes=sum(each.flushes for each in parts),
            flushed_entries=sum(each.flushed_entries for each in parts),
            flushed_bytes=sum(each.flushed_bytes for each in parts),
            disk_reads=sum(each.disk_reads for each in parts),
            disk_read_bytes=sum(each.disk_read_bytes for each in parts),
            deleted_ledgers=sum(each.deleted_ledgers for each in parts),
            reclaimed_bytes=sum(each.reclaimed_bytes for each in parts),
            garbage_steps=sum(each.garbage_steps for each in parts),
        )
