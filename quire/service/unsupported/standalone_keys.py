"""Keys that `quire broker`, `quire bookie` or `quire autorecovery` obey, and a standalone server, which is one process
with one folder, does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quire.service.original_conf import Fate, Rule, is_false, is_true, refused
from quire.service.unsupported.bookie_keys import BOOKIE, OBEYED_BY_RECOVERY, is_a_class
from quire.service.unsupported.broker_keys import BROKER, by_reason

_HARMLESS: Final[Mapping[str, str]] = {
    "the bookie is in this process": "bookkeeperClientTimeoutInSeconds bookkeeperUseV2WireProtocol "
    "bookkeeperClientSpeculativeReadTimeoutInMillis bookkeeperEnableStickyReads "
    "bookkeeperClientReorderReadSequenceEnabled bookkeeperExplicitLacIntervalInMills "
    "bookkeeperClientRackawarePolicyEnabled bookkeeperClientMinNumRacksPerWriteQuorum bookkeeperClientHealthCheck* "
    "bookkeeperClientRegionawarePolicyEnabled bookkeeperDiskWeightBasedPlacementEnabled bookkeeperClientGetBookieInfo* "
    "bookkeeperClientQuarantineRatio bookiePort allowLoopback allowEphemeralPorts useHostNameAsBookieID "
    "bookkeeperClientAuthenticationParameters* bookkeeperTLS* bookkeeperTls* bookkeeper_tls* "
    "tlsCertFilesRefreshDurationSeconds "
    "tlsCertificatePath tlsClientAuthentication tlsEnabledCipherSuites tlsEnabledProtocols tlsKeyStorePasswordPath "
    "tlsProviderFactoryClass tlsTrustStorePasswordPath startTLSTimeoutSecs "
    "useShortHostName listeningInterface nettyMaxFrameSizeBytes maxBatchReadSize numReadWorkerThreads "
    "numHighPriorityWorkerThreads dbStorage_maxThrottleTimeMs httpServerEnabled httpServerHost httpServerPort "
    "httpServerTlsEnable httpServerKeyStore* httpServerTrustStore* serverTcp* serverSockKeepalive serverWriteBuffer* "
    "maxAddsInProgressLimit maxReadsInProgressLimit maxPendingAddRequestsPerThread closeChannelOnResponseTimeout "
    "waitTimeoutOnResponseBackpressureMs",
    "metrics are served at /metrics of the web port": "statsProviderClass enableStatistics prometheusStatsHttp* "
    "prometheusStatsLatencyRolloverSeconds sanityCheckMetricsEnabled",
    "there is one broker": "brokerClientTls* brokerClientCertificateFilePath brokerClientKeyFilePath "
    "brokerClientTrustCertsFilePath tlsHostnameVerificationEnabled loadBalancer* "
    "resourceUsageTransportPublishIntervalInSecs "
    "namespaceBundleUnloadingTimeoutMs defaultNumberOfNamespaceBundles",
    "there is no ZooKeeper": "metadataStoreSessionTimeoutMillis metadataStoreOperationTimeoutSeconds "
    "zooKeeperSessionTimeoutMillis zooKeeperOperationTimeoutSeconds zookeeperSessionExpiredPolicy zkLedgersRootPath "
    "zkTimeout zkRetryBackoffStartMs zkRetryBackoffMaxMs zkRequestRateLimit ledgerManagerFactoryClass",
    "there is one bookie, and nothing to copy to": f"{OBEYED_BY_RECOVERY} gcOverreplicatedLedger*",
}

_AT_REST: Final[Mapping[str, str]] = {
    "there is one bookie, and nothing to copy from": "dataIntegrityChecking dataIntegrityStampMissingCookies",
    "all data is in the folder of --data-dir": "journalDirectories journalDirectory ledgerDirectories "
    "ledgerDirectory indexDirectories allowStorageExpansion bookieId metadataStoreUrl configurationMetadataStoreUrl "
    "bookkeeperMetadataServiceUri zookeeperServers configurationStoreServers globalZookeeperServers metadataServiceUri "
    "zkServers zkEnableSecurity",
    "a standalone server has one broker and one bookie": "autoRecoveryDaemonEnabled "
    "bookkeeperClientEnforceMinNumRacksPerWriteQuorum forceReadOnlyBookie "
    "readOnlyModeEnabled permittedStartupUsers",
}


def _is_not_one(value: str) -> bool:
    return value != "1"


_ONE_COPY: Final = "a standalone server has one bookie, and keeps one copy; set it to 1, or run a cluster"

_NO_PORT: Final = "the bookie of a standalone server is in its process, without a port; leave it empty"

STANDALONE: Final[Mapping[str, Rule]] = {
    **BOOKIE,
    **BROKER,
    **by_reason(Fate.HARMLESS, _HARMLESS),
    **by_reason(Fate.AT_REST, _AT_REST),
    "bookieAuthProviderFactoryClass": refused(is_a_class, _NO_PORT),
    "authorizedRoles": refused(bool, _NO_PORT),
    "bookkeeperClientAuthenticationPlugin": refused(bool, _NO_PORT),
    "managedLedgerDefaultEnsembleSize": refused(_is_not_one, _ONE_COPY),
    "managedLedgerDefaultWriteQuorum": refused(_is_not_one, _ONE_COPY),
    "managedLedgerDefaultAckQuorum": refused(_is_not_one, _ONE_COPY),
    "journalWriteData": refused(
        is_false, "what is not in the journal is lost by a kill, and there is no other copy; set it to true"
    ),
    "bookkeeperUseV2WireProtocol": Rule(Fate.HARMLESS, "the bookie is in this process"),
    "enableRunBookieTogether": Rule(Fate.HARMLESS, "the bookie is in this process"),
    "enableRunBookieAutoRecoveryTogether": refused(is_true, _ONE_COPY),
}

STANDALONE_ALIASES: Final[Mapping[str, str]] = {
    "managedLedgerMaxUnackedRangesToPersistInZooKeeper": "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
}
