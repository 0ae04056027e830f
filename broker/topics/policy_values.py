"""Policies about the ledgers of a topic, and their effective values (pure).

    /admin/policies/<t>/<ns>                                            of all topics of a namespace
        "persistence"         {"bookkeeperEnsemble":3,"bookkeeperWriteQuorum":3,"bookkeeperAckQuorum":2,
                               "managedLedgerMaxMarkDeleteRate":0.0}
        "retention_policies"  {"retentionTimeInMinutes":10,"retentionSizeInMB":100}
    /admin/topic-policies/local/<t>/<ns>/persistent/<topic, escaped>    of one topic and its partitions
        "persistence"         the same
        "retentionPolicies"   the same
        "message_ttl_in_seconds"  age at which messages expire, in the topic's "messageTTLInSeconds"; 0: they do not
        "subscription_expiration_time_minutes"
                              how long a subscription is kept without consumers, in the namespace's only; 0: for ever
    in both
        "deduplicationEnabled"  true: a message that a producer sends twice is stored once
        "deduplicationSnapshotIntervalSeconds"  120: see broker.topics.deduplication

Order: topic, namespace, broker.conf; each as a whole. What cannot be read counts as not said.

Source: Pulsar's Policies, TopicPolicies, PersistencePolicies, RetentionPolicies and AdminResource (the checks);
tests/golden/pulsar/zk-running.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from broker.errors import MetadataRefusedError
from broker.ownership.values import Json, decode_json
from managed_ledger.config import LogConfig

PERSISTENCE = "persistence"
NAMESPACE_RETENTION = "retention_policies"
TOPIC_RETENTION = "retentionPolicies"
DEDUPLICATION = "deduplicationEnabled"
SNAPSHOT_INTERVAL = "deduplicationSnapshotIntervalSeconds"
NAMESPACE_TTL = "message_ttl_in_seconds"
TOPIC_TTL = "messageTTLInSeconds"
NAMESPACE_COMPACTION = "compaction_threshold"
TOPIC_COMPACTION = "compactionThreshold"
SUBSCRIPTION_EXPIRATION = "subscription_expiration_time_minutes"

QUORUM_MAX = 5
"""Maximum of E, Qw and Qa each. Source: the original's managedLedgerMaxEnsembleSize and its like."""
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


class PolicyError(ValueError):
    """Invalid policy. The message gives the reason."""


def persistence(value: object) -> Json:
    """Return a checked `persistence` value. Raises PolicyError."""
    if not isinstance(value, Mapping):
        raise PolicyError("persistence must be an object with bookkeeperEnsemble, WriteQuorum and AckQuorum")
    ensemble = _number(value, "bookkeeperEnsemble", 1, QUORUM_MAX)
    write = _number(value, "bookkeeperWriteQuorum", 1, QUORUM_MAX)
    ack = _number(value, "bookkeeperAckQuorum", 1, QUORUM_MAX)
    if not ensemble >= write >= ack:
        raise PolicyError(f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack}) must hold")
    rate = value.get("managedLedgerMaxMarkDeleteRate", 0.0)
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise PolicyError("managedLedgerMaxMarkDeleteRate must be a number")
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": float(rate),
    }


def retention(value: object) -> Json:
    """Return a checked retention value. Raises PolicyError."""
    if not isinstance(value, Mapping):
        raise PolicyError("retention must be an object with retentionTimeInMinutes and retentionSizeInMB")
    minutes = _number(value, "retentionTimeInMinutes", -1, INT32_MAX)
    size = _number(value, "retentionSizeInMB", -1, 1 << 53)
    if (minutes == 0) != (size == 0):
        raise PolicyError(
            "Invalid retention policy: either both of retentionTimeInMinutes and retentionSizeInMB are 0, or none; "
            "-1 is no limit"
        )
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}


def effective(default: LogConfig, namespace: Mapping[str, Any] | None, topic: Mapping[str, Any] | None) -> LogConfig:
    """Return the effective values for the ledgers of a topic."""
    found = default
    for policies, key in ((namespace, NAMESPACE_RETENTION), (topic, TOPIC_RETENTION)):
        if policies is None:
            continue
        if policies.get(PERSISTENCE) is not None:
            try:
                kept = persistence(policies[PERSISTENCE])
            except PolicyError:
                pass
            else:
                found = replace(
                    found,
                    ensemble_size=kept["bookkeeperEnsemble"],
                    write_quorum=kept["bookkeeperWriteQuorum"],
                    ack_quorum=kept["bookkeeperAckQuorum"],
                )
        if policies.get(key) is not None:
            try:
                kept = retention(policies[key])
            except PolicyError:
                continue
            found = replace(
                found, retention_minutes=kept["retentionTimeInMinutes"], retention_mb=kept["retentionSizeInMB"]
            )
    return found


def asks_deduplication(
    namespace: Mapping[str, Any] | None, topic: Mapping[str, Any] | None, default: bool = False
) -> bool:
    """Return whether a producer's duplicates are to be dropped.

    >>> asks_deduplication({"deduplicationEnabled": True}, {"deduplicationEnabled": None})
    True
    >>> asks_deduplication({"deduplicationEnabled": True}, {"deduplicationEnabled": False})
    False
    >>> asks_deduplication({}, None, True)
    True
    """
    said = [policies.get(DEDUPLICATION) for policies in (topic, namespace) if policies is not None]
    return next((each for each in said if isinstance(each, bool)), default)


def snapshot_interval_s(namespace: Mapping[str, Any] | None, topic: Mapping[str, Any] | None, default: int) -> int:
    """Return the time in seconds after which sequence ids are stored; 0: never.

    >>> snapshot_interval_s({"deduplicationSnapshotIntervalSeconds": 60}, {}, 120)
    60
    """
    for policies in (topic, namespace):
        if policies is not None and policies.get(SNAPSHOT_INTERVAL) is not None:
            try:
                return interval(policies[SNAPSHOT_INTERVAL])
            except PolicyError:
                continue
    return default


def switch(value: object) -> bool:
    """Return a checked value of `deduplicationEnabled`. Raises PolicyError."""
    if not isinstance(value, bool):
        raise PolicyError(f"{DEDUPLICATION} must be true or false, not {str(value)[:40]!a}")
    return value


def interval(value: object) -> int:
    """Return a checked value of `deduplicationSnapshotIntervalSeconds`. Raises PolicyError."""
    return _number({SNAPSHOT_INTERVAL: value}, SNAPSHOT_INTERVAL, 0, INT32_MAX)


def message_ttl(value: object) -> int:
    """Return a checked time to live in seconds. Raises PolicyError."""
    return _whole(value, "message TTL")


def subscription_expiration(value: object) -> int:
    """Return a checked expiration time of subscriptions in minutes. Raises PolicyError."""
    return _whole(value, "subscription expiration time")


def first_said(*said: object, default: int) -> int:
    """Return the first of the values that is a number which is not negative.

    >>> first_said(None, -1, True, 0, 7, default=9)
    0
    """
    return next((each for each in said if _is_whole(each)), default)


def first_size(*said: object, default: int) -> int:
    """Return the first of the values that is a number of bytes; as `first_said`, and up to 2^63-1.

    >>> first_size(None, -1, 1 << 40, default=9) == 1 << 40
    True
    """
    for each in said:
        if isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= INT64_MAX:
            return each
    return default


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX


def _whole(value: object, what: str) -> int:
    if not _is_whole(value):
        raise PolicyError(f"Invalid value for {what}: it must be a whole number from 0 to {INT32_MAX}")
    return value


def persistence_of(config: LogConfig) -> Json:
    """Return the equivalent `persistence` value."""
    return {
        "bookkeeperEnsemble": config.ensemble_size,
        "bookkeeperWriteQuorum": config.write_quorum,
        "bookkeeperAckQuorum": config.ack_quorum,
        "managedLedgerMaxMarkDeleteRate": 0.0,
    }


def retention_of(config: LogConfig) -> Json:
    """Return the equivalent retention value."""
    return {"retentionTimeInMinutes": config.retention_minutes, "retentionSizeInMB": config.retention_mb}


def decode(value: bytes) -> Json:
    """Return the fields of a node; none of a value that is not a JSON object, which other programs may have written."""
    try:
        return decode_json(value, "a node")
    except MetadataRefusedError:
        return {}


def _number(value: Mapping[str, Any], name: str, minimum: int, maximum: int) -> int:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int) or not minimum <= found <= maximum:
        raise PolicyError(f"{name} must be a whole number between {minimum} and {maximum}, not {str(found)[:40]!a}")
    return found
