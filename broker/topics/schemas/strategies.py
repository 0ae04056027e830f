"""Compatibility strategies, and which one holds for a topic (pure).

    /admin/policies/<t>/<ns>        schema_compatibility_strategy, schema_auto_update_compatibility_strategy (older),
                                    is_allow_auto_update_schema, schema_validation_enforced
    /admin/topic-policies/...       schemaCompatibilityStrategy, schemaValidationEnforced

Order: topic, namespace, broker.conf; UNDEFINED says nothing. Topics of the system obey neither their namespace's
strategy nor its refusal of new schemas.

Source: Pulsar's AbstractTopic (updateTopicPolicyByBrokerConfig, updateSchemaCompatibilityStrategyNamespaceValue,
allowAutoUpdateSchema), SchemaCompatibilityStrategy, SystemTopicNames, BrokerService.isSystemTopic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from broker.config import STRATEGIES
from broker.ownership.namespaces import heartbeat_broker
from quire.wire.pulsar.names import TopicName

NAMESPACE_STRATEGY: Final = "schema_compatibility_strategy"
NAMESPACE_AUTO_UPDATE_STRATEGY: Final = "schema_auto_update_compatibility_strategy"
NAMESPACE_AUTO_UPDATE: Final = "is_allow_auto_update_schema"
NAMESPACE_ENFORCED: Final = "schema_validation_enforced"
TOPIC_STRATEGY: Final = "schemaCompatibilityStrategy"
TOPIC_ENFORCED: Final = "schemaValidationEnforced"

_SYSTEM_NAMESPACE: Final = "pulsar/system"
_SYSTEM_TOPICS: Final = frozenset(
    (
        "__change_events",
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_segments",
        "__transaction_buffer_snapshot_indexes",
    )
)
_PENDING_ACKS: Final = "__transaction_pending_ack"


class Strategy(Enum):
    """Rule by which a new schema is compared with those of its topic."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    """Messages of the newest schema can be read with the new one."""
    FORWARD = "FORWARD"
    """Messages of the new schema can be read with the newest one."""
    FULL = "FULL"
    """Both."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    """Messages of each of the schemas can be read with the new one."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Return whether every schema of the topic counts, not only the newest."""
        return self.name.endswith("_TRANSITIVE")

    @property
    def reads_older(self) -> bool:
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        return self.name.startswith(("FORWARD", "FULL"))


_AUTO_UPDATE: Final = {
    "AutoUpdateDisabled": Strategy.ALWAYS_INCOMPATIBLE,
    "Backward": Strategy.BACKWARD,
    "Forward": Strategy.FORWARD,
    "Full": Strategy.FULL,
    "AlwaysCompatible": Strategy.ALWAYS_COMPATIBLE,
    "BackwardTransitive": Strategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": Strategy.FORWARD_TRANSITIVE,
    "FullTransitive": Strategy.FULL_TRANSITIVE,
}
AUTO_UPDATE_STRATEGIES: Final = tuple(_AUTO_UPDATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRules:
    """Rules for the schemas of one topic."""

    strategy: Strategy = Strategy.FULL
    auto_update: bool = True
    """True if producers and consumers may add a schema. If not, only the admin API does."""
    enforced: bool = False
    """True if a producer without a schema is refused by a topic that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDefaults:
    """Rules of broker.conf."""

    strategy: Strategy
    system_strategy: Strategy
    auto_update: bool
    enforced: bool

    def rules(
        self, name: TopicName, namespace: Mapping[str, Any] | None, topic: Mapping[str, Any] | None
    ) -> SchemaRules:
        """Return what holds for a topic with these policies."""
        namespace, topic = namespace or {}, topic or {}
        system = is_system_topic(name)
        said = [strategy_of(topic.get(TOPIC_STRATEGY))]
        if not system:
            said.append(strategy_of(namespace.get(NAMESPACE_STRATEGY)))
            said.append(_AUTO_UPDATE.get(str(namespace.get(NAMESPACE_AUTO_UPDATE_STRATEGY))))
        said.append(self.system_strategy if system else self.strategy)
        allowed = namespace.get(NAMESPACE_AUTO_UPDATE)
        return SchemaRules(
            strategy=next((each for each in said if each not in (None, Strategy.UNDEFINED)), None) or Strategy.FULL,
            auto_update=system or (allowed if isinstance(allowed, bool) else self.auto_update),
            enforced=self.enforces(namespace, topic),
        )

    def enforces(self, namespace: Mapping[str, Any] | None, topic: Mapping[str, Any] | None) -> bool:
        """Return whether a producer without a schema is refused where there is one; broker.conf can only add to it."""
        said = (topic or {}).get(TOPIC_ENFORCED)
        if not isinstance(said, bool):
            said = (namespace or {}).get(NAMESPACE_ENFORCED) is True
        return self.enforced or said


def strategy_of(value: object) -> Strategy | None:
    """Return the strategy of that name; None if there is none."""
    return Strategy(value) if isinstance(value, str) and value in STRATEGIES else None


def is_system_topic(name: TopicName) -> bool:
    """Return whether a topic is one that brokers of the original use for themselves."""
    local = name.partitioned.local
    return (
        name.namespace_path == _SYSTEM_NAMESPACE
        or local in _SYSTEM_TOPICS
        or local.endswith(_PENDING_ACKS)
        or heartbeat_broker(name.namespace_name) is not None
    )
