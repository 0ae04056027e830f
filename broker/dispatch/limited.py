"""Limits of Shared and Key_Shared: what consumers may hold, and what filters hold back."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import trio

from broker.dispatch.consumer import Consumer
from broker.dispatch.delaying import DelayingSubscription
from broker.dispatch.policies.key_shared import KeyShared
from broker.dispatch.policies.redelivery import PendingAcks, Redelivery
from broker.dispatch.policies.shared import Shared
from broker.dispatch.ports import Host
from broker.dispatch.subscription import Subscription
from broker.entry_filters.entry_filter import FilterResult
from cursors.cursor import Cursor
from quire.ledger.position import Position
from quire.service.shared_maps import EMPTY
from quire.world.doors import Buffer

RESCHEDULED_MAX = 20_000
"""Entries that filters have rescheduled, at which no more are read."""


class Assigned(NamedTuple):
    """Entries for one consumer."""

    entry_ids: Sequence[int]
    payloads: Sequence[Buffer]
    counts: Sequence[int]
    hashes: Sequence[int] | None


class LimitedSubscription(DelayingSubscription):
    """Part of Shared and Key_Shared: limits of unacknowledged messages, and entry filters."""

    _policy: Shared[Consumer[Subscription]] | KeyShared[Consumer[Subscription]]
    _replay: Redelivery

    # Set in few subscriptions: see Subscription.
    _unacked_counted = 0
    """Part of the unacknowledged messages that `context.unacked` has counted."""
    _over_limit = False
    _over_broker_limit = False
    _rescheduled: deque[tuple[float, Consumer[Subscription], list[Position]]] | None = None
    """Entries that filters have rescheduled, which the consumer holds until they are offered again at a time."""
    _rescheduled_count = 0

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._pending: Mapping[Consumer[Subscription], PendingAcks] = EMPTY
        self._unacked = 0

    @abstractmethod
    def _released(self, consumer: Consumer[Subscription], hashes: Iterable[int]) -> None:
        """Note that the consumer holds one entry fewer of each of these hashes."""

    @property
    def is_blocked(self) -> bool:
        """Return whether it holds too many unacknowledged messages, as found when it was last served."""
        return self._over_limit or self._over_broker_limit

    @property
    def is_over_limit(self) -> bool:
        """Return whether it holds more than a subscription may, as found then."""
        return self._over_limit

    @property
    def is_over_broker_limit(self) -> bool:
        """Return whether it holds more than its share while the whole broker holds too many, as found then."""
        return self._over_broker_limit

    @property
    def rescheduled(self) -> list[Position]:
        """Return the entries that filters have rescheduled, in the order in which they are offered again, as far as
        their consumers are connected and have not acknowledged them."""
        return [
            position
            for _, consumer, positions in self._rescheduled or ()
            if (pending := self._pending.get(consumer)) is not None
            for position in positions
            if pending.messages_of(position) is not None
        ]

    @property
    def has_rescheduled_most(self) -> bool:
        """Return whether nothing more is read because of them."""
        return self._rescheduled_count >= RESCHEDULED_MAX

    def _holds_too_much(self) -> bool:
        """Return whether the subscription holds too many unacknowledged messages; it resumes at half of the limit."""
        context = self.topic.context
        if context.unacked is not None:
            self._over_broker_limit = context.unacked.count(self.pump, self._unacked_counted, self._unacked)
            self._unacked_counted = self._unacked
        limit = self.rules.unacked_per_subscription
        if not limit:
            self._over_limit = False
        elif self._over_limit:
            self._over_limit = self._unacked > limit // 2
        else:
            self._over_limit = self._unacked >= limit
        return self._over_limit or self._over_broker_limit or self._rescheduled_count >= RESCHEDULED_MAX

    @property
    def keeps_new_back(self) -> bool:
        """Return whether its acknowledgements have too many holes for anything new to be delivered.

        Source: Pulsar's PersistentDispatcherMultipleConsumers.shouldPauseOnAckStatePersist."""
        return self.rules.pause_on_ack_state and not self.cursor.is_storable

    def _refresh_slots(self) -> None:
        """Pause consumers that hold too much or have a full connection."""
        limit = self.rules.unacked_per_consumer
        for consumer, pending in self._pending.items():
            if limit > 0:
                consumer.blocked = pending.messages > limit // 2 if consumer.blocked else pending.messages >= limit
            else:
                consumer.blocked = False
            self._policy.pause(consumer, consumer.blocked or not consumer.writable)

    def stop(self) -> None:
        super().stop()
        if (unacked := self.topic.context.unacked) is not None:
            unacked.count(self.pump, self._unacked_counted, 0)
            self._unacked_counted = 0

    # Filters

    def _accepted(self, consumer: Consumer[Subscription], ledger_id: int, given: Assigned) -> Assigned:
        """Return the part of what is to be sent to a consumer that the filters accept. The consumer keeps the permits
        of the rest."""
        results = self._results(consumer, ledger_id, given.entry_ids, given.payloads, given.counts)
        kept: list[int] = []
        rescheduled: list[Position] = []
        permits = 0
        for index, result in enumerate(results):
            if result is FilterResult.ACCEPT:
                kept.append(index)
                continue
            position = Position(ledger_id, given.entry_ids[index])
            key_hash = 0 if given.hashes is None else given.hashes[index]
            permits += given.counts[index]
            if result is FilterResult.REJECT:
                self._replay.discard(position)
                self._released(consumer, (key_hash,))
            else:
                self._replay.discard(position, keep_count=True)
                self._pending[consumer].add(position, given.counts[index], key_hash)
                self._unacked += given.counts[index]
                rescheduled.append(position)
        if rescheduled:
            self._reschedule(consumer, rescheduled)
        if not permits:
            return given
        self._policy.flow(consumer, permits, self.topic.context.options.permits_max)
        return Assigned(
            [given.entry_ids[index] for index in kept],
            [given.payloads[index] for index in kept],
            [given.counts[index] for index in kept],
            None if given.hashes is None else [given.hashes[index] for index in kept],
        )

    def _reschedule(self, consumer: Consumer[Subscription], positions: list[Position]) -> None:
        due = trio.current_time() + self.topic.context.options.filter_reschedule_delay_s
        self._rescheduled_count += len(positions)
        if self._rescheduled is not None:
            self._rescheduled.append((due, consumer, positions))
            return
        waiting = self._rescheduled = deque([(due, consumer, positions)])
        name = f"rescheduled messages of {self.topic.name.full} {self.name}"
        self.topic.nursery.start_soon(self._offer_again, waiting, name=name)

    async def _offer_again(self, waiting: deque[tuple[float, Consumer[Subscription], list[Position]]]) -> None:
        while waiting and not self.stopped:
            due, consumer, positions = waiting[0]
            await trio.sleep_until(due)
            waiting.popleft()
            self._rescheduled_count -= len(positions)
            if not self.stopped:
                self.redeliver(consumer, positions)
                self.pump()
        self._rescheduled = None
