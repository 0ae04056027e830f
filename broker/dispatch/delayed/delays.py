"""Delayed messages of one subscription: the trio shell around `index`.

One task per subscription, while it has delayed messages and consumers. It wakes the subscription when messages become
due, at most once per tick, and reads blocks of the log again whose due times are not in memory.

The index is stored with the position of the subscription (`blocks`): after every STORED_AFTER_MIN new messages, or an
eighth of those there are if that is more, and when the topic is closed. After a restart, and for another broker, it is
restored before anything is read, and completed as the subscription reads on from its mark-delete position, which
cannot pass a delayed message. A stored index is a help only: without one, the whole backlog is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import trio

from broker.context import Context
from broker.dispatch.delayed.blocks import BLOCK, ROWS_MAX, VERSION, decode_blocks, encode_blocks, is_readable
from broker.dispatch.delayed.index import STORED_IN_STEP, BlockKey, DelayedIndex, Reading
from broker.dispatch.delayed.near import Delayed
from broker.slices import run_through
from broker.topics.delayed_delivery import DelayedDelivery
from cursors.cursor import Cursor
from managed_ledger.entry_run import EntryRun
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import deliver_at
from quire.wire.pulsar.names import TopicName
from quire.world.backoff import Backoff
from quire.world.doors import Buffer

log = get_logger(__name__)

LEAD_MS = 10_000
"""Time before they are due in which the due times of far messages are read again."""
STORED_AFTER_MIN = 8192
STORED_LAST_MIN = 1000
STORED_LAST_MAX = 4096
"""Blocks, and quarters of due times, that are stored in one step when a topic is closed: 4 ms."""
LEARN_MAX = 256
"""Entries of a block that are read, and learned in one step of the event loop."""
SLEEP_MAX_S = 10.0
"""Longest sleep, after which a change of the wall clock or of a policy is noticed."""
READ_BACKOFF_MIN_S = 0.1
READ_BACKOFF_MAX_S = 15.0
_SOON = 0.001
_NEVER = 1 << 64


class DelayingTopic(Protocol):
    """Topic as used by its delayed messages."""

    context: Context
    name: TopicName
    ledger: ManagedLedger
    nursery: trio.Nursery

    def delayed_delivery(self) -> DelayedDelivery:
        """Return the current rules for delayed messages."""


class Delays:
    """Delayed messages of one subscription."""

    __slots__ = (
        "_changed",
        "_cursor",
        "_hash_of",
        "_home",
        "_index",
        "_marked",
        "_scope",
        "_sleeps_until_ms",
        "_subscription",
        "_unstored",
        "_wake",
    )

    def __init__(
        self,
        home: DelayingTopic,
        subscription: str,
        cursor: Cursor,
        hash_of: Callable[[Buffer], int],
        wake: Callable[[], None],
    ) -> None:
        """Take the parts of a subscription.

        Args:
            hash_of: hash of an entry, under which it waits to be delivered.
            wake: called when messages become due.
        """
        self._home = home
        self._subscription = subscription
        self._cursor = cursor
        self._hash_of = hash_of
        self._wake = wake
        self._index = DelayedIndex()
        self._marked: Position | None = None
        """Mark-delete position up to which the index was cleaned."""
        self._scope: trio.CancelScope | None = None
        """Set while the task runs."""
        self._changed = trio.Event()
        self._sleeps_until_ms = 0
        """Due time that the task sleeps for; 0 while it does not sleep."""
        self._unstored = 0
        """Messages that were added since the index was stored."""

    # Numbers

    @property
    def count(self) -> int:
        """Return the number of entries that are delayed."""
        self._forget_acked()
        return self._index.count

    @property
    def size_bytes(self) -> int:
        """Return the memory of the index, about."""
        return self._index.size_bytes

    @property
    def next_due_ms(self) -> int | None:
        """Return the due time of the first delayed entry; None if there is none."""
        times = (self._index.next_due, self._index.next_far)
        return min((each for each in times if each is not None), default=None)

    # Dispatch

    def find(self, run: EntryRun) -> list[tuple[int, int]]:
        """Return (index, due time) of the entries of `run` that have to wait. Nothing is added to the index."""
        found: list[tuple[int, int]] = []
        cutoff: int | None = None
        for index, payload in enumerate(run.payloads):
            due = due_time(payload)
            if not due:
                continue
            if cutoff is None:
                cutoff = self._home.delayed_delivery().cutoff_ms(self._now())
            if due > cutoff or self._index.holds(run.ledger_id, run.first_entry_id + index):
                found.append((index, due))
        return found

    def add(self, due_ms: int, position: Position, payload: Buffer) -> None:
        """Make an entry wait for its time."""
        if self._cursor.is_acked(position):
            return
        self._index.add(due_ms, *position, self._hash_of(payload))
        self._unstored += 1
        if self._scope is None:
            self.start()
        elif due_ms < self._sleeps_until_ms or self._is_to_be_stored():
            self._changed.set()

    def first_free(self, position: Position) -> int:
        """Return the first entry of the ledger at or after `position` that does not wait."""
        return self._index.first_free(*position)

    def release(self, most: int) -> list[Delayed]:
        """Remove and return at most `most` messages that are due."""
        index = self._index
        before = index.next_due
        if before is None:
            return []
        released = index.release(self._home.delayed_delivery().cutoff_ms(self._now()), most)
        if index.next_due != before:
            self._changed.set()
        return released

    # Storing

    def restoring(self) -> Iterator[None]:
        """Add what was stored, a block per step. Messages that were acknowledged since are left out."""
        stored = self._cursor.delayed_index
        if not is_readable(stored):
            return
        for block in decode_blocks(stored):
            first = Position(block.ledger_id, block.number * BLOCK)
            held = 0
            for start, count in self._cursor.unacked_runs(first, BLOCK):
                held |= (1 << count) - 1 << start - first.entry_id
            if held & block.held:
                self._index.restore(block._replace(held=held & block.held))
            yield

    def _is_to_be_stored(self) -> bool:
        return self._unstored >= max(STORED_AFTER_MIN, self._index.count // 8)

    async def _store(self) -> None:
        """Store the index, in short steps."""
        self._unstored = 0
        blocks = await run_through(self._index.storing(ROWS_MAX))
        parts = [VERSION]
        for at in range(0, len(blocks), STORED_IN_STEP):
            parts.append(encode_blocks(blocks[at : at + STORED_IN_STEP]))
            await trio.lowlevel.checkpoint()
        self._cursor.store_delayed_index(b"".join(parts))

    def store_last(self) -> None:
        """Store the index of a topic that is being closed, unless little of it is new or it is too large for one step;
        then the last one that was stored does."""
        index = self._index
        self._forget_acked()
        if not index.count:
            if self._cursor.delayed_index:
                self._cursor.store_delayed_index(b"")
        elif self._unstored >= STORED_LAST_MIN and index.block_count + index.near_count // 4 <= STORED_LAST_MAX:
            steps = index.storing(ROWS_MAX)
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    self._cursor.store_delayed_index(VERSION + encode_blocks(done.value))
                    break
            self._unstored = 0

    # Life

    def forget_acked(self) -> Iterator[None]:
        """Forget what an operator or an expiry has acknowledged, with its due times, a step of the event loop per
        element."""
        self._forget_acked()
        self._changed.set()
        return self._index.drop_forgotten()

    def clear(self) -> None:
        """Forget everything, because the cursor moved: it is read again."""
        self._index.clear()
        self._changed.set()

    def start(self) -> None:
        """Go on waking the subscription, which has consumers."""
        if self._scope is None and self._index.count:
            self._scope = trio.CancelScope()
            name = f"delayed messages of {self._home.name.full} {self._subscription}"
            self._home.nursery.start_soon(self._run, self._scope, name=name)

    def stop(self) -> None:
        """Stop waking the subscription; what waits stays known."""
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def _run(self, scope: trio.CancelScope) -> None:
        backoff = Backoff(READ_BACKOFF_MIN_S, READ_BACKOFF_MAX_S, self._home.context.world.rng)
        woken_at = float("-inf")
        index = self._index
        with scope:
            while True:
                self._forget_acked()
                if not index.count:
                    break
                if index.skip_forgotten(LEARN_MAX):
                    await trio.lowlevel.checkpoint()
                    continue
                if self._is_to_be_stored():
                    await self._store()
                    continue
                policy = self._home.delayed_delivery()
                now = self._now()
                if (key := index.wanted(policy.cutoff_ms(now) + LEAD_MS)) is not None:
                    await self._read_again(key, backoff)
                    continue
                self._changed = trio.Event()
                next_due = index.next_due
                may_wake_at = woken_at + policy.tick_ms / 1000
                if next_due is not None and (next_due <= now or not policy.active):
                    if trio.current_time() >= may_wake_at:
                        woken_at = trio.current_time()
                        self._wake()
                        next_due = None  # what is still due waits for permits: with them, `release` is called
                    else:
                        next_due = now
                pauses = [SLEEP_MAX_S]
                if next_due is not None:
                    pauses.append(max((next_due - now) / 1000, may_wake_at - trio.current_time(), _SOON))
                if (next_far := index.next_far) is not None and next_far > now + LEAD_MS:
                    pauses.append((next_far - LEAD_MS - now) / 1000)
                self._sleeps_until_ms = _NEVER if next_due is None else next_due
                with trio.move_on_after(min(pauses)):
                    await self._changed.wait()
                self._sleeps_until_ms = 0
        if self._scope is scope:
            self._scope = None

    async def _read_again(self, key: BlockKey, backoff: Backoff) -> None:
        """Learn the due times of a block's far messages."""
        context, ledger = self._home.context, self._home.ledger
        reading = self._index.begin(key)
        try:
            while (span := reading.next_run()) is not None:
                first, count = span[0], min(span[1], LEARN_MAX)
                size_max = context.output.reserve(context.options.read_batch_bytes_max)
                try:
                    run = await ledger.read(Position(key[0], first), count, size_max, replay=True)
                finally:
                    context.output.release(size_max)
                self._learn(reading, first, count, run)
            backoff.reset()
        except ManagedLedgerError as error:
            pause_s = backoff.next()
            log.warning(
                "due times of delayed messages not read, retrying",
                topic=self._home.name.full,
                subscription=self._subscription,
                retry_in_s=round(pause_s, 3),
                reason=str(error),
            )
            self._index.end(reading)
            await trio.sleep(pause_s)
        finally:
            self._index.end(reading)

    def _learn(self, reading: Reading, first: int, count: int, run: EntryRun) -> None:
        index = self._index
        start = run.first_entry_id if run.payloads and run.ledger_id == reading.key[0] else first + count
        for entry_id in range(first, min(start, first + count)):
            index.lost(reading, entry_id)  # trimmed
        for entry_id, payload in enumerate(run.payloads, start):
            if entry_id < first + count and reading.has(entry_id):
                index.learn(reading, entry_id, due_time(payload), self._hash_of(payload))

    def _forget_acked(self) -> None:
        marked = self._cursor.mark_delete
        if marked != self._marked:
            self._marked = marked
            self._index.forget_through(*marked)

    def _now(self) -> int:
        return self._home.context.world.clock.wall_ms()


def due_time(payload: Buffer) -> int:
    """Return the due time of an entry; 0 if it has none, or none that can be read."""
    try:
        return max(0, deliver_at(payload) or 0)
    except PulsarWireError:
        return 0
