"""The backlog of a topic against its quotas: its bytes, and the age of its oldest message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from broker.context import Context
from broker.dispatch.policies.expired import wholly_expired
from broker.dispatch.subscription import Subscription
from broker.errors import ProducerBlockedError, QuotaExceededError
from broker.life_config import EVICTION, HOLD
from broker.topics.backlog_size import size_behind
from broker.topics.policies import Held
from broker.topics.quotas.quota import Quotas, is_too_large
from broker.topics.system_names import is_system_cursor, is_system_topic
from broker.topics.topic_policies.catalog import BACKLOG_SIZE_QUOTA, BACKLOG_TIME_QUOTA
from broker.topics.topic_policies.kinds import BacklogQuota
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position
from quire.wire.pulsar.names import TopicName


class Backlogged(Protocol):
    """Topic as its quotas use it."""

    @property
    def name(self) -> TopicName: ...

    @property
    def context(self) -> Context: ...

    @property
    def ledger(self) -> ManagedLedger: ...

    @property
    def policies(self) -> Held | None: ...

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...

    @property
    def too_old(self) -> Position | None:
        """An entry whose publish time was too old when the quotas were last checked."""


def quotas_of(topic: Backlogged) -> Quotas:
    """Return the quotas of a topic."""
    held, options = topic.policies, topic.context.options
    if held is None:
        return Quotas(BACKLOG_SIZE_QUOTA.of_broker(options), BACKLOG_TIME_QUOTA.of_broker(options))
    return held.derived(_quotas)


def _quotas(held: Held) -> Quotas:
    return Quotas(held.value(BACKLOG_SIZE_QUOTA), held.value(BACKLOG_TIME_QUOTA))


def slowest(topic: Backlogged) -> Subscription | None:
    """Return the durable subscription that is furthest behind; None: there is none."""
    durable = [each for name, each in topic.subscriptions.items() if each.durable and not is_system_cursor(name)]
    return min(durable, key=lambda each: each.cursor.mark_delete, default=None)


def size_of(topic: Backlogged) -> int:
    """Return the bytes that the slowest durable subscription is behind."""
    found = slowest(topic)
    return 0 if found is None else size_behind(topic.ledger, found.cursor.mark_delete)


def aged_ledgers(topic: Backlogged, seconds: int) -> Position | None:
    """Return the last entry of the ledgers in the backlog that were closed so long ago; None: there are none."""
    found = slowest(topic)
    if found is None:
        return None
    mark_delete = found.cursor.mark_delete
    last = wholly_expired(topic.ledger.ledgers, mark_delete, topic.context.world.clock.wall_ms() - 1000 * seconds)
    return last if last is not None and last > mark_delete else None


def exceeded(topic: Backlogged, quotas: Quotas) -> list[BacklogQuota]:
    """Return the quotas that the topic is above, as far as that is known without reads."""
    found = []
    if quotas.storage.limit_bytes >= 0 and is_too_large(size_of(topic), quotas.storage):
        found.append(quotas.storage)
    if quotas.age.limit_s > 0 and _is_too_old(topic, quotas.age):
        found.append(quotas.age)
    return found


def _is_too_old(topic: Backlogged, quota: BacklogQuota) -> bool:
    if not topic.context.options.quota_precise_age:
        return aged_ledgers(topic, quota.limit_s) is not None
    known, found = topic.too_old, slowest(topic)
    return known is not None and found is not None and found.cursor.mark_delete < known


def blocking(topic: Backlogged) -> BacklogQuota | None:
    """Return the quota for which the topic takes no producers; None: it takes some."""
    quotas = quotas_of(topic)
    if not quotas.limit:
        return None  # the rule
    if is_system_topic(topic.name):
        return None
    return next((quota for quota in exceeded(topic, quotas) if quota.policy != EVICTION), None)


def check_producer(topic: Backlogged) -> None:
    """Raise ProducerBlockedError or QuotaExceededError if the topic takes no producers because of its backlog.

    Source: Pulsar's AbstractTopic.checkBacklogQuotaExceeded."""
    if (quota := blocking(topic)) is not None:
        error = ProducerBlockedError if quota.policy == HOLD else QuotaExceededError
        raise error(f"Cannot create producer on topic with backlog quota exceeded: {topic.name.full}")
