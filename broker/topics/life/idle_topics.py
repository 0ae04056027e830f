"""The check of topics without use: they are deleted, where that is asked for, or unloaded.

A topic is unloaded that has no clients and no backlog, and nothing that time alone changes: no messages to be trimmed
later, no subscription to expire. Its next use loads it again. Source of the deletion: Pulsar's BrokerService.checkGC.

A topic that is being restored from a backup has no clients and, until its last step, no subscriptions. It is not
deleted for that, but when no request of the restoration has come for a long time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from broker.background import for_all
from broker.config import BrokerOptions
from broker.errors import BrokerError, TopicBusyError, TopicNotFoundError
from broker.topics.life.abandoned import AbandonedRestorations
from broker.topics.life.inactivity import Usage, is_active, is_retained
from broker.topics.loaded_topics import Topics
from broker.topics.policies import TopicPolicies
from broker.topics.system_names import is_system_topic
from broker.topics.topic import Topic
from broker.topics.topic_policies.catalog import INACTIVE_TOPICS, SUBSCRIPTION_EXPIRATION
from broker.topics.topic_policies.kinds import InactiveTopics
from broker.topics.topic_policies.known import value_of
from managed_ledger.keeping import restored_from
from quire.service.log import get_logger
from quire.wire.pulsar.names import TopicName

log = get_logger(__name__)

TOPICS_IN_STEP = 100


class IdleTopics:
    """Checks of one broker. `delete_partitioned` deletes a partitioned topic; raises BrokerError."""

    def __init__(
        self,
        topics: Topics,
        policies: TopicPolicies,
        options: BrokerOptions,
        delete_partitioned: Callable[[TopicName], Awaitable[None]],
        restorations: AbandonedRestorations,
    ) -> None:
        self._topics = topics
        self._policies = policies
        self._options = options
        self._delete_partitioned = delete_partitioned
        self._restorations = restorations
        self._looked_at = trio.current_time()
        self._running = False
        self.deleted = 0
        """Topics that were deleted for want of use."""
        self.unloaded = 0

    def is_due(self) -> bool:
        """Return whether a round is due and none is under way."""
        return not self._running and trio.current_time() >= self._looked_at + self._options.inactive_check_interval_s

    async def round(self) -> None:
        """Check all loaded topics."""
        self._running = True
        try:
            await self._topics.first_use.tombstones.sweep()
            self._looked_at = trio.current_time()
            due: list[Topic] = []
            abandoned: list[Topic] = []
            for count, topic in enumerate(self._topics.loaded(), 1):
                if topic.closing or is_system_topic(topic.name):
                    pass
                elif not restored_from(topic.ledger.properties):
                    self._look(topic, due)
                elif self._restorations.is_abandoned(topic):
                    abandoned.append(topic)
                if not count % TOPICS_IN_STEP:
                    await trio.lowlevel.checkpoint()
            await for_all(due, self._delete, name="delete inactive topics")
            await for_all(abandoned, self._restorations.delete, name="delete abandoned restorations")
            await self._restorations.sweep()
        finally:
            self._running = False

    def _look(self, topic: Topic, due: list[Topic]) -> None:
        """Look at one topic. `due` gets it if it is to be deleted."""
        now, rule, usage = trio.current_time(), self._rule(topic), usage_of(topic)
        if usage.clients or usage.has_backlog:
            topic.used_at = now
            return
        idle_s = now - _used_at(topic, now)
        if rule.delete and not is_active(rule.mode, usage):
            held = topic.policies
            minutes = 0 if held is None else held().retention_minutes
            if idle_s >= rule.after_s and not is_retained(minutes, idle_s):
                due.append(topic)
            if minutes >= 0:
                return  # not unloaded: only what is loaded is deleted in time
        if 0 < self._options.idle_unload_s <= idle_s and self._may_rest(topic, usage):
            topic.log.debug("topic unloaded: not in use", idle_s=round(idle_s))
            self.unloaded += 1
            self._topics.close_soon(topic)

    def _rule(self, topic: Topic) -> InactiveTopics:
        return value_of(topic.policies, INACTIVE_TOPICS, self._options)

    def _may_rest(self, topic: Topic, usage: Usage) -> bool:
        """Return whether nothing of the topic changes with time alone."""
        held = topic.policies
        if usage.clients or usage.has_backlog or held is None:
            return False
        if held().retention_minutes > 0 and topic.ledger.entry_count:
            return False
        expires = held.value(SUBSCRIPTION_EXPIRATION)
        return not (expires and topic.subscriptions)

    async def _delete(self, topic: Topic) -> None:
        """Delete a topic, unless it is used by now."""
        name = topic.name

        def check(found: Topic) -> None:
            if is_active(self._rule(found).mode, usage_of(found)) or found.creating:
                raise TopicBusyError(f"topic {name.full} is used again")

        try:
            await self._topics.delete(name, force=False, check=check)
            self.deleted += 1
            log.info("inactive topic deleted", topic=name.full)
            if name.partition < 0:
                await self._policies.delete(name)
            elif self._options.delete_inactive_partitioned:
                await self._delete_without_partitions(name.partitioned)
        except (TopicBusyError, TopicNotFoundError):
            pass
        except BrokerError as error:
            log.warning("inactive topic not deleted", topic=name.full, reason=str(error))

    async def _delete_without_partitions(self, name: TopicName) -> None:
        """Delete a partitioned topic of which no partition is left."""
        if not await self._topics.partitioned.existing_partitions(name):
            await self._delete_partitioned(name)
            log.info("inactive partitioned topic deleted", topic=name.full)


def usage_of(topic: Topic) -> Usage:
    """Return how a topic is used now."""
    subscriptions = topic.subscriptions.values()
    clients = len(topic.producers) + sum(len(each.consumers) for each in subscriptions)
    behind = any(each.durable and each.cursor.backlog() for each in subscriptions)
    return Usage(clients + len(topic.creating or ()), len(subscriptions), behind)


def _used_at(topic: Topic, now: float) -> float:
    """Return when it was last used: its own time, or that of a subscription's last consumer."""
    now_ms = topic.context.world.clock.wall_ms()
    active = [each.cursor.last_active_ms for each in topic.subscriptions.values() if each.durable]
    latest = max((each for each in active if each), default=0)
    return max(topic.used_at, now - max(0, now_ms - latest) / 1000 if latest else 0.0)
