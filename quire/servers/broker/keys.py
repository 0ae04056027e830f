"""What every process with a broker in it can be told: keys of Pulsar's broker.conf, shared by `quire standalone` and
`quire broker`, and what the rooms below get of them.

Names are the original's; defaults are ours where the original's ask for gigabytes of memory. Every key here has an effect.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.config import BrokerOptions
from quire.service.config import conf_key

MB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerKeys:
    """Units are in the names of the fields. `None` and 0 mean what the key's text says."""

    # Addresses
    cluster_name: str = conf_key(
        "clusterName", "standalone", doc="Name of the cluster; part of generated producer names."
    )
    bind_address: str = conf_key("bindAddress", "0.0.0.0", doc="Address to listen on, for both ports.")
    advertised_address: str = conf_key(
        "advertisedAddress",
        "",
        doc="Host that lookups answer and clients then connect to. Set it when clients are on other machines. "
        "Empty: 127.0.0.1 if bindAddress is every address, else bindAddress.",
    )
    broker_port: int = conf_key(
        "brokerServicePort", 6650, minimum=0, maximum=65535, doc="Port of the binary protocol. 0 takes a free one."
    )
    web_port: int = conf_key(
        "webServicePort",
        8080,
        minimum=0,
        maximum=65535,
        doc="Port of status, health, metrics and the admin REST. 0 takes a free one.",
    )

    # Connections
    connections_max: int = conf_key(
        "brokerMaxConnections",
        10_000,
        minimum=0,
        doc="Connections served at once; one more is closed. 0: as many as there are descriptors for.",
    )
    keep_alive_interval_s: int = conf_key(
        "keepAliveIntervalSeconds",
        30,
        minimum=1,
        doc="An idle connection is pinged after so many seconds and closed if the next interval brings nothing.",
    )
    liveness_probe_timeout_ms: int = conf_key(
        "connectionLivenessCheckTimeoutMillis",
        5000,
        minimum=1,
        doc="How long a connection may take to prove that it lives when another one claims its place.",
    )
    shutdown_timeout_ms: int = conf_key(
        "brokerShutdownTimeoutMs", 10_000, minimum=0, doc="How long connections may take to end when the server stops."
    )
    topic_load_timeout_s: int = conf_key(
        "topicLoadTimeoutSeconds",
        60,
        minimum=1,
        doc="How long opening a topic may take before the client is told to retry.",
    )

    # Publishing
    message_size_max: int = conf_key(
        "maxMessageSize",
        5 << 20,
        minimum=1024,
        maximum=5 << 20,
        doc="Largest message, or batch of messages, in bytes.",
    )
    pending_sends_max: int = conf_key(
        "maxPendingPublishRequestsPerConnection",
        1000,
        minimum=1,
        doc="Unanswered sends at which a connection is not read any more; it is read on at half of it.",
    )
    publish_buffer_mb: int = conf_key(
        "maxMessagePublishBufferSizeInMB",
        64,
        minimum=1,
        doc="Megabytes published and not yet durable, of all topics, at which connections with producers are not read any more.",
    )
    allow_auto_topic_creation: bool = conf_key(
        "allowAutoTopicCreation", True, doc="Make a topic when a client first names it."
    )
    auto_topic_type: str = conf_key(
        "allowAutoTopicCreationType",
        "non-partitioned",
        choices=("non-partitioned", "partitioned"),
        doc="What a topic is that is made so: non-partitioned, or partitioned.",
    )
    accept_unsupported_policies: bool = conf_key(
        "quireAcceptUnsupportedPolicies",
        False,
        doc="true: load topics also where an existing cluster has stored policies of theirs that are not obeyed here "
        "(docs/operating.md). false: their producers and consumers are refused, with the policies named.",
    )
    partitions_default: int = conf_key(
        "defaultNumPartitions", 1, minimum=1, doc="Partitions of a topic that is made so and is partitioned."
    )
    partitions_per_topic_max: int = conf_key(
        "maxNumPartitionsPerPartitionedTopic", 4096, doc="Partitions of one topic. 0 or less: no limit."
    )

    # Dispatching
    read_batch_entries_max: int = conf_key(
        "dispatcherMaxReadBatchSize", 1000, minimum=1, doc="Entries read for a subscription at a time."
    )
    read_batch_bytes_max: int = conf_key(
        "dispatcherMaxReadSizeBytes",
        1 << 20,
        minimum=1,
        doc="Bytes read for a subscription at a time; at least one entry.",
    )
    round_robin_batch_max: int = conf_key(
        "dispatcherMaxRoundRobinBatchSize",
        20,
        minimum=1,
        doc="Entries that one consumer of a shared subscription gets before it is the next one's turn.",
    )
    unacked_per_consumer_max: int = conf_key(
        "maxUnackedMessagesPerConsumer",
        50_000,
        minimum=0,
        doc="Unacknowledged messages at which a shared consumer gets no more; on at half of it. 0: no limit.",
    )
    unacked_per_subscription_max: int = conf_key(
        "maxUnackedMessagesPerSubscription",
        200_000,
        minimum=0,
        doc="Unacknowledged messages at which a shared subscription dispatches no more; on at half of it. 0: no limit.",
    )
    producers_per_topic_max: int = conf_key(
        "maxProducersPerTopic", 0, minimum=0, doc="Producers of one topic or partition. 0: no limit."
    )
    consumers_per_topic_max: int = conf_key(
        "maxConsumersPerTopic", 0, minimum=0, doc="Consumers of one topic or partition. 0: no limit."
    )
    subscriptions_per_topic_max: int = conf_key(
        "maxSubscriptionsPerTopic", 0, minimum=0, doc="Subscriptions of one topic or partition. 0: no limit."
    )
    reads_in_flight_max_mb: int = conf_key(
        "managedLedgerMaxReadsInFlightSizeInMB",
        0,
        minimum=0,
        doc="Megabytes read for consumers, until their connections have taken them. 0: quireOutputMaxMb alone bounds that.",
    )
    output_max_mb: int = conf_key(
        "quireOutputMaxMb",
        256,
        minimum=1,
        doc="Megabytes queued to all connections, and read for them, shared fairly; 64 KiB more for each that has nothing.",
    )
    consumers_per_subscription_max: int = conf_key(
        "maxConsumersPerSubscription", 0, minimum=0, doc="Consumers of one subscription. 0: no limit."
    )
    failover_delay_ms: int = conf_key(
        "activeConsumerFailoverDelayTimeMillis",
        1000,
        minimum=0,
        doc="How long a new active consumer waits, so that acknowledgements of the one before it still arrive.",
    )
    failover_consistent_hashing: bool = conf_key(
        "activeConsumerFailoverConsistentHashing",
        False,
        doc="true: which Failover consumer of a partition is the active one is found by hashing names, so that most stay when "
        "one comes or goes. false: by the partition's number, which spreads them evenly.",
    )
    key_shared_replica_points: int = conf_key(
        "subscriptionKeySharedConsistentHashingReplicaPoints",
        100,
        minimum=1,
        doc="Points of each Key_Shared consumer on the hash ring; more spread keys more evenly.",
    )
    key_shared_lookahead_per_consumer: int = conf_key(
        "keySharedLookAheadMsgInReplayThresholdPerConsumer",
        2000,
        minimum=1,
        doc="Messages waiting for a blocked key, per consumer, up to which other keys are looked for behind them.",
    )
    key_shared_lookahead_per_subscription: int = conf_key(
        "keySharedLookAheadMsgInReplayThresholdPerSubscription",
        20_000,
        minimum=1,
        doc="The same for the whole subscription.",
    )

    # Logs and what they keep
    ledger_entries_max: int = conf_key(
        "managedLedgerMaxEntriesPerLedger", 50_000, minimum=1, doc="Entries after which a topic starts its next ledger."
    )
    ledger_size_max_mb: int = conf_key(
        "managedLedgerMaxSizePerLedgerMbytes",
        2048,
        minimum=1,
        doc="Megabytes after which a topic starts its next ledger.",
    )
    rollover_min_minutes: int = conf_key(
        "managedLedgerMinLedgerRolloverTimeMinutes",
        10,
        minimum=0,
        doc="A ledger younger than this goes on even when it has too many entries or bytes.",
    )
    rollover_max_minutes: int = conf_key(
        "managedLedgerMaxLedgerRolloverTimeMinutes", 240, minimum=1, doc="Age at which a topic starts its next ledger."
    )
    retention_minutes: int = conf_key(
        "defaultRetentionTimeInMinutes",
        0,
        minimum=-1,
        doc="How long acknowledged messages are kept. 0: not at all. -1: for ever.",
    )
    retention_size_mb: int = conf_key(
        "defaultRetentionSizeInMB",
        0,
        minimum=-1,
        doc="How much of the acknowledged messages of a topic is kept. 0: nothing. -1: without limit.",
    )
    retention_check_interval_s: int = conf_key(
        "retentionCheckIntervalInSeconds", 120, minimum=1, doc="How often topics are looked through for what may go."
    )
    entry_cache_mb: int = conf_key(
        "managedLedgerCacheSizeMB",
        64,
        minimum=0,
        doc="Memory for entries just written, shared by all topics. 0: no cache.",
    )
    entry_cache_watermark: float = conf_key(
        "managedLedgerCacheEvictionWatermark",
        0.9,
        minimum=0,
        maximum=1,
        doc="Part of the cache's size that an eviction goes down to.",
    )
    entry_cache_age_ms: int = conf_key(
        "managedLedgerCacheEvictionTimeThresholdMillis",
        1000,
        minimum=1,
        doc="Age at which an entry leaves the cache though consumers have yet to read it, in milliseconds.",
    )
    metadata_retry_s: int = conf_key(
        "managedLedgerMetadataOperationsTimeoutSeconds",
        60,
        minimum=1,
        doc="How long starting a ledger or storing a position is tried again before those who wait are told.",
    )
    cursor_ledger_entries_max: int = conf_key(
        "managedLedgerCursorMaxEntriesPerLedger",
        50_000,
        minimum=1,
        doc="Stored positions after which a subscription starts its next cursor ledger.",
    )
    cursor_rollover_s: int = conf_key(
        "managedLedgerCursorRolloverTimeInSeconds",
        14_400,
        minimum=1,
        doc="Age at which a subscription starts its next cursor ledger.",
    )
    cursor_node_ranges_max: int = conf_key(
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
        1000,
        minimum=0,
        doc="Ranges of acknowledged entries kept in a subscription's node when it is closed; with more, in its ledger.",
    )
    cursor_flush_delay_ms: int = conf_key(
        "quireCursorFlushDelayMillis",
        10,
        minimum=0,
        doc="How long acknowledgements that nobody waits for may stay in memory, in milliseconds. Those with a request "
        "id are written at once.",
    )

    @property
    def advertised_host(self) -> str:
        """The host that lookups answer."""
        if self.advertised_address:
            return self.advertised_address
        return "127.0.0.1" if self.bind_address in ("0.0.0.0", "::", "") else self.bind_address


def broker_options(config: BrokerKeys) -> BrokerOptions:
    """The broker's part of the configuration."""
    return BrokerOptions(
        cluster_name=config.cluster_name,
        message_size_max=config.message_size_max,
        keep_alive_interval_s=config.keep_alive_interval_s,
        liveness_probe_timeout_s=config.liveness_probe_timeout_ms / 1000,
        topic_load_timeout_s=config.topic_load_timeout_s,
        pending_sends_max=config.pending_sends_max,
        publish_buffer_bytes_max=config.publish_buffer_mb * MB,
        allow_auto_topic_creation=config.allow_auto_topic_creation,
        auto_topic_type=config.auto_topic_type,
        partitions_default=config.partitions_default,
        accept_unsupported_policies=config.accept_unsupported_policies,
        partitions_per_topic_max=max(config.partitions_per_topic_max, 0),
        read_batch_entries_max=config.read_batch_entries_max,
        read_batch_bytes_max=config.read_batch_bytes_max,
        round_robin_batch_max=config.round_robin_batch_max,
        unacked_messages_per_consumer_max=config.unacked_per_consumer_max,
        unacked_messages_per_subscription_max=config.unacked_per_subscription_max,
        producers_per_topic_max=config.producers_per_topic_max,
        consumers_per_topic_max=config.consumers_per_topic_max,
        subscriptions_per_topic_max=config.subscriptions_per_topic_max,
        output_bytes_max=min(config.output_max_mb, config.reads_in_flight_max_mb or config.output_max_mb) * MB,
        consumers_per_subscription_max=config.consumers_per_subscription_max,
        key_shared_replica_points=config.key_shared_replica_points,
        key_shared_lookahead_per_consumer=config.key_shared_lookahead_per_consumer,
        key_shared_lookahead_per_subscription=config.key_shared_lookahead_per_subscription,
        failover_delay_s=config.failover_delay_ms / 1000,
        failover_consistent_hashing=config.failover_consistent_hashing,
    )
