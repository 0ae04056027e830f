"""Quotas of a topic's backlog, and what they ask for (pure).

    /admin/policies/<t>/<ns>, of all topics of a namespace
        "backlog_quota_map"  {"destination_storage":{"limitSize":10485760,"limitTime":-1,"policy":"producer_exception"}}
    policies of one topic and its partitions
        "backLogQuotaMap"    the same

By type: destination_storage limits the bytes that the slowest durable subscription is behind, message_age the seconds
for which a message may be left unacknowledged. Each type is that of the topic, or else of its namespace, or else of
broker.conf.

Source: Pulsar's BacklogQuotaImpl, BacklogQuotaManager, AdminResource.checkBacklogQuota.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.life_config import HOLD, QUOTA_POLICIES, LifeOptions
from broker.ownership.values import Json
from broker.topics.policy_values import INT32_MAX, PolicyError

NAMESPACE_QUOTAS: Final = "backlog_quota_map"
TOPIC_QUOTAS: Final = "backLogQuotaMap"
STORAGE: Final = "destination_storage"
AGE: Final = "message_age"
TYPES: Final = (STORAGE, AGE)
KEPT_PERCENT: Final = 90
"""Part of a quota that an eviction leaves. Source: the reduction factor of the original's BacklogQuotaManager."""
BYTES_MAX: Final = 1 << 62


class Quota(NamedTuple):
    """A quota. A size below 0, or a time of 0 or below, is no limit."""

    size: int
    seconds: int
    policy: str

    @property
    def shown(self) -> Json:
        """Return the value as it is stored and answered."""
        return {"limitSize": self.size, "limitTime": self.seconds, "policy": self.policy}


NONE: Final = Quota(-1, -1, HOLD)


class Quotas(NamedTuple):
    """Quotas that hold for a topic."""

    storage: Quota
    age: Quota

    @property
    def shown(self) -> Json:
        return {STORAGE: self.storage.shown, AGE: self.age.shown}


def of_broker(options: LifeOptions) -> Quotas:
    """Return what broker.conf says: one quota for both types."""
    quota = Quota(options.quota_bytes_max, options.quota_seconds, options.quota_policy)
    return Quotas(quota, quota)


def backlog_quota(value: object) -> Json:
    """Return a checked quota, as it is stored. Raises PolicyError.

    >>> backlog_quota({"limit": 7, "policy": "producer_exception"})
    {'limitSize': 7, 'limitTime': -1, 'policy': 'producer_exception'}
    """
    return _quota(value).shown


def effective(default: Quotas, namespace: Mapping[str, Any] | None, topic: Mapping[str, Any] | None) -> Quotas:
    """Return what holds for a topic. What cannot be read counts as not said.

    >>> said = {"destination_storage": {"limitSize": 7, "policy": "producer_exception"}}
    >>> effective(Quotas(NONE, NONE), {"backlog_quota_map": said}, None).storage
    Quota(size=7, seconds=-1, policy='producer_exception')
    """
    if not (namespace and namespace.get(NAMESPACE_QUOTAS)) and not (topic and topic.get(TOPIC_QUOTAS)):
        return default  # the rule
    found = list(default)
    for policies, key in ((namespace, NAMESPACE_QUOTAS), (topic, TOPIC_QUOTAS)):
        said = (policies or {}).get(key)
        for at, kind in enumerate(TYPES):
            if isinstance(said, Mapping) and said.get(kind) is not None:
                try:
                    found[at] = _quota(said[kind])
                except PolicyError:
                    continue
    return Quotas(*found)


def fits(quota: Json, retention: Mapping[str, Any] | None) -> bool:
    """Return whether a quota is below the retention, which would otherwise keep more than it.

    >>> fits({"limitSize": 5 << 20, "limitTime": -1}, {"retentionSizeInMB": 5, "retentionTimeInMinutes": -1})
    False
    """
    if retention is None:
        return True
    size, minutes = retention.get("retentionSizeInMB", 0), retention.get("retentionTimeInMinutes", 0)
    too_large = size > 0 and quota["limitSize"] >= size << 20
    too_old = minutes > 0 and quota["limitTime"] >= minutes * 60
    return not (too_large or too_old)


def is_too_large(size: int, quota: Quota) -> bool:
    """Return whether a backlog of so many bytes is at its quota. Source: PersistentTopic.isSizeBacklogExceeded."""
    return 0 <= quota.size <= size


def entries_to_skip(size: int, quota: Quota, entries: int) -> int:
    """Return how many of the entries of a backlog of `size` bytes have to go, at least 1 if any has.

    >>> entries_to_skip(1000, Quota(500, -1, ""), 100), entries_to_skip(450, Quota(500, -1, ""), 100)
    (55, 0)
    """
    above = size - quota.size * KEPT_PERCENT // 100
    if above <= 0 or entries <= 0:
        return 0
    return min(entries, -(-entries * above // size))


def seconds_kept(quota: Quota) -> int:
    """Return the age above which an eviction lets messages go."""
    return quota.seconds * KEPT_PERCENT // 100


def _quota(value: object) -> Quota:
    if not isinstance(value, Mapping):
        raise PolicyError("a backlog quota must be an object with limitSize, limitTime and policy")
    size, seconds, policy = value.get("limitSize"), value.get("limitTime"), value.get("policy")
    if size is None:
        size = value.get("limit")
    if policy not in QUOTA_POLICIES:
        raise PolicyError(f"policy must be one of {', '.join(QUOTA_POLICIES)}, not {str(policy)[:40]!a}")
    return Quota(
        _number(-1 if size is None else size, "limitSize", BYTES_MAX),
        _number(-1 if seconds is None else seconds, "limitTime", INT32_MAX),
        policy,
    )


def _number(value: object, what: str, maximum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value <= maximum:
        raise PolicyError(f"{what} must be a whole number of at most {maximum}, not {str(value)[:40]!a}")
    return value
