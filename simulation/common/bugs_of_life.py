"""Bugs to plant in what time and limits do to topics, and in transactions; see `bugs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from broker.dispatch import moving
from broker.dispatch.subscription import Subscription
from broker.topics.deduplication import replay
from broker.topics.deduplication.sequences import Sequences
from broker.topics.expiring import Expiring
from broker.topics.life import idle_topics
from broker.topics.life.inactivity import Usage
from broker.topics.life.tombstones import Tombstone, Tombstones
from broker.topics.quotas import checks as quota_checks
from broker.topics.quotas.checks import QuotaChecks
from broker.topics.schemas import checks as schema_checks
from broker.topics.schemas.schema import Schema, Version
from broker.topics.schemas.strategies import Strategy
from broker.topics.topic import Topic
from broker.topics.topic_policies.kinds import BacklogQuota
from broker.topics.topic_policies.known import Defaults, Held, NamespaceFields
from broker.transactions import pending_acks
from broker.transactions.buffer_state import Snapshot
from broker.transactions.snapshots import formats
from managed_ledger.config import LogConfig
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.trimming import Retention
from quire.ledger.position import Position
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.TransactionFormats_pb2 import PendingAckMetadataEntry
from simulation.common.patching import Patch

EARLY_MS = 1500


def _sequence_ids_forgotten() -> list[Patch]:
    """A loaded topic knows the sequence ids of its last snapshot, and reads nothing behind it."""

    async def nothing(ledger: ManagedLedger, position: Position, sequences: Sequences) -> int:
        await trio.lowlevel.checkpoint()
        return 0

    return [(replay, "_replay", nothing)]


def _expired_early() -> list[Patch]:
    """Messages expire somewhat before their time."""
    expired = moving.expired_through

    async def early(ledger: ManagedLedger, start: Position, before_ms: int) -> Position | None:
        return await expired(ledger, start, before_ms + EARLY_MS)

    return [(moving, "expired_through", early)]


def _subscription_expired_early() -> list[Patch]:
    """Subscriptions live a sixth of their time."""
    check = Expiring._check_subscriptions_of

    async def early(self: Expiring, topic: Topic, life_ms: int) -> None:
        await check(self, topic, life_ms // 6)

    return [(Expiring, "_check_subscriptions_of", early)]


def _quota_evicts_all() -> list[Patch]:
    """An eviction lets the whole backlog go."""

    def every(size: int, quota: BacklogQuota, entries: int) -> int:
        return entries

    return [(quota_checks, "entries_to_skip", every)]


def _quota_not_enforced() -> list[Patch]:
    """Producers of a topic above its quota are not cut off; only new ones are refused."""

    async def idle(self: QuotaChecks, topic: Topic, kind: str, quota: BacklogQuota) -> None:
        await trio.lowlevel.checkpoint()

    return [(QuotaChecks, "_act", idle)]


def _retention_forgotten() -> list[Patch]:
    """Consumed ledgers may be trimmed at once, whatever the retention says."""

    def none(config: LogConfig) -> Retention:
        return Retention()

    return [(Retention, "of", staticmethod(none))]


def _deleted_with_subscriptions() -> list[Patch]:
    """A topic counts as unused though it has a subscription."""

    def by_clients(mode: str, usage: Usage) -> bool:
        return usage.clients > 0

    return [(idle_topics, "is_active", by_clients)]


def _tombstone_not_stored() -> list[Patch]:
    """A tombstone is only in the memory of the broker that deleted the topic."""

    async def forget(self: Tombstones, full: str, found: Tombstone) -> None:
        await trio.lowlevel.checkpoint()

    return [(Tombstones, "_store", forget)]


def _schema_unchecked() -> list[Patch]:
    """Every schema is compatible."""

    def fine(versions: Sequence[Version], schema: Schema, strategy: Strategy) -> str:
        return ""

    return [(schema_checks, "why_incompatible", fine)]


def _consumers_left_behind() -> list[Patch]:
    """A topic is unloaded, and its consumers are not told."""

    def leave(self: Subscription, *arguments: object, **options: object) -> None:
        return

    return [(Subscription, "disconnect_all", leave)]


def _snapshot_without_aborted() -> list[Patch]:
    """A snapshot of a topic's transactions does not name those that were aborted."""
    encode = formats.encode_snapshot

    def without(topic: TopicName, snapshot: Snapshot) -> bytes:
        return encode(topic, snapshot._replace(aborted={}))

    return [(formats, "encode_snapshot", without)]


def _held_acks_forgotten() -> list[Patch]:
    """A loaded topic forgets what open transactions have acknowledged."""

    def none(entry: object) -> list[PendingAckMetadataEntry]:
        return []

    return [(pending_acks, "pending_ack_records", none)]


def _trimmed_uncompacted() -> list[Patch]:
    """Ledgers of topics of the servers are trimmed before anything is compacted."""
    make = Held.__init__

    def made(self: Held, defaults: Defaults, namespace: NamespaceFields, name: TopicName) -> None:
        make(self, defaults, namespace, name)
        self.is_compacted = True

    return [(Held, "__init__", made)]


BUGS_OF_LIFE: dict[str, Callable[[], list[Patch]]] = {
    "sequence-ids-forgotten": _sequence_ids_forgotten,
    "expired-early": _expired_early,
    "subscription-expired-early": _subscription_expired_early,
    "quota-evicts-all": _quota_evicts_all,
    "quota-not-enforced": _quota_not_enforced,
    "retention-forgotten": _retention_forgotten,
    "deleted-with-subscriptions": _deleted_with_subscriptions,
    "tombstone-not-stored": _tombstone_not_stored,
    "schema-unchecked": _schema_unchecked,
    "consumers-left-behind": _consumers_left_behind,
    "snapshot-without-aborted": _snapshot_without_aborted,
    "held-acks-forgotten": _held_acks_forgotten,
    "trimmed-uncompacted": _trimmed_uncompacted,
}
"""Bugs by name; the docstring describes each."""
