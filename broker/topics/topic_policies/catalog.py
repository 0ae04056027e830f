"""The policies that a topic and its namespace may set, each with its names and its value in broker.conf (pure).

What holds is what the topic says, else its namespace, else broker.conf; each policy by itself. A negative limit, and a
rate that limits nothing, say nothing. What cannot be read counts as not said.

Ledgers (persistence, retention), deduplication, delayed delivery and schemas have rules of their own: policy_values,
delayed_delivery, schemas.strategies.

Source: Pulsar's AbstractTopic (updateTopicPolicy, updateTopicPolicyByNamespacePolicy, updateTopicPolicyByBrokerConfig),
TopicPolicies, Policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from broker.config import PARTITIONED, BrokerOptions
from broker.topics.policy_values import PolicyError
from broker.topics.topic_policies import kinds
from broker.topics.topic_policies.kinds import (
    AutoTopicCreation,
    BacklogQuota,
    DispatchRate,
    InactiveTopics,
    PublishRate,
    SubscribeRate,
)
from quire.service.web.shapes import Text, Truth

T = TypeVar("T")
Fields = Mapping[str, Any] | None
"""Policies of a topic or a namespace, as stored; None: there are none."""


def _as_it_is(value: Any) -> Any:
    return value


def _always(value: object) -> bool:
    return True


def _of_any_value(value: object, options: BrokerOptions) -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Policy(Generic[T]):
    """One policy. Its keys are empty where it cannot be set."""

    topic: str = ""
    """Key in a topic's policies."""
    namespace: tuple[str, ...] = ()
    """Keys in a namespace's policies; the first that says something counts."""
    entry: str = ""
    """Set if the value of a key is a map of which one entry counts."""
    by_cluster: bool = False
    """True if the value of a namespace's key is a map by cluster."""
    read: Callable[[object], T]
    """Return the value that a stored or given one stands for. Raises PolicyError."""
    to_json: Callable[[T], Any] = _as_it_is
    """Return the stored form."""
    says: Callable[[T], bool] = _always
    """Return False for a value that counts as not said."""
    may_be_set: Callable[[T, BrokerOptions], None] = _of_any_value
    """Raise PolicyError for a value that is read and may not be set."""
    counts: Callable[[BrokerOptions], bool] = _always
    """Return whether policies count at all; False: only broker.conf does."""
    of_broker: Callable[[BrokerOptions], T]
    """Return the value of broker.conf."""

    def checked(self, value: object, options: BrokerOptions) -> Any:
        """Return the stored form of a value that is to be set. Raises PolicyError."""
        read = self.read(value)
        self.may_be_set(read, options)
        return self.to_json(read)

    def of_topic(self, fields: Fields) -> T | None:
        """Return what the policies of a topic say; None: nothing."""
        return None if fields is None else self._said(fields.get(self.topic), self.entry)

    def of_namespace(self, fields: Fields, cluster: str) -> T | None:
        """Return what the policies of a namespace say; None: nothing."""
        if fields is None or (self.by_cluster and not cluster):
            return None
        entry = cluster if self.by_cluster else self.entry
        for key in self.namespace:
            if (said := self._said(fields.get(key), entry)) is not None:
                return said
        return None

    def said(self, topic: Fields, namespace: Fields, cluster: str) -> T | None:
        """Return what the policies of a topic say, or else those of its namespace; None: nothing."""
        own = self.of_topic(topic)
        return self.of_namespace(namespace, cluster) if own is None else own

    def _said(self, value: Any, entry: str) -> T | None:
        if entry and value is not None:
            value = value.get(entry) if isinstance(value, Mapping) else None
        if value is None:
            return None
        try:
            read = self.read(value)
        except PolicyError:
            return None
        return read if self.says(read) else None


def _limit(topic: str, namespace: str, of_broker: Callable[[BrokerOptions], int], what: str = "") -> Policy[int]:
    return Policy(
        topic=topic,
        namespace=(namespace,) if namespace else (),
        read=kinds.reader(kinds.LIMIT, what or topic or namespace),
        says=_is_limit,
        may_be_set=_settable_limit,
        of_broker=of_broker,
    )


def _is_limit(value: int) -> bool:
    return value >= 0


def _settable_limit(value: int, options: BrokerOptions) -> None:
    if value < 0:
        raise PolicyError(f"a limit must not be {value}: it is 0 or more")


def _settable_message_size(value: int, options: BrokerOptions) -> None:
    if not 0 <= value <= options.message_size_max:
        raise PolicyError(
            "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the "
            f"broker-level, {options.message_size_max}"
        )


def _dispatch_rate(
    topic: str, *namespace: str, of_broker: Callable[[BrokerOptions], DispatchRate]
) -> Policy[DispatchRate]:
    return Policy(
        topic=topic,
        namespace=namespace,
        by_cluster=True,
        read=kinds.dispatch_rate,
        to_json=kinds.dispatch_rate_json,
        says=_limits,
        may_be_set=_settable_rate,
        of_broker=of_broker,
    )


def _limits(rate: DispatchRate | PublishRate | SubscribeRate) -> bool:
    return rate.limits


def _settable_rate(rate: DispatchRate | PublishRate | SubscribeRate, options: BrokerOptions) -> None:
    if min(rate) < -1:
        raise PolicyError(f"a rate must not be {min(rate)}: -1 is no limit")


def _settable_filters(names: tuple[str, ...], options: BrokerOptions) -> None:
    if not options.allow_override_entry_filters:
        raise PolicyError("entryFilters has no effect while allowOverrideEntryFilters is false in broker.conf")


def _backlog_quota(kind: str) -> Policy[BacklogQuota]:
    return Policy(
        topic="backLogQuotaMap",
        namespace=("backlog_quota_map",),
        entry=kind,
        read=kinds.backlog_quota,
        to_json=kinds.backlog_quota_json,
        of_broker=lambda options: BacklogQuota(options.quota_bytes_max, options.quota_seconds, options.quota_policy),
    )


def _inactive_of_broker(options: BrokerOptions) -> InactiveTopics:
    after_s = options.inactive_s or options.inactive_check_interval_s
    return InactiveTopics(options.delete_inactive, options.inactive_mode, after_s)


def _settable_auto_topics(rule: AutoTopicCreation, options: BrokerOptions) -> None:
    most = options.partitions_per_topic_max
    if 0 < most < rule.partitions:
        raise PolicyError(f"defaultNumPartitions is above maxNumPartitionsPerPartitionedTopic={most}")


# Limits of 0 are none.
MAX_PRODUCERS: Final = _limit(
    "maxProducerPerTopic", "max_producers_per_topic", lambda options: options.producers_per_topic_max
)
MAX_CONSUMERS: Final = _limit(
    "maxConsumerPerTopic", "max_consumers_per_topic", lambda options: options.consumers_per_topic_max
)
MAX_SUBSCRIPTIONS: Final = _limit(
    "maxSubscriptionsPerTopic", "max_subscriptions_per_topic", lambda options: options.subscriptions_per_topic_max
)
MAX_CONSUMERS_OF_SUBSCRIPTION: Final = _limit(
    "maxConsumersPerSubscription",
    "max_consumers_per_subscription",
    lambda options: options.consumers_per_subscription_max,
)
MAX_UNACKED_OF_CONSUMER: Final = _limit(
    "maxUnackedMessagesOnConsumer",
    "max_unacked_messages_per_consumer",
    lambda options: options.unacked_messages_per_consumer_max,
)
MAX_UNACKED_OF_SUBSCRIPTION: Final = _limit(
    "maxUnackedMessagesOnSubscription",
    "max_unacked_messages_per_subscription",
    lambda options: options.unacked_messages_per_subscription_max,
)
MAX_MESSAGE_SIZE: Final[Policy[int]] = Policy(
    topic="maxMessageSize",
    read=kinds.reader(kinds.LIMIT, "maxMessageSize"),
    says=_is_limit,
    may_be_set=_settable_message_size,
    of_broker=lambda options: options.message_size_max,
)
"""Bytes of an entry with its metadata; 0, or more than broker.conf has: that alone limits."""
MAX_TOPICS: Final = _limit("", "max_topics_per_namespace", lambda options: options.topics_per_namespace_max)
MESSAGE_TTL: Final = _limit("messageTTLInSeconds", "message_ttl_in_seconds", lambda options: options.message_ttl_s)
"""Seconds; 0: messages do not expire."""
SUBSCRIPTION_EXPIRATION: Final = _limit(
    "subscriptionExpirationTimeInMinutes",
    "subscription_expiration_time_minutes",
    lambda options: options.subscription_expiration_minutes,
)
"""Minutes; 0: subscriptions do not expire."""
COMPACTION_THRESHOLD: Final[Policy[int]] = Policy(
    topic="compactionThreshold",
    namespace=("compaction_threshold",),
    read=kinds.reader(kinds.BYTES, "compactionThreshold"),
    says=_is_limit,
    may_be_set=_settable_limit,
    of_broker=lambda options: options.compaction_threshold_bytes,
)
"""Bytes added since the last compaction; 0: no compaction by itself."""

DISPATCH_RATE: Final = _dispatch_rate(
    "dispatchRate",
    "topicDispatchRate",
    "clusterDispatchRate",
    of_broker=lambda options: DispatchRate(options.topic_dispatch_messages, options.topic_dispatch_bytes),
)
SUBSCRIPTION_DISPATCH_RATE: Final = _dispatch_rate(
    "subscriptionDispatchRate",
    "subscriptionDispatchRate",
    of_broker=lambda options: DispatchRate(options.subscription_dispatch_messages, options.subscription_dispatch_bytes),
)
REPLICATOR_DISPATCH_RATE: Final = _dispatch_rate(
    "replicatorDispatchRate", "replicatorDispatchRate", of_broker=lambda options: DispatchRate()
)
PUBLISH_RATE: Final[Policy[PublishRate]] = Policy(
    topic="publishRate",
    namespace=("publishMaxMessageRate",),
    by_cluster=True,
    read=kinds.publish_rate,
    to_json=kinds.publish_rate_json,
    says=_limits,
    may_be_set=_settable_rate,
    of_broker=lambda options: PublishRate(options.topic_publish_messages, options.topic_publish_bytes),
)
SUBSCRIBE_RATE: Final[Policy[SubscribeRate]] = Policy(
    topic="subscribeRate",
    namespace=("clusterSubscribeRate",),
    by_cluster=True,
    read=kinds.subscribe_rate,
    to_json=kinds.subscribe_rate_json,
    says=_limits,
    may_be_set=_settable_rate,
    of_broker=lambda options: SubscribeRate(options.subscribe_attempts, options.subscribe_period_s),
)

RESOURCE_GROUP: Final[Policy[str]] = Policy(
    topic="resourceGroupName",
    namespace=("resource_group_name",),
    read=kinds.reader(Text(), "resourceGroupName"),
    says=bool,
    of_broker=lambda options: "",
)
"""Name of the group whose rates the topic shares with others; "": there is none."""

BACKLOG_SIZE_QUOTA: Final = _backlog_quota(kinds.DESTINATION_STORAGE)
BACKLOG_TIME_QUOTA: Final = _backlog_quota(kinds.MESSAGE_AGE)
INACTIVE_TOPICS: Final[Policy[InactiveTopics]] = Policy(
    topic="inactiveTopicPolicies",
    namespace=("inactive_topic_policies",),
    read=kinds.inactive_topics,
    to_json=kinds.inactive_topics_json,
    of_broker=_inactive_of_broker,
)
AUTO_TOPIC_CREATION: Final[Policy[AutoTopicCreation]] = Policy(
    namespace=("autoTopicCreationOverride",),
    read=kinds.auto_topic_creation,
    to_json=kinds.auto_topic_creation_json,
    may_be_set=_settable_auto_topics,
    of_broker=lambda options: AutoTopicCreation(
        options.allow_auto_topic_creation, options.auto_topic_type == PARTITIONED, options.partitions_default
    ),
)
AUTO_SUBSCRIPTION_CREATION: Final[Policy[bool]] = Policy(
    topic="autoSubscriptionCreationOverride",
    namespace=("autoSubscriptionCreationOverride",),
    read=kinds.auto_subscription_creation,
    to_json=kinds.auto_subscription_creation_json,
    of_broker=lambda options: options.allow_auto_subscription_creation,
)
SUBSCRIPTION_TYPES: Final[Policy[frozenset[str]]] = Policy(
    topic="subscriptionTypesEnabled",
    namespace=("subscription_types_enabled",),
    read=kinds.subscription_types,
    to_json=kinds.subscription_types_json,
    says=bool,
    of_broker=lambda options: frozenset(options.subscription_types),
)
ENCRYPTION_REQUIRED: Final[Policy[bool]] = Policy(
    namespace=("encryption_required",),
    read=kinds.reader(Truth(), "encryptionRequired"),
    of_broker=lambda options: False,
)
"""True: producers have to encrypt, and every message has to be encrypted."""
ENTRY_FILTERS: Final[Policy[tuple[str, ...]]] = Policy(
    topic="entryFilters",
    namespace=("entryFilters",),
    read=kinds.entry_filters,
    to_json=kinds.entry_filters_json,
    may_be_set=_settable_filters,
    counts=lambda options: options.allow_override_entry_filters,
    of_broker=lambda options: options.entry_filter_names,
)
PAUSE_ON_ACK_STATE: Final[Policy[bool]] = Policy(
    topic="dispatcherPauseOnAckStatePersistentEnabled",
    namespace=("dispatcherPauseOnAckStatePersistentEnabled",),
    read=kinds.reader(Truth(), "dispatcherPauseOnAckStatePersistent"),
    of_broker=lambda options: options.pause_on_ack_state,
)
"""True: too many ranges of acknowledged entries keep new ones from the consumers of a subscription."""


SUBSCRIPTION_POLICIES: Final = "subscriptionPolicies"
"""Key in a topic's policies of those that single subscriptions have."""


def subscription_dispatch_rate(topic: Fields, subscription: str) -> DispatchRate | None:
    """Return the rate that a topic's policies have for one of its subscriptions; None: none.

    >>> rate = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1}
    >>> subscription_dispatch_rate({"subscriptionPolicies": {"a": {"dispatchRate": rate}}}, "a").messages
    10
    """
    said = (topic or {}).get(SUBSCRIPTION_POLICIES)
    of_one = said.get(subscription) if isinstance(said, Mapping) else None
    return SUBSCRIPTION_DISPATCH_RATE.of_topic(
        {SUBSCRIPTION_DISPATCH_RATE.topic: of_one.get("dispatchRate")} if isinstance(of_one, Mapping) else None
    )


OF_NAMESPACE: Final[tuple[Policy[Any], ...]] = (
    MAX_PRODUCERS,
    MAX_CONSUMERS,
    MAX_SUBSCRIPTIONS,
    MAX_CONSUMERS_OF_SUBSCRIPTION,
    MAX_UNACKED_OF_CONSUMER,
    MAX_UNACKED_OF_SUBSCRIPTION,
    MAX_TOPICS,
    COMPACTION_THRESHOLD,
    DISPATCH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    REPLICATOR_DISPATCH_RATE,
    PUBLISH_RATE,
    SUBSCRIBE_RATE,
    BACKLOG_SIZE_QUOTA,
    BACKLOG_TIME_QUOTA,
    INACTIVE_TOPICS,
    AUTO_TOPIC_CREATION,
    AUTO_SUBSCRIPTION_CREATION,
    SUBSCRIPTION_TYPES,
    ENCRYPTION_REQUIRED,
    ENTRY_FILTERS,
    PAUSE_ON_ACK_STATE,
)
"""Policies that a namespace may be made with."""


def checked_namespace(fields: Mapping[str, Any], options: BrokerOptions) -> dict[str, Any]:
    """Return those of the fields of a new namespace that are in the catalog, as they are stored. Raises PolicyError.

    >>> new = {"max_producers_per_topic": 5, "publishMaxMessageRate": {}, "bundles": {}}
    >>> checked_namespace(new, BrokerOptions())
    {'max_producers_per_topic': 5, 'publishMaxMessageRate': {}}
    """
    found: dict[str, Any] = {}
    for policy in OF_NAMESPACE:
        for key in policy.namespace:
            value = fields.get(key)
            if value is None:
                continue
            if not (policy.by_cluster or policy.entry):
                found[key] = policy.checked(value, options)
                continue
            entries = kinds.fields(value, key)
            for entry in entries if policy.entry else ():
                kinds.choice(entry, key, kinds.QUOTA_TYPES)
            found[key] = {entry: policy.checked(each, options) for entry, each in entries.items()}
    return found
