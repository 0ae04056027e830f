"""Values of policies, and what is accepted as one (pure). What cannot be read raises PolicyError.

Source: Pulsar's DispatchRate, PublishRate, SubscribeRate, BacklogQuota, InactiveTopicPolicies, EntryFilters,
AutoTopicCreationOverride, AutoSubscriptionCreationOverride, and the checks of PersistentTopicsBase and NamespacesBase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.life_config import SUBSCRIPTION_TYPES
from broker.ownership.values import Json
from broker.topics.policy_values import INT32_MAX, PolicyError

INT64_MAX: Final = (1 << 63) - 1

DESTINATION_STORAGE: Final = "destination_storage"
MESSAGE_AGE: Final = "message_age"
QUOTA_TYPES: Final = (DESTINATION_STORAGE, MESSAGE_AGE)
QUOTA_POLICIES: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
DELETE_MODES: Final = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
TOPIC_TYPES: Final = ("non-partitioned", "partitioned")


class DispatchRate(NamedTuple):
    """Most that is delivered in a period; a value of 0 or less is no limit."""

    messages: int = -1
    bytes: int = -1
    period_s: int = 1
    relative: bool = False
    """True if the rates are on top of the rate at which is published."""

    @property
    def limits(self) -> bool:
        return self.messages > 0 or self.bytes > 0


class PublishRate(NamedTuple):
    """Most that is published in a second; a value of 0 or less is no limit."""

    messages: int = -1
    bytes: int = -1

    @property
    def limits(self) -> bool:
        return self.messages > 0 or self.bytes > 0


class SubscribeRate(NamedTuple):
    """Most subscribe requests of one consumer in a period; 0 or less: no limit."""

    per_consumer: int = -1
    period_s: int = 30

    @property
    def limits(self) -> bool:
        return self.per_consumer > 0


class BacklogQuota(NamedTuple):
    """Limit of a backlog, and what happens above it."""

    limit_bytes: int = -1
    limit_s: int = -1
    policy: str = QUOTA_POLICIES[0]


class InactiveTopics(NamedTuple):
    """When a topic that is not used is deleted."""

    delete: bool
    mode: str
    after_s: float


class AutoTopicCreation(NamedTuple):
    """Rule by which a client's first use of a name makes a topic."""

    allow: bool
    partitioned: bool = False
    partitions: int = 1

    @property
    def made(self) -> int:
        """Partitions that are made; 0: the topic is not partitioned."""
        return self.partitions if self.partitioned else 0


# Reading


def number(value: object, what: str, minimum: int = -INT32_MAX, maximum: int = INT32_MAX) -> int:
    """Return a whole number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise PolicyError(f"{what} must be a whole number from {minimum} to {maximum}, not {str(value)[:40]!a}")
    return value


def flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise PolicyError(f"{what} must be true or false, not {str(value)[:40]!a}")
    return value


def choice(value: object, what: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise PolicyError(f"{what} must be one of {', '.join(choices)}, not {str(value)[:40]!a}")
    return value


def fields(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyError(f"{what} must be an object, not {str(value)[:40]!a}")
    return value


def _of(value: Mapping[str, Any], key: str, default: int, maximum: int = INT32_MAX) -> int:
    return number(default if value.get(key) is None else value[key], key, -maximum, maximum)


def _period_s(value: Mapping[str, Any], default: int, minimum: int = 1) -> int:
    found = value.get("ratePeriodInSecond")
    return default if found is None else number(found, "ratePeriodInSecond", minimum)


def dispatch_rate(value: object) -> DispatchRate:
    """Return a rate. A period below 1 counts as 1: Pulsar stores 0 where none was given, and obeys it so. Source:
    DispatchRateLimiter.updateDispatchRate."""
    said = fields(value, "a dispatch rate")
    relative = said.get("relativeToPublishRate")
    return DispatchRate(
        _of(said, "dispatchThrottlingRateInMsg", -1),
        _of(said, "dispatchThrottlingRateInByte", -1, INT64_MAX),
        max(1, _period_s(said, 1, -INT32_MAX)),
        flag(False if relative is None else relative, "relativeToPublishRate"),
    )


def publish_rate(value: object) -> PublishRate:
    said = fields(value, "a publish rate")
    return PublishRate(
        _of(said, "publishThrottlingRateInMsg", -1), _of(said, "publishThrottlingRateInByte", -1, INT64_MAX)
    )


def subscribe_rate(value: object) -> SubscribeRate:
    said = fields(value, "a subscribe rate")
    return SubscribeRate(
        _of(said, "subscribeThrottlingRatePerConsumer", -1),
        _period_s(said, 30),
    )


def backlog_quota(value: object) -> BacklogQuota:
    """Return a quota; one that a Pulsar before 2.9 stored has its size in `limit`."""
    said = fields(value, "a backlog quota")
    size = said.get("limitSize")
    policy = said.get("policy")
    return BacklogQuota(
        _of(said, "limit", -1, INT64_MAX) if size is None else number(size, "limitSize", -INT64_MAX, INT64_MAX),
        _of(said, "limitTime", -1),
        choice(QUOTA_POLICIES[0] if policy is None else policy, "policy", QUOTA_POLICIES),
    )


def inactive_topics(value: object) -> InactiveTopics:
    said = fields(value, "inactiveTopicPolicies")
    delete = flag(said.get("deleteWhileInactive", False), "deleteWhileInactive")
    mode = said.get("inactiveTopicDeleteMode")
    return InactiveTopics(
        delete,
        choice(DELETE_MODES[0] if mode is None else mode, "inactiveTopicDeleteMode", DELETE_MODES),
        number(said.get("maxInactiveDurationSeconds", 0), "maxInactiveDurationSeconds", 1 if delete else 0),
    )


def auto_topic_creation(value: object) -> AutoTopicCreation:
    said = fields(value, "autoTopicCreation")
    allow = flag(said.get("allowAutoTopicCreation"), "allowAutoTopicCreation")
    kind = said.get("topicType")
    if kind is None and not allow:
        return AutoTopicCreation(False)
    partitioned = choice(kind, "topicType", TOPIC_TYPES) == TOPIC_TYPES[1]
    count = said.get("defaultNumPartitions")
    if not partitioned and count is not None:
        raise PolicyError("defaultNumPartitions belongs to the topicType partitioned")
    return AutoTopicCreation(allow, partitioned, number(count, "defaultNumPartitions", 1) if partitioned else 1)


def auto_subscription_creation(value: object) -> bool:
    said = fields(value, "autoSubscriptionCreation")
    return flag(said.get("allowAutoSubscriptionCreation"), "allowAutoSubscriptionCreation")


def subscription_types(value: object) -> frozenset[str]:
    """Return the types that are allowed; none: all."""
    if not isinstance(value, list):
        raise PolicyError("subscriptionTypesEnabled must be a list of types")
    return frozenset(choice(each, "a subscription type", SUBSCRIPTION_TYPES) for each in value)


def entry_filters(value: object) -> tuple[str, ...]:
    """Return the names of the filters, in order."""
    names = fields(value, "entryFilters").get("entryFilterNames")
    if not isinstance(names, str):
        raise PolicyError("entryFilterNames must be a list of names, with commas between them")
    return tuple(each.strip() for each in names.split(",") if each.strip())


# As stored and shown


def dispatch_rate_json(rate: DispatchRate) -> Json:
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.bytes,
        "relativeToPublishRate": rate.relative,
        "ratePeriodInSecond": rate.period_s,
    }


def publish_rate_json(rate: PublishRate) -> Json:
    return {"publishThrottlingRateInMsg": rate.messages, "publishThrottlingRateInByte": rate.bytes}


def subscribe_rate_json(rate: SubscribeRate) -> Json:
    return {"subscribeThrottlingRatePerConsumer": rate.per_consumer, "ratePeriodInSecond": rate.period_s}


def backlog_quota_json(quota: BacklogQuota) -> Json:
    """Return the quota with its size under both names: Pulsar stores it so, for its versions before 2.9."""
    return {
        "limit": quota.limit_bytes,
        "limitSize": quota.limit_bytes,
        "limitTime": quota.limit_s,
        "policy": quota.policy,
    }


def inactive_topics_json(rule: InactiveTopics) -> Json:
    return {
        "inactiveTopicDeleteMode": rule.mode,
        "maxInactiveDurationSeconds": int(rule.after_s),
        "deleteWhileInactive": rule.delete,
    }


def auto_topic_creation_json(rule: AutoTopicCreation) -> Json:
    found: Json = {"allowAutoTopicCreation": rule.allow, "topicType": TOPIC_TYPES[rule.partitioned]}
    return found | ({"defaultNumPartitions": rule.partitions} if rule.partitioned else {})


def auto_subscription_creation_json(allow: bool) -> Json:
    return {"allowAutoSubscriptionCreation": allow}


def subscription_types_json(types: frozenset[str]) -> list[str]:
    return [each for each in SUBSCRIPTION_TYPES if each in types]


def entry_filters_json(names: tuple[str, ...]) -> Json:
    return {"entryFilterNames": ",".join(names)}
