"""The Avro schema of change events (pure): its definition as Pulsar 4.2 registers it, byte for byte.

Avro makes it by reflection from PulsarEvent and the classes in it, with fields in the order of their names and null
allowed everywhere but for Java's primitives. Source: the schema that a Pulsar 4.2.4 stored (tests/golden/pulsar).
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from broker.life_config import SUBSCRIPTION_TYPES
from broker.topics.schemas.avro_schema import AvroType, parse
from broker.topics.schemas.schema import Schema, SchemaType
from broker.topics.topic_policies.kinds import DELETE_MODES, QUOTA_POLICIES

_EVENTS: Final = "org.apache.pulsar.common.events"
_DATA: Final = "org.apache.pulsar.common.policies.data"
_IMPL: Final = f"{_DATA}.impl"

ACTIONS: Final = ("INSERT", "DELETE", "UPDATE", "NONE")
EVENT_TYPES: Final = (
    "TOPIC_POLICY",
    "TRANSACTION_BUFFER_SNAPSHOT",
    "TRANSACTION_BUFFER_SNAPSHOT_SEGMENTS",
    "TRANSACTION_BUFFER_SNAPSHOT_INDEXES",
)
_STRATEGIES: Final = (
    "UNDEFINED ALWAYS_INCOMPATIBLE ALWAYS_COMPATIBLE BACKWARD FORWARD FULL "
    "BACKWARD_TRANSITIVE FORWARD_TRANSITIVE FULL_TRANSITIVE"
)
_OFFLOAD: Final = """
    fileSystemProfilePath string, fileSystemURI string, gcsManagedLedgerOffloadBucket string,
    gcsManagedLedgerOffloadMaxBlockSizeInBytes int, gcsManagedLedgerOffloadReadBufferSizeInBytes int,
    gcsManagedLedgerOffloadRegion string, gcsManagedLedgerOffloadServiceAccountKeyFile string,
    managedLedgerExtraConfigurations map, managedLedgerOffloadBucket string,
    managedLedgerOffloadDeletionLagInMillis long, managedLedgerOffloadDriver string,
    managedLedgerOffloadMaxBlockSizeInBytes int, managedLedgerOffloadMaxThreads int,
    managedLedgerOffloadPrefetchRounds int, managedLedgerOffloadReadBufferSizeInBytes int,
    managedLedgerOffloadReadThreads int, managedLedgerOffloadRegion string,
    managedLedgerOffloadServiceEndpoint string, managedLedgerOffloadThresholdInBytes long,
    managedLedgerOffloadThresholdInSeconds long, managedLedgerOffloadedReadPriority priority,
    offloadersDirectory string, s3ManagedLedgerOffloadBucket string, s3ManagedLedgerOffloadCredentialId string,
    s3ManagedLedgerOffloadCredentialSecret string, s3ManagedLedgerOffloadMaxBlockSizeInBytes int,
    s3ManagedLedgerOffloadReadBufferSizeInBytes int, s3ManagedLedgerOffloadRegion string,
    s3ManagedLedgerOffloadRole string, s3ManagedLedgerOffloadRoleSessionName string,
    s3ManagedLedgerOffloadServiceEndpoint string
"""


def _record(name: str, space: str, **fields: Any) -> dict[str, Any]:
    """Return a record; a type in a tuple may not be null. `space`: its namespace, empty: that around it."""
    made: dict[str, Any] = {"type": "record", "name": name}
    if space:
        made["namespace"] = space
    made["fields"] = [
        {"name": key, "type": kind[0]}
        if isinstance(kind, tuple)
        else {"name": key, "type": ["null", kind], "default": None}
        for key, kind in fields.items()
    ]
    return made


def _enum(name: str, symbols: tuple[str, ...], space: str = "") -> dict[str, Any]:
    return {"type": "enum", "name": name, **({"namespace": space} if space else {}), "symbols": list(symbols)}


def _array(items: Any, java_class: str = "java.util.List") -> dict[str, Any]:
    return {"type": "array", "items": items, "java-class": java_class}


def _offload() -> dict[str, Any]:
    kinds: dict[str, Any] = {
        "map": {"type": "map", "values": "string"},
        "priority": _enum("OffloadedReadPriority", ("BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST")),
    }
    pairs = (each.split() for each in _OFFLOAD.split(","))
    return _record("OffloadPoliciesImpl", "", **{name: kinds.get(kind, kind) for name, kind in pairs})


def _topic_policies() -> dict[str, Any]:
    quota = _record(
        "BacklogQuotaImpl",
        _IMPL,
        limit=("long",),
        limitSize="long",
        limitTime=("int",),
        policy=_enum("RetentionPolicy", QUOTA_POLICIES, f"{_DATA}.BacklogQuota"),
    )
    dispatch_rate = _record(
        "DispatchRateImpl",
        _IMPL,
        dispatchThrottlingRateInByte=("long",),
        dispatchThrottlingRateInMsg=("int",),
        ratePeriodInSecond=("int",),
        relativeToPublishRate=("boolean",),
    )
    same_rate = f"{_IMPL}.DispatchRateImpl"
    return _record(
        "TopicPolicies",
        _DATA,
        autoSubscriptionCreationOverride=_record(
            "AutoSubscriptionCreationOverrideImpl", _IMPL, allowAutoSubscriptionCreation=("boolean",)
        ),
        backLogQuotaMap={"type": "map", "values": quota},
        compactionThreshold="long",
        deduplicationEnabled="boolean",
        deduplicationSnapshotIntervalSeconds="int",
        delayedDeliveryEnabled="boolean",
        delayedDeliveryMaxDelayInMillis="long",
        delayedDeliveryTickTimeMillis="long",
        dispatchRate=dispatch_rate,
        dispatcherPauseOnAckStatePersistentEnabled="boolean",
        entryFilters=_record("EntryFilters", "", entryFilterNames="string"),
        inactiveTopicPolicies=_record(
            "InactiveTopicPolicies",
            "",
            deleteWhileInactive=("boolean",),
            inactiveTopicDeleteMode=_enum("InactiveTopicDeleteMode", DELETE_MODES),
            maxInactiveDurationSeconds=("int",),
        ),
        isGlobal="boolean",
        maxConsumerPerTopic="int",
        maxConsumersPerSubscription="int",
        maxMessageSize="int",
        maxProducerPerTopic="int",
        maxSubscriptionsPerTopic="int",
        maxUnackedMessagesOnConsumer="int",
        maxUnackedMessagesOnSubscription="int",
        messageTTLInSeconds="int",
        offloadPolicies=_offload(),
        persistence=_record(
            "PersistencePolicies",
            "",
            bookkeeperAckQuorum=("int",),
            bookkeeperEnsemble=("int",),
            bookkeeperWriteQuorum=("int",),
            managedLedgerMaxMarkDeleteRate=("double",),
            managedLedgerStorageClassName="string",
        ),
        publishRate=_record(
            "PublishRate", "", publishThrottlingRateInByte=("long",), publishThrottlingRateInMsg=("int",)
        ),
        replicationClusters=_array("string"),
        replicatorDispatchRate=same_rate,
        retentionPolicies=_record(
            "RetentionPolicies", "", retentionSizeInMB=("long",), retentionTimeInMinutes=("int",)
        ),
        schemaCompatibilityStrategy=_enum("SchemaCompatibilityStrategy", tuple(_STRATEGIES.split())),
        schemaValidationEnforced="boolean",
        shadowTopics=_array("string"),
        subscribeRate=_record(
            "SubscribeRate", "", ratePeriodInSecond=("int",), subscribeThrottlingRatePerConsumer=("int",)
        ),
        subscriptionDispatchRate=same_rate,
        subscriptionExpirationTimeInMinutes="int",
        subscriptionPolicies={
            "type": "map",
            "values": _record("SubscriptionPolicies", "", dispatchRate=same_rate),
        },
        subscriptionTypesEnabled=_array(
            _enum("SubType", SUBSCRIPTION_TYPES, "org.apache.pulsar.common.api.proto.CommandSubscribe")
        ),
    )


@cache
def event_schema() -> Schema:
    """Return the schema as producers of change events register it."""
    definition = _record(
        "PulsarEvent",
        _EVENTS,
        actionType=_enum("ActionType", ACTIONS),
        eventType=_enum("EventType", EVENT_TYPES),
        replicateTo=_array("string", "java.util.HashSet"),
        topicPoliciesEvent=_record(
            "TopicPoliciesEvent",
            "",
            domain="string",
            namespace="string",
            policies=_topic_policies(),
            tenant="string",
            topic="string",
        ),
    )
    properties = {"__jsr310ConversionEnabled": "false", "__alwaysAllowNull": "true"}
    return Schema(SchemaType.AVRO, json.dumps(definition, separators=(",", ":")).encode(), properties)


@cache
def event_type() -> AvroType:
    return parse(event_schema().data)
