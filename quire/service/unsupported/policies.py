"""Policies of namespaces and topics that are not obeyed (pure). What Pulsar stores of them is in Policies and
TopicPolicies, JSON objects of many fields, most of which say nothing.

A field asks for something unless it is obeyed, or says what holds anyway: nothing, false, no limit, no rate, no grant.
Source: nodes of a running Pulsar 4.2, and its Policies and TopicPolicies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

OBEYED: Final = frozenset(
    (
        "bundles",
        "auth_policies",
        "subscription_auth_mode",
        "persistence",
        "retention_policies",
        "retentionPolicies",
        "deduplicationEnabled",
        "deduplicationSnapshotIntervalSeconds",
        "delayed_delivery_policies",
        "delayedDeliveryEnabled",
        "delayedDeliveryTickTimeMillis",
        "delayedDeliveryMaxDelayInMillis",
        "message_ttl_in_seconds",
        "messageTTLInSeconds",
        "subscription_expiration_time_minutes",
        "subscriptionExpirationTimeInMinutes",
        "isGlobal",
        "max_unacked_messages_per_consumer",
        "max_unacked_messages_per_subscription",
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesOnSubscription",
        "entryFilters",
        "schema_compatibility_strategy",
        "schema_auto_update_compatibility_strategy",
        "is_allow_auto_update_schema",
        "schema_validation_enforced",
        "schemaCompatibilityStrategy",
        "schemaValidationEnforced",
        "backlog_quota_map",
        "backLogQuotaMap",
        "max_producers_per_topic",
        "max_consumers_per_topic",
        "max_subscriptions_per_topic",
        "max_consumers_per_subscription",
        "maxProducerPerTopic",
        "maxConsumerPerTopic",
        "maxSubscriptionsPerTopic",
        "maxConsumersPerSubscription",
        "compaction_threshold",
        "compactionThreshold",
        "publishMaxMessageRate",
        "publishRate",
        "inactive_topic_policies",
        "inactiveTopicPolicies",
        "autoTopicCreationOverride",
        "autoSubscriptionCreationOverride",
        "max_topics_per_namespace",
        "clusterSubscribeRate",
        "subscribeRate",
        "topicDispatchRate",
        "clusterDispatchRate",
        "dispatchRate",
        "subscriptionDispatchRate",
        "subscriptionPolicies",
        "dispatcherPauseOnAckStatePersistentEnabled",
        "encryption_required",
        "subscription_types_enabled",
        "subscriptionTypesEnabled",
        "maxMessageSize",
        "resource_group_name",
        "resourceGroupName",
    )
)

_HARMLESS: Final = frozenset(("properties", "latency_stats_sample_rate", "is_allow_auto_update_schema_with_replicator"))

WHY: Final[Mapping[str, str]] = {
    "replication_clusters": "there is no replication between clusters",
    "allowed_clusters": "there is no replication between clusters",
    "replicationClusters": "there is no replication between clusters",
    "replicatorDispatchRate": "there is no replication between clusters",
    "offload_policies": "ledgers are offloaded by scripts/pipelines/offload, for all topics in the same way",
    "offloadPolicies": "ledgers are offloaded by scripts/pipelines/offload, for all topics in the same way",
    "deleted": "the namespace was being deleted",
    "migrated": "the namespace was moved to another cluster",
    "unreadableTopicPolicies": "an event about the topic in __change_events cannot be read",
    "shadowTopics": "there are no shadow topics",
    "replicateSubscriptionState": "there is no replication between clusters",
}
"""By field; others are named without a reason."""
_UNKNOWN: Final = "it is not obeyed"

_BESIDE: Final = frozenset(("policy", "ratePeriodInSecond", "ratePeriodInSeconds", "relativeToPublishRate"))
"""Values of a rate or a quota without effect unless a limit is set beside them."""


def unsupported(policies: Mapping[str, Any] | None) -> list[str]:
    """The fields of Policies or TopicPolicies that ask for what is not obeyed, in their order.

    >>> unsupported({"migrated": True, "deleted": False, "offloadPolicies": {"a": 1}, "properties": {"a": "b"}})
    ['migrated', 'offloadPolicies']
    """
    if not policies:
        return []
    return [field for field, value in policies.items() if _asks(field, value)]


def create_problem(policies: Mapping[str, Any]) -> str | None:
    """Why a namespace is not made with such policies; None if it can be."""
    fields = unsupported(policies)
    return f"not obeyed by this broker: {described(fields)}; leave it out" if fields else None


def described(fields: list[str]) -> str:
    """Fields with the reasons why they are not obeyed.

    >>> described(["migrated", "shadowTopics"])
    'migrated (the namespace was moved to another cluster), shadowTopics (there are no shadow topics)'
    """
    return ", ".join(f"{field} ({WHY.get(field, _UNKNOWN)})" for field in fields)


def _asks(field: str, value: object) -> bool:
    if field in OBEYED or field in _HARMLESS:
        return False
    if field in ("replication_clusters", "allowed_clusters", "replicationClusters"):
        return isinstance(value, list) and len(value) > 1
    return not _is_nothing(value)


def _is_nothing(value: object) -> bool:
    """Nothing, false, empty, or a number that is no limit, all the way down."""
    match value:
        case None | False | "":
            return True
        case bool():
            return False
        case int() | float():
            return value <= 0
        case list():
            return all(_is_nothing(each) for each in value)
        case Mapping():
            return all(key in _BESIDE or _is_nothing(each) for key, each in value.items())
        case _:
            return False
