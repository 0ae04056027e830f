"""Configuration of `quire standalone`: keys of Pulsar's standalone.conf and of BookKeeper's bk_server.conf, in one
file.

Names are theirs; defaults are ours where theirs ask for gigabytes of memory or give up safety (conf/standalone.conf
lists every key with its default, and a test holds the two together). Every key here has an effect; one that only the
originals know is logged as ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.servers.broker.keys import BrokerKeys
from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneConfig(BrokerKeys):
    """Units are in the names of the fields. `None` and 0 mean what the key's text says."""

    # The bookie
    journal_size_max_mb: int = conf_key(
        "journalMaxSizeMB", 256, minimum=1, doc="Size at which the journal starts its next file."
    )
    journal_backups_max: int = conf_key(
        "journalMaxBackups", 1, minimum=0, doc="Journal files kept that recovery does not need any more."
    )
    journal_prealloc_mb: int = conf_key(
        "journalPreAllocSizeMB", 16, minimum=1, doc="How far ahead of the writer the journal's space is reserved."
    )
    journal_group_wait_ms: int = conf_key(
        "journalMaxGroupWaitMSec",
        0,
        minimum=0,
        doc="Wait so long for more entries before a sync. 0: none, what queued during the last sync is the group.",
    )
    journal_remove_from_page_cache: bool = conf_key(
        "journalRemoveFromPageCache",
        True,
        doc="Write the journal past the page cache, where the file system can; else give its pages back once they are synced.",
    )
    journal_memory_mb: int = conf_key(
        "journalMaxMemorySizeMb",
        64,
        minimum=1,
        doc="Megabytes that may wait for the journal; more adds wait before it.",
    )
    journal_sync: bool = conf_key(
        "journalSyncData", True, doc="false: answer before the sync. A power cut then loses acknowledged messages."
    )
    journal_sync_interval_ms: int = conf_key(
        "journalPageCacheFlushIntervalMSec",
        1000,
        minimum=1,
        doc="With journalSyncData=false, milliseconds between two syncs of the journal.",
    )
    skip_invalid_records: bool = conf_key(
        "skipReplayJournalInvalidRecord",
        False,
        doc="true: start even if the journal is damaged, giving up the damaged groups.",
    )
    write_cache_mb: int = conf_key(
        "dbStorage_writeCacheMaxSizeMb", 64, minimum=2, doc="Memory for entries not yet in an entry log, both tables."
    )
    read_cache_mb: int = conf_key(
        "dbStorage_readAheadCacheMaxSizeMb", 32, minimum=1, doc="Memory for entries read ahead from entry logs."
    )
    read_ahead_entries: int = conf_key(
        "dbStorage_readAheadCacheBatchSize", 1000, minimum=1, doc="Entries read ahead at a time."
    )
    rocksdb_cache_bytes: int = conf_key(
        "dbStorage_rocksDB_blockCacheSize",
        8 << 20,
        minimum=1 << 20,
        doc="Memory for blocks of the two indexes, in bytes.",
    )
    flush_interval_ms: int = conf_key(
        "flushInterval", 10_000, minimum=1, doc="How often the write cache goes to an entry log, in milliseconds."
    )
    entry_log_size_max: int = conf_key(
        "logSizeLimit",
        1 << 30,
        minimum=1 << 20,
        maximum=1 << 30,
        doc="Size at which the next entry log starts, in bytes.",
    )
    page_cache_mb: int = conf_key(
        "quireEntryLogPageCacheMb",
        256,
        minimum=0,
        doc="Megabytes of the newest entry log pages that stay in the machine's memory; older ones are given back. 0: no "
        "bound.",
    )
    disk_reserve_mb: int = conf_key(
        "quireDiskReserveMb",
        64,
        minimum=0,
        maximum=1 << 20,
        doc="Megabytes of disk kept in a file of zeros, given up for acknowledgements, metadata and flushes when the disk is "
        "full; at most a sixteenth of the disk. 0: none.",
    )
    gc_wait_ms: int = conf_key(
        "gcWaitTime",
        300_000,
        minimum=1,
        doc="How often entry logs are looked through for what may go, in milliseconds.",
    )

    reads_in_flight_max: int = conf_key(
        "maxPendingReadRequestsPerThread", 2500, minimum=1, doc="Reads from disk at once; more are refused."
    )
