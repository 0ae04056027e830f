"""Configuration of a journal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Sizes in bytes."""

    file_size_max: int = 2048 << 20
    """journalMaxSizeMB: a group that would exceed it begins a new file."""
    preallocate: int = 16 << 20
    """journalPreAllocSizeMB; 0: none."""
    backups: int = 5
    """journalMaxBackups: old files kept before the mark."""
    queue_size_max: int = 64 << 20
    """journalMaxMemorySizeMb: bytes that may wait to be written."""
    group_wait_s: float = 0.0
    """journalMaxGroupWaitMSec: seconds to wait for more records before a group begins; see the next two."""
    group_bytes: int = 512 << 10
    """journalBufferedWritesThreshold: bytes that end the wait."""
    group_entries: int = 0
    """journalBufferedEntriesThreshold: records that end the wait; 0: any number."""
    sync: bool = True
    """journalSyncData: false acknowledges records that the kernel has taken.

    A power cut then loses acknowledged entries of up to the last `sync_interval_s`. A force is synced nevertheless.
    """
    sync_interval_s: float = 1.0
    """journalPageCacheFlushIntervalMSec: without `sync`, seconds between two syncs."""
    reuse: bool = False
    """journalReuseFiles: write new files over one that recovery no longer needs."""
    remove_from_page_cache: bool = True
    """journalRemoveFromPageCache: bypass the page cache, or release synced pages."""
