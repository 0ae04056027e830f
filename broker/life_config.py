"""Settings of a broker about the life of topics: how much they may hold, how fast they may be used, when they come and
go. Part of BrokerOptions."""

from __future__ import annotations

from dataclasses import dataclass

from broker.neighbours.config import NeighbourOptions
from quire.service.config import BYTES, MINUTES, MINUTES_IN_S, MS_IN_S, SECONDS, conf_key

HOLD = "producer_request_hold"
EXCEPTION = "producer_exception"
EVICTION = "consumer_backlog_eviction"
QUOTA_POLICIES = (HOLD, EXCEPTION, EVICTION)
"""Fate of a topic above its quota. Source: the original's BacklogQuota.RetentionPolicy."""


NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
CAUGHT_UP = "delete_when_subscriptions_caught_up"
INACTIVE_MODES = (NO_SUBSCRIPTIONS, CAUGHT_UP)
SUBSCRIPTION_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeOptions(NeighbourOptions):
    """Options about the life of topics; 0 switches a limit off where noted."""

    quota_check: bool = conf_key(
        "backlogQuotaCheckEnabled",
        True,
        doc="Check the backlogs of topics periodically against their quotas. false: only new producers are checked.",
    )
    quota_check_interval_s: float = conf_key(
        "backlogQuotaCheckIntervalInSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Seconds between two checks of all backlogs.",
    )
    quota_bytes: int = conf_key(
        "backlogQuotaDefaultLimitBytes",
        -1,
        unit=BYTES,
        minimum=-1,
        doc="Bytes that the slowest subscription of a topic may be behind. Namespaces and topics may have another "
        "(backlogQuota). -1: no limit.",
    )
    quota_gb: float = conf_key(
        "backlogQuotaDefaultLimitGB",
        -1,
        minimum=-1,
        doc="The same in gigabytes; above 0 it counts instead of backlogQuotaDefaultLimitBytes.",
    )
    quota_seconds: int = conf_key(
        "backlogQuotaDefaultLimitSecond",
        -1,
        unit=SECONDS,
        minimum=-1,
        doc="Age of the oldest message that a durable subscription may have left unacknowledged. Namespaces and topics "
        "may have another (backlogQuota). 0 or -1: no limit.",
    )
    quota_policy: str = conf_key(
        "backlogQuotaDefaultRetentionPolicy",
        HOLD,
        choices=QUOTA_POLICIES,
        doc="What becomes of a topic above its quota: producer_request_hold (its producers wait), producer_exception "
        "(their messages fail) or consumer_backlog_eviction (the oldest messages count as acknowledged).",
    )
    quota_precise_age: bool = conf_key(
        "preciseTimeBasedBacklogQuotaCheck",
        False,
        doc="true: the age of a message counts from its publish time, which is read. false: from the closing of its "
        "ledger.",
    )
    pause_on_ack_state: bool = conf_key(
        "dispatcherPauseOnAckStatePersistentEnabled",
        False,
        dynamic=True,
        doc="true: a Shared or Key_Shared subscription with more ranges of acknowledged entries than "
        "managedLedgerMaxUnackedRangesToPersist is given nothing new until there are fewer; what was delivered before "
        "is still delivered again. Namespaces and topics may have another (dispatcherPauseOnAckStatePersistent).",
    )
    broker_publish_messages: int = conf_key(
        "brokerPublisherThrottlingMaxMessageRate",
        0,
        minimum=0,
        dynamic=True,
        doc="Messages a second that all clients of this broker may publish together. 0: no limit.",
    )
    broker_publish_bytes: int = conf_key(
        "brokerPublisherThrottlingMaxByteRate",
        0,
        unit=BYTES,
        minimum=0,
        dynamic=True,
        doc="Bytes a second that all clients of this broker may publish together. 0: no limit.",
    )
    topic_publish_messages: int = conf_key(
        "maxPublishRatePerTopicInMessages",
        0,
        minimum=0,
        dynamic=True,
        doc="Messages a second that may be published to one topic or partition. Namespaces and topics may have "
        "another (publishRate). 0: no limit.",
    )
    topic_publish_bytes: int = conf_key(
        "maxPublishRatePerTopicInBytes",
        0,
        unit=BYTES,
        minimum=0,
        dynamic=True,
        doc="The same in bytes.",
    )
    broker_dispatch_messages: int = conf_key(
        "dispatchThrottlingRateInMsg",
        0,
        minimum=-1,
        dynamic=True,
        doc="Messages a second that this broker delivers, over all topics. 0 or -1: no limit.",
    )
    broker_dispatch_bytes: int = conf_key(
        "dispatchThrottlingRateInByte",
        0,
        unit=BYTES,
        minimum=-1,
        dynamic=True,
        doc="The same in bytes.",
    )
    topic_dispatch_messages: int = conf_key(
        "dispatchThrottlingRatePerTopicInMsg",
        0,
        minimum=-1,
        dynamic=True,
        doc="Messages a second that are delivered from one topic or partition. Namespaces and topics may have "
        "another (dispatchRate). 0 or -1: no limit.",
    )
    topic_dispatch_bytes: int = conf_key(
        "dispatchThrottlingRatePerTopicInByte",
        0,
        unit=BYTES,
        minimum=-1,
        dynamic=True,
        doc="The same in bytes.",
    )
    subscription_dispatch_messages: int = conf_key(
        "dispatchThrottlingRatePerSubscriptionInMsg",
        0,
        minimum=-1,
        dynamic=True,
        doc="Messages a second that one subscription delivers. Namespaces, topics and subscriptions may have "
        "another (subscriptionDispatchRate). 0 or -1: no limit.",
    )
    subscription_dispatch_bytes: int = conf_key(
        "dispatchThrottlingRatePerSubscriptionInByte",
        0,
        unit=BYTES,
        minimum=-1,
        dynamic=True,
        doc="The same in bytes.",
    )
    dispatch_limits_tail: bool = conf_key(
        "dispatchThrottlingOnNonBacklogConsumerEnabled",
        True,
        dynamic=True,
        doc="Whether rates of delivery also hold for subscriptions that have caught up. false: only for those "
        "with a backlog.",
    )
    dispatch_counts_batches: bool = conf_key(
        "dispatchThrottlingOnBatchMessageEnabled",
        False,
        dynamic=True,
        doc="Whether a batch counts as one message in rates of delivery. false: as the messages that are in it.",
    )
    subscribe_attempts: int = conf_key(
        "subscribeThrottlingRatePerConsumer",
        0,
        minimum=-1,
        dynamic=True,
        doc="Attempts of one consumer to subscribe to one topic in subscribeRatePeriodPerConsumerInSecond. "
        "Namespaces and topics may have another (subscribeRate). 0 or -1: no limit.",
    )
    subscribe_period_s: int = conf_key(
        "subscribeRatePeriodPerConsumerInSecond",
        30,
        unit=SECONDS,
        minimum=1,
        dynamic=True,
        doc="Period in which subscribeThrottlingRatePerConsumer is counted.",
    )
    delete_inactive: bool = conf_key(
        "brokerDeleteInactiveTopicsEnabled",
        True,
        dynamic=True,
        doc="Delete topics that are not used, with what they hold; brokerDeleteInactiveTopicsMode says which. A topic "
        "is kept for as long as its retention time keeps its messages. Namespaces and topics may say otherwise "
        "(inactiveTopicPolicies).",
    )
    inactive_check_interval_s: float = conf_key(
        "brokerDeleteInactiveTopicsFrequencySeconds",
        60,
        unit=SECONDS,
        minimum=1,
        dynamic=True,
        doc="Seconds between two checks of all topics for use.",
    )
    inactive_mode: str = conf_key(
        "brokerDeleteInactiveTopicsMode",
        NO_SUBSCRIPTIONS,
        choices=INACTIVE_MODES,
        dynamic=True,
        doc="Which topics without producers and consumers count as not used: delete_when_no_subscriptions, those "
        "without a subscription; delete_when_subscriptions_caught_up, those without a backlog.",
    )
    inactive_s: int = conf_key(
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        0,
        unit=SECONDS,
        minimum=0,
        dynamic=True,
        doc="Seconds for which a topic is not used before it is deleted. 0: the time between two checks.",
    )
    delete_inactive_partitioned: bool = conf_key(
        "brokerDeleteInactivePartitionedTopicMetadataEnabled",
        False,
        dynamic=True,
        doc="true: a partitioned topic is deleted with the last of its partitions. false: its partitions are made "
        "again at their next use.",
    )
    idle_unload_s: int = conf_key(
        "quireIdleTopicUnloadSeconds",
        3600,
        unit=SECONDS,
        minimum=0,
        doc="Seconds after which a topic without producers, consumers and backlog leaves memory; its next use loads it "
        "again. 0: it stays.",
    )
    abandoned_restore_s: int = conf_key(
        "quireAbandonedRestoreSeconds",
        86_400,
        unit=SECONDS,
        minimum=0,
        doc="Seconds after the last request of a restoration (`quire admin restore topic`) that was not completed, "
        "after which its topic is deleted with what was restored. For a topic that is loaded after a start of its "
        "broker they begin anew; for one that is not loaded they are 1200 at least. 0: it stays until it is completed "
        "or deleted.",
    )
    tombstone_s: int = conf_key(
        "quireDeletedTopicTombstoneSeconds",
        120,
        unit=SECONDS,
        minimum=0,
        doc="Seconds for which producers and consumers of a topic that was deleted by force do not make it again when "
        "they reconnect, from their last attempt on; they get TopicNotFound. Others may. 0: they make it "
        "again, as with Pulsar.",
    )
    allow_auto_subscription_creation: bool = conf_key(
        "allowAutoSubscriptionCreation",
        True,
        dynamic=True,
        doc="Create a durable subscription when a consumer first uses its name. Namespaces and topics may say "
        "otherwise (autoSubscriptionCreation).",
    )
    encrypted_producers: bool = conf_key(
        "encryptionRequireOnProducer",
        False,
        doc="true: a producer that does not say that it encrypts is refused. false: only where the namespace requires "
        "encryption, which then also holds for each message.",
    )
    subscription_types: tuple[str, ...] = conf_key(
        "subscriptionTypesEnabled",
        SUBSCRIPTION_TYPES,
        choices=SUBSCRIPTION_TYPES,
        dynamic=True,
        doc="Types of subscriptions that are allowed. Namespaces and topics may allow others.",
    )
    key_shared: bool = conf_key(
        "subscriptionKeySharedEnable",
        True,
        dynamic=True,
        doc="false: Key_Shared subscriptions are refused, whatever namespaces and topics allow.",
    )
    topics_per_namespace_max: int = conf_key(
        "maxTopicsPerNamespace",
        0,
        minimum=0,
        dynamic=True,
        doc="Topics and partitions of one namespace. Namespaces may have another limit. 0: no limit.",
    )

    message_ttl_s: int = conf_key(
        "ttlDurationDefaultInSeconds",
        0,
        unit=SECONDS,
        minimum=0,
        doc="Age after which messages that a durable subscription has not acknowledged expire: they count as "
        "acknowledged. Namespaces and topics may have another (messageTTL). 0: they do not expire.",
    )
    expiry_check_interval_s: float = conf_key(
        "messageExpiryCheckIntervalInMinutes",
        5,
        unit=MINUTES_IN_S,
        minimum=1,
        doc="Minutes between two checks for expired messages.",
    )
    subscription_expiration_minutes: int = conf_key(
        "subscriptionExpirationTimeMinutes",
        0,
        unit=MINUTES,
        minimum=0,
        doc="Minutes after which a durable subscription without consumers is deleted. Namespaces may have another "
        "(subscriptionExpirationTime). 0: it is kept.",
    )
    backlog_scan_entries_max: int = conf_key(
        "subscriptionBacklogScanMaxEntries",
        10_000,
        minimum=1,
        doc="Maximum number of entries that one analyzeBacklog request reads.",
    )
    backlog_scan_s: float = conf_key(
        "subscriptionBacklogScanMaxTimeMs",
        120_000,
        unit=MS_IN_S,
        minimum=1,
        doc="Maximum time for which one analyzeBacklog request reads.",
    )
    compaction_threshold_bytes: int = conf_key(
        "brokerServiceCompactionThresholdInBytes",
        0,
        unit=BYTES,
        minimum=0,
        doc="Bytes that were added to a topic since its last compaction, above which it is compacted. Namespaces and "
        "topics may have another (compactionThreshold). 0: only when asked.",
    )
    system_compaction_threshold_bytes: int = conf_key(
        "quireSystemTopicCompactionThresholdInBytes",
        1 << 20,
        unit=BYTES,
        minimum=0,
        doc="The same for __change_events and __transaction_buffer_snapshot and its indexes and segments, of which the "
        "last message of each key counts, unless a policy or the broker's threshold says something. What is compacted "
        "is trimmed. 0: only when asked; they grow.",
    )
    compaction_check_interval_s: int = conf_key(
        "brokerServiceCompactionMonitorIntervalInSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Seconds between two checks for topics to compact.",
    )
    compaction_retain_null_key: bool = conf_key(
        "topicCompactionRetainNullKey",
        False,
        doc="true: compaction keeps messages without a key. false: it drops them.",
    )

    @property
    def quota_bytes_max(self) -> int:
        """Bytes of backlog that a topic may have; below 0: no limit."""
        return int(self.quota_gb * (1 << 30)) if self.quota_gb > 0 else self.quota_bytes
