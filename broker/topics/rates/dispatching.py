"""Subscriptions that are held to a rate: those of the subscription, of its topic, of its resource
group and of the broker hold together.

The pump asks how many messages may be delivered, and tells what was. While none may be, it is called again when the
rate allows some. Entries are delivered whole, and how many messages they have is estimated; what is too much is paid
for with a longer pause.

Source: Pulsar's DispatchRateLimiter, PersistentDispatcherMultipleConsumers.calculateToRead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from broker.topics.rates.bucket import UNLIMITED, RateBucket
from cursors.cursor import Cursor
from quire.world.doors import Buffer

WAIT_MIN_S: Final = 0.01
"""Least time between two deliveries of a subscription that has used its rate up."""
LOOK_S: Final = 1.0
"""Time after which a rate is looked at again that may have gone up in the meantime, as it is relative."""


class DispatchLimit:
    """The rates that hold for one subscription."""

    __slots__ = ("_by_entry", "_mean_size", "_nursery", "_only_backlog", "_pump", "_waits", "buckets")

    def __init__(
        self,
        buckets: Sequence[RateBucket],
        nursery: trio.Nursery,
        pump: Callable[[], None],
        *,
        by_entry: bool = False,
        only_backlog: bool = False,
    ) -> None:
        """Take the rates and what delivers.

        Args:
            by_entry: a batch counts as one message.
            only_backlog: consumers that have caught up are not held.
        """
        self.buckets = tuple(buckets)
        self._nursery = nursery
        self._pump = pump
        self._by_entry = by_entry
        self._only_backlog = only_backlog
        self._mean_size = 0.0
        """Bytes of a message among those of late; 0: unknown."""
        self._waits = False
        """True while the pump is to be called later."""

    def allowed(self, cursor: Cursor) -> int:
        """Return how many messages may be delivered now. 0: the pump is called again when there are some."""
        if self._only_backlog and cursor.active:
            return UNLIMITED
        now = trio.current_time()
        found = min((bucket.allowed(self._mean_size, now) for bucket in self.buckets), default=UNLIMITED)
        if not found and not self._waits:
            self._waits = True
            wait_s = max(WAIT_MIN_S, max(bucket.wait_s(now) for bucket in self.buckets))
            if any(bucket.rate.relative for bucket in self.buckets):
                wait_s = min(wait_s, LOOK_S)
            self._nursery.start_soon(self._go_on, wait_s, name="dispatch rate")
        return found

    def spent(self, messages: int, payloads: Sequence[Buffer]) -> None:
        """Count what was delivered."""
        size, now = sum(map(len, payloads)), trio.current_time()
        count = len(payloads) if self._by_entry else messages
        for bucket in self.buckets:
            bucket.take(count, size, now)
        if count > 0:
            mean = size / count
            self._mean_size = (self._mean_size + mean) / 2 if self._mean_size else mean

    def used_up(self) -> RateBucket | None:
        """Return the rate that keeps the pump from going on for longest; None: none does."""
        if not self._waits:
            return None
        now = trio.current_time()
        return max(self.buckets, key=lambda bucket: bucket.wait_s(now))

    async def _go_on(self, wait_s: float) -> None:
        await trio.sleep(wait_s)
        self._waits = False
        self._pump()
