"""Exclusive and Failover subscriptions with consumers that read the compacted view, as far as there is one.

The view has messages whose ledgers were trimmed, at which no cursor can point. So the next place is kept here, beside
the cursor's read position, and so are the start that was asked for and the last place that was acknowledged. After a
restart a durable subscription gets messages from trimmed ledgers once more, if it asks for the earliest ones and has
not acknowledged anything behind them.

Source: Pulsar's CompactedTopicUtils, PersistentDispatcherSingleActiveConsumer (hasValidMarkDeletePosition).
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import trio

from broker.dispatch.consumer import Consumer
from broker.dispatch.entries import key_of
from broker.dispatch.policies.hash_owners import range_hash
from broker.dispatch.ports import Host
from broker.dispatch.single_active import SingleActiveSubscription
from broker.dispatch.stops import PumpStop
from broker.dispatch.subscription import READ_BACKOFF_MAX_S, READ_BACKOFF_MIN_S, RUN_COST, Subscription
from broker.dispatch.wanted import wanted_messages
from broker.positions import position_of
from broker.topics.compaction.view import CompactedLedgerLostError, CompactedView, Entries
from cursors.cursor import Cursor
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import batch_counts
from quire.world.backoff import Backoff


class CompactedSubscription(SingleActiveSubscription):
    """Subscription of consumers with read_compacted; others of it read the log."""

    serves_compacted = True

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, subscribe: pb.CommandSubscribe) -> None:
        super().__init__(topic, name, cursor, subscribe.subType, subscribe.durable)
        self._asked = _asked_start(subscribe, cursor)
        """Start that was asked for, which the log may not have; None: what follows the mark-delete position."""
        self._asked_at = cursor.mark_delete
        """The start counts until an acknowledgement moves the cursor from here."""
        self._acked = EARLIEST
        """The last place of a cumulative acknowledgement."""
        self._next = self._start()
        """The next place to deliver, in the view or in the log."""

    def _start(self) -> Position:
        """Return the first place that is not acknowledged."""
        mark_delete = self.cursor.mark_delete
        start = _after(mark_delete) if self._is_moved() or self._asked is None else self._asked
        if self._acked == EARLIEST:
            return start
        # A cursor before the first entry of the log may have been moved there by trimming.
        return _after(self._acked) if mark_delete.entry_id < 0 else max(start, _after(self._acked))

    def _is_moved(self) -> bool:
        """Return whether the cursor has moved since the start, other than by trimming."""
        mark_delete = self.cursor.mark_delete
        return mark_delete != self._asked_at and mark_delete.entry_id >= 0

    # Moves

    def ack_cumulative(self, position: Position, ack_set: tuple[int, ...]) -> None:
        if not ack_set:
            self._acked = max(self._acked, position)
        super().ack_cumulative(position, ack_set)

    def _forget_deliveries(self) -> None:
        self._next = self._start()

    async def seek(self, target: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Make `target` the next entry; see `Subscription.seek`."""
        before = self._asked, self._acked
        self._asked = None if target >= LATEST or ack_set else max(target, EARLIEST)
        self._acked = EARLIEST
        try:
            await super().seek(target, ack_set)
        except BaseException:
            self._asked, self._acked = before
            raise
        finally:
            self._asked_at = self.cursor.mark_delete
            self._next = self._start()

    def _advance(self, ledger_id: int, next_entry: int) -> None:
        self._next = Position(ledger_id, next_entry)
        super()._advance(ledger_id, next_entry)

    # Dispatch

    def _pump(self) -> PumpStop:
        consumer = self.active
        view = self._view_for(consumer)
        if consumer is None or view is None:
            return super()._pump()
        self.hungry = False
        if self._reading is not None or self.waiting is not None:
            return self._stop_of_wait()
        permits = self._permits[consumer]
        if permits <= 0 or not consumer.writable:
            return PumpStop.NO_TAKER
        if self._turn.left <= 0:
            self._put_off()
            return PumpStop.PUT_OFF
        count_max = self._read_size.entries(permits, self.topic.context.options.read_batch_entries_max)
        self._reading = trio.CancelScope()
        name = f"read compacted {self.topic.name.full} {self.name}"
        self.topic.nursery.start_soon(self._read_view, self._reading, self._epoch, view, count_max, name=name)
        return PumpStop.READING

    def _view_for(self, consumer: Consumer[Subscription] | None) -> CompactedView | None:
        """Return the view, if the next place is in it."""
        compaction = self.topic.compaction
        view = None if compaction is None else compaction.view
        if consumer is None or not consumer.read_compacted or view is None:
            return None
        if self._is_moved() and self.cursor.mark_delete >= self._next:
            self._next = _after(self.cursor.mark_delete)
        return view if self._next <= view.horizon else None

    async def _read_view(self, scope: trio.CancelScope, epoch: int, view: CompactedView, count_max: int) -> None:
        found: Entries | None = None
        place, context = self._next, self.topic.context
        size_max = context.output.reserve(context.options.read_batch_bytes_max)
        with scope:
            try:
                found = await view.read(place, count_max, size_max)
                self._backoff = None
            except CompactedLedgerLostError:
                if self.topic.compaction is not None:
                    self.topic.compaction.lost(view)  # unless it was replaced meanwhile
            except ManagedLedgerError as error:
                if self.topic.closing:
                    return
                if self._backoff is None:
                    self._backoff = Backoff(READ_BACKOFF_MIN_S, READ_BACKOFF_MAX_S, context.world.rng)
                pause_s = self._backoff.next()
                self.log.warning("compacted read failed, retrying", position=str(place), reason=str(error))
                await trio.sleep(pause_s)
            finally:
                context.output.release(size_max)
        if self._reading is scope:
            self._reading = None
        if epoch == self._epoch and not self.stopped:
            if found is not None and not self.seeking:
                self._view_read(view, found)
            self.pump()

    def _view_read(self, view: CompactedView, found: Entries) -> None:
        if not found:
            self._next = _after(view.horizon)
            following = self.topic.ledger.next_position(view.horizon)
            self.cursor.read_position = max(self.cursor.read_position, following)
        elif self.active is not None:
            self._deliver_places(self.active, found)

    def _deliver_places(self, consumer: Consumer[Subscription], found: Entries) -> None:
        """Send the unacknowledged ones of these entries while there are permits; the next place follows."""
        self._turn.left -= len(found) * self.entry_cost + RUN_COST
        cursor, permits, messages = self.cursor, self._permits[consumer], 0
        chosen: Entries = []
        for (position, payload), count in zip(found, batch_counts([each for _, each in found]), strict=True):
            if permits - messages <= 0:
                break
            self._next = _after(position)
            if not self._is_wanted(position, payload):
                continue
            words = cursor.ack_set(position) if cursor.has_ack_sets else None
            messages += count if words is None else wanted_messages(words)
            chosen.append((position, payload))
        for ledger_id, group in groupby(chosen, lambda each: each[0].ledger_id):
            places = list(group)
            entry_ids = [position.entry_id for position, _ in places]
            payloads = list(map(itemgetter(1), places))
            ack_sets = self._ack_sets(ledger_id, entry_ids)
            consumer.deliver(ledger_id, entry_ids[0], payloads, entry_ids=entry_ids, ack_sets=ack_sets)
        if chosen:
            self._read_size.seen(len(chosen), messages)
        self._permits[consumer] = permits - messages
        consumer.messages_out += messages
        self.messages_out += messages
        self._advance(*self._next)

    def _is_wanted(self, position: Position, payload: memoryview) -> bool:
        cursor = self.cursor
        # What is not above the mark-delete position was trimmed, and asked for.
        if position > cursor.mark_delete and cursor.is_acked(position):
            return False
        return self._ranges is None or self._ranges.owner(range_hash(key_of(payload))) is not None


def _after(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)


def _asked_start(subscribe: pb.CommandSubscribe, cursor: Cursor) -> Position | None:
    """Return the start that SUBSCRIBE names, if the cursor may be unable to say it."""
    start: Position | None = None
    if subscribe.start_message_rollback_duration_sec <= 0 and subscribe.HasField("start_message_id"):
        start = position_of(subscribe.start_message_id)
    elif subscribe.initialPosition == pb.CommandSubscribe.Earliest:
        start = EARLIEST
    if start is None or start >= LATEST:
        return None
    if subscribe.durable and (start > EARLIEST or cursor.mark_delete.entry_id >= 0):
        return None  # its cursor knows better
    return start
