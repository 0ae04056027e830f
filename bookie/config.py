"""Settings of a bookie: keys and meanings are those of BookKeeper's bk_server.conf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bookie.disks.config import DiskKeys
from bookie.entry_log_config import EntryLogConfig
from bookie.gc_config import GcConfig
from bookie.journal.config import JournalConfig
from bookie.limbo.config import IntegrityKeys
from bookie.scrubber.config import ScrubKeys
from bookie.settings.indexes import IndexKeys
from bookie.settings.pressure import PressureKeys
from bookie.settings.reads_and_flushes import ReadAndFlushKeys
from bookie.settings.sockets import SocketKeys
from quire.service.config import BYTES, MB, MS, conf_key
from quire.wire.bookkeeper.v2 import FRAME_MAX

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieIdentity:
    """The name and the port of a bookie."""

    bookie_id: str = conf_key("bookieId", "", doc="Name of the bookie in the cluster. Empty: host:port.")
    port: int = conf_key("bookiePort", 3181, minimum=0, maximum=65535, doc="Port to serve. 0 takes a free one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieFolders(BookieIdentity):
    """Its folders, in the order of the file, which decides where a ledger's data is."""

    journal_directories: tuple[str, ...] = conf_key(
        "journalDirectories",
        ("data/bookkeeper/journal",),
        doc="Folders of the journals, comma-separated. A ledger's records are in "
        "one of them, by its id; the folders of an existing bookie cannot be changed.",
    )
    ledger_directories: tuple[str, ...] = conf_key(
        "ledgerDirectories",
        ("data/bookkeeper/ledgers",),
        doc="Folders of entry logs and indexes, comma-separated. A ledger is in one of them; "
        "one that fails takes only its own ledgers with it. To add folders, see allowStorageExpansion.",
    )
    index_directories: tuple[str, ...] = conf_key(
        "indexDirectories",
        (),
        doc="Folders of the indexes of the entry logs, comma-separated, one for each of ledgerDirectories. Empty: the "
        "folders of the entry logs.",
    )

    @property
    def indexes(self) -> tuple[str, ...]:
        """The folders of the indexes, one for each of `ledger_directories`, which they are unless configured."""
        return self.index_directories or self.ledger_directories

    @property
    def journal_directory(self) -> str:
        """The first folder of a journal."""
        return self.journal_directories[0]

    @property
    def ledger_directory(self) -> str:
        """The first folder of entry logs."""
        return self.ledger_directories[0]

    @property
    def index_directory(self) -> str:
        """The first folder of indexes."""
        return self.indexes[0]


def check_folders(config: BookieFolders) -> None:
    """Raise ValueError if the folders contradict each other."""
    for key, folders in (
        ("journalDirectories", config.journal_directories),
        ("ledgerDirectories", config.ledger_directories),
        ("indexDirectories", config.index_directories),
    ):
        if not folders and key != "indexDirectories":
            raise ValueError(f"{key}: a bookie needs a folder")
        if len(set(folders)) != len(folders):
            raise ValueError(f"{key}={','.join(folders)}: a folder is named twice")
    if config.index_directories and len(config.index_directories) != len(config.ledger_directories):
        raise ValueError(
            f"indexDirectories={','.join(config.index_directories)}: there must be one for each of ledgerDirectories, "
            f"which names {len(config.ledger_directories)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieConfig(
    ScrubKeys,
    IntegrityKeys,
    BookieFolders,
    EntryLogConfig,
    DiskKeys,
    GcConfig,
    SocketKeys,
    PressureKeys,
    IndexKeys,
    ReadAndFlushKeys,
):
    """Configuration of one bookie. Field names carry the units."""

    host: str = "127.0.0.1"
    """Host that clients connect to, and part of the bookie's name unless it has an id."""
    ledgers_root: str = "/ledgers"
    """Path of the cluster's facts in the metadata store."""
    root: str = ""
    """The cookie names the folders relative to this one, so that it can be moved with all in it; empty: absolute."""

    frame_max: int = conf_key(
        "nettyMaxFrameSizeBytes",
        FRAME_MAX,
        unit=BYTES,
        minimum=1024,
        maximum=FRAME_MAX,
        doc="Maximum size of a request, in bytes; a connection that announces a larger one is closed.",
    )
    journal_size_max_mb: int = conf_key(
        "journalMaxSizeMB",
        2048,
        minimum=1,
        maximum=2048,
        unit=MB,
        doc="Size of a journal file at which the next one is begun.",
    )
    journal_backups_max: int = conf_key(
        "journalMaxBackups",
        5,
        minimum=0,
        doc="Number of journal files that are kept although recovery no longer needs them.",
    )
    journal_prealloc_mb: int = conf_key(
        "journalPreAllocSizeMB",
        16,
        minimum=0,
        unit=MB,
        doc="Space of the journal that is allocated ahead of the writer.",
    )
    journal_group_wait_ms: int = conf_key(
        "journalMaxGroupWaitMSec",
        0,
        minimum=0,
        unit=MS,
        doc="Time to wait for more entries before a sync. 0: no wait, a group is what queued during the last sync.",
    )
    journal_group_bytes: int = conf_key(
        "journalBufferedWritesThreshold",
        512 << 10,
        minimum=1,
        unit=BYTES,
        doc="Bytes at which a group does not wait any longer; see journalMaxGroupWaitMSec.",
    )
    journal_group_entries: int = conf_key(
        "journalBufferedEntriesThreshold",
        0,
        minimum=0,
        doc="Number of entries at which a group does not wait any longer; see journalMaxGroupWaitMSec. 0: any number.",
    )
    journal_flush_when_empty: bool = conf_key(
        "journalFlushWhenQueueEmpty",
        False,
        doc="true: no group waits for more entries, as with journalMaxGroupWaitMSec=0.",
    )
    journal_memory_mb: int = conf_key(
        "journalMaxMemorySizeMb",
        64,
        minimum=1,
        unit=MB,
        doc="Maximum megabytes that wait in the journal; further adds wait before they enter it.",
    )
    journal_sync: bool = conf_key(
        "journalSyncData",
        True,
        doc="false: acknowledge before the sync. A power cut then loses acknowledged entries of the last "
        "journalPageCacheFlushIntervalMSec; a client's force is synced.",
    )
    journal_write: bool = conf_key(
        "journalWriteData",
        True,
        doc="false: entries are acknowledged when they are in memory, and not written to the journal, except those of "
        "recoveries and auto recovery. A bookie that ends without a stop has lost entries, and copies them back from "
        "the other bookies: needs dataIntegrityChecking=true.",
    )
    journal_sync_interval_ms: int = conf_key(
        "journalPageCacheFlushIntervalMSec",
        1000,
        minimum=1,
        unit=MS,
        doc="With journalSyncData=false, milliseconds between two syncs of the journal.",
    )
    journal_reuse: bool = conf_key(
        "journalReuseFiles",
        False,
        doc="true: write new journal files over one that is no longer needed, which makes syncs faster on most file "
        "systems. One more file of journalMaxSizeMB is kept.",
    )
    journal_remove_from_page_cache: bool = conf_key(
        "journalRemoveFromPageCache",
        True,
        doc="true: write the journal without the page cache if the file system supports it; otherwise "
        "release its pages after each sync.",
    )
    skip_invalid_records: bool = conf_key(
        "skipReplayJournalInvalidRecord",
        False,
        doc="true: start even if the journal is damaged; the damaged groups are lost.",
    )
    write_cache_mb: int = conf_key(
        "dbStorage_writeCacheMaxSizeMb",
        64,
        minimum=2,
        unit=MB,
        doc="Memory for entries not yet in an entry log, both tables.",
    )
    read_cache_mb: int = conf_key(
        "dbStorage_readAheadCacheMaxSizeMb",
        32,
        minimum=1,
        unit=MB,
        doc="Memory for entries read ahead from entry logs.",
    )
    read_ahead_entries: int = conf_key(
        "dbStorage_readAheadCacheBatchSize", 1000, minimum=1, doc="Entries read ahead at a time."
    )
    rocksdb_cache_bytes: int = conf_key(
        "dbStorage_rocksDB_blockCacheSize",
        8 << 20,
        minimum=1 << 20,
        unit=BYTES,
        doc="Memory for blocks of the two indexes, in bytes.",
    )
    flush_interval_ms: int = conf_key(
        "flushInterval",
        10_000,
        minimum=1,
        unit=MS,
        doc="Time between two flushes of the write cache to an entry log, in milliseconds.",
    )
    entry_log_size_max: int = conf_key(
        "logSizeLimit",
        1 << 30,
        minimum=1024,
        maximum=1 << 30,
        unit=BYTES,
        doc="Size of an entry log at which the next one is begun, in bytes.",
    )
    page_cache_mb: int = conf_key(
        "quireEntryLogPageCacheMb",
        256,
        minimum=0,
        unit=MB,
        doc="Megabytes of the newest entry log pages that stay in the page cache; older ones are released. While "
        "entries are not read from the logs, large flushes bypass the page cache: a consumer that begins to read "
        "them reads the disk. 0: no bound, and all flushes go through the page cache.",
    )
    disk_reserve_mb: int = conf_key(
        "quireDiskReserveMb",
        64,
        minimum=0,
        maximum=1 << 20,
        unit=MB,
        doc="Megabytes of disk reserved by a file of zeros, which is deleted for acknowledgements, metadata "
        "and flushes when the disk is full; at most a sixteenth of the disk. 0: none.",
    )
    batch_read_size_max: int = conf_key(
        "maxBatchReadSize",
        5 * MIB,
        minimum=1024,
        maximum=5 * MIB,
        unit=BYTES,
        doc="Largest answer to a batch read, in bytes.",
    )
    read_workers: int = conf_key(
        "numReadWorkerThreads",
        8,
        minimum=0,
        doc="Number of threads that read from disk, 1 to 64. A single one reads while the page cache has the data. Of "
        "pieces above 64 KB as many read as it takes to read 200 MB per second.",
    )
    urgent_workers: int = conf_key(
        "numHighPriorityWorkerThreads",
        8,
        minimum=0,
        doc="Number of threads that read from disk for recoveries, so that these do not wait behind other reads.",
    )
    reads_in_flight_max: int = conf_key(
        "maxPendingReadRequestsPerThread",
        2500,
        minimum=1,
        doc="Maximum reads that wait for the disk, per thread; more are refused.",
    )
    add_wait_ms: int = conf_key(
        "dbStorage_maxThrottleTimeMs",
        10_000,
        unit=MS,
        minimum=0,
        doc="Maximum time that adds wait for room in the write cache or the journal, in milliseconds; then "
        "they are refused.",
    )
    long_polls_max: int = conf_key(
        "quireMaxLongPolls",
        10_000,
        minimum=1,
        doc="Maximum number of readers that wait for new entries; more are refused.",
    )
    allow_storage_expansion: bool = conf_key(
        "allowStorageExpansion",
        False,
        doc="true: empty folders may be added to ledgerDirectories (and indexDirectories) of an existing bookie. "
        "Ledgers stay where they are; new ones are spread over all folders.",
    )
    force_read_only: bool = conf_key(
        "forceReadOnlyBookie", False, doc="true: accept no new entries, except those that recoveries write."
    )

    @property
    def id(self) -> str:
        """The bookie's name in the cluster."""
        return self.bookie_id or f"{self.host}:{self.port}"

    def check_journal(self) -> None:
        """Raise ValueError if entries are not journaled, and nothing brings lost ones back."""
        if not self.journal_write and not self.integrity_check:
            raise ValueError(
                "journalWriteData=false needs dataIntegrityChecking=true: a bookie that was killed has lost "
                "acknowledged entries, and has to copy them back from the other bookies"
            )

    @property
    def journal(self) -> JournalConfig:
        return JournalConfig(
            file_size_max=self.journal_size_max_mb * MIB,
            preallocate=self.journal_prealloc_mb * MIB,
            backups=self.journal_backups_max,
            reuse=self.journal_reuse,
            queue_size_max=self.journal_memory_mb * MIB,
            sync=self.journal_sync,
            sync_interval_s=self.journal_sync_interval_ms / 1000,
            group_wait_s=0 if self.journal_flush_when_empty else self.journal_group_wait_ms / 1000,
            group_bytes=self.journal_group_bytes,
            group_entries=self.journal_group_entries,
            remove_from_page_cache=self.journal_remove_from_page_cache,
        )
