"""What becomes of each key of an original bk_server.conf: honoured, ignored, or refused with the remedy.

    honoured   a field of `BookieServerConfig`, or an alias of one
    ignored    it tunes machinery that we do not have (IGNORED says which); named once in the log
    refused    with a value that asks for what we cannot do, and whose silent absence would hurt: other bytes on disk,
               less safety than asked for, no authentication. With any other value it is ignored

A key that is nowhere here nor known to Pulsar or BookKeeper is an error, with the nearest name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from quire.service.original_conf import Refusal, is_false, is_true

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"journalDirectory": "journalDirectories", "ledgerDirectory": "ledgerDirectories"}
)
"""Older names; where both are given the newer one counts."""

_THREADS: Final = "one event loop, no pools of threads"
_JVM: Final = "the JVM's network library"
_OUR_JOURNAL: Final = "the journal groups by its syncs, and pads every group"
_SORTED: Final = "SortedLedgerStorage and InterleavedLedgerStorage"
_COMPACTION: Final = "compaction of entry logs"
_DISK: Final = "watching how full the disks are"
_AUDIT: Final = "auto recovery's; it heeds most of them, beside a bookie or as `quire autorecovery`"
_ROCKSDB: Final = "the shape of the indexes is fixed"
_STATS: Final = "metrics are always there, at /metrics"

IGNORED: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Network
        "serverNumIOThreads": _THREADS,
        "serverTcpNoDelay": "always on",
        "serverSockKeepalive": _JVM,
        "serverTcpLinger": _JVM,
        "byteBufAllocatorSizeInitial": _JVM,
        "byteBufAllocatorSizeMin": _JVM,
        "byteBufAllocatorSizeMax": _JVM,
        "allocatorPoolingPolicy": _JVM,
        "allocatorPoolingConcurrency": _JVM,
        "allocatorOutOfMemoryPolicy": _JVM,
        "allocatorLeakDetectionPolicy": _JVM,
        "enableLocalTransport": _JVM,
        "numChannelsPerBookie": "a client's",
        "useV2WireProtocol": "a client's",
        "extraServerComponents": "plug-ins of the JVM",
        "ignoreExtraServerComponentsStartupFailures": "plug-ins of the JVM",
        "bookieDeathWatchInterval": "a bookie that fails ends at once",
        "waitTimeoutOnResponseBackpressureMs": "who does not take answers is not read",
        "closeChannelOnResponseTimeout": "who does not take answers is not read",
        "readWorkerThreadsThrottlingEnabled": "who does not take answers is not read",
        "maxAddsInProgressLimit": "bounded by journalMaxMemorySizeMb",
        "maxReadsInProgressLimit": "bounded by maxPendingReadRequestsPerThread",
        "numAddWorkerThreads": _THREADS,
        "numLongPollWorkerThreads": _THREADS,
        "numJournalCallbackThreads": _THREADS,
        "maxPendingAddRequestsPerThread": "bounded by journalMaxMemorySizeMb",
        "requestTimerTickDurationMs": "long polls end at their time",
        "requestTimerNumTicks": "long polls end at their time",
        "preserveMdcForTaskExecution": "the JVM's logging",
        "enableBusyWait": _THREADS,
        # Journal
        "journalAdaptiveGroupWrites": _OUR_JOURNAL,
        "journalAlignmentSize": _OUR_JOURNAL,
        "journalBufferedWritesThreshold": _OUR_JOURNAL,
        "journalBufferedEntriesThreshold": _OUR_JOURNAL,
        "journalFlushWhenQueueEmpty": _OUR_JOURNAL,
        "journalWriteBufferSizeKB": _OUR_JOURNAL,
        "journalQueueSize": "bounded by journalMaxMemorySizeMb",
        # Ledger storage
        "entryLogFilePreallocationEnabled": "entry logs grow as they are written",
        "flushEntrylogBytes": "entry logs are synced every 32 MB of a flush",
        "readBufferSizeBytes": "entries are read without a buffer",
        "writeBufferSizeBytes": "a flush writes what it has",
        "numOfMemtableFlushThreads": _SORTED,
        "entrylogMapAccessExpiryTimeInSeconds": _SORTED,
        "maximumNumberOfActiveEntryLogs": _SORTED,
        "skipListSizeLimit": _SORTED,
        "skipListArenaChunkSize": _SORTED,
        "skipListArenaMaxAllocSize": _SORTED,
        "openFileLimit": _SORTED,
        "fileInfoCacheInitialCapacity": _SORTED,
        "fileInfoMaxIdleTime": _SORTED,
        "fileInfoFormatVersionToWrite": _SORTED,
        "pageSize": _SORTED,
        "pageLimit": _SORTED,
        "sortedLedgerStorageEnabled": _SORTED,
        "dbStorage_readAheadCacheBatchBytesSize": "reading ahead is bounded by 256 KB",
        "dbStorage_rocksDB_format_version": _ROCKSDB,
        "dbStorage_rocksDB_checksum_type": _ROCKSDB,
        "dbStorage_rocksDB_writeBufferSizeMB": _ROCKSDB,
        "dbStorage_rocksDB_sstSizeInMB": _ROCKSDB,
        "dbStorage_rocksDB_blockSize": _ROCKSDB,
        "dbStorage_rocksDB_bloomFilterBitsPerKey": _ROCKSDB,
        "dbStorage_rocksDB_numLevels": _ROCKSDB,
        "dbStorage_rocksDB_numFilesInLevel0": _ROCKSDB,
        "dbStorage_rocksDB_maxSizeInLevel1MB": _ROCKSDB,
        "dbStorage_rocksDB_logPath": _ROCKSDB,
        "dbStorage_rocksDB_logLevel": _ROCKSDB,
        "entryLocationRocksdbConf": _ROCKSDB,
        "ledgerMetadataRocksdbConf": _ROCKSDB,
        "defaultRocksdbConf": _ROCKSDB,
        "dbStorage_directIOEntryLogger": "entry logs are written through the page cache; those of direct I/O are read",
        "dbStorage_directIOEntryLoggerTotalWriteBufferSizeMb": _ROCKSDB,
        "dbStorage_directIOEntryLoggerTotalReadBufferSizeMb": _ROCKSDB,
        "dbStorage_directIOEntryLoggerReadBufferSizeMb": _ROCKSDB,
        "entryLocationCompactionInterval": _ROCKSDB,
        "allowMultipleDirsUnderSameDiskPartition": "there is one folder of each kind",
        "localScrubInterval": "scrubbing",
        "localScrubRateLimit": "scrubbing",
        "localConsistencyCheckOnStartup": "every read is checked against the index",
        "persistBookieStatusEnabled": "a bookie starts as forceReadOnlyBookie says",
        "readOnlyModeOnAnyDiskFullEnabled": _DISK,
        "diskUsageThreshold": _DISK,
        "diskUsageWarnThreshold": _DISK,
        "diskUsageLwmThreshold": _DISK,
        "diskCheckInterval": _DISK,
        "minUsableSizeForIndexFileCreation": _DISK,
        "minUsableSizeForEntryLogCreation": _DISK,
        "minUsableSizeForHighPriorityWrites": _DISK,
        # Garbage
        "minorCompactionThreshold": _COMPACTION,
        "minorCompactionInterval": _COMPACTION,
        "minorCompactionMaxTimeMillis": _COMPACTION,
        "majorCompactionThreshold": _COMPACTION,
        "majorCompactionInterval": _COMPACTION,
        "majorCompactionMaxTimeMillis": _COMPACTION,
        "compactionRate": _COMPACTION,
        "compactionRateByEntries": _COMPACTION,
        "compactionRateByBytes": _COMPACTION,
        "isThrottleByBytes": _COMPACTION,
        "compactionMaxOutstandingRequests": _COMPACTION,
        "useTransactionalCompaction": _COMPACTION,
        "useTargetEntryLogSizeForGc": _COMPACTION,
        "forceAllowCompaction": _COMPACTION,
        "isForceGCAllowWhenNoSpace": _COMPACTION,
        "gcOverreplicatedLedgerWaitTime": _AUDIT,
        "gcOverreplicatedLedgerMaxConcurrentRequests": _AUDIT,
        "gcMetadataOpRateLimit": "the store bounds its requests itself",
        "gcEntryLogMetadataCacheEnabled": "what an entry log holds is read from its end",
        "gcPersistentEntryLogMetadataMapEnabled": "what an entry log holds is read from its end",
        "gcEntryLogMetadataCachePath": "what an entry log holds is read from its end",
        "verifyMetadataOnGC": "always on",
        # Metadata
        "ledgerManagerFactoryClass": "the cluster's LAYOUT says it",
        "ledgerManagerType": "the cluster's LAYOUT says it",
        "allowShadedLedgerManagerFactoryClass": "the cluster's LAYOUT says it",
        "shadedLedgerManagerFactoryClassPrefix": "the cluster's LAYOUT says it",
        "zkRequestRateLimit": "the store bounds its requests itself",
        "zkReplicationTaskRateLimit": _AUDIT,
        # Metrics and the admin port
        "httpServerClass": "there is one",
        "statsProviderClass": _STATS,
        "enableStatistics": _STATS,
        "enableTaskExecutionStats": _STATS,
        "limitStatsLogging": _STATS,
        "prometheusStatsHttpEnable": _STATS,
        "prometheusStatsHttpPort": _STATS,
        "prometheusStatsHttpAddress": _STATS,
        "prometheusStatsLatencyRolloverSeconds": _STATS,
        "prometheusBasicStatsEnabled": _STATS,
        "codahaleStatsPrefix": _STATS,
        "codahaleStatsOutputFrequencySeconds": _STATS,
        "codahaleStatsGraphiteEndpoint": _STATS,
        "codahaleStatsCSVEndpoint": _STATS,
        "codahaleStatsSlf4jEndpoint": _STATS,
        "codahaleStatsJmxEndpoint": _STATS,
        "statsExport": _STATS,
        "statsHttpPort": _STATS,
        "sanityCheckMetricsEnabled": _STATS,
        # Auto recovery
        "digestType": _AUDIT,
        "passwd": _AUDIT,
        "enableDigestTypeAutodetection": _AUDIT,
        "ensemblePlacementPolicy": _AUDIT,
        "reppDnsResolverClass": _AUDIT,
        "networkTopologyScriptFileName": _AUDIT,
        "networkTopologyScriptNumberArgs": _AUDIT,
        "minNumRacksPerWriteQuorum": _AUDIT,
        "enforceMinNumRacksPerWriteQuorum": _AUDIT,
        "enforceMinNumFaultDomainsForWrite": _AUDIT,
        "auditorPeriodicBookieCheckInterval": _AUDIT,
        "auditorPeriodicCheckInterval": _AUDIT,
        "auditorPeriodicPlacementPolicyCheckInterval": _AUDIT,
        "auditorReplicasCheckInterval": _AUDIT,
        "auditorLedgerVerificationPercentage": _AUDIT,
        "auditorMaxNumberOfConcurrentOpenLedgerOperations": _AUDIT,
        "auditorAcquireConcurrentOpenLedgerOperationsTimeoutMSec": _AUDIT,
        "lostBookieRecoveryDelay": _AUDIT,
        "rereplicationEntryBatchSize": _AUDIT,
        "openLedgerRereplicationGracePeriod": _AUDIT,
        "rwRereplicateBackoffMs": _AUDIT,
        "lockReleaseOfFailedLedgerGracePeriod": _AUDIT,
        "underreplicatedLedgerRecoveryGracePeriod": _AUDIT,
        "inFlightReadEntryNumInLedgerChecker": _AUDIT,
        "replicationRateByBytes": _AUDIT,
        "repairedPlacementPolicyNotAdheringBookieEnable": _AUDIT,
        # Security, as long as none is asked for
        "tlsProvider": "no TLS",
        "tlsClientAuthentication": "no TLS",
        "tlsKeyStoreType": "no TLS",
        "tlsKeyStore": "no TLS",
        "tlsKeyStorePasswordPath": "no TLS",
        "tlsTrustStoreType": "no TLS",
        "tlsTrustStore": "no TLS",
        "tlsTrustStorePasswordPath": "no TLS",
        "tlsCertificatePath": "no TLS",
        "tlsEnabledProtocols": "no TLS",
        "tlsEnabledCipherSuites": "no TLS",
        "tlsCertFilesRefreshDurationSeconds": "no TLS",
        "httpServerKeystorePath": "no TLS",
        "httpServerKeystorePassword": "no TLS",
        "httpServerTrustStorePath": "no TLS",
        "httpServerTrustStorePassword": "no TLS",
    }
)
"""By name, what there is instead, or what is not there to be tuned."""


def _is_a_class(value: str) -> bool:
    return value.lower() != "null"


def _is_another_storage(value: str) -> bool:
    return value.rpartition(".")[2] not in ("DbLedgerStorage", "SortedLedgerStorage", "InterleavedLedgerStorage")


_AUTH: Final = (
    "bookies authenticate nobody; leave it empty here and in the clients, and let the network decide who may connect"
)
_TLS: Final = (
    "bookies do not speak TLS; leave it empty and put a TLS proxy or a private network between them and others"
)

REFUSED: Final[Mapping[str, Refusal]] = MappingProxyType(
    {
        "bookieAuthProviderFactoryClass": Refusal(_is_a_class, _AUTH),
        "authorizedRoles": Refusal(bool, _AUTH),
        "tlsProviderFactoryClass": Refusal(_is_a_class, _TLS),
        "httpServerTlsEnable": Refusal(is_true, _TLS),
        "journalWriteData": Refusal(
            is_false, "what is acknowledged is in the journal; set it to true, or run fewer copies of the data"
        ),
        "journalFormatVersionToWrite": Refusal(
            lambda value: value != "6",
            "only version 6 is written, and all are read; remove the key. A bookie of the original that is older than "
            "4.9 will not read these journals: stop the bookie cleanly before it goes back",
        ),
        "journalReuseFiles": Refusal(is_true, "journal files are not written again; set it to false"),
        "entryLogPerLedgerEnabled": Refusal(
            is_true, "DbLedgerStorage, of the original too, has one entry log for all ledgers; set it to false"
        ),
        "ledgerStorageClass": Refusal(
            _is_another_storage, "the storage is DbLedgerStorage's; name it, or remove the key"
        ),
        "allowStorageExpansion": Refusal(
            is_true, "a bookie has one folder of entry logs; run another bookie on the new disk"
        ),
        "dataIntegrityCheckingEnabled": Refusal(
            is_true,
            "a wiped bookie is not filled up by itself; set it to false, and rebuild one with `scripts/replace-disk`",
        ),
        "dataIntegrityStampMissingCookies": Refusal(is_true, "see dataIntegrityCheckingEnabled; set it to false"),
        "disableServerSocketBind": Refusal(
            is_true, "clients are in other processes; set it to false, or use `quire standalone`"
        ),
    }
)
