"""The check of all backlogs against their quotas: producers are cut off, or the oldest messages let go.

Source: Pulsar's BrokerService.monitorBacklogQuota and BacklogQuotaManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import trio

from broker.dispatch import moving
from broker.dispatch.subscription import Subscription
from broker.ends import End
from broker.errors import BrokerError
from broker.life_config import EVICTION, LifeOptions
from broker.topics.backlog_size import size_behind
from broker.topics.quotas.backlog import aged_ledgers, quotas_of, slowest
from broker.topics.quotas.quota import entries_to_skip, is_too_large, seconds_kept
from broker.topics.system_names import is_system_topic
from broker.topics.topic import Topic
from broker.topics.topic_policies.kinds import DESTINATION_STORAGE, MESSAGE_AGE, BacklogQuota
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.keeping import restored_from
from quire.ledger.position import Position
from quire.world.tasks import for_each

AT_ONCE_MAX = 16
"""Topics that are checked beside each other where that needs reads."""
TOPICS_IN_STEP = 100


class QuotaChecks:
    """Checks of one broker."""

    def __init__(self, loaded: Callable[[], list[Topic]], options: LifeOptions) -> None:
        self._loaded = loaded
        self._options = options
        self._at = trio.current_time() + options.quota_check_interval_s
        self._running = False
        self.exceeded: Counter[str] = Counter()
        """Times that a topic was found above its quota, by type."""

    def is_due(self) -> bool:
        """Return whether a round is due and none is under way."""
        return self._options.quota_check and not self._running and trio.current_time() >= self._at

    async def round(self) -> None:
        """Check all loaded topics."""
        self._running = True
        try:
            self._at = trio.current_time() + self._options.quota_check_interval_s
            due: list[Topic] = []
            for count, topic in enumerate(self._loaded(), 1):
                used = topic.subscriptions and not topic.closing and not is_system_topic(topic.name)
                # One that is being restored keeps all it has until it is opened, which checks its quotas.
                if used and not restored_from(topic.ledger.properties) and quotas_of(topic).limit:
                    due.append(topic)
                if not count % TOPICS_IN_STEP:
                    await trio.lowlevel.checkpoint()
            await for_each(due, self.check, at_once=AT_ONCE_MAX, name="check backlog quotas")
        finally:
            self._running = False

    async def check(self, topic: Topic) -> None:
        """Check one topic, and do what its quotas ask for."""
        quotas = quotas_of(topic)
        try:
            if await self._is_too_old(topic, quotas.age):
                await self._act(topic, MESSAGE_AGE, quotas.age)
            if quotas.storage.limit_bytes >= 0 and is_too_large(_size(topic), quotas.storage):
                await self._act(topic, DESTINATION_STORAGE, quotas.storage)
        except (BrokerError, ManagedLedgerError) as error:
            if not topic.closing:
                topic.log.warning("backlog quota not checked", reason=str(error))

    async def _is_too_old(self, topic: Topic, quota: BacklogQuota) -> bool:
        topic.too_old = None
        if quota.limit_s <= 0:
            return False
        if not self._options.quota_precise_age:
            return aged_ledgers(topic, quota.limit_s) is not None
        topic.too_old = await older_than(topic, quota.limit_s)
        return topic.too_old is not None

    async def _act(self, topic: Topic, kind: str, quota: BacklogQuota) -> None:
        if topic.closing:
            return
        self.exceeded[kind] += 1
        if quota.policy != EVICTION:
            producers = list(topic.producers.values())
            if producers:
                topic.log.info("backlog quota exceeded, producers are disconnected", quota=kind, policy=quota.policy)
            for producer in producers:
                topic.end_producer(producer, End.BLOCKED)
            topic.context.turn.flush()
            return
        before = _size(topic)
        if kind == DESTINATION_STORAGE:
            await _evict_bytes(topic, quota)
        else:
            await self._evict_older(topic, quota)
        topic.log.info("backlog quota exceeded, messages let go", quota=kind, bytes=before - _size(topic))

    async def _evict_older(self, topic: Topic, quota: BacklogQuota) -> None:
        if self._options.quota_precise_age:
            through = await older_than(topic, seconds_kept(quota))
            topic.too_old = None
        else:
            through = aged_ledgers(topic, quota.limit_s)
        for subscription in list(topic.subscriptions.values()):
            if through is not None and _is_movable(subscription) and subscription.cursor.mark_delete < through:
                await moving.expire_through(subscription, through)


async def older_than(topic: Topic, seconds: int) -> Position | None:
    """Return the last of the oldest entries of the backlog that are older than that; None: there are none."""
    found = slowest(topic)
    if found is None or not found.cursor.backlog():
        return None
    before_ms = topic.context.world.clock.wall_ms() - 1000 * seconds
    return await moving.expired_through(topic.ledger, found.cursor.mark_delete, before_ms)


async def _evict_bytes(topic: Topic, quota: BacklogQuota) -> None:
    """Let the slowest subscription skip its oldest entries, one after the other, until all are below the quota."""
    while (found := slowest(topic)) is not None and _is_movable(found):
        before = size_behind(topic.ledger, found.cursor.mark_delete)
        count = entries_to_skip(before, quota, found.cursor.backlog())
        if not count:
            return
        backlog = found.cursor.backlog()
        await moving.skip(found, count)
        found.expiry.expired += backlog - found.cursor.backlog()
        if size_behind(topic.ledger, found.cursor.mark_delete) >= before:
            return


def _size(topic: Topic) -> int:
    found = slowest(topic)
    return 0 if found is None else size_behind(topic.ledger, found.cursor.mark_delete)


def _is_movable(subscription: Subscription) -> bool:
    return subscription.durable and not (subscription.stopped or subscription.seeking)
