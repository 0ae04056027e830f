"""An original bk_server.conf loads: every key is honoured, ignored by name, or refused with the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bookie.original_conf import ALIASES, IGNORED, REFUSED
from bookie.server_config import DEFAULT_METADATA_URI, BookieServerConfig, load_server_config, render_conf
from quire.service.config import is_original_key, keys_of
from quire.service.errors import ConfigError
from quire.service.log import Event
from quire.service.original_conf import refusal_of

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/bookkeeper/db/bk1.conf"

ORIGINAL_KEYS = [
    "bookieId",
    "bookiePort",
    "listeningInterface",
    "advertisedAddress",
    "allowLoopback",
    "useHostNameAsBookieID",
    "useShortHostName",
    "serverNumIOThreads",
    "serverTcpNoDelay",
    "nettyMaxFrameSizeBytes",
    "extraServerComponents",
    "numAddWorkerThreads",
    "numReadWorkerThreads",
    "numHighPriorityWorkerThreads",
    "numLongPollWorkerThreads",
    "maxPendingAddRequestsPerThread",
    "maxPendingReadRequestsPerThread",
    "maxAddsInProgressLimit",
    "maxReadsInProgressLimit",
    "waitTimeoutOnResponseBackpressureMs",
    "readOnlyModeEnabled",
    "readOnlyModeOnAnyDiskFullEnabled",
    "forceReadOnlyBookie",
    "persistBookieStatusEnabled",
    "allowStorageExpansion",
    "allowMultipleDirsUnderSameDiskPartition",
    "permittedStartupUsers",
    "httpServerEnabled",
    "httpServerPort",
    "httpServerHost",
    "httpServerClass",
    "statsProviderClass",
    "prometheusStatsHttpPort",
    "prometheusStatsLatencyRolloverSeconds",
    "enableStatistics",
    "bookieAuthProviderFactoryClass",
    "tlsProvider",
    "tlsProviderFactoryClass",
    "tlsKeyStore",
    "tlsKeyStoreType",
    "tlsKeyStorePasswordPath",
    "tlsTrustStore",
    "tlsTrustStoreType",
    "tlsTrustStorePasswordPath",
    "tlsClientAuthentication",
    "authorizedRoles",
    "journalDirectories",
    "journalDirectory",
    "journalFormatVersionToWrite",
    "journalMaxSizeMB",
    "journalMaxBackups",
    "journalPreAllocSizeMB",
    "journalWriteBufferSizeKB",
    "journalRemoveFromPageCache",
    "journalWriteData",
    "journalSyncData",
    "journalAdaptiveGroupWrites",
    "journalMaxGroupWaitMSec",
    "journalBufferedWritesThreshold",
    "journalBufferedEntriesThreshold",
    "journalFlushWhenQueueEmpty",
    "journalQueueSize",
    "journalMaxMemorySizeMb",
    "journalAlignmentSize",
    "journalReuseFiles",
    "skipReplayJournalInvalidRecord",
    "ledgerStorageClass",
    "ledgerDirectories",
    "indexDirectories",
    "flushInterval",
    "logSizeLimit",
    "entryLogFilePreallocationEnabled",
    "flushEntrylogBytes",
    "readBufferSizeBytes",
    "writeBufferSizeBytes",
    "entryLogPerLedgerEnabled",
    "dbStorage_writeCacheMaxSizeMb",
    "dbStorage_readAheadCacheMaxSizeMb",
    "dbStorage_readAheadCacheBatchSize",
    "dbStorage_readAheadCacheBatchBytesSize",
    "dbStorage_maxThrottleTimeMs",
    "dbStorage_rocksDB_format_version",
    "dbStorage_rocksDB_checksum_type",
    "dbStorage_rocksDB_blockCacheSize",
    "dbStorage_rocksDB_writeBufferSizeMB",
    "dbStorage_rocksDB_sstSizeInMB",
    "dbStorage_rocksDB_blockSize",
    "dbStorage_rocksDB_bloomFilterBitsPerKey",
    "dbStorage_rocksDB_numLevels",
    "dbStorage_rocksDB_numFilesInLevel0",
    "dbStorage_rocksDB_maxSizeInLevel1MB",
    "dbStorage_directIOEntryLogger",
    "minorCompactionThreshold",
    "minorCompactionInterval",
    "majorCompactionThreshold",
    "majorCompactionInterval",
    "minorCompactionMaxTimeMillis",
    "majorCompactionMaxTimeMillis",
    "compactionRateByEntries",
    "compactionRateByBytes",
    "isThrottleByBytes",
    "compactionMaxOutstandingRequests",
    "useTransactionalCompaction",
    "gcWaitTime",
    "gcOverreplicatedLedgerWaitTime",
    "gcMetadataOpRateLimit",
    "isForceGCAllowWhenNoSpace",
    "verifyMetadataOnGC",
    "gcEntryLogMetadataCacheEnabled",
    "entryLocationCompactionInterval",
    "forceAllowCompaction",
    "diskUsageThreshold",
    "diskUsageWarnThreshold",
    "diskUsageLwmThreshold",
    "diskCheckInterval",
    "metadataServiceUri",
    "zkServers",
    "zkLedgersRootPath",
    "zkTimeout",
    "zkRetryBackoffStartMs",
    "zkRetryBackoffMaxMs",
    "zkEnableSecurity",
    "ledgerManagerFactoryClass",
    "autoRecoveryDaemonEnabled",
    "digestType",
    "passwd",
    "enableDigestTypeAutodetection",
    "ensemblePlacementPolicy",
    "minNumRacksPerWriteQuorum",
    "auditorPeriodicBookieCheckInterval",
    "auditorPeriodicCheckInterval",
    "lostBookieRecoveryDelay",
    "rereplicationEntryBatchSize",
    "openLedgerRereplicationGracePeriod",
    "rwRereplicateBackoffMs",
    "lockReleaseOfFailedLedgerGracePeriod",
    "skipListSizeLimit",
    "openFileLimit",
    "pageSize",
    "pageLimit",
    "compactionRate",
    "bookieDeathWatchInterval",
    "allowEphemeralPorts",
    "enableLocalTransport",
    "disableServerSocketBind",
    "requestTimerTickDurationMs",
    "requestTimerNumTicks",
    "serverSockKeepalive",
    "serverTcpLinger",
    "byteBufAllocatorSizeInitial",
    "byteBufAllocatorSizeMin",
    "byteBufAllocatorSizeMax",
    "sortedLedgerStorageEnabled",
    "minUsableSizeForIndexFileCreation",
    "minUsableSizeForEntryLogCreation",
    "minUsableSizeForHighPriorityWrites",
    "numOfMemtableFlushThreads",
    "entrylogMapAccessExpiryTimeInSeconds",
    "maximumNumberOfActiveEntryLogs",
    "skipListArenaChunkSize",
    "skipListArenaMaxAllocSize",
    "fileInfoCacheInitialCapacity",
    "fileInfoMaxIdleTime",
    "ledgerManagerType",
    "allowShadedLedgerManagerFactoryClass",
    "shadedLedgerManagerFactoryClassPrefix",
    "zkRequestRateLimit",
    "enableTaskExecutionStats",
    "codahaleStatsPrefix",
    "codahaleStatsOutputFrequencySeconds",
    "codahaleStatsGraphiteEndpoint",
    "codahaleStatsCSVEndpoint",
    "codahaleStatsSlf4jEndpoint",
    "codahaleStatsJmxEndpoint",
    "statsExport",
    "statsHttpPort",
    "reppDnsResolverClass",
    "networkTopologyScriptFileName",
    "networkTopologyScriptNumberArgs",
    "auditorLedgerVerificationPercentage",
    "prometheusStatsHttpEnable",
    "numJournalCallbackThreads",
]
"""The keys of bk_server.conf of 4.17 and of its documentation."""


def load(tmp_path: Path, text: str) -> BookieServerConfig:
    path = tmp_path / "bk_server.conf"
    path.write_text(text)
    return load_server_config(path)


def problems(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as found:
        load(tmp_path, text)
    return str(found.value)


def test_every_key_of_the_original_has_exactly_one_fate() -> None:
    honoured = {*keys_of(BookieServerConfig), *ALIASES}
    fates = {
        key: [
            name for name, keys in (("honoured", honoured), ("ignored", IGNORED), ("refused", REFUSED)) if key in keys
        ]
        for key in ORIGINAL_KEYS
    }
    assert {key: fate for key, fate in fates.items() if len(fate) != 1} == {}


def test_no_key_has_two_fates_and_every_one_says_why() -> None:
    tables = ({*keys_of(BookieServerConfig), *ALIASES}, set(IGNORED), set(REFUSED))
    assert all(not one & other for one in tables for other in tables if one is not other)
    assert all(IGNORED.values())
    assert all(refusal.remedy for refusal in REFUSED.values())


def test_every_honoured_key_has_an_effect() -> None:
    code = "".join(path.read_text() for path in (*(ROOT / "bookie").rglob("*.py"), ROOT / "quire/cli/bookie.py"))
    used = set(re.findall(r"(?<=config\.)\w+", code)) | set(re.findall(r"(?<=self\.)\w+", code))
    assert [key.name for key in keys_of(BookieServerConfig).values() if key.field_name not in used] == []


def test_every_honoured_key_is_the_originals_or_begins_with_ours() -> None:
    keys = keys_of(BookieServerConfig)
    assert [key for key in keys if not is_original_key(key) and not key.startswith("quire")] == []


def test_the_documented_file_is_what_the_code_says_and_reads_as_the_defaults(log_events: list[Event]) -> None:
    path = ROOT / "conf/bk_server.conf"
    assert path.read_text() == render_conf()
    assert load_server_config(path) == BookieServerConfig()
    assert [event for event in log_events if "ignored" in event["event"]] == []
    for name in (*IGNORED, *REFUSED):
        assert name in path.read_text()


def test_a_file_with_every_key_at_the_originals_default_loads_and_names_once_what_is_ignored(
    tmp_path: Path, log_events: list[Event]
) -> None:
    defaults = {
        "numReadWorkerThreads": "8",
        "bookiePort": "3181",
        "journalFormatVersionToWrite": "6",
        "journalWriteData": "true",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
        "bookieAuthProviderFactoryClass": "null",
        "tlsProviderFactoryClass": "",
        "journalDirectories": "/tmp/bk-txn",
        "journalDirectory": "/tmp/old",
        "ledgerDirectories": "/tmp/bk-data",
        "metadataServiceUri": "zk+hierarchical://localhost:2181/ledgers",
        "zkServers": "localhost:2181",
    }
    text = "".join(f"{key}={defaults.get(key, '')}\n" for key in ORIGINAL_KEYS)
    config = load(tmp_path, text)
    assert (config.journal_directory, config.ledger_directory) == ("/tmp/bk-txn", "/tmp/bk-data")
    assert config.metadata_service == DEFAULT_METADATA_URI
    (event,) = [event for event in log_events if "ignored" in event["event"]]
    named = event["keys"].split()
    assert len(named) == len(set(named))
    assert set(named) == (set(ORIGINAL_KEYS) & {*IGNORED, *REFUSED}) | {"journalDirectory"}


def test_the_originals_own_golden_configuration_loads() -> None:
    config = load_server_config(GOLDEN)
    assert (config.port, config.host, config.listening_interface) == (3281, "127.0.0.1", "lo")
    assert (config.journal_directory, config.ledger_directory) == ("bk1/journal", "bk1/ledgers")
    assert (config.journal_size_max_mb, config.entry_log_size_max) == (2, 8192)
    assert config.metadata_service == "zk+hierarchical://127.0.0.1:2281/db/ledgers"


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("bookieAuthProviderFactoryClass", "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory", "null"),
        ("tlsProviderFactoryClass", "org.apache.bookkeeper.tls.TLSContextFactory", ""),
        ("journalWriteData", "false", "true"),
        ("journalFormatVersionToWrite", "5", "6"),
        ("journalReuseFiles", "true", "false"),
        ("entryLogPerLedgerEnabled", "true", "false"),
        ("ledgerStorageClass", "com.example.Storage", "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"),
        ("allowStorageExpansion", "true", "false"),
        ("dataIntegrityCheckingEnabled", "true", "false"),
        ("disableServerSocketBind", "true", "false"),
        ("authorizedRoles", "admin", ""),
    ],
)
def test_what_would_silently_be_missed_is_refused_with_line_and_remedy(
    tmp_path: Path, name: str, bad: str, good: str
) -> None:
    said = problems(tmp_path, f"# first line\n{name}={bad}\n")
    assert f"bk_server.conf:2: {name}={bad}: " in said
    assert REFUSED[name].remedy in said
    assert refusal_of(REFUSED, name, good) is None
    assert load(tmp_path, f"{name}={good}\n") == BookieServerConfig()


def test_all_problems_of_a_file_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    said = problems(tmp_path, "journalWriteData=false\npageSize=1\nbookiePort=many\nflushIntervall=1\nnonsense\n")
    assert [line.split(": ")[0].rpartition(":")[2] for line in said.splitlines()] == ["1", "3", "4", "5"]
    assert "did you mean flushInterval?" in said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("journalDirectories=/a,/b", "one folder of each kind"),
        ("ledgerDirectories=/a,/b", "run one bookie per folder"),
        ("bookiePort=0", "allowEphemeralPorts"),
        ("quireZooKeeperAuth=me", "digest:user:password"),
        ("quireZooKeeperTlsCaFile=/ca.pem", "set it to true"),
        ("quireZooKeeperTls=true\nquireZooKeeperTlsKeyFile=/key.pem", "go together"),
        ("ledgerDirectories=", "a bookie needs a folder"),
    ],
)
def test_values_that_cannot_go_together_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in problems(tmp_path, text)


def test_the_older_name_counts_only_without_the_newer(tmp_path: Path) -> None:
    assert load(tmp_path, "journalDirectory=/old").journal_directory == "/old"
    assert load(tmp_path, "journalDirectory=/old\njournalDirectories=/new").journal_directory == "/new"
    assert load(tmp_path, "journalDirectories=/new\njournalDirectories=/newer").journal_directory == "/new"


def test_the_metadata_service_comes_from_whichever_keys_say_it(tmp_path: Path) -> None:
    assert load(tmp_path, "").metadata_service == DEFAULT_METADATA_URI
    older = load(tmp_path, "zkServers=a:1,b:2\nzkLedgersRootPath=/bk\n")
    assert older.metadata_service == "zk+null://a:1;b:2/bk"
    both = load(tmp_path, "zkServers=a:1\nmetadataServiceUri=zk+flat://c:3/x\n")
    assert both.metadata_service == "zk+flat://c:3/x"
