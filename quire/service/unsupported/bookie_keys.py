"""Keys of BookKeeper's bk_server.conf that no field of ours obeys: why, and which values are taken all the same.

One file serves a bookie and auto recovery. A key concerns one of the two or both; to the other it is harmless. A key
that gets a field is obeyed from then on, whatever stands here (and can be taken out).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quire.service.original_conf import Fate, Rule, is_false, is_true, refused
from quire.service.unsupported.broker_keys import by_reason

_HARMLESS: Final[Mapping[str, str]] = {
    "one event loop, no pools of threads": "serverNumIOThreads serverNumAcceptorThreads numAddWorkerThreads "
    "numLongPollWorkerThreads numJournalCallbackThreads enableBusyWait numIOThreads numWorkerThreads",
    "buffers of the JVM": "byteBufAllocatorSize* allocator* enableLocalTransport nettyUsePooledBuffers "
    "preserveMdcForTaskExecution taskExecutionWarnTimeMicros",
    "a bookie that can serve no longer ends its process at once": "bookieDeathWatchInterval",
    "bounded by journalMaxMemorySizeMb": "journalQueueSize",
    "timers end when they are due, without ticks": "requestTimer*",
    "a group of the journal holds what queued during the last sync, and has one sync": "journalAdaptiveGroupWrites",
    "a group of the journal is padded to 512 bytes; disks with larger sectors are written through the page cache": (
        "journalAlignmentSize"
    ),
    "a group of the journal is written in one call, without a buffer": "journalWriteBufferSizeKB",
    "entries are written out of the write cache, and read as they are needed, without a buffer": "readBufferSizeBytes "
    "writeBufferSizeBytes dbStorage_directIOEntryLogger*",
    "keys of the other storages; see ledgerStorageClass": "numOfMemtableFlushThreads skipList* openFileLimit fileInfo* "
    "pageSize pageLimit minUsableSizeForIndexFileCreation",
    "there are two indexes, which have files of their own": "defaultRocksdbConf",
    "rows are written in batches of 1000, and those of a ledger are deleted as one range": (
        "maxOperationNumbersInSingleRocksdbWriteBatch rocksDBDeleteEntriesBatchSize"
    ),
    "always on": "verifyMetadataOnGC",
    "see ledgerManagerFactoryClass": "ledgerManagerType allowShadedLedgerManagerFactoryClass "
    "shadedLedgerManagerFactoryClassPrefix ledgerManagerFactoryDisableClassCheck metastoreImplClass "
    "metastoreMaxEntriesPerScan",
    "keys of the shell": "entryFormatterClass ledgerIdFormatterClass",
    "metrics are Prometheus'; see statsProviderClass": "codahaleStats* statsExport statsHttpPort",
    "there are no executors, and no metrics for each connection": "enableTaskExecutionStats limitStatsLogging",
    "there is one HTTP server": "httpServerClass",
    "TLS is OpenSSL's, and the same for a bookie and its clients in one file": "tlsProvider clientKeyStore* "
    "clientTrustStore*",
    "plug-ins of the JVM": "ignoreExtraServerComponentsStartupFailures",
    "keys of stream storage; see extraServerComponents": "dlog.* storage.* storageserver.*",
    "keys of clients that write; auto recovery only writes copies": "addEntryQuorumTimeoutSec clientRole "
    "delayEnsembleChange disableEnsembleChangeFeatureName explicitLacInterval maxNumEnsembleChanges "
    "opportunisticStriping storeSystemTimeAsLedgerCreationTime ledgerMetadataVersion throttle "
    "waitTimeoutOnBackpressureMs useV2WireProtocol numChannelsPerBookie firstSpeculativeRead* maxSpeculativeRead* "
    "speculativeRead* recoveryReadBatchSize recoveryBatchReadEnabled batchReadEnabled enableParallelRecoveryRead "
    "stickyReadSEnabled reorderReadSequenceEnabled readReorderThresholdPendingRequests clientTcp* clientSock* "
    "clientSend* clientReceive* clientWriteBuffer* tcpKeep* clientConnectBookieUnavailableLogThrottling "
    "pcbcTimeoutTimer* timeout* enforceMinNumFaultDomainsForWrite networkTopologyStabilizePeriodSeconds "
    "useHostnameResolveLocalNodePlacementPolicy bookieAddressResolverEnabled enableBookieAddressTracking "
    "ensemblePlacementPolicyOrderSlowBookies registrationClientClass",
}

_AT_REST: Final[Mapping[str, str]] = {
    "there is one way to register, and one to write a journal": "registrationManagerClass journalChannelProvider",
    "plug-ins of the JVM cannot be loaded": "extraServerComponents",
    "connecting is retried without limit, at intervals between the two of zkRetryBackoff": "zkRetryBackoffMaxRetries",
    "RocksDB's own log has the level info": "dbStorage_rocksDB_logLevel",
    "a peer that takes no answers is not read": "readWorkerThreadsThrottlingEnabled",
    "auto recovery uses the digest in the metadata": "enableDigestTypeAutodetection",
    "copies are placed without regard to the place of auto recovery": "ignoreLocalNodeInPlacementPolicy",
    "auto recovery's client has fixed timeouts, and its own health check of bookies": "addEntryTimeoutSec "
    "readEntryTimeoutSec readTimeout clientConnectTimeoutMillis enableHealthCheck bookieHealthCheck* "
    "bookieErrorThresholdPerInterval bookieQuarantine* bookieConnectionErrorQuarantineEnabled "
    "enableBookieFailureTracking bookieFailureHistoryExpirationMSec",
}

_RECOVERY: Final = frozenset(
    [
        "enableDigestTypeAutodetection",
        "ignoreLocalNodeInPlacementPolicy",
        "addEntryTimeoutSec",
        "readEntryTimeoutSec",
        "readTimeout",
        "clientConnectTimeoutMillis",
        "enableHealthCheck",
        "bookieHealthCheck*",
        "bookieErrorThresholdPerInterval",
        "bookieQuarantine*",
        "bookieConnectionErrorQuarantineEnabled",
        "enableBookieFailureTracking",
        "bookieFailureHistoryExpirationMSec",
    ]
)
"""Keys of auto recovery and its client, not of a bookie."""


def is_a_class(value: str) -> bool:
    """Return whether a value names a class."""
    return value.lower() != "null"


_REFUSED: Final[Mapping[str, Rule]] = {
    "journalWriteData": refused(
        is_false, "acknowledged data is in the journal; set it to true, or run fewer copies of the data"
    ),
    "journalFormatVersionToWrite": refused(
        lambda value: value not in ("5", "6"),
        "only version 6 is written, also where Pulsar's file asks for 5, and all are read; remove the key. A bookie of "
        "the original that is older than 4.9 will not read these journals: stop the bookie cleanly before it goes back",
    ),
    "ledgerStorageClass": refused(
        lambda value: value.rpartition(".")[2] != "DbLedgerStorage",
        "the storage is DbLedgerStorage's, and no other is written; name it, or remove the key. The folders of a "
        "bookie with another storage are converted by `quire shell convert-to-db-storage`",
    ),
    "sortedLedgerStorageEnabled": refused(
        is_false, "the storage is DbLedgerStorage's, and no other is written; remove the key"
    ),
    "disableServerSocketBind": refused(
        is_true, "clients are in other processes; set it to false, or use `quire standalone`"
    ),
}

OBEYED_BY_RECOVERY: Final = (
    "auditor* lostBookieRecoveryDelay lockReleaseOfFailedLedgerGracePeriod openLedgerRereplicationGracePeriod "
    "rereplicationEntryBatchSize rwRereplicateBackoffMs replicationRateByBytes inFlightReadEntryNumInLedgerChecker "
    "repairedPlacementPolicyNotAdheringBookieEnabled storeSystemTimeAsLedgerUnderreplicatedMarkTime "
    "underreplicatedLedgerRecoveryGracePeriod zkReplicationTaskRateLimit ensemblePlacementPolicy "
    "minNumRacksPerWriteQuorum enforceMinNumRacksPerWriteQuorum desiredNumZonesPerWriteQuorum "
    "minNumZonesPerWriteQuorum enforceStrictZoneawarePlacement diskWeightBasedPlacementEnabled "
    "bookieMaxMultipleForWeightBasedPlacement getBookieInfoIntervalSeconds getBookieInfoRetryIntervalSeconds "
    "getBookieInfoTimeoutSecs networkTopologyScriptFileName networkTopologyScriptNumberArgs "
    "digestType passwd "
    "clientAuthProviderFactoryClass quireClientPasswordFile"
)
"""Keys that `quire autorecovery` has fields for, and no broker."""
_OF_BOTH: Final = "reppDnsResolverClass"
"""As these; a key of brokers too."""

BOOKIE_ALIASES: Final[Mapping[str, str]] = {
    "journalDirectory": "journalDirectories",
    "ledgerDirectory": "ledgerDirectories",
}
RECOVERY_ALIASES: Final[Mapping[str, str]] = {
    "repairedPlacementPolicyNotAdheringBookieEnable": "repairedPlacementPolicyNotAdheringBookieEnabled",
    "auditorAcquireConcurrentOpenLedgerOperationsTimeoutMSec": (
        "auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec"
    ),
}
"""Names that were ours before they were the original's."""

_ALL: Final[Mapping[str, Rule]] = {
    **by_reason(Fate.HARMLESS, _HARMLESS),
    **by_reason(Fate.AT_REST, _AT_REST),
    **_REFUSED,
}
_OF_THE_BOOKIE: Final = Rule(Fate.HARMLESS, "a bookie's")
_OF_RECOVERY: Final = Rule(
    Fate.HARMLESS, "auto recovery's, beside a bookie (autoRecoveryDaemonEnabled) or as `quire autorecovery`"
)

BOOKIE: Final[Mapping[str, Rule]] = {
    **dict.fromkeys((*OBEYED_BY_RECOVERY.split(), _OF_BOTH, *RECOVERY_ALIASES), _OF_RECOVERY),
    **{
        name: _OF_RECOVERY if name in _RECOVERY and rule.fate is not Fate.HARMLESS else rule
        for name, rule in _ALL.items()
    },
}
RECOVERY: Final[Mapping[str, Rule]] = {
    name: rule if rule.fate is Fate.HARMLESS or name in _RECOVERY else _OF_THE_BOOKIE for name, rule in _ALL.items()
}
