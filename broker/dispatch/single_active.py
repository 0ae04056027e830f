"""Exclusive and Failover: one consumer at a time gets everything, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import trio

from broker import replies
from broker.dispatch.consumer import Consumer
from broker.dispatch.entries import key_of
from broker.dispatch.filtering import FilteringSubscription
from broker.dispatch.policies.failover import FailoverChoice
from broker.dispatch.policies.hash_owners import Ranges, range_hash
from broker.dispatch.policies.read_size import ReadSize
from broker.dispatch.ports import Host
from broker.dispatch.stops import PumpStop
from broker.dispatch.subscription import Subscription
from broker.ends import Life
from broker.entry_filters.entry_filter import FilterResult
from broker.errors import ConsumerAssignError, ConsumerBusyError
from cursors.cursor import Cursor
from managed_ledger.managed_ledger import EntryRun
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb

ACCEPTED_RUN_MAX = 16
"""Entries that filters are asked about before those are delivered."""


class SingleActiveSubscription(FilteringSubscription):
    """Subscription with one active consumer. It needs no policy: entries go to the active consumer while it has
    permits."""

    single_active = True
    waiting: trio.CancelScope | None = None
    """Set while a new active consumer waits for acks of the one before, or for a filter."""
    _held_back = 0
    """While it waits for a filter: the entry that is offered to it again."""
    _is_for_filter = False
    """True if the wait is for a filter."""
    _ranges: Ranges[Consumer[Subscription]] | None = None
    """Exclusive: the key hashes that the consumer asked for; None: all. Entries of other keys are passed over and not
    acknowledged."""

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self.active: Consumer[Subscription] | None = None
        self._permits: dict[Consumer[Subscription], int] = {}
        self._read_size = ReadSize()
        self._failover = kind == pb.CommandSubscribe.Failover
        hashing = topic.context.options.failover_consistent_hashing
        self._choice = FailoverChoice(topic.name.full, topic.name.partition, consistent_hashing=hashing)

    # Consumers

    def _admit(self, consumer: Consumer[Subscription]) -> None:
        if not self._failover and self.consumers:
            raise ConsumerBusyError(f"exclusive consumer of {self.name!r} is already connected")
        if not self._failover:
            self._ranges = _ranges_of(consumer)
            self.active = consumer
        self._permits[consumer] = 0

    def _dismiss(self, consumer: Consumer[Subscription]) -> None:
        del self._permits[consumer]
        if self._failover:
            self._elect()
        elif consumer is self.active:
            self.active = None
            self._drop_read()

    def stop(self) -> None:
        super().stop()
        self._wait_no_longer()

    def _wait_no_longer(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    def sole_holder(self) -> Consumer[Subscription] | None:
        return None if self._failover else next(iter(self.consumers), None)

    def announce(self) -> None:
        """Notify Failover consumers: all of them of a change, a new one of its state."""
        if not self._failover:
            return
        before = self.active
        self._elect()
        if self.active is before and self.consumers:
            newcomer = next(reversed(self.consumers))
            self._tell(newcomer)

    def _elect(self) -> None:
        chosen = self._choice.choose([(each.priority, each.name, each) for each in self.consumers])
        if chosen is self.active:
            return
        had_one = self.active is not None
        self.active = chosen
        self.rewind()
        self._wait_no_longer()
        for consumer in self.consumers:
            self._tell(consumer)
        if had_one and chosen is not None and not self.stopped:
            # The previous consumer may have acks on their way, so dispatch begins a moment later.
            self.waiting = trio.CancelScope()
            self._is_for_filter = False
            delay_s = self.topic.context.options.failover_delay_s
            self.topic.nursery.start_soon(self._begin_later, self.waiting, delay_s, name=f"failover {self.name}")

    def _tell(self, consumer: Consumer[Subscription]) -> None:
        if consumer.life is not Life.OPEN:
            return
        consumer.connection.write((replies.active_consumer_change(consumer.consumer_id, consumer is self.active),))

    async def _begin_later(self, scope: trio.CancelScope, delay_s: float) -> None:
        with scope:
            await trio.sleep(delay_s)
        if self.waiting is scope:
            self.waiting = None
            self.rewind()
            self.pump()

    # Dispatch

    def flow(self, consumer: Consumer[Subscription], permits: int) -> None:
        if permits > 0 and consumer in self._permits:
            most = self.topic.context.options.permits_max
            self._permits[consumer] = min(self._permits[consumer] + permits, most)
            self.pump()

    def permits_of(self, consumer: Consumer[Subscription]) -> int:
        return self._permits.get(consumer, 0)

    def redeliver(self, consumer: Consumer[Subscription], positions: list[Position]) -> None:
        """Deliver again everything unacknowledged, in order; ids do not matter for this type."""
        if consumer is self.active:
            self.rewind()

    def deliver_again(self, positions: Sequence[Position]) -> None:
        """Deliver in order everything that is not acknowledged, if any of `positions` was passed."""
        if any(position < self.cursor.read_position for position in positions):
            self.rewind()
        self.pump()

    def release_committed(self, positions: Sequence[Position]) -> None:
        """Do nothing: this type does not count what a consumer holds."""

    def _forget_deliveries(self) -> None:
        """Do nothing: no state is kept per delivery beyond the mark-delete position and the ack ranges."""

    def _pump(self) -> PumpStop:
        self.hungry = False
        consumer = self.active
        ledger = self.topic.ledger
        options = self.topic.context.options
        turn = self._turn
        while consumer is not None and self._reading is None and self.waiting is None:
            permits = self._permits[consumer]
            if permits <= 0 or not consumer.writable:
                return PumpStop.NO_TAKER
            if self.limit is not None:
                permits = min(permits, self.limit.allowed(self.cursor))
                if permits <= 0:
                    return PumpStop.RATE
            if turn.left <= 0:
                self._put_off()
                return PumpStop.PUT_OFF
            position = self.cursor.read_position
            bound = self.topic.read_bound
            if bound is not None and position > bound:
                self._caught_up()
                return PumpStop.TRANSACTION
            count_max = self._read_size.entries(permits, options.read_batch_entries_max)
            run = ledger.read_cached(
                position, min(count_max, max(1, turn.left // self.cost_now)), options.read_batch_bytes_max
            )
            if run is None:
                if position > ledger.last_confirmed:
                    self._caught_up()
                    return PumpStop.CAUGHT_UP
                self._start_read(position, count_max)
                return PumpStop.READING
            self._deliver(consumer, run)
        if consumer is None:
            return PumpStop.NO_CONSUMER
        return self._stop_of_wait()

    def _stop_of_wait(self) -> PumpStop:
        if self.waiting is None:
            return PumpStop.READING
        return PumpStop.FILTER if self._is_for_filter else PumpStop.FAILOVER_DELAY

    @property
    def waits_for_filter(self) -> bool:
        """Return whether nothing is delivered because a filter has rescheduled the next entry."""
        return self.waiting is not None and self._is_for_filter

    @property
    def passes_over(self) -> bool:
        """Return whether entries of keys outside the consumer's ranges are passed over, and not acknowledged."""
        return self._ranges is not None

    def _read_done(self, run: EntryRun, replay: bool) -> None:
        if self.active is not None and run.payloads:
            self._deliver(self.active, run)

    def _deliver(self, consumer: Consumer[Subscription], run: EntryRun) -> None:
        """Send the unacknowledged entries of `run` while there are permits; the read position follows."""
        run = self._screened(run)
        first, ledger_id = run.first_entry_id, run.ledger_id
        permits = self._permits[consumer]
        next_entry = first + len(run.payloads)
        wanted = self.cursor.unacked_runs(Position(ledger_id, first), len(run.payloads))
        if self.held_in_transactions is not None:
            wanted = self._not_held(ledger_id, wanted)
        runs: Iterable[tuple[int, int]] = wanted
        if self._ranges is not None:
            runs = list(self._of_its_keys(self._ranges, run, runs))
        if self.rules.filters:
            runs = self._accepted(consumer, run, runs)
        for start, count in runs:
            if permits <= 0:
                next_entry = start
                break
            payloads = run.payloads[start - first : start - first + count]
            counts = self._message_counts(ledger_id, start, payloads)
            messages = sum(counts)
            self._read_size.seen(count, messages)
            taken = 0
            before = permits
            if messages <= permits:
                taken = count
                permits -= messages
            else:
                while permits > 0:
                    permits -= counts[taken]
                    taken += 1
            if taken < count:
                payloads = payloads[:taken]
            consumer.deliver(
                ledger_id, start, payloads, ack_sets=self._ack_sets(ledger_id, range(start, start + taken))
            )
            if self.limit is not None:
                self.limit.spent(before - permits, payloads)
            if taken < count:
                next_entry = start + taken
                break
        if self.waiting is not None:
            next_entry = min(next_entry, self._held_back)
        sent = self._permits[consumer] - permits
        self._permits[consumer] = permits
        consumer.messages_out += sent
        self.messages_out += sent
        self._advance(ledger_id, next_entry)

    def _accepted(
        self, consumer: Consumer[Subscription], run: EntryRun, runs: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """Return the parts of `runs` that the filters accept, as (first entry, count). Entries are asked about when
        their part is taken. An entry that is rescheduled ends it: none behind it may be delivered before it."""
        for start, count in runs:
            at = start
            for entry_id in range(start, start + count):
                payloads = run.payloads[entry_id - run.first_entry_id : entry_id - run.first_entry_id + 1]
                counts = self._message_counts(run.ledger_id, entry_id, payloads)
                [result] = self._results(consumer, run.ledger_id, [entry_id], payloads, counts)
                if result is FilterResult.ACCEPT and entry_id - at < ACCEPTED_RUN_MAX - 1:
                    continue
                stop = entry_id + (result is FilterResult.ACCEPT)
                if stop > at:
                    yield at, stop - at
                if result is FilterResult.RESCHEDULE:
                    self._hold_back(entry_id)
                    return
                at = entry_id + 1
            if at < start + count:
                yield at, start + count - at

    def _hold_back(self, entry_id: int) -> None:
        self._held_back = entry_id
        self._is_for_filter = True
        self.waiting = trio.CancelScope()
        delay_s = self.topic.context.options.filter_reschedule_delay_s
        self.topic.nursery.start_soon(self._go_on_later, self.waiting, delay_s, name=f"rescheduled {self.name}")

    async def _go_on_later(self, scope: trio.CancelScope, delay_s: float) -> None:
        with scope:
            await trio.sleep(delay_s)
        if self.waiting is scope:
            self.waiting = None
            self.pump()

    def _of_its_keys(
        self, ranges: Ranges[Consumer[Subscription]], run: EntryRun, runs: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """Return the parts of `runs` in `run` that have a key in `ranges`, as (first entry, count)."""
        for start, count in runs:
            wanted = [
                ranges.owner(range_hash(key_of(payload))) is not None
                for payload in run.payloads[start - run.first_entry_id : start - run.first_entry_id + count]
            ]
            at = start
            for is_wanted, group in groupby(wanted):
                size = len(list(group))
                if is_wanted:
                    yield at, size
                at += size


def _ranges_of(consumer: Consumer[Subscription]) -> Ranges[Consumer[Subscription]] | None:
    """Return the hash ranges of a Key_Shared consumer. Raises ConsumerAssignError.

    Source: Pulsar's AbstractDispatcherSingleActiveConsumer."""
    meta = consumer.key_shared
    if meta is None or meta.keySharedMode != pb.STICKY or not meta.hashRanges:
        return None
    ranges: Ranges[Consumer[Subscription]] = Ranges()
    try:
        ranges.add(consumer, [(each.start, each.end) for each in meta.hashRanges])
    except ValueError as error:
        raise ConsumerAssignError(str(error)) from None
    return ranges
