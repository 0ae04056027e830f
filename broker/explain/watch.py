"""Subscriptions whose messages wait while consumers ask for them, found by a look now and then.

The look is part of the broker's housekeeping and costs a subscription without consumers one comparison. It remembers
since when a subscription made no progress, which explanations use, and writes a line into the log for one whose
messages wait too long: that is the one case that an operator would not ask about by himself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import trio

from broker.dispatch.subscription import Subscription
from broker.topics.topic import Topic

if TYPE_CHECKING:
    from broker.explain.causes import Explanation
    from broker.explain.delivery import Situation


class Inquiry(Protocol):
    """Explanations as used here."""

    def situation(self, topic: Topic, subscription: Subscription) -> Situation: ...

    def delivery(self, topic: Topic, subscription: Subscription) -> Explanation: ...


class SeenSubscription:
    """Observation of one subscription without progress."""

    __slots__ = ("at", "consumed", "logged_at", "out", "since", "since_ms")

    def __init__(self, out: int, consumed: object, now: float, wall_ms: int) -> None:
        self.out = out
        self.consumed = consumed
        """Its mark-delete position."""
        self.since = now
        self.since_ms = wall_ms
        self.at = now
        self.logged_at: float | None = None


class StuckWatch:
    """Observations of the subscriptions of one broker that have consumers and a backlog."""

    def __init__(
        self, asked: Callable[[], Inquiry], wall_ms: Callable[[], int], *, stuck_s: float, log_interval_s: float
    ) -> None:
        """Take what the watch uses.

        Args:
            asked: returns the explanations, which are loaded when they are first needed.
            stuck_s: time after which the log has a line about messages that wait; 0: never.
            log_interval_s: time between two lines about one subscription.
        """
        self._asked = asked
        self._wall_ms = wall_ms
        self._stuck_s = stuck_s
        self._log_interval_s = log_interval_s
        self._seen: dict[Subscription, SeenSubscription] = {}
        self._began = 0.0
        """Start of the round of looks under way."""

    def since_ms(self, subscription: Subscription) -> int | None:
        """Return since when the subscription was seen without progress, in ms since 1970; None if it was not."""
        seen = self._seen.get(subscription)
        if seen is None or seen.out != subscription.messages_out or seen.consumed != subscription.cursor.mark_delete:
            return None
        return seen.since_ms

    def begin(self) -> None:
        """Begin a round of looks, which ends with `end`."""
        self._began = trio.current_time()

    def end(self) -> None:
        """Forget the subscriptions that had no look in this round: they have nothing to wait for, or are gone."""
        self._seen = {each: seen for each, seen in self._seen.items() if self._is_needed(each, seen)}

    def _is_needed(self, subscription: Subscription, seen: SeenSubscription) -> bool:
        if seen.at >= self._began:
            return True
        is_recent = seen.logged_at is not None and self._began - seen.logged_at < self._log_interval_s
        return is_recent and not subscription.stopped

    def look(self, topic: Topic) -> None:
        """Look at the subscriptions of a topic."""
        for subscription in topic.subscriptions.values():
            if subscription.consumers and subscription.cursor.backlog():
                self._look_at(topic, subscription)

    def _look_at(self, topic: Topic, subscription: Subscription) -> None:
        now = trio.current_time()
        seen, consumed = self._seen.get(subscription), subscription.cursor.mark_delete
        if seen is None or seen.out != subscription.messages_out or seen.consumed != consumed:
            logged_at = None if seen is None else seen.logged_at
            seen = self._seen[subscription] = SeenSubscription(
                subscription.messages_out, consumed, now, self._wall_ms()
            )
            seen.logged_at = logged_at
            return
        seen.at = now
        if not self._stuck_s or now - seen.since < self._stuck_s:
            return
        if seen.logged_at is not None and now - seen.logged_at < self._log_interval_s:
            return
        asked = self._asked()
        situation = asked.situation(topic, subscription)
        if not situation.messages_wait or not any(each.permits > 0 for each in situation.consumers):
            return
        answer = asked.delivery(topic, subscription)
        seen.logged_at = now
        subscription.log.info(
            "messages wait though consumers ask for them",
            reason=answer.code,
            sentence=answer.sentence,
            remedy=answer.remedy,
            since_ms=answer.since_ms,
        )
