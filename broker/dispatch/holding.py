"""Shared and Key_Shared: what consumers hold, from the delivery of an entry to its acknowledgement.

Both go by runs: in between, an entry is a number in the dict of its holder.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from operator import itemgetter

from broker.dispatch.consumer import Consumer
from broker.dispatch.limited import Assigned, LimitedSubscription
from broker.dispatch.policies.redelivery import NOTHING_WAITS, PendingAcks, Redelivery
from broker.dispatch.ports import Host
from broker.dispatch.subscription import Subscription
from broker.dispatch.wanted import wanted_messages
from cursors.cursor import Cursor
from quire.ledger.position import Position
from quire.service.shared_maps import with_item
from quire.world.doors import Buffer


class HoldingSubscription(LimitedSubscription):
    """Part of Shared and Key_Shared."""

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._replay = NOTHING_WAITS
        """Its own one from the first entry on that waits, until the last consumer leaves and nothing waits."""
        self._left_behind: tuple[tuple[PendingAcks, Iterator[Position]], ...] = ()
        """Entries of removed consumers, and the next of them to be delivered again. The pump takes them back before it
        dispatches anything."""

    def _made_replay(self) -> Redelivery:
        """Return the entries that wait, to which some can be added."""
        if self._replay is NOTHING_WAITS:
            self._replay = Redelivery(self._group_of, self.cursor.redeliveries)
        return self._replay

    def _hold(self, consumer: Consumer[Subscription]) -> None:
        """Expect entries to be held by a new consumer."""
        if self.cursor.has_redeliveries:
            self._made_replay()
        self._pending = with_item(self._pending, consumer, PendingAcks())

    def _rest(self) -> None:
        """Give back memory that only consumers need, after the last one."""
        if not len(self._replay):
            self._replay = NOTHING_WAITS
            self.cursor.drop_no_redeliveries()

    def _group_of(self, key_hash: int) -> Hashable:
        return self._policy.group_of(key_hash)

    # Delivery

    def _hand_over(
        self,
        consumer: Consumer[Subscription],
        ledger_id: int,
        entry_ids: Sequence[int],
        payloads: Sequence[Buffer],
        counts: Sequence[int],
        hashes: Sequence[int] | None,
    ) -> None:
        """Send entries to a consumer, which holds them from then on."""
        if self.rules.filters:
            given = self._accepted(consumer, ledger_id, Assigned(entry_ids, payloads, counts, hashes))
            if not given.entry_ids:
                return
            entry_ids, payloads, counts, hashes = given
        messages = sum(counts)
        self._pending[consumer].add_run(ledger_id, entry_ids, messages, counts, hashes)
        redelivered = self._not_waiting(consumer, ledger_id, entry_ids, counts) if self._replay.knows else None
        self._unacked += messages
        if self.limit is not None:
            self.limit.spent(messages, payloads)
        consumer.messages_out += messages
        self.messages_out += messages
        first = entry_ids[0]
        contiguous = entry_ids[-1] - first + 1 == len(entry_ids)
        consumer.deliver(
            ledger_id,
            first,
            payloads,
            entry_ids=None if contiguous else entry_ids,
            redelivery_counts=redelivered,
            ack_sets=self._ack_sets(ledger_id, entry_ids),
        )

    def _not_waiting(
        self, consumer: Consumer[Subscription], ledger_id: int, entry_ids: Sequence[int], counts: Sequence[int]
    ) -> list[int] | None:
        """Let entries that are delivered now wait no longer. Return how often each was delivered before; None: none
        was."""
        replay = self._replay
        redelivered: list[int] | None = None
        for index, entry_id in enumerate(entry_ids):
            position = Position(ledger_id, entry_id)
            if again := replay.count(position):
                if redelivered is None:
                    redelivered = [0] * len(entry_ids)
                redelivered[index] = again
                consumer.redelivered += counts[index]
                self.counts.redelivered += counts[index]
            replay.discard(position, keep_count=True)
        return redelivered

    def _hand_over_each(
        self,
        assigned: Iterable[tuple[Consumer[Subscription], list[int]]],
        ledger_id: int,
        start: int,
        payloads: Sequence[Buffer],
        counts: Sequence[int],
        hashes: Sequence[int],
    ) -> None:
        """Send to each consumer the entries of its indexes in `payloads`."""
        for consumer, indexes in assigned:
            ids = [start + index for index in indexes]
            if len(indexes) == 1:
                at = indexes[0]
                self._hand_over(consumer, ledger_id, ids, payloads[at : at + 1], [counts[at]], [hashes[at]])
            else:
                taken = itemgetter(*indexes)
                self._hand_over(consumer, ledger_id, ids, taken(payloads), taken(counts), taken(hashes))

    # Acknowledgement

    def _release_all(self, consumer: Consumer[Subscription], positions: Sequence[Position]) -> None:
        """Remove acknowledged entries from their holders, mostly this consumer."""
        pending = self._pending.get(consumer)
        if pending is None:
            others: Sequence[Position] = positions
        else:
            hashes, messages, others = pending.pop_all(positions)
            if self._replay.knows:
                for position in positions:
                    self._replay.discard(position)
            self._unacked -= messages
            self._released(consumer, hashes)
        for position in others:
            self._release(consumer, position)

    def _release(self, consumer: Consumer[Subscription], position: Position) -> None:
        """Remove an acknowledged entry from its holder."""
        entry = self._pending[consumer].pop(position) if consumer in self._pending else None
        holder = consumer
        if entry is None:
            for other, pending in self._pending.items():
                if (entry := pending.pop(position)) is not None:
                    holder = other
                    break
            else:
                for gone, _ in self._left_behind:
                    if gone.pop(position) is not None:
                        break
        self._replay.discard(position)
        if entry is not None:
            self._unacked -= entry.messages
            self._released(holder, (entry.key_hash,))

    def _release_part(self, consumer: Consumer[Subscription], position: Position) -> None:
        """Reduce the messages its holder is charged for after a partial acknowledgement of a batch."""
        words = self.cursor.ack_set(position)
        if words is None:
            return
        wanted = wanted_messages(words)
        for holder in (consumer, *self._pending):
            pending = self._pending.get(holder)
            fewer = None if pending is None else pending.reduce(position, wanted)
            if fewer is not None:
                self._unacked -= fewer
                return

    def _released(self, consumer: Consumer[Subscription], hashes: Iterable[int]) -> None:
        """Key_Shared: note that one entry fewer of each of these hashes is held."""
