"""Expiry, checked periodically: of messages that are not acknowledged in time, and of subscriptions without consumers.

Messages of a topic expire for all its durable subscriptions at once: one search finds how far. It mostly ends with the
oldest message. A subscription counts as in use while it has consumers, which is stored often enough that a crash does
not make it look older than half of its time.

Source: Pulsar's PersistentTopic (checkMessageExpiry, checkInactiveSubscriptions) and BrokerService.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from broker.config import BrokerOptions
from broker.dispatch import moving
from broker.dispatch.subscription import Subscription
from broker.errors import BrokerError
from broker.topics.policies import Held, TopicPolicies
from broker.topics.system_names import is_system_cursor, is_system_topic
from broker.topics.topic import Topic
from broker.topics.topic_policies.catalog import MESSAGE_TTL, SUBSCRIPTION_EXPIRATION
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.keeping import restored_from
from quire.service.log import get_logger
from quire.world.tasks import for_each

log = get_logger(__name__)

AT_ONCE_MAX = 16
"""Topics that are looked at beside each other where that needs reads."""
TOPICS_IN_STEP = 100
MINUTE_MS = 60_000


class Expiring:
    """Checks of one broker."""

    def __init__(self, loaded: Callable[[], list[Topic]], policies: TopicPolicies, options: BrokerOptions) -> None:
        """Take the loaded topics and what says how long messages and subscriptions live."""
        self._loaded = loaded
        self._policies = policies
        self._options = options
        now = trio.current_time()
        self._messages_at = now + options.expiry_check_interval_s
        self._subscriptions_at = now + options.subscription_expiry_check_interval_s
        self._running = False

    def is_due(self) -> bool:
        """Return whether a round is due and none is under way."""
        return not self._running and trio.current_time() >= min(self._messages_at, self._subscriptions_at)

    async def round(self) -> None:
        """Do the checks that are due."""
        self._running = True
        try:
            now = trio.current_time()
            if now >= self._messages_at:
                self._messages_at = now + self._options.expiry_check_interval_s
                await self.check_messages()
            if now >= self._subscriptions_at:
                self._subscriptions_at = now + self._options.subscription_expiry_check_interval_s
                await self.check_subscriptions()
        finally:
            self._running = False

    # Messages

    async def check_messages(self) -> None:
        """Expire the messages of all loaded topics that are too old."""
        due: list[tuple[Topic, int]] = []
        for count, topic in enumerate(self._loaded(), 1):
            if _has_backlog(topic) and not _is_restored(topic) and (ttl_s := await self._ttl_of(topic)) > 0:
                due.append((topic, ttl_s))
            if not count % TOPICS_IN_STEP:
                await trio.lowlevel.checkpoint()
        await for_each(due, self._expire, at_once=AT_ONCE_MAX, name="expire messages")

    async def _ttl_of(self, topic: Topic) -> int:
        held = await self._held(topic)
        return 0 if held is None else held.value(MESSAGE_TTL)

    async def _held(self, topic: Topic) -> Held | None:
        """Return the policies of a topic; None if they cannot be read now."""
        try:
            return self._policies.known(topic.name) or await self._policies.load(topic.name)
        except BrokerError as error:
            topic.log.warning("policies not read, nothing expires", reason=str(error))
            return None

    async def _expire(self, due: tuple[Topic, int]) -> None:
        topic, ttl_s = due
        before_ms = topic.context.world.clock.wall_ms() - 1000 * ttl_s
        subscriptions = _with_backlog(topic)
        if not subscriptions:
            return
        start = min(subscription.cursor.mark_delete for subscription in subscriptions)
        try:
            found = await moving.expired_through(topic.ledger, start, before_ms)
            if found is None:
                return
            for subscription in _with_backlog(topic):
                if not subscription.expiry.running:
                    await moving.expire_through(subscription, found)
        except (BrokerError, ManagedLedgerError) as error:
            if not topic.closing:
                topic.log.warning("messages not expired", reason=str(error))

    # Subscriptions

    async def check_subscriptions(self) -> None:
        """Delete the subscriptions that were not in use for too long."""
        for count, topic in enumerate(self._loaded(), 1):
            if (
                topic.subscriptions
                and not topic.closing
                and not _is_restored(topic)
                and not is_system_topic(topic.name)
            ):
                held = await self._held(topic)
                minutes = 0 if held is None else held.value(SUBSCRIPTION_EXPIRATION)
                if minutes:
                    await self._check_subscriptions_of(topic, minutes * MINUTE_MS)
            if not count % TOPICS_IN_STEP:
                await trio.lowlevel.checkpoint()

    async def _check_subscriptions_of(self, topic: Topic, life_ms: int) -> None:
        now_ms = topic.context.world.clock.wall_ms()
        for name, subscription in list(topic.subscriptions.items()):
            cursor = subscription.cursor
            if not subscription.durable or subscription.stopped or is_system_cursor(name):
                continue
            try:
                idle_ms = now_ms - cursor.last_active_ms
                if not cursor.last_active_ms or (subscription.consumers and idle_ms > life_ms // 2):
                    cursor.touch()
                elif not subscription.consumers and idle_ms > life_ms:
                    topic.log.info("subscription expired", subscription=name, idle_s=idle_ms // 1000)
                    await topic.delete_subscription_by_name(name, force=False)
                    continue
                if cursor.is_touched:
                    await cursor.store_activity()
            except (BrokerError, CursorError) as error:
                if not topic.closing:
                    topic.log.warning("subscription not checked", subscription=name, reason=str(error))


def _is_restored(topic: Topic) -> bool:
    """Return whether a topic is being restored from a backup: nothing of it expires before it is whole."""
    return bool(restored_from(topic.ledger.properties))


def _has_backlog(topic: Topic) -> bool:
    return (
        not topic.closing
        and bool(topic.subscriptions)
        and not is_system_topic(topic.name)
        and bool(_with_backlog(topic))
    )


def _with_backlog(topic: Topic) -> list[Subscription]:
    """Return the durable subscriptions of a topic that have something to expire."""
    return [
        subscription
        for name, subscription in list(topic.subscriptions.items())
        if subscription.durable
        and not (subscription.stopped or subscription.seeking or is_system_cursor(name))
        and subscription.cursor.mark_delete < topic.ledger.last_confirmed
    ]
