"""Settings of a broker; names and defaults of the keys are Pulsar's, save where Pulsar's ask for gigabytes of
memory."""

from __future__ import annotations

from dataclasses import dataclass

from broker.life_config import LifeOptions
from quire.service.config import BYTES, MB_IN_BYTES, MINUTES_IN_S, MS_IN_S, SECONDS, conf_key

NON_PARTITIONED = "non-partitioned"
PARTITIONED = "partitioned"
STRATEGIES = (
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
"""Names of the compatibility strategies of schemas; broker.topics.schemas.strategies says what they mean."""
SERVER_VERSION = "Quire 0.1.0"
"""Address given to clients and to the other brokers of a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions(LifeOptions):
    """Options of one broker. Sizes in bytes, times as their suffix says; 0 switches a limit off where noted."""

    cluster_name: str = conf_key(
        "clusterName", "standalone", doc="Name of the cluster; part of generated producer names."
    )
    message_size_max: int = conf_key(
        "maxMessageSize",
        5 << 20,
        unit=BYTES,
        minimum=1024,
        maximum=5 << 20,
        doc="Largest message, or batch of messages, in bytes.",
    )
    stats_interval_s: float = conf_key(
        "statsUpdateFrequencyInSecs",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Seconds over which the rates of topics, producers, subscriptions and consumers are taken.",
    )
    keep_alive_interval_s: float = conf_key(
        "keepAliveIntervalSeconds",
        30,
        unit=SECONDS,
        minimum=1,
        doc="Seconds after which an idle connection is pinged; it is closed if nothing arrives in the next interval.",
    )
    handshake_timeout_s: float = 10.0
    liveness_probe_timeout_s: float = conf_key(
        "connectionLivenessCheckTimeoutMillis",
        5000,
        unit=MS_IN_S,
        minimum=1,
        doc="Maximum time for a connection to answer a ping when another one claims its place.",
    )
    topic_load_timeout_s: float = conf_key(
        "topicLoadTimeoutSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Maximum time to open a topic; after it the client gets an error, and tries again.",
    )
    pending_sends_max: int = conf_key(
        "maxPendingPublishRequestsPerConnection",
        1000,
        minimum=1,
        doc="Unanswered sends at which a connection is no longer read; reading continues at half of it.",
    )
    pending_requests_max: int = 1000
    """Requests of one connection under way, at which the broker stops reading it."""
    publish_buffer_bytes_max: int = conf_key(
        "maxMessagePublishBufferSizeInMB",
        64,
        unit=MB_IN_BYTES,
        minimum=1,
        dynamic=True,
        doc="Megabytes of all topics that are published and not yet durable, at which connections with "
        "producers are no longer read.",
    )
    connection_out_bytes_max: int = 8 << 20
    """Bytes queued to a slow peer at which dispatching to it pauses."""
    reads_in_flight_bytes_max: int = conf_key(
        "managedLedgerMaxReadsInFlightSizeInMB",
        0,
        unit=MB_IN_BYTES,
        minimum=0,
        doc="Maximum megabytes that are read for consumers and not yet sent. 0: bounded only by quireOutputMaxMb.",
    )
    output_bytes_max: int = conf_key(
        "quireOutputMaxMb",
        256,
        unit=MB_IN_BYTES,
        minimum=1,
        doc="Maximum megabytes queued to all connections, and read for them, shared fairly; 64 KiB more for "
        "each connection that has none.",
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
    allow_auto_topic_creation: bool = conf_key(
        "allowAutoTopicCreation", True, dynamic=True, doc="Create a topic when a client first uses its name."
    )
    persistent_topics: bool = conf_key(
        "enablePersistentTopics",
        True,
        doc="false: producers and consumers of persistent topics are refused.",
    )
    non_persistent_topics: bool = conf_key(
        "enableNonPersistentTopics",
        True,
        doc="false: producers and consumers of non-persistent topics are refused.",
    )
    non_persistent_pending_max: int = conf_key(
        "maxConcurrentNonPersistentMessagePerConnection",
        1000,
        minimum=1,
        doc="Messages of one connection to non-persistent topics that may wait to be given to consumers; more are "
        "dropped.",
    )
    pattern_evaluation: bool = conf_key(
        "enableBrokerSideSubscriptionPatternEvaluation",
        True,
        doc="true: topic lists are filtered by the patterns of clients, which may watch them. false: clients get whole "
        "lists, again and again.",
    )
    pattern_length_max: int = conf_key(
        "subscriptionPatternMaxLength",
        50,
        minimum=0,
        maximum=1000,
        doc="Characters of a pattern that is matched by the broker; longer ones are left to the client.",
    )
    auto_topic_type: str = conf_key(
        "allowAutoTopicCreationType",
        NON_PARTITIONED,
        choices=(NON_PARTITIONED, PARTITIONED),
        dynamic=True,
        doc="Kind of the topics created by allowAutoTopicCreation: non-partitioned or partitioned.",
    )
    accept_unsupported_policies: bool = conf_key(
        "quireAcceptUnsupportedPolicies",
        False,
        doc="true: also load topics whose stored policies are not obeyed here (docs/operating.md). false: "
        "their producers and consumers are refused, with an error that names the policies.",
    )
    deduplication: bool = conf_key(
        "brokerDeduplicationEnabled",
        False,
        doc="true: a message that a producer sends twice is stored once, by its name and sequence ids. Policies of "
        "a namespace or a topic go first.",
    )
    deduplication_names_max: int = conf_key(
        "brokerDeduplicationMaxNumberOfProducers",
        10_000,
        minimum=1,
        doc="Producers of one topic whose sequence ids are kept, beside those that are connected.",
    )
    deduplication_entries_interval: int = conf_key(
        "brokerDeduplicationEntriesInterval",
        1000,
        minimum=1,
        doc="Entries after which a topic stores the sequence ids of its producers, at most four times a second. More "
        "entries are read again when the topic is loaded, and kept until then.",
    )
    deduplication_snapshot_interval_s: int = conf_key(
        "brokerDeduplicationSnapshotIntervalSeconds",
        120,
        unit=SECONDS,
        minimum=0,
        doc="Time after which they are stored even if there were fewer entries. 0: never.",
    )
    deduplication_check_interval_s: int = conf_key(
        "brokerDeduplicationSnapshotFrequencyInSeconds",
        120,
        unit=SECONDS,
        minimum=0,
        doc="Time between two looks at all topics for sequence ids to store, or to forget. 0: none.",
    )
    deduplication_inactivity_s: int = conf_key(
        "brokerDeduplicationProducerInactivityTimeoutMinutes",
        360,
        unit=MINUTES_IN_S,
        minimum=1,
        doc="Time after which the sequence id of a producer that is not connected is forgotten.",
    )
    schema_compatibility_strategy: str = conf_key(
        "schemaCompatibilityStrategy",
        "FULL",
        choices=STRATEGIES,
        doc="What a new schema of a topic has to be compatible with, unless its namespace or the topic says so. "
        "UNDEFINED: FULL.",
    )
    system_topic_schema_strategy: str = conf_key(
        "systemTopicSchemaCompatibilityStrategy",
        "ALWAYS_COMPATIBLE",
        choices=STRATEGIES,
        doc="The same for topics that brokers use for themselves, such as __change_events.",
    )
    allow_auto_update_schema: bool = conf_key(
        "isAllowAutoUpdateSchemaEnabled",
        True,
        dynamic=True,
        doc="Whether producers and consumers may add a schema to a topic, unless its namespace says so. false: only "
        "the admin API does.",
    )
    schema_validation_enforced: bool = conf_key(
        "isSchemaValidationEnforced",
        False,
        doc="true: a producer without a schema is refused by a topic that has one. false: only where the namespace or "
        "the topic says so.",
    )
    partitions_default: int = conf_key(
        "defaultNumPartitions",
        1,
        minimum=1,
        dynamic=True,
        doc="Number of partitions of automatically created partitioned topics.",
    )
    partitions_per_topic_max: int = conf_key(
        "maxNumPartitionsPerPartitionedTopic", 4096, dynamic=True, doc="Partitions of one topic. 0 or less: no limit."
    )
    read_batch_entries_max: int = conf_key(
        "dispatcherMaxReadBatchSize", 1000, minimum=1, dynamic=True, doc="Entries read for a subscription at a time."
    )
    read_batch_bytes_max: int = conf_key(
        "dispatcherMaxReadSizeBytes",
        1 << 20,
        unit=BYTES,
        minimum=1,
        dynamic=True,
        doc="Bytes read for a subscription at a time; at least one entry.",
    )
    round_robin_batch_max: int = conf_key(
        "dispatcherMaxRoundRobinBatchSize",
        20,
        minimum=1,
        dynamic=True,
        doc="Entries that one consumer of a shared subscription gets before the next one.",
    )
    unacked_messages_per_consumer_max: int = conf_key(
        "maxUnackedMessagesPerConsumer",
        50_000,
        minimum=0,
        doc="Unacknowledged messages at which a shared consumer gets no more; delivery continues at half of "
        "it. 0: no limit.",
    )
    unacked_messages_per_subscription_max: int = conf_key(
        "maxUnackedMessagesPerSubscription",
        200_000,
        minimum=0,
        doc="Unacknowledged messages at which a shared subscription dispatches no more; it continues at half "
        "of it. 0: no limit.",
    )
    unacked_messages_per_broker_max: int = conf_key(
        "maxUnackedMessagesPerBroker",
        0,
        minimum=0,
        doc="Unacknowledged messages of all shared subscriptions of the broker, at which those with the most get no "
        "more, until half of it is acknowledged. 0: no limit.",
    )
    unacked_share_when_over: float = conf_key(
        "maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
        0.16,
        minimum=0,
        maximum=1,
        doc="Part of maxUnackedMessagesPerBroker that a shared subscription may hold while that is reached.",
    )
    delayed_delivery: bool = conf_key(
        "delayedDeliveryEnabled",
        True,
        doc="Keep a message with a delivery time (deliverAt, deliverAfter) from Shared and Key_Shared consumers until "
        "then. false: it is delivered at once.",
    )
    delayed_tick_ms: int = conf_key(
        "delayedDeliveryTickTimeMillis",
        1000,
        minimum=1,
        maximum=24 * 3600 * 1000,
        doc="Precision of delivery times in milliseconds: shorter ones wake subscriptions more often.",
    )
    delayed_strict: bool = conf_key(
        "isDelayedDeliveryDeliverAtTimeStrict",
        False,
        doc="true: no message is delivered before its time. false: it may be early by up to "
        "delayedDeliveryTickTimeMillis, if its subscription delivers others then.",
    )
    delayed_max_ms: int = conf_key(
        "delayedDeliveryMaxDelayInMillis",
        0,
        minimum=0,
        doc="Longest delay of a message in milliseconds; one with a longer delay is refused. 0: no limit.",
    )
    entry_metadata: tuple[str, ...] = conf_key(
        "brokerEntryMetadataInterceptors",
        (),
        doc="Metadata that the broker adds to each entry: "
        "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor, the index of its last message, and "
        "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor, the time of the broker.",
    )
    expose_entry_metadata: bool = conf_key(
        "exposingBrokerEntryMetadataToClientEnabled",
        False,
        doc="true: clients that say that they understand this metadata get it with each message.",
    )
    entry_filter_names: tuple[str, ...] = conf_key(
        "entryFilterNames",
        (),
        doc="Filters, each of them a file NAME.py in entryFiltersDirectory, that decide which messages are delivered. "
        "See docs/entry-filters.md.",
    )
    entry_filters_directory: str = conf_key(
        "entryFiltersDirectory", "./filters", doc="Folder of the entry filters, Python files."
    )
    allow_override_entry_filters: bool = conf_key(
        "allowOverrideEntryFilters",
        False,
        doc="true: the policy entryFilters of a namespace or topic names the filters that its subscriptions have "
        "instead of entryFilterNames. false: that policy is refused.",
    )
    filter_reschedule_delay_s: float = conf_key(
        "dispatcherEntryFilterRescheduledMessageDelay",
        1000,
        unit=MS_IN_S,
        minimum=1,
        dynamic=True,
        doc="Milliseconds after which a message that an entry filter has rescheduled is offered again.",
    )
    permits_max: int = 1 << 20
    """Maximum permits kept for a consumer, however many one FLOW asks for."""
    consumers_per_subscription_max: int = conf_key(
        "maxConsumersPerSubscription", 0, minimum=0, doc="Consumers of one subscription. 0: no limit."
    )
    failover_delay_s: float = conf_key(
        "activeConsumerFailoverDelayTimeMillis",
        1000,
        unit=MS_IN_S,
        minimum=0,
        doc="Time that a new active consumer waits for acknowledgements of the previous one.",
    )
    failover_consistent_hashing: bool = conf_key(
        "activeConsumerFailoverConsistentHashing",
        False,
        doc="true: the active Failover consumer of a partition is chosen by hashing names, so that most stay "
        "when a consumer connects or disconnects. false: by the partition's number, which distributes "
        "them evenly.",
    )
    key_shared_replica_points: int = conf_key(
        "subscriptionKeySharedConsistentHashingReplicaPoints",
        100,
        minimum=1,
        doc="Number of points of each Key_Shared consumer on the hash ring; more points distribute keys more evenly.",
    )
    key_shared_lookahead_per_consumer: int = conf_key(
        "keySharedLookAheadMsgInReplayThresholdPerConsumer",
        2000,
        minimum=1,
        dynamic=True,
        doc="Messages waiting for a blocked key, per consumer, up to which messages with other keys are "
        "searched after them.",
    )
    key_shared_lookahead_per_subscription: int = conf_key(
        "keySharedLookAheadMsgInReplayThresholdPerSubscription",
        20_000,
        minimum=1,
        dynamic=True,
        doc="The same for the whole subscription.",
    )
    subscription_expiry_check_interval_s: float = conf_key(
        "subscriptionExpiryCheckIntervalInMinutes",
        5,
        unit=MINUTES_IN_S,
        minimum=1,
        doc="Minutes between two checks for expired subscriptions.",
    )
    stuck_subscription_s: float = conf_key(
        "quireStuckSubscriptionSeconds",
        60,
        unit=SECONDS,
        minimum=0,
        doc="Seconds that messages of a subscription wait without any progress, while a consumer has permits, after "
        "which the log says why. 0: it never does.",
    )
    stuck_subscription_log_interval_s: float = conf_key(
        "quireStuckSubscriptionLogMinutes",
        10,
        unit=MINUTES_IN_S,
        minimum=1,
        doc="Minutes between two such lines about one subscription.",
    )
    transactions: bool = conf_key(
        "transactionCoordinatorEnabled",
        False,
        doc="Serve transactions: this broker runs coordinators, and topics and subscriptions take part.",
    )
    transactions_per_coordinator_max: int = conf_key(
        "maxActiveTransactionsPerCoordinator",
        0,
        minimum=0,
        doc="Transactions of one coordinator that are not over. 0: no limit.",
    )
    transaction_snapshot_count: int = conf_key(
        "transactionBufferSnapshotMaxTransactionCount",
        1000,
        minimum=1,
        doc="Transactions that end on a topic until its state is stored again, so that less of its log is read when "
        "it is loaded.",
    )
    transaction_snapshot_interval_s: float = conf_key(
        "transactionBufferSnapshotMinTimeInMillis",
        5000,
        unit=MS_IN_S,
        minimum=1,
        doc="Time after which the state of a topic whose transactions changed is stored again.",
    )
    resubscribe_grace_s: float = 60.0
    """Time that the subscription of a reader is kept after a SEEK disconnected it."""
    acks_in_command_max: int = 100_000
    """Maximum message ids in one ACK or REDELIVER command."""
    send_linger_threshold: int = 32
    """Unanswered sends of a connection at which the broker waits briefly before it reads on, so that receipts leave in
    groups. With single answers the official client falls into a slower rhythm."""
    send_linger_per_send_s: float = 4e-6
    send_linger_max_s: float = 0.002
    send_linger_chunk_max: int = 64 << 10
    """Chunk size in bytes above which there is no such wait, because the client is ahead already."""
    properties_bytes_max: int = 64 << 10
    """Maximum bytes of the metadata (properties) of a producer or consumer."""

    @property
    def output_bytes_bound(self) -> int:
        """Bytes queued to all connections, and read for them, together; see `broker.output`. 0: no bound."""
        return min(self.output_bytes_max, self.reads_in_flight_bytes_max or self.output_bytes_max)
