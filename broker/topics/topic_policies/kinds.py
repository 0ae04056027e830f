"""Values of policies, and what is accepted as one (pure). What cannot be read raises PolicyError.

Source: Pulsar's DispatchRate, PublishRate, SubscribeRate, BacklogQuota, InactiveTopicPolicies, EntryFilters,
AutoTopicCreationOverride, AutoSubscriptionCreationOverride, and the checks of PersistentTopicsBase and NamespacesBase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from broker.life_config import SUBSCRIPTION_TYPES
from broker.ownership.values import Json
from broker.topics.policy_values import INT32_MAX, PolicyError
from quire.service.web.shapes import Anything, ByName, Listing, OneText, Record, Shape, Text, Truth, Whole

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
    """True if the rates come on top of that at which is published."""

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

_RATE: Final = Whole(-INT32_MAX, INT32_MAX)
BYTES: Final = Whole(-INT64_MAX, INT64_MAX)
LIMIT: Final = Whole(-INT32_MAX, INT32_MAX)
_DISPATCH_RATE: Final = Record(
    {
        "dispatchThrottlingRateInMsg": _RATE,
        "dispatchThrottlingRateInByte": BYTES,
        "relativeToPublishRate": Truth(),
        "ratePeriodInSecond": Whole(-INT32_MAX, INT32_MAX),
    }
)
_PUBLISH_RATE: Final = Record({"publishThrottlingRateInMsg": _RATE, "publishThrottlingRateInByte": BYTES})
_SUBSCRIBE_RATE: Final = Record(
    {"subscribeThrottlingRatePerConsumer": _RATE, "ratePeriodInSecond": Whole(1, INT32_MAX)}
)
_BACKLOG_QUOTA: Final = Record(
    {"limitSize": BYTES, "limit": BYTES, "limitTime": _RATE, "policy": OneText(QUOTA_POLICIES)}
)
_INACTIVE_TOPICS: Final = Record(
    {
        "inactiveTopicDeleteMode": OneText(DELETE_MODES),
        "maxInactiveDurationSeconds": Whole(0, INT32_MAX),
        "deleteWhileInactive": Truth(),
    }
)
_AUTO_TOPIC_CREATION: Final = Record(
    {
        "allowAutoTopicCreation": Truth(),
        "topicType": OneText(TOPIC_TYPES),
        "defaultNumPartitions": Whole(1, INT32_MAX),
    },
    needed=("allowAutoTopicCreation",),
)
_AUTO_SUBSCRIPTION_CREATION: Final = Record(
    {"allowAutoSubscriptionCreation": Truth()}, needed=("allowAutoSubscriptionCreation",)
)
_SUBSCRIPTION_TYPES: Final = Listing(OneText(SUBSCRIPTION_TYPES))
_ENTRY_FILTERS: Final = Record({"entryFilterNames": Text()}, needed=("entryFilterNames",))


def reader(shape: Shape, what: str) -> Callable[[object], Any]:
    """Return a function that returns a value of a shape; it raises PolicyError."""
    return partial(shape.check, what=what, fails=PolicyError)


def choice(value: object, what: str, choices: tuple[str, ...]) -> str:
    return OneText(choices).check(value, what, PolicyError)


def fields(value: object, what: str) -> Mapping[str, Any]:
    return ByName(Anything()).check(value, what, PolicyError)


def dispatch_rate(value: object) -> DispatchRate:
    """Return a rate. A period below 1 counts as 1: Pulsar stores 0 where none was given, and obeys it so. Source:
    DispatchRateLimiter.updateDispatchRate."""
    said = _DISPATCH_RATE.check(value, "a dispatch rate", PolicyError)
    return DispatchRate(
        said.get("dispatchThrottlingRateInMsg", -1),
        said.get("dispatchThrottlingRateInByte", -1),
        max(1, said.get("ratePeriodInSecond", 1)),
        said.get("relativeToPublishRate", False),
    )


def publish_rate(value: object) -> PublishRate:
    said = _PUBLISH_RATE.check(value, "a publish rate", PolicyError)
    return PublishRate(said.get("publishThrottlingRateInMsg", -1), said.get("publishThrottlingRateInByte", -1))


def subscribe_rate(value: object) -> SubscribeRate:
    said = _SUBSCRIBE_RATE.check(value, "a subscribe rate", PolicyError)
    return SubscribeRate(said.get("subscribeThrottlingRatePerConsumer", -1), said.get("ratePeriodInSecond", 30))


def backlog_quota(value: object) -> BacklogQuota:
    """Return a quota; one that a Pulsar before 2.9 stored has its size in `limit`."""
    said = _BACKLOG_QUOTA.check(value, "a backlog quota", PolicyError)
    older: int = said.get("limit", -1)
    size: int = said.get("limitSize", older)
    return BacklogQuota(
        size,
        said.get("limitTime", -1),
        said.get("policy", QUOTA_POLICIES[0]),
    )


def inactive_topics(value: object) -> InactiveTopics:
    said = _INACTIVE_TOPICS.check(value, "inactiveTopicPolicies", PolicyError)
    delete, after_s = said.get("deleteWhileInactive", False), said.get("maxInactiveDurationSeconds", 0)
    if delete:
        Whole(1, INT32_MAX).check(after_s, "maxInactiveDurationSeconds", PolicyError)
    return InactiveTopics(delete, said.get("inactiveTopicDeleteMode", DELETE_MODES[0]), after_s)


def auto_topic_creation(value: object) -> AutoTopicCreation:
    said = _AUTO_TOPIC_CREATION.check(value, "autoTopicCreation", PolicyError)
    allow, kind, count = said["allowAutoTopicCreation"], said.get("topicType"), said.get("defaultNumPartitions")
    if kind is None and not allow:
        return AutoTopicCreation(False)
    partitioned = choice(kind, "topicType", TOPIC_TYPES) == TOPIC_TYPES[1]
    if not partitioned and count is not None:
        raise PolicyError("defaultNumPartitions belongs to the topicType partitioned")
    if partitioned and count is None:
        raise PolicyError("a topicType partitioned needs defaultNumPartitions")
    return AutoTopicCreation(allow, partitioned, count if partitioned and count is not None else 1)


def auto_subscription_creation(value: object) -> bool:
    said = _AUTO_SUBSCRIPTION_CREATION.check(value, "autoSubscriptionCreation", PolicyError)
    allow: bool = said["allowAutoSubscriptionCreation"]
    return allow


def subscription_types(value: object) -> frozenset[str]:
    """Return the types that are allowed; none: all."""
    return frozenset(_SUBSCRIPTION_TYPES.check(value, "subscriptionTypesEnabled", PolicyError))


def entry_filters(value: object) -> tuple[str, ...]:
    """Return the names of the filters, in order."""
    names: str = _ENTRY_FILTERS.check(value, "entryFilters", PolicyError)["entryFilterNames"]
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
