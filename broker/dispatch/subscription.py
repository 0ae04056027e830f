"""One subscription: its cursor, its consumers, and the pump that moves entries from the cursor to the consumers.

The pump is synchronous. It runs in the pass that made something possible (entries confirmed, permits given, acks,
a consumer came or went), reads the tail from the cache, asks the policy for consumers, and queues the frames. Only a
read that has to go to the bookies leaves the pass: one task, one at a time, whose result starts the pump again.
It does no more in one pass than `PASS_WORK`, whatever there are permits for, and goes on in a later step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence

import trio

from broker import replies
from broker.dispatch.consumer import Consumer
from broker.dispatch.counts import UNUSED, used
from broker.dispatch.expiry import Expiry
from broker.dispatch.individual_acks import ack_each
from broker.dispatch.ports import Host
from broker.dispatch.publish_time import first_published_at
from broker.dispatch.stops import PumpStop
from broker.dispatch.wanted import HeldInTransactions, WantedEntries, wanted_messages
from broker.ends import CONSUMER, Do, End, after
from broker.errors import ServiceNotReadyError
from broker.topics.entry_screen import BATCH
from broker.topics.rates.dispatching import DispatchLimit
from cursors.cursor import Cursor
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.managed_ledger import EntryRun
from managed_ledger.writing.state import State
from quire.ledger.position import Position
from quire.service.log import Logger, get_logger
from quire.wire.pulsar.metadata import batch_counts
from quire.world.backoff import Backoff
from quire.world.doors import Buffer

log = get_logger(__name__)

CATCH_UP_ENTRIES = 1000
"""A cursor further behind than this does not keep the tail in the cache (Pulsar:
managedLedgerCursorBackloggedThreshold)."""
READ_BACKOFF_MIN_S = 0.1
READ_BACKOFF_MAX_S = 15.0
RUN_COST = 32
"""Cost of a run of entries in the work of a pass, beside its entries."""


class Subscription(WantedEntries[Consumer["Subscription"]], ABC):
    """Common part of all types: life, seek, reads, the guard around the pump."""

    single_active = False
    serves_compacted = False
    """True if its consumers may read the compacted view."""

    # Set in few subscriptions: the dict of an object takes four times the memory from 31 names on.
    held_in_transactions: HeldInTransactions | None = None
    seeking = False
    stopped = False
    limit: DispatchLimit | None = None
    known_expiry: Expiry | None = None
    stop_reason = PumpStop.NOT_STARTED
    is_put_off = False
    """True if the pump goes on in a later step of the loop."""
    read_since = 0.0
    retry: Backoff | None = None
    """Set while reads at the bookies fail."""

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        self.topic: Host[Subscription] = topic
        self.name = name
        self.cursor = cursor
        self.kind = kind
        self.durable = durable
        self.consumers: dict[Consumer[Subscription], None] = {}
        self.hungry = False
        """True while a consumer has permits and there was nothing to read, so that new entries start the pump."""
        self.messages_out, self.counts = 0, UNUSED
        self._turn = topic.context.turn
        self._pumping = False
        self._again = False
        self._reading: trio.CancelScope | None = None
        self._epoch = 0

    @property
    def log(self) -> Logger:
        """A logger with topic and subscription bound."""
        return log.bind(topic=self.topic.name.full, subscription=self.name)

    @abstractmethod
    def follow_policies(self) -> None:
        """Obey the rules of delivery that hold now, as the policies of the topic say."""

    # Consumers

    def add_consumer(self, consumer: Consumer[Subscription]) -> None:
        """Add a consumer. Raises ConsumerBusyError, ConsumerAssignError, ServiceNotReadyError (a seek is under way)."""
        if self.seeking or self.stopped:
            raise ServiceNotReadyError("Subscription is fenced")
        self.topic.check_consumers(self.name, len(self.consumers))
        first = not self.consumers
        self._admit(consumer)
        self.consumers[consumer] = None
        self.cursor.touch()
        if first:
            self.counts = used(self.counts)
            self.held_to(self.topic.dispatch_limit(self))
            self.rewind()
        self.pump()

    def held_to(self, limit: DispatchLimit | None) -> None:
        """Deliver at these rates from now on; None: as fast as possible."""
        self.limit = limit
        self.pump()

    def remove_consumer(self, consumer: Consumer[Subscription]) -> None:
        """Remove a consumer; what it held is delivered to others."""
        if consumer not in self.consumers:
            return
        del self.consumers[consumer]
        self.topic.context.measures.forget(consumer)
        self.cursor.touch()
        self._dismiss(consumer)
        self.abandoned()
        self.pump()

    def abandoned(self) -> None:
        """Release resources if there is no consumer: nothing is read ahead or kept in the cache then, and a non-durable
        subscription is removed."""
        if not self.consumers:
            self.consumers.clear()  # an emptied dict keeps the memory of its items
            self.hungry = False
            self._drop_read()
            self.cursor.deactivate()
            self.topic.drop_if_unused(self)

    def sole_holder(self) -> Consumer[Subscription] | None:
        """Return the consumer that keeps others out, if any: it is probed before a new one is refused."""
        return None

    @abstractmethod
    def permits_of(self, consumer: Consumer[Subscription]) -> int:
        """Return the messages it may still be sent; below 0 after a batch larger than its permits."""

    def unacked_of(self, consumer: Consumer[Subscription]) -> int:
        """Return the messages it was sent and has not acknowledged, as far as this type counts them."""
        return 0

    def end_consumer(self, consumer: Consumer[Subscription], end: End) -> None:
        """Do what the end of a consumer is, as far as it is not done yet: see `broker.ends`."""
        consumer.life, todo = after(CONSUMER, consumer.life, end)
        if Do.FORGET in todo:
            consumer.connection.consumer_closed(consumer.consumer_id)
        if Do.TELL in todo:
            told = replies.close_consumer(consumer.consumer_id, self.topic.next_owner)
            consumer.connection.write((told,))
        if Do.RELEASE in todo:
            self.remove_consumer(consumer)

    def disconnect_all(self) -> None:
        """Send CLOSE_CONSUMER to all consumers; they subscribe again."""
        consumers = list(self.consumers)
        for consumer in consumers:
            self.end_consumer(consumer, End.CUT)
        for consumer in consumers:
            self.end_consumer(consumer, End.LOST)

    def disconnect(self, consumer: Consumer[Subscription]) -> None:
        """Send CLOSE_CONSUMER to one consumer; what it held is delivered to others."""
        self.end_consumer(consumer, End.CUT)
        self.end_consumer(consumer, End.LOST)

    def stop(self) -> None:
        """Stop dispatching; a read under way is dropped."""
        self.stopped = True
        self.hungry = False
        self._drop_read()

    @abstractmethod
    def announce(self) -> None:
        """Announce the active consumer (Failover). Called after a SUBSCRIBE was answered."""

    # Differences between the types

    @abstractmethod
    def _admit(self, consumer: Consumer[Subscription]) -> None:
        """Add a consumer. Raises ConsumerBusyError, ConsumerAssignError."""

    @abstractmethod
    def _dismiss(self, consumer: Consumer[Subscription]) -> None:
        """Remove a consumer; what it held is delivered to others."""

    @abstractmethod
    def _pump(self) -> PumpStop:
        """Deliver what can be delivered now; return what ended that."""

    @abstractmethod
    def _read_done(self, run: EntryRun, replay: bool) -> None:
        """Accept entries read at the bookies; `replay`: they were delivered before."""

    @abstractmethod
    def flow(self, consumer: Consumer[Subscription], permits: int) -> None:
        """Add so many permits to the consumer."""

    @abstractmethod
    def redeliver(self, consumer: Consumer[Subscription], positions: list[Position]) -> None:
        """Deliver again what the consumer names, or all it holds."""

    def held(self, consumer: Consumer[Subscription]) -> list[Position]:
        """Return what the consumer was sent and has not acknowledged, in order, as far as this type keeps account of
        it."""
        return []

    @abstractmethod
    def _forget_deliveries(self) -> None:
        """Forget all deliveries, because the cursor moved."""

    def release_acked(self) -> Generator[None, None, None]:
        """Release what consumers hold of entries that were acknowledged in their place, a step of the event loop per
        element."""
        yield from ()

    @property
    def expiry(self) -> Expiry:
        """Return the record of expired messages, made when first used."""
        if self.known_expiry is None:
            self.known_expiry = Expiry()
        return self.known_expiry

    # Acknowledgement

    def ack_individual(
        self, consumer: Consumer[Subscription], whole: list[Position], parts: list[tuple[Position, tuple[int, ...]]]
    ) -> None:
        """Acknowledge single positions. Raises InvalidAckError, see `ack_each`."""
        ack_each(self.cursor, whole, parts)

    def ack_cumulative(self, position: Position, ack_set: tuple[int, ...]) -> None:
        """Acknowledge everything up to `position`; with an ack set, everything before it and the cleared indexes of its
        batch."""
        self.cursor.ack_cumulative(position, ack_set)

    # Moving the cursor

    def rewind(self) -> None:
        """Deliver again everything that is not acknowledged."""
        self._drop_read()
        self.cursor.rewind()
        self._forget_deliveries()

    async def seek(self, target: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Make `target` the next entry: consumers are disconnected, the position is durable on return."""
        if self.seeking or self.stopped:
            raise ServiceNotReadyError("Subscription is fenced")
        self.seeking = True
        try:
            self.disconnect_all()
            self._drop_read()
            await self.cursor.seek(target, ack_set)
        except (CursorError, ManagedLedgerError) as error:
            raise ServiceNotReadyError(f"seek of subscription {self.name!r}: {error}") from error
        finally:
            self.seeking = False
            self._forget_deliveries()
            if not self.durable and not self.stopped:
                self.topic.nursery.start_soon(self._drop_later, name=f"reader {self.name}")

    async def _drop_later(self) -> None:
        """Remove the subscription of a reader that a seek disconnected, unless the reader has subscribed again."""
        await trio.sleep(self.topic.context.options.resubscribe_grace_s)
        if not self.stopped:
            self.abandoned()

    async def seek_time(self, publish_time_ms: int) -> None:
        """Seek to the first entry published at or after `publish_time_ms` (milliseconds since 1970); to the end if none
        was."""
        try:
            target = await first_published_at(self.topic.ledger, publish_time_ms)
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"seek of subscription {self.name!r}: {error}") from error
        await self.seek(target)

    # The pump

    def pump(self) -> None:
        """Move what can be moved now. Re-entrant calls are folded into the running one."""
        if self._pumping:
            self._again = True
            return
        self._pumping = True
        try:
            self._again = True
            while self._again and not self.stopped and not self.seeking:
                self._again = False
                self.stop_reason = self._pump()
        finally:
            self._pumping = False
        if self.topic.ledger.state is State.TERMINATED and not self.stopped:
            self._tell_end()

    def _put_off(self) -> None:
        """Enough was done in this pass: the pump goes on in a later step of the loop."""
        if not self.is_put_off:
            self.is_put_off = True
            self._turn.later(self._go_on)

    def _go_on(self) -> None:
        self.is_put_off = False
        self.pump()

    def _tell_end(self) -> None:
        """Notify consumers that the log is terminated, when all of it is acknowledged.

        Source: Pulsar's dispatchers, which do so on an ack and when a read finds nothing."""
        if self.cursor.backlog() == 0:
            for consumer in self.consumers:
                if self.permits_of(consumer) > 0:
                    consumer.tell_end()

    def _caught_up(self) -> None:
        """Wait for new entries after everything confirmed was delivered: they are kept in the cache for this cursor and
        start the pump."""
        self.hungry = True
        self.cursor.activate()

    @property
    def unread(self) -> int:
        """Return the confirmed entries from the read position on."""
        ledger = self.topic.ledger
        count: int = ledger.count_between(ledger.previous_position(self.cursor.read_position), ledger.last_confirmed)
        return count

    @property
    def reading(self) -> bool:
        """Return whether a read at the bookies is under way."""
        return self._reading is not None

    def release_tail(self) -> None:
        """Stop keeping the tail in the cache for a consumer that gives no permits; `_caught_up` starts it again."""
        if self.cursor.active and self.unread > CATCH_UP_ENTRIES:
            self.cursor.deactivate()

    def _advance(self, ledger_id: int, next_entry: int) -> None:
        """Advance the read position: entries of the ledger below `next_entry` were delivered."""
        if next_entry > 0:
            following = self.topic.ledger.next_position(Position(ledger_id, next_entry - 1))
            # Acks or trimming may have advanced the cursor while the entries were read.
            if following > self.cursor.read_position:
                self.cursor.read_position = following

    def _ack_sets(self, ledger_id: int, entry_ids: Sequence[int]) -> list[list[int] | None] | None:
        """Return per entry the messages still wanted of a partly acknowledged batch; None where that applies to no
        entry."""
        if not self.cursor.has_ack_sets and self.held_in_transactions is None:
            return None
        return [self._wanted_words(Position(ledger_id, entry_id)) for entry_id in entry_ids]

    def _message_counts(self, ledger_id: int, first_entry_id: int, payloads: Sequence[Buffer]) -> list[int]:
        """Return the messages of each entry that are still wanted: its cost in permits."""
        if self.topic.screen.has_only(~BATCH, ledger_id, first_entry_id):
            counts = [1] * len(payloads)
        else:
            counts = batch_counts(payloads)
        if self.cursor.has_ack_sets or self.held_in_transactions is not None:
            for index in range(len(counts)):
                words = self._wanted_words(Position(ledger_id, first_entry_id + index))
                if words is not None:
                    counts[index] = wanted_messages(words)
        return counts

    def _screened(self, run: EntryRun) -> EntryRun:
        """Return `run` without undeliverable entries, which are acknowledged. They count against the work of this
        pass."""
        self._turn.left -= len(run.payloads) * self.cost_now + RUN_COST
        screen = self.topic.screen
        if (run.ledger_id, run.first_entry_id) > screen.known_after:  # as `knows`
            return run
        screened = screen.screen(run)
        if screened is None:
            return run
        if screened.passed_over:
            self.cursor.ack_individual(screened.passed_over)
        return screened.run

    @property
    def delayed(self) -> int:
        """Return the number of entries that wait for their delivery time."""
        return 0

    @property
    def delayed_index_bytes(self) -> int:
        """Return the memory of the index of delayed entries, about."""
        return 0

    @property
    def backlog(self) -> int:
        """Return the number of unacknowledged entries."""
        return self.cursor.backlog()

    def _start_read(self, position: Position, count_max: int, *, replay: bool = False) -> None:
        """Read from the bookies in a task; one at a time."""
        assert self._reading is None
        if self.cursor.active and self.cursor.backlog() > CATCH_UP_ENTRIES:
            self.cursor.deactivate()
        self._reading = trio.CancelScope()
        count_max = self._read_at_once(count_max)
        self.read_since = trio.current_time()
        name = f"read {self.topic.name.full} {self.name}"
        self.topic.nursery.start_soon(self._read, self._reading, self._epoch, position, count_max, replay, name=name)

    async def _read(
        self, scope: trio.CancelScope, epoch: int, position: Position, count_max: int, replay: bool
    ) -> None:
        run: EntryRun | None = None
        output = self.topic.context.output
        size_max = output.reserve(self.topic.context.options.read_batch_bytes_max)
        with scope:
            try:
                run = await self.topic.ledger.read(position, count_max, size_max, replay=replay)
                self.retry = None
            except ManagedLedgerError as error:
                if self.topic.closing:
                    return
                if self.retry is None:
                    self.retry = Backoff(READ_BACKOFF_MIN_S, READ_BACKOFF_MAX_S, self.topic.context.world.rng)
                pause_s = self.retry.next()
                self.log.warning(
                    "read failed, retrying",
                    position=str(position),
                    retry_in_s=round(pause_s, 3),
                    reason=str(error),
                )
                await trio.sleep(pause_s)
            finally:
                output.release(size_max)
        if self._reading is scope:
            self._reading = None
        if epoch == self._epoch and not self.stopped:
            if run is not None and not self.seeking:
                self._read_done(run, replay)
            self.pump()

    def _drop_read(self) -> None:
        self._epoch += 1
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
