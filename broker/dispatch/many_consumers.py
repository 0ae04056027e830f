"""Common part of Shared and Key_Shared: many consumers at once. Each entry is held by one of them until it is
acknowledged.

Entries come from two sources: those that have to be delivered again (or were read and no consumer could take), in
order, and then the log from the read position on. Both are offered to the policy as runs. An entry with a delivery time
is put aside when it is read (`delayed.delays`), and joins those to be delivered again when it is due.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from itertools import islice

from broker.dispatch.consumer import Consumer
from broker.dispatch.delayed.delays import Delays
from broker.dispatch.delaying import DELAYED_COST
from broker.dispatch.holding import HoldingSubscription
from broker.dispatch.policies.read_size import ReadSize
from broker.dispatch.policies.refusal import Refusal
from broker.dispatch.ports import Host
from broker.dispatch.stops import PumpStop
from broker.dispatch.subscription import Subscription
from broker.topics.entry_screen import DELAYED
from cursors.batch_acks import ACK_SET_WORDS_MAX, to_bits
from cursors.cursor import Cursor
from cursors.errors import InvalidAckError
from managed_ledger.managed_ledger import EntryRun
from quire.ledger.position import Position
from quire.service.shared_maps import without_item

RELEASED_IN_STEP = 1000
"""Entries held by consumers that are looked at before other tasks run, when a cursor was moved past some."""


class ManyConsumers(HoldingSubscription):
    """Common part of Shared and Key_Shared: replay, pending acks, permits."""

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._read_size = ReadSize()
        self._ahead = 1
        """Ratio of entries read to permits: above 1 while few of the entries can be delivered."""

    # Consumers

    def _dismiss(self, consumer: Consumer[Subscription]) -> None:
        pending = self._pending[consumer]
        self._pending = without_item(self._pending, consumer)
        self._unacked -= pending.messages
        if not self.consumers:
            self._left_behind = ()  # the next consumer begins with a rewind
        elif len(pending):
            self._left_behind += ((pending, iter(pending.positions())),)
        self._forget_consumer(consumer)
        if not self.consumers:
            self._rest()

    def _is_settled(self) -> bool:
        """Return whether all entries of removed consumers wait to be delivered again, in the groups of the current
        consumers.

        Continues with it as far as this pass allows. Until then nothing is dispatched, because new entries could
        overtake old ones."""
        if not self._is_restored():
            return False
        if not self._left_behind and self._replay.is_settled:
            return True
        turn = self._turn
        most = turn.left // self.entry_cost
        while self._left_behind and most > 0:
            pending, positions = self._left_behind[0]
            for position in islice(positions, most):
                most -= 1
                entry = pending.pop(position)
                if entry is not None:  # not acknowledged meanwhile
                    self._made_replay().add(position, entry.key_hash, again=True)
            self.cursor.redelivered()
            if most:
                self._left_behind = self._left_behind[1:]
        if not self._left_behind and most > 0:
            most -= self._replay.settle(most)
        turn.left = most * self.entry_cost
        if not self._left_behind and self._replay.is_settled:
            return True
        self._put_off()
        return False

    @abstractmethod
    def _forget_consumer(self, consumer: Consumer[Subscription]) -> None:
        """Remove the consumer from the policy."""

    def unacked_of(self, consumer: Consumer[Subscription]) -> int:
        """Return the messages the consumer holds."""
        return self._pending[consumer].messages

    def announce(self) -> None:
        """Do nothing: no consumer is more active than others."""

    # Acknowledgement

    def ack_individual(
        self, consumer: Consumer[Subscription], whole: list[Position], parts: list[tuple[Position, tuple[int, ...]]]
    ) -> None:
        fitting = [part for part in parts if not self._is_longer_than_batch(consumer, *part)] if parts else parts
        try:
            super().ack_individual(consumer, whole, fitting)
        except InvalidAckError:
            # The valid positions took effect, so no consumer holds them any more.
            for position in whole:
                if self.cursor.is_acked(position):
                    self._release(consumer, position)
            raise
        else:
            self._release_all(consumer, whole)
            if len(fitting) < len(parts):
                too_long = [part[0] for part in parts if part not in fitting]
                raise InvalidAckError(too_long, "the ack_set asks for messages behind the end of the batch")
        finally:
            for position, _ in fitting:
                if self.cursor.is_acked(position):
                    self._release(consumer, position)
                else:
                    self._release_part(consumer, position)

    def _is_longer_than_batch(
        self, consumer: Consumer[Subscription], position: Position, words: tuple[int, ...]
    ) -> bool:
        """Return whether a bitmap asks for messages behind the end of the batch, as far as its size is known.

        For a partly acknowledged batch the size is unknown, and nothing can be added."""
        for holder in (consumer, *self._pending):
            pending = self._pending.get(holder)
            size = None if pending is None else pending.messages_of(position)
            if size is not None:
                # the cursor refuses a bitmap that adds messages
                if 64 * len(words) <= size or len(words) > ACK_SET_WORDS_MAX:
                    return False
                return to_bits(words).bit_length() > size and self.cursor.ack_set(position) is None
        return False

    def release_acked(self) -> Generator[None, None, None]:
        yield from super().release_acked()
        is_acked = self.cursor.is_acked
        for consumer, pending in list(self._pending.items()):
            for count, position in enumerate(pending.positions(), 1):
                if is_acked(position):
                    self._release(consumer, position)
                if not count % RELEASED_IN_STEP:
                    yield
        for count, position in enumerate(self._replay.positions(), 1):
            if is_acked(position):
                self._replay.discard(position)
            if not count % RELEASED_IN_STEP:
                yield

    def ack_cumulative(self, position: Position, ack_set: tuple[int, ...]) -> None:
        raise AssertionError("refused before: cumulative acks do not go with shared subscriptions")

    # Redelivery

    def redeliver(self, consumer: Consumer[Subscription], positions: list[Position]) -> None:
        """Deliver again what the consumer holds of `positions` (all it holds, if none are named)."""
        pending = self._pending.get(consumer)
        if pending is None:
            return
        for position in positions or pending.positions():
            entry = pending.pop(position)
            if entry is not None:
                self._unacked -= entry.messages
                self._made_replay().add(position, entry.key_hash, again=True)
                self._released(consumer, (entry.key_hash,))
        self.cursor.redelivered()

    def held(self, consumer: Consumer[Subscription]) -> list[Position]:
        pending = self._pending.get(consumer)
        return [] if pending is None else pending.positions()

    def _forget_deliveries(self) -> None:
        self._replay.clear()
        self._left_behind = ()
        for consumer, pending in self._pending.items():
            self._released(consumer, pending.hashes())
            pending.clear()
        self._unacked = 0
        self._ahead = 1

    # Dispatch

    def _take_due(self, delays: Delays) -> None:
        """Let entries that are due wait to be delivered, as far as this pass allows."""
        turn = self._turn
        most = min(self.lookahead() - len(self._replay), max(1, turn.left // self.entry_cost))
        if most > 0:
            due = delays.release(most)
            turn.left -= len(due) * self.entry_cost
            for _, ledger_id, entry_id, key_hash in due:
                position = Position(ledger_id, entry_id)
                # After a rewind, those that are read anyway are left to that.
                if position < self.cursor.read_position:
                    self._made_replay().add(position, key_hash, again=False)

    def _pump(self) -> PumpStop:
        self.hungry = False
        ledger = self.topic.ledger
        options = self.topic.context.options
        stuck = False
        if not self._is_settled():
            return PumpStop.UNSETTLED
        turn = self._turn
        while self._reading is None:
            self._refresh_slots()
            if self._holds_too_much():  # first: it counts what is held
                return PumpStop.UNACKED
            if not self._policy.has_permits:
                return PumpStop.NO_TAKER
            if turn.left <= 0 and not self._reads_next():
                self._put_off()
                return PumpStop.PUT_OFF
            turn.left -= len(self._pending)
            within = max(1, turn.left // self.cost_now)
            permits = self._policy.available
            if self.limit is not None:
                permits = min(permits, self.limit.allowed(self.cursor))
                if permits <= 0:
                    return PumpStop.RATE
            delays = self._delays
            if delays is not None:
                self._take_due(delays)
            if not stuck and (ready := self._replay.first_run(self._entries_for(permits), self._policy.ready_groups())):
                position, count = ready
                if self._is_unwanted(position):
                    # The cursor advanced without acks: waiting entries were trimmed.
                    self._replay.discard_acked(
                        self._unwanted(), position.ledger_id, position.entry_id, position.entry_id + count
                    )
                    continue
                span = min(max(count, permits * self._replay_span()), options.read_batch_entries_max)
                run = ledger.read_cached(position, min(span, within), options.read_batch_bytes_max, replay=True)
                if run is None:
                    reach = self._replay_reach(position, self._entries_for(permits))
                    self._start_read(position, max(count, reach), replay=True)
                    return PumpStop.READING
                stuck = not self._offer(self._screened(run), replay=True)
                continue
            if len(self._replay) >= self.lookahead():
                return PumpStop.WAITING_FULL
            if self.rules.pause_on_ack_state and self.keeps_new_back:
                return PumpStop.ACK_STATE
            if delays is not None and self._passes_delayed(delays):
                continue
            position = self.cursor.read_position
            bound = self.topic.read_bound
            if bound is not None and position > bound:
                self._caught_up()
                return PumpStop.TRANSACTION
            ahead = self._ahead * self._ahead_of_delayed
            count = min(self._entries_for(permits) * ahead, options.read_batch_entries_max)
            if self._ahead_of_delayed > 1:
                within = max(1, turn.left // (self.cost_now + DELAYED_COST))
            run = ledger.read_cached(position, min(count, within), options.read_batch_bytes_max)
            if run is None:
                if position > ledger.last_confirmed:
                    self._caught_up()
                    return PumpStop.CAUGHT_UP
                self._start_read(position, count)
                return PumpStop.READING
            run = self._screened(run)
            if self.topic.screen.features & DELAYED:
                if not self._offer_due(run):
                    return PumpStop.NO_TAKER
            elif not self._offer(run, replay=False):
                return PumpStop.NO_TAKER
        return PumpStop.READING

    def _reads_next(self) -> bool:
        """Return whether the next thing to do is to start a read of new entries at the bookies. That costs a pass
        nothing, and it goes on while the output of the pass is sent."""
        ledger, position = self.topic.ledger, self.cursor.read_position
        if self._delays is not None or position > ledger.last_confirmed or ledger.cache.has(*position):
            return False
        return self._replay.first_run(1, self._policy.ready_groups()) is None

    def _replay_span(self) -> int:
        """Entries looked at in the cache per permit. Entries waiting for other consumers, or held by them, may lie
        between."""
        return 0

    def _replay_reach(self, position: Position, wanted: int) -> int:
        """Return the entries to read at the bookies from a waiting one on, at least 1, if so many can be delivered."""
        return 1

    def _entries_for(self, permits: int) -> int:
        return self._read_size.entries(permits, self.topic.context.options.read_batch_entries_max)

    def _read_done(self, run: EntryRun, replay: bool) -> None:
        self._refresh_slots()
        if not run.payloads:
            return
        if not self._is_settled():
            return  # entries it returned are read again
        if replay:
            # A consumer may have been removed meanwhile. Older entries of a key, which now wait, have to go first.
            ready = self._replay.first_run(1, self._policy.ready_groups())
            if ready is None or ready[0] != (run.ledger_id, run.first_entry_id):
                return
        run = self._screened(run)
        if self.topic.screen.features & DELAYED and not replay:
            self._offer_due(run)
        else:
            self._offer(run, replay=replay)

    @property
    def unacked(self) -> int:
        """Return the messages that all consumers together hold."""
        return self._unacked

    @property
    def settled(self) -> bool:
        """Return whether all entries of removed consumers were put back."""
        return not self._left_behind and self._replay.is_settled

    def oldest_waiting(self) -> tuple[Position, Refusal[Consumer[Subscription]] | None] | None:
        """Return an entry that waits to be delivered again, and what refuses it: the oldest, unless another is free to
        go. For a subscription that is `settled`."""
        if (ready := self._replay.first_run(1, self._policy.ready_groups())) is not None:
            return ready[0], None
        found = self._replay.oldest()
        return None if found is None else (found[0], self._policy.refusal(found[1]))

    @property
    def waiting_again(self) -> int:
        """Return the entries that wait to be delivered again."""
        return len(self._replay)

    def lookahead(self) -> int:
        """Number of entries waiting to be delivered again at which no new ones are read."""
        options = self.topic.context.options
        per_consumer = options.key_shared_lookahead_per_consumer * max(1, len(self.consumers))
        return min(per_consumer, options.key_shared_lookahead_per_subscription)

    def flow(self, consumer: Consumer[Subscription], permits: int) -> None:
        if permits > 0 and consumer in self._pending:
            self._policy.flow(consumer, permits, self.topic.context.options.permits_max)
            self.pump()

    def permits_of(self, consumer: Consumer[Subscription]) -> int:
        return self._policy.permits(consumer)
