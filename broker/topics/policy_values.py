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
    /admin/local-policies/<t>/<ns>                                      of all topics of a namespace
        "bookieAffinityGroup" {"bookkeeperAffinityGroupPrimary":"a,b","bookkeeperAffinityGroupSecondary":"c"}
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
from typing import Any

from broker.errors import MetadataRefusedError
from broker.ownership.values import Json, decode_json
from managed_ledger.config import LogConfig
from quire.ledger.placement.isolation import encode_groups
from quire.service.web.shapes import Number, Record, Text, Truth, Whole

PERSISTENCE = "persistence"
NAMESPACE_RETENTION = "retention_policies"
TOPIC_RETENTION = "retentionPolicies"
DEDUPLICATION = "deduplicationEnabled"
SNAPSHOT_INTERVAL = "deduplicationSnapshotIntervalSeconds"
NAMESPACE_TTL = "message_ttl_in_seconds"
TOPIC_TTL = "messageTTLInSeconds"
SUBSCRIPTION_EXPIRATION = "subscription_expiration_time_minutes"

BOOKIE_AFFINITY = "bookieAffinityGroup"
PRIMARY_GROUPS = "bookkeeperAffinityGroupPrimary"
SECONDARY_GROUPS = "bookkeeperAffinityGroupSecondary"
GROUPS_LENGTH_MAX = 10_000
_BOOKIE_AFFINITY = Record({PRIMARY_GROUPS: Text(), SECONDARY_GROUPS: Text()})

QUORUM_MAX = 5
"""Maximum of E, Qw and Qa each. Source: the original's managedLedgerMaxEnsembleSize and its like."""
INT32_MAX = (1 << 31) - 1

NOT_NEGATIVE = Whole(0, INT32_MAX)
_SWITCH = Truth()
_QUORUM = Whole(1, QUORUM_MAX)
PERSISTENCE_SHAPE = Record(
    {
        "bookkeeperEnsemble": _QUORUM,
        "bookkeeperWriteQuorum": _QUORUM,
        "bookkeeperAckQuorum": _QUORUM,
        "managedLedgerMaxMarkDeleteRate": Number(),
    },
    needed=("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"),
)
RETENTION_SHAPE = Record(
    {"retentionTimeInMinutes": Whole(-1, INT32_MAX), "retentionSizeInMB": Whole(-1, 1 << 53)},
    needed=("retentionTimeInMinutes", "retentionSizeInMB"),
)


class PolicyError(ValueError):
    """Invalid policy. The message gives the reason."""


def persistence(value: object) -> Json:
    """Return a checked `persistence` value. Raises PolicyError."""
    given = PERSISTENCE_SHAPE.check(value, "persistence", PolicyError)
    ensemble, write, ack = (given[each] for each in PERSISTENCE_SHAPE.needed)
    if not ensemble >= write >= ack:
        raise PolicyError(f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack}) must hold")
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": given.get("managedLedgerMaxMarkDeleteRate", 0.0),
    }


def retention(value: object) -> Json:
    """Return a checked retention value. Raises PolicyError."""
    given = RETENTION_SHAPE.check(value, "retention", PolicyError)
    minutes, size = given["retentionTimeInMinutes"], given["retentionSizeInMB"]
    if (minutes == 0) != (size == 0):
        raise PolicyError(
            "Invalid retention policy: either both of retentionTimeInMinutes and retentionSizeInMB are 0, or none; "
            "-1 is no limit"
        )
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}


def bookie_affinity(value: object) -> Json | None:
    """Return a checked `bookieAffinityGroup` of local policies; None: any bookie may hold any ledger. Raises
    PolicyError.

    >>> bookie_affinity({"bookkeeperAffinityGroupPrimary": "a"})
    {'bookkeeperAffinityGroupPrimary': 'a'}
    """
    if value is None:
        return None
    found: Json = _BOOKIE_AFFINITY.check(value, BOOKIE_AFFINITY, PolicyError)
    for key, names in found.items():
        if len(names) > GROUPS_LENGTH_MAX:
            raise PolicyError(f"{key} must be names of groups with commas, at most {GROUPS_LENGTH_MAX} characters")
    if not found.get(PRIMARY_GROUPS):
        raise PolicyError(f"{PRIMARY_GROUPS} must name a group of bookies")
    return found


def _placement(local: Mapping[str, Any] | None) -> tuple[tuple[str, bytes], ...]:
    """Return the custom metadata that keeps ledgers to the bookies that local policies name."""
    try:
        found = bookie_affinity((local or {}).get(BOOKIE_AFFINITY))
    except PolicyError:
        return ()
    return () if found is None else (encode_groups(found[PRIMARY_GROUPS], found.get(SECONDARY_GROUPS, "")),)


def effective(
    default: LogConfig,
    namespace: Mapping[str, Any] | None,
    topic: Mapping[str, Any] | None,
    local: Mapping[str, Any] | None = None,
) -> LogConfig:
    """Return the effective values for the ledgers of a topic. `local`: the namespace's local policies."""
    found = default
    if placement := _placement(local):
        found = replace(found, placement=placement)
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
    for policies in (topic, namespace):
        if policies is not None and isinstance(said := policies.get(DEDUPLICATION), bool):
            return said
    return default


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
    return _SWITCH.check(value, DEDUPLICATION, PolicyError)


def interval(value: object) -> int:
    """Return a checked value of `deduplicationSnapshotIntervalSeconds`. Raises PolicyError."""
    return NOT_NEGATIVE.check(value, SNAPSHOT_INTERVAL, PolicyError)


def message_ttl(value: object) -> int:
    """Return a checked time to live in seconds. Raises PolicyError."""
    return whole(value, "message TTL")


def subscription_expiration(value: object) -> int:
    """Return a checked expiration time of subscriptions in minutes. Raises PolicyError."""
    return whole(value, "subscription expiration time")


def whole(value: object, what: str) -> int:
    """Return a checked number that is not negative. Raises PolicyError."""
    return NOT_NEGATIVE.check(value, f"Invalid value for {what}: it", PolicyError)


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
