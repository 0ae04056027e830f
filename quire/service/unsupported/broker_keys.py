"""Keys of Pulsar's broker.conf and standalone.conf that no field of ours obeys: why, and which values are taken all the
same.

A key that gets a field is obeyed from then on, whatever stands here (and can be taken out).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quire.service.original_conf import Fate, Rule, is_true, refused

_HARMLESS: Final[Mapping[str, str]] = {
    "one event loop, no pools of threads": "numIOThreads numAcceptorThreads numHttpServerThreads "
    "numOrderedExecutorThreads numExecutorThreadPoolSize numCacheExecutorThreadPoolSize topicOrderedExecutorThreadNum "
    "managedLedgerNumSchedulerThreads managedLedgerNumWorkerThreads bookkeeperClientNumWorkerThreads "
    "bookkeeperClientNumIoThreads bookkeeperClientSeparatedIoThreadsEnabled bookkeeperNumberOfChannelsPerBookie "
    "metadataStoreSerDesThreads enableBusyWait skipBrokerShutdownOnOOM numWorkerThreadsForNonPersistentTopic "
    "numTransactionReplayThreadPoolSize dispatcherDispatchMessagesInSubscriptionThread "
    "useSeparateThreadPoolForProtocolHandlers streamingDispatch",
    "buffers, caches and libraries of the JVM": "pulsarChannel* httpMaxRequestHeaderSize httpMaxResponseHeaderSize "
    "httpServerAcceptQueueSize httpServerThreadPoolQueueSize httpServerIdleTimeout "
    "httpServerGzipCompressionExcludedPaths httpRequestsFailOnUnknownPropertiesEnabled disableHttpDebugMethods "
    "webServiceLogDetailedAddresses narExtractionDirectory jvmGCMetricsLoggerClassName topicNameCacheMaxCapacity "
    "maxSecondsToClearTopicNameCache topicsPatternRegexImplementation autoShrinkForConsumerPendingAcksMap",
    "bounded otherwise: loads and lookups by connection, lists by their answers": "maxConcurrentTopicLoadRequest "
    "maxConcurrentLookupRequest maxTopicListInFlight*",
    "backlogs are always exact": "exposePreciseBacklogInPrometheus",
    "statistics of producers are always served": "exposePublisherStats",
    "metrics of bundles are in the load reports": "exposeBundlesMetricsInPrometheus",
    "there is no replication between clusters": "replicationMetricsEnabled",
    "metrics have the labels of docs/metrics.md": "exposeCustomTopicMetricLabelsEnabled "
    "allowedTopicPropertyKeysForMetrics aggregatePublisherStatsByProducerName",
    "a scrape is made in steps, and shared by all that ask at about the same time": "metricsServletTimeoutMs "
    "metricsBufferResponse",
    "rates and buckets are those of statsUpdateFrequencyInSecs": "statsUpdateInitialDelayInSecs "
    "managedLedgerPrometheusStatsLatencyRolloverSeconds managedLedgerStatsPeriodSeconds "
    "managedLedgerTraceTaskExecution healthCheckMetricsUpdateTimeInSeconds",
    "the client of the bookies has no metrics by connection": "bookkeeperClientLimitStatsLogging",
    "tuning of rate limits, which hold with each message": "topicPublisherThrottlingTickTimeMillis "
    "brokerPublisherThrottlingTickTimeMillis preciseTopicPublishRateLimiterEnable dispatchRateLimiterFactoryClassName "
    "dispatchThrottlingForFilteredEntriesEnabled httpRequestsMaxPerSecond throttle-dispatch-rate "
    "maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
    "see brokerDeleteInactiveTopicsFrequencySeconds": "brokerServicePurgeInactiveFrequencyInSeconds",
    "subscriptions continue as soon as an event makes it possible; there are no pauses": "dispatcherMinReadBatchSize "
    "dispatcherReadFailureBackoff* dispatcherRetryBackoff* "
    "preciseDispatcherFlowControl unblockStuckSubscriptionEnabled "
    "subscriptionRedeliveryTrackerEnabled topicFencingTimeoutSeconds keySharedUnblockingIntervalMs "
    "subscriptionKeySharedUseClassicPersistentImplementation subscriptionSharedUseClassicPersistentImplementation "
    "managedLedgerNewEntriesCheckDelayInMillis",
    "always on": "subscriptionKeySharedUseConsistentHashing acknowledgmentAtBatchIndexLevelEnabled "
    "managedLedgerPersistIndividualAckAsLongArray persistentUnackedRangesWithMultipleEntriesEnabled "
    "managedLedgerUnackedRangesOpenCacheSetEnabled "
    "enableBrokerTopicListWatcher",
    "topic policies are stored in nodes, not in a topic": "systemTopicEnabled topicLevelPoliciesEnabled topicPolic*",
    "the index of delayed messages has one form, bounded in memory, and is built again from the topic": (
        "delayedDelivery*"
    ),
    "tuning of compaction; see brokerServiceCompactionThresholdInBytes": (
        "brokerServiceCompactionPhaseOneLoopTimeInSeconds compactionServiceFactoryClassName"
    ),
    "bounded by bookkeeperClientTimeoutInSeconds": "managedLedgerAddEntryTimeoutSeconds "
    "managedLedgerReadEntryTimeoutSeconds",
    "cursors are opened with their topic": "lazyCursorRecovery",
    "acknowledgements are stored at once, without a throttle": "managedLedgerDefaultMarkDeleteRateLimit "
    "managedLedgerCursorPositionFlushSeconds",
    "bounded by the size of one entry of the cursor's ledger": "managedLedgerMaxBatchDeletedIndexToPersist",
    "values are written uncompressed, and read in both forms": "managedLedgerInfoCompression* "
    "managedCursorInfoCompression*",
    "the tail cache is bounded by its size and by age": "managedLedgerCache* cacheEviction* "
    "managedLedgerMaxBacklogBetweenCursorsForCaching managedLedgerMinimumBacklog* "
    "managedLedgerCursorBackloggedThreshold managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis "
    "managedLedgerMaxReadsInFlightPermitsAcquire*",
    "the managed ledger has its own bounds": "managedLedgerDeleteMaxConcurrentRequests "
    "managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis",
    "tuning of tiered storage; see managedLedgerOffloadDriver": "managedLedgerOffload* offloadersDirectory "
    "s3ManagedLedgerOffload* gcsManagedLedgerOffload* fileSystemProfilePath "
    "managedLedgerInactiveOffloadedLedgerEvictionTimeSeconds",
    "the metadata store watches values that are read often": "metadataStoreCacheExpirySeconds metadataStoreBatching* "
    "zooKeeperCacheExpirySeconds",
    "load is measured by the rates and numbers of a broker's bundles": (
        "loadBalance* maxUnload* minUnload* lowerBoundarySheddingEnabled flowOrQpsDifferenceThresholdPercentage "
        "preferLaterVersions enableNamespaceIsolationUpdateOnTime "
        "loadManagerServiceUnitStateTableViewClassName loadManagerMigrationEnabled"
    ),
    "TLS is OpenSSL's": "tlsProvider webServiceTlsProvider jsseProvider brokerClientSslProvider "
    "brokerClientJsseProvider",
    "tuning of ways of authentication that do not exist; see authenticationProviders": "athenzDomainNames sasl* "
    "kinitCommand inflightSaslContextExpiryMs maxInflightSaslContext",
    "keys of OpenID Connect are read from files at the start; see quireOpenIDKeySets": "openID*",
    "a method is used if its provider is named; see authenticationProviders": "strictAuthMethod",
    "roles are logged as they are": "authenticationRoleLoggingAnonymizer",
    "schemas are stored and checked as the original does, in one way": "schemaRegistry*",
    "tuning of transactions, which is decided by their number and their time": "transaction*",
    "tuning of replication between clusters, which does not exist": "replicat* enableReplicatedSubscriptions "
    "createTopicToRemoteClusterForReplication dispatchThrottlingRatePerReplicator* "
    "brokerReplicationInactiveThresholdSeconds clusterMigration*",
    "tuning of services beside the broker, which do not exist": "webSocket* functionsWorkerServiceNarPackage "
    "functionsWorkerEnablePackageManagement packages*",
    "tuning of plug-ins of the JVM": "brokerInterceptorsDirectory disableBrokerInterceptors protocolHandlerDirectory "
    "additionalServletDirectory",
    "there is one listener": "internalListenerName",
    "tuning of isolation groups; see bookkeeperClientIsolationGroups": (
        "bookkeeperClientMinAvailableBookiesInIsolationGroups"
    ),
    "determined by the command that started it": "isRunningStandalone",
    "checked with each message": "maxMessageSizeCheckIntervalInSeconds messagePublishBufferCheckIntervalInMillis",
    "tuning of scalable topics; see scalableTopicsEnabled": "scalableTopic*",
    "names do not change": "allowAutoTopicCreationWithLegacyNamingScheme",
    "no check of client versions; see clientLibraryVersionCheckEnabled": "clientLibraryVersionCheckAllowUnversioned",
}

_AT_REST: Final[Mapping[str, str]] = {
    "ledgers are offloaded by scripts/pipelines/offload, as often as it is run": (
        "managedLedgerOffloadAutoTriggerSizeThresholdBytes managedLedgerOffloadThresholdInSeconds "
        "triggerOffloadOnTopicLoad"
    ),
    "no such limit": "maxSameAddressProducersPerTopic maxSameAddressConsumersPerTopic maxTenants "
    "maxNamespacesPerTenant maxConsumerMetadataSize "
    "maxConcurrentHttpRequests maxHttpServerConnections httpMaxRequestSize httpRequestsLimitEnabled "
    "managedLedgerMaxEnsembleSize managedLedgerMaxWriteQuorum "
    "managedLedgerMaxAckQuorum loadBalancerBrokerMaxTopics",
    "a connection is limited by its unanswered requests": (
        "dispatchThrottlingRatePerSubscribeInByte bookkeeperClientThrottleValue"
    ),
    "rates of delivery are numbers of their own": "dispatchThrottlingRateRelativeToPublishRate",
    "names are checked as by default": ("strictlyVerifySubscriptionName strictTopicNameEnabled"),
    "topics have the configured number of partitions": "scalableTopicsEnabled",
    "unreadable data is an error, and never skipped": "autoSkipNonRecoverableData managedLedgerForceRecovery "
    "schemaLedgerForceRecovery",
    "schemas of type JSON are defined in Avro's language": "schemaJsonAllowLegacyJacksonFormat",
    "ledgers of topics have the empty password": "managedLedgerPassword",
    "a ledger of an idle topic stays open until its age or its size ends it": (
        "managedLedgerInactiveLedgerRolloverTimeSeconds"
    ),
    "plug-ins of the JVM cannot be loaded": "sslFactoryPlugin sslFactoryPluginParams tlsFactoryClassName "
    "tlsFactoryConfig brokerClientSslFactoryPlugin brokerClientSslFactoryPluginParams brokerClientTlsFactoryClassName "
    "brokerClientTlsFactoryConfig messagingProtocols topicFactoryClassName additionalServlets "
    "brokerEntryPayloadProcessors managedLedgerStorageClassName topicBundleAssignmentStrategy "
    "pulsarResourcesExtendedClassName resourceUsageTransportClassName",
    "the load of brokers is balanced in one way, or not at all with loadBalancerEnabled=false": "loadManagerClassName "
    "loadBalancerSheddingExcludedNamespaces loadBalancerSheddingBundlesWithPoliciesEnabled",
    "bundles are split in their middle": "defaultNamespaceBundleSplitAlgorithm supportedNamespaceBundleSplitAlgorithms",
    "addresses of clients are those of their connections": "haProxyProtocolEnabled webServiceHaProxyProtocolEnabled "
    "webServiceTrustXForwardedFor",
    "there is one store of metadata, and it is read and written": (
        "metadataStoreConfigPath configurationStoreConfigPath metadataSyncEventTopic "
        "configurationMetadataSyncEventTopic metadataStoreAllowReadOnlyOperations zookeeperAllowReadOnlyOperations "
        "zooKeeperAllowReadOnlyOperations"
    ),
    "bookies are chosen by their racks": "strictBookieAffinityEnabled failureDomainsEnabled reppDnsResolverClass",
    "settings of the original's ledger client": "bookkeeper_*",
    "services beside the broker, which do not exist": "webSocketServiceEnabled functionsWorkerEnabled "
    "enablePackagesManagement",
    "there is no status file; use /admin/v2/brokers/health": "statusFilePath",
    "namespaces, cursors and lookups have fixed names": "bootstrapNamespaces additionalSystemCursorNames "
    "lookupPropertyPrefix",
    "clients of every version are served": "clientLibraryVersionCheckEnabled",
}

_OURS: Final[Mapping[str, tuple[str, ...]]] = {
    "scalableTopicsEnabled": ("false",),
}
"""Values that say what is done here anyway."""

_ANY: Final = bool

_REFUSED: Final[Mapping[str, Rule]] = {
    "authorizationProvider": refused(
        lambda value: value.rpartition(".")[2] != "PulsarAuthorizationProvider",
        "permissions are stored and decided as PulsarAuthorizationProvider does, and other providers cannot be loaded; "
        "remove the key",
    ),
    "tokenSettingPrefix": refused(_ANY, "there is one provider of tokens, with the usual keys; leave it empty"),
    "openIDFallbackDiscoveryMode": refused(
        lambda value: value != "DISABLED", "keys of issuers are not fetched; leave it empty and set quireOpenIDKeySets"
    ),
    "advertisedListeners": refused(
        _ANY, "there is one address for all clients; leave it empty and set advertisedAddress"
    ),
    "bindAddresses": refused(_ANY, "there is one listener; leave it empty and set bindAddress and brokerServicePort"),
    "managedLedgerDigestType": refused(
        lambda value: value != "CRC32C", "entries are written with CRC32C, and read with any; remove the key"
    ),
    "brokerInterceptors": refused(_ANY, "plug-ins of the JVM cannot be loaded; leave it empty"),
    "bookkeeperClientIsolationGroups": refused(
        _ANY, "any bookie may hold any topic; leave it empty, and run another cluster for data that must be apart"
    ),
    "bookkeeperClientSecondaryIsolationGroups": refused(_ANY, "see bookkeeperClientIsolationGroups; leave it empty"),
    "enableRunBookieTogether": refused(is_true, "set it to false, and run `quire bookie`"),
    "enableRunBookieAutoRecoveryTogether": refused(is_true, "set it to false, and run `quire autorecovery`"),
}


def by_reason(fate: Fate, groups: Mapping[str, str]) -> dict[str, Rule]:
    """The rules of groups of names with one reason each."""
    rules: dict[str, Rule] = {}
    for reason, names in groups.items():
        for name in names.split():
            assert name not in rules, f"{name} is in two groups"
            rules[name] = Rule(fate, reason, ours=_OURS.get(name, ()))
    return rules


BROKER: Final[Mapping[str, Rule]] = {
    **by_reason(Fate.HARMLESS, _HARMLESS),
    **by_reason(Fate.AT_REST, _AT_REST),
    **_REFUSED,
}

BROKER_ALIASES: Final[Mapping[str, str]] = {
    "zookeeperServers": "metadataStoreUrl",
    "configurationStoreServers": "configurationMetadataStoreUrl",
    "globalZookeeperServers": "configurationMetadataStoreUrl",
    "zooKeeperSessionTimeoutMillis": "metadataStoreSessionTimeoutMillis",
    "zooKeeperOperationTimeoutSeconds": "metadataStoreOperationTimeoutSeconds",
    "managedLedgerMaxUnackedRangesToPersistInZooKeeper": "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
}
