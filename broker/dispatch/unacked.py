"""Bound of the unacknowledged messages of all Shared and Key_Shared subscriptions of a broker together (pure).

Why this is hard: a few subscriptions whose consumers do not acknowledge must not stop the others, and each message is
counted without a look at the other subscriptions. So when the bound is reached, only subscriptions that hold more than
a share of it get nothing more. Each of them goes on at half of its share, and all do when the total is below half of
the bound.

Source: Pulsar's BrokerService.checkUnAckMessageDispatching and
PersistentDispatcherMultipleConsumers.addUnAckedMessages.
"""

from __future__ import annotations

from collections.abc import Callable

Wake = Callable[[], None]


class BrokerUnacked:
    """Count of one broker. A subscription is known by the function that makes it go on."""

    __slots__ = ("_held", "_later", "is_over", "limit", "messages", "share")

    def __init__(self, limit: int, share: float, later: Callable[[Wake], None]) -> None:
        """Take the bounds.

        Args:
            limit: messages, at least 1 (maxUnackedMessagesPerBroker).
            share: part of them that a subscription may hold while the bound is reached
                (maxUnackedMessagesPerSubscriptionOnBrokerBlocked).
            later: calls a function in a later step of the event loop.
        """
        self.limit = limit
        self.share = int(limit * share)
        """Messages that a subscription may hold while the bound is reached."""
        self._later = later
        self._held: dict[Wake, None] = {}
        self.messages = 0
        """Unacknowledged messages of all subscriptions."""
        self.is_over = False
        """True from the moment when the bound is reached until half of it is acknowledged."""

    @property
    def held(self) -> int:
        """Return the number of subscriptions that get nothing more."""
        return len(self._held)

    def count(self, subscription: Wake, before: int, now: int) -> bool:
        """Count the change of what a subscription holds; return whether it gets nothing more."""
        self.messages += now - before
        if self.is_over:
            if 2 * self.messages < self.limit:
                self._release_all()
        elif self.messages >= self.limit:
            self.is_over = True
        if not self.is_over:
            return False
        if subscription in self._held:
            if 2 * now < self.share or not now:
                del self._held[subscription]
        elif now > self.share:
            self._held[subscription] = None
        return subscription in self._held

    def _release_all(self) -> None:
        self.is_over = False
        held, self._held = self._held, {}
        for wake in held:
            self._later(wake)
