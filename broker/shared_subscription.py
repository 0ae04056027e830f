"""Shared and Key_Shared: many consumers at once; each entry is held by one of them until it is acknowledged.

Entries come from two sources: those that have to be delivered again (or were read and nobody could take), in order,
and then the log from the read position on. Both are offered to the policy as runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.consumer import Consumer
from broker.dispatchers.key_shared import KeyShared
from broker.dispatchers.redelivery import PendingAcks, Redelivery
from broker.dispatchers.shared import Shared
from broker.subscription import Subscription
from cursors.cursor import Cursor
from cursors.errors import InvalidAckError
from managed_ledger.managed_ledger import EntryRun
from quire.ledger.position import Position
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import sticky_key
from quire.world.doors import Buffer

if TYPE_CHECKING:
    from broker.topic import Topic


class ManyConsumers(Subscription):
    """The part that Shared and Key_Shared have in common: replay, pending acks, permits."""

    def __init__(self, topic: Topic, name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._replay = Redelivery()
        self._pending: dict[Consumer, PendingAcks] = {}
        self._unacked = 0
        self._over_limit = False

    # Consumers

    def _dismiss(self, consumer: Consumer) -> None:
        pending = self._pending.pop(consumer)
        self._unacked -= pending.messages
        for position, entry in pending.items():
            self._replay.add(position, entry.key_hash, again=True)
        self._forget_consumer(consumer)

    @abstractmethod
    def _forget_consumer(self, consumer: Consumer) -> None:
        """The policy forgets it."""

    def unacked_of(self, consumer: Consumer) -> int:
        """Messages the consumer holds."""
        return self._pending[consumer].messages

    def announce(self) -> None:
        """Nobody is more active than others."""

    # Acknowledgement

    def ack_individual(
        self, consumer: Consumer, whole: list[Position], parts: list[tuple[Position, tuple[int, ...]]]
    ) -> None:
        try:
            super().ack_individual(consumer, whole, parts)
        except InvalidAckError:
            # Those that are valid took effect: nobody holds them any more.
            for position in whole:
                if self.cursor.is_acked(position):
                    self._release(consumer, position)
            raise
        else:
            for position in whole:
                self._release(consumer, position)
        finally:
            for position, _ in parts:
                if self.cursor.is_acked(position):
                    self._release(consumer, position)

    def _release(self, consumer: Consumer, position: Position) -> None:
        """An entry is acknowledged: whoever held it does no more."""
        entry = self._pending[consumer].pop(position) if consumer in self._pending else None
        holder = consumer
        if entry is None:
            for other, pending in self._pending.items():
                if (entry := pending.pop(position)) is not None:
                    holder = other
                    break
        self._replay.discard(position)
        if entry is not None:
            self._unacked -= entry.messages
            self._released(holder, entry.key_hash)

    def _released(self, consumer: Consumer, key_hash: int) -> None:
        """Key_Shared: one fewer entry of that hash is held."""

    def ack_cumulative(self, position: Position, ack_set: tuple[int, ...]) -> None:
        raise AssertionError("refused before: cumulative acks do not go with shared subscriptions")

    # Redelivery

    def redeliver(self, consumer: Consumer, positions: list[Position]) -> None:
        """What the consumer holds of `positions` (all it holds, if none are named) is delivered again."""
        pending = self._pending.get(consumer)
        if pending is None:
            return
        for position in positions or [position for position, _ in pending.items()]:
            entry = pending.pop(position)
            if entry is not None:
                self._unacked -= entry.messages
                self._replay.add(position, entry.key_hash, again=True)
                self._released(consumer, entry.key_hash)

    def held(self, consumer: Consumer) -> list[Position]:
        pending = self._pending.get(consumer)
        return [] if pending is None else [position for position, _ in pending.items()]

    def _forget_deliveries(self) -> None:
        self._replay.clear()
        for consumer, pending in self._pending.items():
            for _, entry in pending.items():
                self._released(consumer, entry.key_hash)
            pending.clear()
        self._unacked = 0

    # Dispatch

    def _blocked_by_unacked(self) -> bool:
        """The subscription holds too many unacknowledged messages; it goes on at half of the limit."""
        limit = self.topic.broker.options.unacked_messages_per_subscription_max
        if not limit:
            return False
        if self._over_limit:
            self._over_limit = self._unacked > limit // 2
        else:
            self._over_limit = self._unacked >= limit
        return self._over_limit

    def _pump(self) -> None:
        self.hungry = False
        ledger = self.topic.ledger
        options = self.topic.broker.options
        stuck = False
        while self._reading is None:
            self._refresh_slots()
            if not self._has_permits() or self._blocked_by_unacked():
                return
            if not stuck and (ready := self._replay.first_run(options.read_batch_entries_max, self._is_blocked)):
                position, count = ready
                run = ledger.read_cached(position, count, options.read_batch_bytes_max, replay=True)
                if run is None:
                    self._start_read(position, count, replay=True)
                    return
                stuck = not self._offer(run, replay=True)
                continue
            if len(self._replay) >= self._lookahead():
                return
            position = self.cursor.read_position
            run = ledger.read_cached(position, options.read_batch_entries_max, options.read_batch_bytes_max)
            if run is None:
                if position > ledger.last_confirmed:
                    self._caught_up()
                else:
                    self._start_read(position, options.read_batch_entries_max)
                return
            if not self._offer(run, replay=False):
                return

    def _read_done(self, run: EntryRun, replay: bool) -> None:
        self._refresh_slots()
        if not run.payloads:
            return
        if replay:
            # A consumer may have left meanwhile: older entries of a key that now wait have to go first.
            ready = self._replay.first_run(1, self._is_blocked)
            if ready is None or ready[0] != (run.ledger_id, run.first_entry_id):
                return
        self._offer(run, replay=replay)

    def _lookahead(self) -> int:
        """Entries waiting to be delivered again at which nothing new is read."""
        options = self.topic.broker.options
        per_consumer = options.key_shared_lookahead_per_consumer * max(1, len(self.consumers))
        return min(per_consumer, options.key_shared_lookahead_per_subscription)

    def _refresh_slots(self) -> None:
        """Consumers that hold too much, or whose connection is full, get nothing now."""
        limit = self.topic.broker.options.unacked_messages_per_consumer_max
        for consumer, pending in self._pending.items():
            if limit > 0:
                consumer.blocked = pending.messages > limit // 2 if consumer.blocked else pending.messages >= limit
            self._pause(consumer, consumer.blocked or not consumer.writable)

    @abstractmethod
    def _offer(self, run: EntryRun, *, replay: bool) -> bool:
        """Give out what consumers take of `run`; False if that was nothing."""

    def _hand_over(
        self,
        consumer: Consumer,
        ledger_id: int,
        entry_ids: Sequence[int],
        payloads: Sequence[bytes | bytearray | memoryview],
        counts: Sequence[int],
        hashes: Sequence[int] | None,
    ) -> None:
        """Send entries to a consumer, which holds them from now on."""
        pending = self._pending[consumer]
        replay = self._replay
        redelivered: list[int] | None = None
        for index, entry_id in enumerate(entry_ids):
            position = Position(ledger_id, entry_id)
            pending.add(position, counts[index], hashes[index] if hashes is not None else 0)
            if replay.knows:
                again = replay.count(position)
                if again:
                    if redelivered is None:
                        redelivered = [0] * len(entry_ids)
                    redelivered[index] = again
                replay.discard(position, keep_count=True)
        messages = sum(counts)
        self._unacked += messages
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

    @abstractmethod
    def _has_permits(self) -> bool:
        """Whether anybody can be given something."""

    @abstractmethod
    def _pause(self, consumer: Consumer, paused: bool) -> None:
        """Give it nothing until it is no longer paused."""

    def _is_blocked(self, key_hash: int) -> bool:
        """Key_Shared: nothing of this hash may be delivered now."""
        return False


class SharedSubscription(ManyConsumers):
    """Round robin over the consumers of the highest priority that have permits."""

    def __init__(self, topic: Topic, name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._policy: Shared[Consumer] = Shared(topic.broker.options.round_robin_batch_max)

    def _admit(self, consumer: Consumer) -> None:
        self._policy.add(consumer, consumer.priority)
        self._pending[consumer] = PendingAcks()

    def _forget_consumer(self, consumer: Consumer) -> None:
        self._policy.remove(consumer)

    def _has_permits(self) -> bool:
        return self._policy.has_permits

    def _pause(self, consumer: Consumer, paused: bool) -> None:
        self._policy.pause(consumer, paused)

    def flow(self, consumer: Consumer, permits: int) -> None:
        if permits > 0 and consumer in self._pending:
            self._policy.flow(consumer, permits, self.topic.broker.options.permits_max)
            self.pump()

    def permits_of(self, consumer: Consumer) -> int:
        return self._policy.permits(consumer)

    def _offer(self, run: EntryRun, *, replay: bool) -> bool:
        first, ledger_id = run.first_entry_id, run.ledger_id
        last = first + len(run.payloads) - 1
        progress = False
        taken_to = first
        for start, count in self.cursor.unacked_runs(Position(ledger_id, first), len(run.payloads)):
            payloads = run.payloads[start - first : start - first + count]
            counts = self._message_counts(ledger_id, start, payloads)
            taken = 0
            for consumer, begin, end in self._policy.assign(counts):
                ids = range(start + begin, start + end)
                self._hand_over(consumer, ledger_id, ids, payloads[begin:end], counts[begin:end], None)
                taken = end
                progress = True
            taken_to = start + taken
            if taken < len(payloads):
                break
        else:
            taken_to = last + 1
            progress = True
        if replay:
            # What was acknowledged since need not be delivered again.
            self._replay.discard_acked(self.cursor.is_acked, ledger_id, first, taken_to)
        else:
            self._advance(ledger_id, taken_to)
        return progress


class KeySharedSubscription(ManyConsumers):
    """All messages of a key go to one consumer, in order, however consumers come and go."""

    def __init__(self, topic: Topic, name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._policy: KeyShared[Consumer] = KeyShared(topic.broker.options.key_shared_replica_points)

    def _admit(self, consumer: Consumer) -> None:
        self._policy.add(consumer, consumer.name, consumer.key_shared)
        self._pending[consumer] = PendingAcks()

    def _forget_consumer(self, consumer: Consumer) -> None:
        self._policy.remove(consumer)

    def _has_permits(self) -> bool:
        return self._policy.has_permits

    def _pause(self, consumer: Consumer, paused: bool) -> None:
        self._policy.pause(consumer, paused)

    def _released(self, consumer: Consumer, key_hash: int) -> None:
        self._policy.released(consumer, key_hash)

    def _is_blocked(self, key_hash: int) -> bool:
        return self._policy.is_blocked(key_hash)

    def flow(self, consumer: Consumer, permits: int) -> None:
        if permits > 0 and consumer in self._pending:
            self._policy.flow(consumer, permits, self.topic.broker.options.permits_max)
            self.pump()

    def permits_of(self, consumer: Consumer) -> int:
        return self._policy.permits(consumer)

    def _offer(self, run: EntryRun, *, replay: bool) -> bool:
        first, ledger_id = run.first_entry_id, run.ledger_id
        last = first + len(run.payloads) - 1
        progress = False
        for start, count in self.cursor.unacked_runs(Position(ledger_id, first), len(run.payloads)):
            payloads = run.payloads[start - first : start - first + count]
            counts = self._message_counts(ledger_id, start, payloads)
            hashes = [self._policy.hash_of(key_of(payload)) for payload in payloads]
            assigned, blocked = self._policy.assign(hashes, counts, () if replay else self._replay.hashes)
            for consumer, indexes in assigned:
                progress = True
                self._hand_over(
                    consumer,
                    ledger_id,
                    [start + index for index in indexes],
                    [payloads[index] for index in indexes],
                    [counts[index] for index in indexes],
                    [hashes[index] for index in indexes],
                )
            if not replay:
                for index in blocked:
                    self._replay.add(Position(ledger_id, start + index), hashes[index], again=False)
        if replay:
            self._replay.discard_acked(self.cursor.is_acked, ledger_id, first, last + 1)
        else:
            self._advance(ledger_id, last + 1)
            progress = True
        return progress


def key_of(payload: Buffer) -> bytes:
    """What Key_Shared goes by. Entries are stored as clients sent them: one whose metadata makes no sense has no key, and is
    for its consumer to refuse."""
    try:
        return sticky_key(payload)
    except PulsarWireError:
        return b""
