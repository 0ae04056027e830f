"""Rules for topics and subscriptions that are made when a client first uses their name (pure).

    policies of a namespace    "autoTopicCreationOverride"         {"allowAutoTopicCreation":true,
                                                                    "topicType":"partitioned","defaultNumPartitions":3}
                               "autoSubscriptionCreationOverride"  {"allowAutoSubscriptionCreation":false}
                               "max_topics_per_namespace"          100; 0: no limit
    policies of one topic      "autoSubscriptionCreationOverride"  the same

Source: Pulsar's AutoTopicCreationOverrideImpl.validateOverride, BrokerService (isAllowAutoTopicCreationAsync,
isAllowAutoSubscriptionCreation, checkMaxTopicsPerNamespace). Topics of the servers are made always.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.config import NON_PARTITIONED, PARTITIONED, BrokerOptions
from broker.ownership.values import Json
from broker.topics.policy_values import INT32_MAX, PolicyError, first_said
from broker.topics.system_names import is_system_topic
from quire.wire.pulsar.names import TopicName

TOPICS: Final = "autoTopicCreationOverride"
SUBSCRIPTIONS: Final = "autoSubscriptionCreationOverride"
TOPICS_MAX: Final = "max_topics_per_namespace"
_ALLOW_TOPICS: Final = "allowAutoTopicCreation"
_ALLOW_SUBSCRIPTIONS: Final = "allowAutoSubscriptionCreation"

Policies = Mapping[str, Any] | None


class AutoTopics(NamedTuple):
    """Rule whether a topic is made, and with how many partitions; 0: it is not partitioned."""

    allow: bool
    partitions: int = 0


def topics_of(options: BrokerOptions, namespace: Policies, name: TopicName) -> AutoTopics:
    """Return the rule for a topic."""
    partitions = options.partitions_default if options.auto_topic_type == PARTITIONED else 0
    found = AutoTopics(options.allow_auto_topic_creation, partitions)
    said = (namespace or {}).get(TOPICS)
    if said is not None:
        try:
            value = auto_topic_creation(said)
            found = AutoTopics(value[_ALLOW_TOPICS], value.get("defaultNumPartitions") or 0)
        except PolicyError:
            pass  # it counts as not said
    return found._replace(allow=True) if not found.allow and is_system_topic(name) else found


def subscriptions_allowed(options: BrokerOptions, namespace: Policies, topic: Policies, name: TopicName) -> bool:
    """Return whether a consumer that names a subscription makes it."""
    for policies in (topic, namespace):
        said = (policies or {}).get(SUBSCRIPTIONS)
        if isinstance(said, Mapping) and isinstance(said.get(_ALLOW_SUBSCRIPTIONS), bool):
            return said[_ALLOW_SUBSCRIPTIONS] is True or is_system_topic(name)
    return options.allow_auto_subscription_creation or is_system_topic(name)


def topics_max(options: BrokerOptions, namespace: Policies) -> int:
    """Return how many topics and partitions a namespace may have; 0: no limit."""
    return first_said((namespace or {}).get(TOPICS_MAX), default=options.topics_per_namespace_max)


def auto_topic_creation(value: object) -> Json:
    """Return a checked rule for topics. Raises PolicyError.

    >>> auto_topic_creation({"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3})
    {'allowAutoTopicCreation': True, 'topicType': 'partitioned', 'defaultNumPartitions': 3}
    """
    fields = _with_flag(value, _ALLOW_TOPICS)
    kind, count = fields.get("topicType"), fields.get("defaultNumPartitions")
    allow = fields[_ALLOW_TOPICS]
    if kind is None and not allow:
        return {_ALLOW_TOPICS: False}
    if kind not in (PARTITIONED, NON_PARTITIONED):
        raise PolicyError(f"topicType must be {PARTITIONED} or {NON_PARTITIONED}, not {str(kind)[:40]!a}")
    if kind == NON_PARTITIONED:
        if count is not None:
            raise PolicyError("defaultNumPartitions goes with partitioned topics only")
        return {_ALLOW_TOPICS: allow, "topicType": kind}
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= INT32_MAX:
        raise PolicyError("defaultNumPartitions must be a whole number above 0 for partitioned topics")
    return {_ALLOW_TOPICS: allow, "topicType": kind, "defaultNumPartitions": count}


def auto_subscription_creation(value: object) -> Json:
    """Return a checked rule for subscriptions. Raises PolicyError."""
    return {_ALLOW_SUBSCRIPTIONS: _with_flag(value, _ALLOW_SUBSCRIPTIONS)[_ALLOW_SUBSCRIPTIONS]}


def _with_flag(value: object, flag: str) -> Json:
    if not isinstance(value, Mapping) or not isinstance(value.get(flag), bool):
        raise PolicyError(f"{flag} must be true or false")
    return dict(value)
