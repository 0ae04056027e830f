"""What becomes of each key of an original broker.conf: honoured, ignored, or refused with the remedy.

    honoured   a field of `BrokerConfig`, or an alias of one
    ignored    it tunes machinery or a feature that we do not have (IGNORED says which, for those that operators set most);
               named once in the log
    refused    with a value that asks for what we cannot do, and whose silent absence would hurt: other bytes on disk,
               less safety than asked for, no authentication. With any other value it is ignored

A key that is nowhere here nor known to Pulsar or BookKeeper is an error, with the nearest name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from quire.service.original_conf import Refusal, is_true

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "zookeeperServers": "metadataStoreUrl",
        "configurationStoreServers": "configurationMetadataStoreUrl",
        "globalZookeeperServers": "configurationMetadataStoreUrl",
        "zooKeeperSessionTimeoutMillis": "metadataStoreSessionTimeoutMillis",
        "zooKeeperOperationTimeoutSeconds": "metadataStoreOperationTimeoutSeconds",
    }
)
"""Older names; where both are given the newer one counts."""

_THREADS: Final = "one event loop, no pools of threads"
_LIMITS: Final = "limits of the number of connections, producers, topics by namespace and the like"
_RATES: Final = "limits of rates; a connection is held back by what it has unanswered"
_INACTIVE: Final = "deleting what nobody uses: topics and subscriptions stay until they are deleted"
_QUOTA: Final = "backlog quotas and expiry: what is not acknowledged is kept"
_DELAYED: Final = "delayed delivery: a delayed message comes at once"
_DEDUP: Final = "deduplication; see brokerDeduplicationEnabled"
_COMPACTION: Final = "compaction"
_CACHE: Final = "the tail cache is bounded by its size and by age"
_MARK_DELETE: Final = "acknowledgements are stored at once, without a throttle"
_LOAD: Final = "load is the rates and numbers of a broker's bundles"
_STATS: Final = "metrics are always there, at /metrics"
_SCHEMA: Final = "schemas: messages are bytes"
_TRANSACTIONS: Final = "transactions; see transactionCoordinatorEnabled"
_TLS_TUNING: Final = "no TLS; see webServicePortTls"
_AUTH_TUNING: Final = "no authentication; see authenticationEnabled"
_METADATA: Final = "the metadata store's own: what is read often is watched"
_DISPATCH: Final = "subscriptions go on when something makes it possible; there is nothing to wait for"
_OFFLOAD: Final = "tiered storage; see managedLedgerOffloadDriver"

_BY_REASON: Final[Mapping[str, str]] = {
    _THREADS: "numIOThreads numAcceptorThreads numHttpServerThreads numOrderedExecutorThreads numExecutorThreadPoolSize "
    "numCacheExecutorThreadPoolSize topicOrderedExecutorThreadNum managedLedgerNumSchedulerThreads "
    "bookkeeperClientNumWorkerThreads bookkeeperClientNumIoThreads bookkeeperClientSeparatedIoThreadsEnabled "
    "bookkeeperNumberOfChannelsPerBookie metadataStoreSerDesThreads enableBusyWait skipBrokerShutdownOnOOM",
    _LIMITS: "brokerMaxConnectionsPerIp maxConcurrentTopicLoadRequest maxConcurrentLookupRequest maxTopicsPerNamespace "
    "maxTenants maxNamespacesPerTenant "
    "maxUnackedMessagesPerBroker maxUnackedMessagesPerSubscriptionOnBrokerBlocked "
    "maxConcurrentNonPersistentMessagePerConnection subscriptionTypesEnabled subscriptionKeySharedEnable "
    "allowAutoSubscriptionCreation enablePersistentTopics enableNonPersistentTopics",
    _RATES: "brokerPublisherThrottlingMaxMessageRate brokerPublisherThrottlingMaxByteRate "
    "maxPublishRatePerTopicInMessages maxPublishRatePerTopicInBytes dispatchThrottlingRateInMsg "
    "dispatchThrottlingRateInByte dispatchThrottlingRatePerTopicInMsg dispatchThrottlingRatePerTopicInByte "
    "dispatchThrottlingRatePerSubscriptionInMsg dispatchThrottlingRatePerSubscriptionInByte "
    "subscribeThrottlingRatePerConsumer dispatchThrottlingOnNonBacklogConsumerEnabled",
    _INACTIVE: "brokerDeleteInactiveTopicsEnabled brokerDeleteInactiveTopicsFrequencySeconds "
    "brokerDeleteInactiveTopicsMode brokerDeleteInactiveTopicsMaxInactiveDurationSeconds "
    "brokerDeleteInactivePartitionedTopicMetadataEnabled subscriptionExpirationTimeMinutes "
    "subscriptionExpiryCheckIntervalInMinutes",
    _QUOTA: "backlogQuotaCheckEnabled backlogQuotaCheckIntervalInSeconds backlogQuotaDefaultLimitBytes "
    "backlogQuotaDefaultLimitGB backlogQuotaDefaultLimitSecond backlogQuotaDefaultRetentionPolicy "
    "preciseTimeBasedBacklogQuotaCheck ttlDurationDefaultInSeconds messageExpiryCheckIntervalInMinutes",
    _DISPATCH: "dispatcherMinReadBatchSize dispatcherReadFailureBackoffInitialTimeInMs "
    "dispatcherReadFailureBackoffMaxTimeInMs dispatcherReadFailureBackoffMandatoryStopTimeInMs "
    "dispatcherRetryBackoffInitialTimeInMs dispatcherRetryBackoffMaxTimeInMs preciseDispatcherFlowControl "
    "dispatcherPauseOnAckStatePersistentEnabled unblockStuckSubscriptionEnabled subscriptionRedeliveryTrackerEnabled "
    "topicFencingTimeoutSeconds",
    "always on": "subscriptionKeySharedUseConsistentHashing acknowledgmentAtBatchIndexLevelEnabled "
    "managedLedgerPersistIndividualAckAsLongArray",
    "topic policies are nodes, not a topic": "systemTopicEnabled topicLevelPoliciesEnabled",
    _DELAYED: "delayedDeliveryEnabled delayedDeliveryTickTimeMillis delayedDeliveryMaxDelayInMillis "
    "delayedDeliveryTrackerFactoryClassName",
    _DEDUP: "brokerDeduplicationMaxNumberOfProducers brokerDeduplicationEntriesInterval "
    "brokerDeduplicationSnapshotIntervalSeconds brokerDeduplicationSnapshotFrequencyInSeconds "
    "brokerDeduplicationProducerInactivityTimeoutMinutes",
    _COMPACTION: "brokerServiceCompactionThresholdInBytes brokerServiceCompactionMonitorIntervalInSeconds "
    "topicCompactionRetainNullKey",
    "bounded by bookkeeperClientTimeoutInSeconds": "managedLedgerAddEntryTimeoutSeconds managedLedgerReadEntryTimeoutSeconds",
    "what cannot be read is an error, never skipped": "autoSkipNonRecoverableData",
    "cursors are opened with their topic": "lazyCursorRecovery",
    _MARK_DELETE: "managedLedgerDefaultMarkDeleteRateLimit managedLedgerCursorPositionFlushSeconds",
    "bounded by what one entry of the cursor's ledger takes": "managedLedgerMaxUnackedRangesToPersist "
    "managedLedgerMaxBatchDeletedIndexToPersist",
    "values are written plain, and read either way": "managedLedgerInfoCompressionType managedCursorInfoCompressionType "
    "managedLedgerInfoCompressionThresholdInBytes managedCursorInfoCompressionThresholdInBytes",
    _CACHE: "managedLedgerCacheEvictionIntervalMs managedLedgerCursorBackloggedThreshold managedLedgerCacheCopyEntries",
    _OFFLOAD: "managedLedgerOffloadMaxThreads managedLedgerOffloadReadThreads managedLedgerOffloadPrefetchRounds "
    "managedLedgerOffloadDeletionLagMs managedLedgerOffloadAutoTriggerSizeThresholdBytes offloadersDirectory",
    _METADATA: "metadataStoreCacheExpirySeconds metadataStoreConfigPath metadataStoreBatchingEnabled "
    "metadataStoreBatchingMaxDelayMillis metadataStoreBatchingMaxOperations metadataStoreBatchingMaxSizeKb",
    _LOAD: "loadBalancerLoadSheddingStrategy loadBalancerLoadPlacementStrategy "
    "loadBalancerBrokerOverloadedThresholdPercentage loadManagerClassName "
    "loadBalancerHostUsageCheckIntervalMinutes loadBalancerHistoryResourcePercentage loadBalancerCPUResourceWeight "
    "loadBalancerMemoryResourceWeight loadBalancerDirectMemoryResourceWeight loadBalancerBandwidthInResourceWeight "
    "loadBalancerBandwidthOutResourceWeight loadBalancerOverrideBrokerNicSpeedGbps",
    _TLS_TUNING: "tlsCertificateFilePath tlsKeyFilePath tlsTrustCertsFilePath tlsAllowInsecureConnection tlsProtocols "
    "tlsCiphers tlsCertRefreshCheckDurationSec tlsHostnameVerificationEnabled",
    _AUTH_TUNING: "authenticationProviders authenticationRefreshCheckSeconds anonymousUserRole tokenSecretKey "
    "tokenPublicKey tokenAuthClaim tokenAudienceClaim tokenAudience tokenAllowedClockSkewSeconds basicAuthConf "
    "brokerClientAuthenticationPlugin brokerClientAuthenticationParameters authenticateOriginalAuthData "
    "authorizationProvider superUserRoles proxyRoles authorizationAllowWildcardsMatching authenticateMetricsEndpoint",
    _STATS: "exposeTopicLevelMetricsInPrometheus exposeConsumerLevelMetricsInPrometheus "
    "exposeProducerLevelMetricsInPrometheus exposePreciseBacklogInPrometheus exposeManagedLedgerMetricsInPrometheus "
    "exposeManagedCursorMetricsInPrometheus exposeSubscriptionBacklogSizeInPrometheus statsUpdateFrequencyInSecs "
    "metricsServletTimeoutMs",
    _SCHEMA: "schemaCompatibilityStrategy isAllowAutoUpdateSchemaEnabled schemaRegistryStorageClassName",
    _TRANSACTIONS: "transactionMetadataStoreProviderClassName",
    "services beside the broker": "webSocketServiceEnabled functionsWorkerEnabled",
    "there is one listener": "internalListenerName",
}

IGNORED: Final[Mapping[str, str]] = MappingProxyType(
    {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
)
"""By name, what there is instead, or what is not there to be tuned."""


def _is_port(value: str) -> bool:
    return value not in ("0", "-1")


_AUTH: Final = (
    "brokers authenticate nobody; set it to false, and let the network decide who may connect, or put a proxy that does "
    "before them"
)
_TLS: Final = (
    "brokers do not speak TLS; leave it empty and put a TLS proxy or a private network between them and others"
)
_BOOKIE_AUTH: Final = "bookies are spoken to in the clear and without authentication; leave it empty"

REFUSED: Final[Mapping[str, Refusal]] = MappingProxyType(
    {
        "authenticationEnabled": Refusal(is_true, _AUTH),
        "authorizationEnabled": Refusal(is_true, _AUTH),
        "tlsRequireTrustedClientCertOnConnect": Refusal(is_true, _AUTH),
        "encryptionRequireOnProducer": Refusal(
            is_true, "producers are not asked whether they encrypt; set it to false, and see to it in the applications"
        ),
        "brokerServicePortTls": Refusal(_is_port, _TLS),
        "webServicePortTls": Refusal(_is_port, _TLS),
        "tlsEnabled": Refusal(is_true, _TLS),
        "bookkeeperClientAuthenticationPlugin": Refusal(bool, _BOOKIE_AUTH),
        "bookkeeperTLSClientAuthentication": Refusal(is_true, _BOOKIE_AUTH),
        "advertisedListeners": Refusal(
            bool, "there is one address for all clients; leave it empty and set advertisedAddress"
        ),
        "bindAddresses": Refusal(
            bool, "there is one listener; leave it empty and set bindAddress and brokerServicePort"
        ),
        "managedLedgerDigestType": Refusal(
            lambda value: value != "CRC32C", "entries are written with CRC32C, and read with any; remove the key"
        ),
        "managedLedgerOffloadDriver": Refusal(
            bool, "there is no tiered storage: ledgers that were offloaded cannot be read; leave it empty"
        ),
        "brokerDeduplicationEnabled": Refusal(
            is_true, "duplicates of a producer are not dropped; set it to false, and let applications recognise them"
        ),
        "transactionCoordinatorEnabled": Refusal(is_true, "there are no transactions; set it to false"),
        "brokerEntryMetadataInterceptors": Refusal(
            bool, "entries are stored as they came, without broker metadata; leave it empty"
        ),
        "entryFilterNames": Refusal(
            bool, "subscriptions deliver every message; leave it empty and filter in the consumer"
        ),
        "brokerInterceptors": Refusal(bool, "plug-ins of the JVM cannot be loaded; leave it empty"),
        "isSchemaValidationEnforced": Refusal(is_true, "messages are bytes, no schema is checked; set it to false"),
        "bookkeeperClientIsolationGroups": Refusal(
            bool, "any bookie may hold any topic; leave it empty, and run another cluster for data that must be apart"
        ),
        "bookkeeperClientSecondaryIsolationGroups": Refusal(
            bool, "see bookkeeperClientIsolationGroups; leave it empty"
        ),
        "bookkeeperClientRegionawarePolicyEnabled": Refusal(
            is_true, "brokers place copies by rack; set it to false, and give each region its own rack"
        ),
        "enableRunBookieTogether": Refusal(is_true, "set it to false, and run `quire bookie`"),
        "enableRunBookieAutoRecoveryTogether": Refusal(is_true, "set it to false, and run `quire autorecovery`"),
    }
)
