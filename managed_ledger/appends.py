"""The writing side of a log: one open ledger at a time, and the appends that it has not confirmed.

    OPEN -- full, old or failed --> SWITCHING -- next ledger made and in the list --> OPEN
                                        | not possible for retry_timeout_s
                                        v
                                      IDLE -- next append --> SWITCHING
    any -- list or ledger changed by another --> FENCED          any -- close --> CLOSING --> CLOSED

While SWITCHING, appends queue; a task closes the old ledger at its last confirmed entry, makes the next one in the same write
that puts it into the list, and sends every append that is not confirmed, in order.

What holds:
- OnlyOneLedgerOpenAtATime: the old ledger is closed before the next one enters the list.
- NoOutOfOrderEntries: appends are confirmed in the order they came; nothing of a later ledger is confirmed before an
  earlier one is closed.
- AllAckedEntriesAreReadable: a sink hears of an entry only when its ledger is in the stored list, and closed at or above it.
- Fencing, not time, keeps two owners apart: once FENCED nothing is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import cast

import trio

from cursors.doors import Writer
from managed_ledger.entry_cache import EntryCache
from managed_ledger.errors import (
    EntryTooLargeError,
    LedgerIdOrderError,
    ManagedLedgerClosedError,
    ManagedLedgerError,
    ManagedLedgerFencedError,
    ManagedLedgerTerminatedError,
    ManagedLedgerUnavailableError,
)
from managed_ledger.ledger_list import LedgerList
from managed_ledger.log_index import LogIndex
from managed_ledger.pending import AppendSink, PendingAppend, PendingAppends
from managed_ledger.rollover import NO_LIMIT, RolloverLimits
from managed_ledger.stored_list import StoredList
from quire.ledger.errors import EntryTooLargeError as LedgerEntryTooLargeError
from quire.ledger.errors import LedgerConflictError, LedgerError, LedgerFencedError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError
from quire.service.log import get_logger
from quire.world.doors import Buffer, World

log = get_logger(__name__)

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0


class State(Enum):
    OPEN = "open"
    SWITCHING = "switching"
    IDLE = "idle"
    FENCED = "fenced"
    TERMINATED = "terminated"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Whom the writing side tells. None of them may raise."""

    confirmed: Callable[[], None]
    """New entries can be read."""
    switched: Callable[[], None]
    """A ledger was closed and another one opened."""
    fenced: Callable[[], None]


class Appends:
    """Appends to one log, from `begin` on."""

    def __init__(
        self,
        name: str,
        world: World,
        nursery: trio.Nursery,
        stored: StoredList,
        index: LogIndex,
        cache: EntryCache,
        limits: RolloverLimits,
        retry_timeout_s: float,
        listeners: Listeners,
    ) -> None:
        self.state = State.IDLE
        self.writer: Writer | None = None
        """The current ledger; while SWITCHING the one before, for reading."""
        self.readers = 0
        """Cursors that are expected to read what is appended."""
        self.pending = PendingAppends()
        self.entries_added = 0
        """Entries confirmed since the log was opened."""
        self._name = name
        self._world = world
        self._nursery = nursery
        self._stored = stored
        self._index = index
        self._cache = cache
        self._limits = limits
        self._retry_timeout_s = retry_timeout_s
        self._listeners = listeners
        self._log = log.bind(log=name)
        self._entries = 0
        self._entries_limit = self._size_limit = NO_LIMIT
        self._opened_at = 0.0
        self._failed_writer: Writer | None = None
        self._failure = ""
        self._barren_since: float | None = None
        """Since when ledger after ledger has failed without a confirmed entry (a full disk): each waits longer than the one before."""
        self._barren_pause_s = 0.0
        self._unclosed: Writer | None = None
        """The ledger before, until it is closed and marked so in the list."""
        self._drained = trio.Event()
        self._settled = trio.Event()

    # The hot path

    def append(self, payloads: Sequence[Buffer], sink: AppendSink) -> None:
        """Append a run of at least one entry; the sink hears of its fate, later unless the log takes nothing any more."""
        if self.state is State.OPEN:
            self._push(PendingAppend(sink, payloads))
        elif self.state is State.SWITCHING:
            self.pending.enqueue(PendingAppend(sink, payloads))
        elif self.state is State.IDLE:
            self.pending.enqueue(PendingAppend(sink, payloads))
            self._start_switch()
        else:
            sink.failed(self._refusal())

    def _push(self, run: PendingAppend) -> None:
        """Send a run to the current ledger, as far as there is room in it."""
        entries = self._entries + run.count
        if entries > self._entries_limit:
            room = self._entries_limit - self._entries
            if room > 0 and not self._send(run.take(room)):
                return
            self._start_switch()
            self.pending.enqueue(run, in_front=True)
            return
        if self._send(run) and self.state is State.OPEN:
            assert self.writer is not None, "an open log has a ledger"
            if entries >= self._entries_limit or self.writer.length >= self._size_limit:
                self._start_switch()

    def _send(self, run: PendingAppend) -> bool:
        """False: the run was refused, and its sink told so."""
        writer, payloads = self.writer, run.payloads
        assert writer is not None, "an open log has a ledger"
        assert payloads is not None, "what is not sent has its payloads"
        run.first = writer.last_pushed + 1
        run.payloads = None
        sent = self.pending.sent
        sent.append(run)
        try:
            writer.append(payloads)
        except LedgerEntryTooLargeError as error:
            sent.pop()
            run.sink.failed(EntryTooLargeError(f"{self._name}: {error}"))
            return False
        except LedgerError as error:
            run.payloads = payloads
            self._writer_failed(writer, error)
            return True
        self._entries += run.count
        return True

    def _confirmed(self, writer: Writer, first: int, last: int) -> None:
        """Entries `first` to `last` of the ledger are stored."""
        if writer is not self.writer:
            return
        ledger_id = writer.ledger_id
        told = self.pending.confirm_through(last)
        self._index.last_confirmed = Position(ledger_id, last)
        self.entries_added += last - first + 1
        if self.readers:
            payloads = cast("list[Buffer]", writer.sealed(first, last))
            self._cache.add(ledger_id, first, payloads, self.readers, trio.current_time())
        for sink, start, count in told:
            sink.confirmed(ledger_id, start, count)
        self._listeners.confirmed()
        if self.state is not State.OPEN and not self.pending.sent:
            self._drained.set()

    # Switching

    def begin(self, writer: Writer) -> None:
        """Go on in this ledger, which is in the stored list: first with what waits."""
        writer.on_confirmed = partial(self._confirmed, writer)
        writer.on_failed = partial(self._writer_failed, writer)
        self.writer = writer
        self._entries = 0
        self._opened_at = trio.current_time()
        self._set_limits(0.0)
        self._index.set(self._stored.value.ledgers, writer.ledger_id)
        self.state = State.OPEN
        queued = self.pending.queued
        while queued and self.state is State.OPEN:
            self._push(self.pending.dequeue())

    def _set_limits(self, age_s: float) -> None:
        old_enough = age_s >= self._limits.age_min_s
        self._entries_limit = self._limits.entries_max if old_enough else NO_LIMIT
        self._size_limit = self._limits.size_max if old_enough else NO_LIMIT

    def check_age(self, now: float) -> None:
        """Called every now and then (trio's time): roll a ledger that has come of age."""
        if self.state is not State.OPEN or self.writer is None:
            return
        age_s = now - self._opened_at
        self._set_limits(age_s)
        if self._limits.is_full(self._entries, self.writer.length, age_s):
            self._start_switch()

    def roll(self) -> None:
        """Go on in a new ledger, if the current one has entries."""
        if self.state is State.OPEN and self._entries:
            self._start_switch()

    def _writer_failed(self, writer: Writer, error: LedgerError) -> None:
        """The ledger takes no more: what it did not confirm goes into the next one."""
        if writer is not self.writer or writer is self._failed_writer:
            return
        self._failed_writer = writer
        self._failure = str(error)
        if isinstance(error, LedgerFencedError | LedgerConflictError):
            self.fence(f"ledger {writer.ledger_id}: {error}")
            return
        for run in self.pending.sent:
            if run.payloads is None:
                run.payloads = cast("list[Buffer]", writer.sealed(run.first, run.first + run.count - 1))
        if self.state is State.OPEN:
            self._log.warning("ledger failed", ledger_id=writer.ledger_id, reason=str(error))
            self._start_switch()
        self._drained.set()

    def _start_switch(self) -> None:
        if self.state is State.OPEN:
            self._unclosed = self.writer
        if self.state in (State.OPEN, State.IDLE):
            self.state = State.SWITCHING
            settled = self._settled = trio.Event()
            self._nursery.start_soon(self._switch, settled, name=f"next ledger of {self._name}")

    async def _switch(self, settled: trio.Event) -> None:
        """One switch. What waits may fill the next ledger at once: that begins the switch after it, in a task of its own."""
        deadline = await self._wait_if_barren()
        pause_s = RETRY_FIRST_S
        while self.state is State.SWITCHING:
            try:
                await self._close_ledger()
                writer = await self._next_ledger()
            except (ManagedLedgerFencedError, LedgerFencedError, LedgerConflictError) as error:
                self.fence(str(error))
            except LedgerIdOrderError as error:
                self._log.error("no next ledger", reason=str(error))
                self._give_up(error)
            except (LedgerError, MetadataError) as error:
                if trio.current_time() + pause_s > deadline:
                    self._give_up_for_now(str(error))
                else:
                    await trio.sleep(pause_s)
                    pause_s = min(2 * pause_s, RETRY_MAX_S)
            else:
                if writer is not None:
                    self.begin(writer)
                    self._listeners.switched()
                    break
        settled.set()

    async def _wait_if_barren(self) -> float:
        """Before the ledger that follows one in which nothing could be stored: pause, or give up. Returns until when the next
        ledger may be tried for."""
        now = trio.current_time()
        writer = self._unclosed
        if writer is None or writer is not self._failed_writer or writer.last_confirmed >= 0:
            self._barren_since = None
            return now + self._retry_timeout_s
        if self._barren_since is None:
            self._barren_since, self._barren_pause_s = now, RETRY_FIRST_S
        deadline = self._barren_since + self._retry_timeout_s
        if now + self._barren_pause_s > deadline:
            self._barren_since = None
            self._give_up_for_now(self._failure)
        else:
            await trio.sleep(self._barren_pause_s)
            self._barren_pause_s = min(2 * self._barren_pause_s, RETRY_MAX_S)
        return deadline

    async def _close_ledger(self) -> None:
        """Wait for what is under way, then close the old ledger; what it did not confirm waits for the next."""
        writer = self._unclosed
        if writer is None:
            return
        while writer is not self._failed_writer and self.pending.sent and self.state is State.SWITCHING:
            self._drained = trio.Event()
            await self._drained.wait()
        await writer.close()
        if writer.last_confirmed > self._index_entry(writer):
            self._confirmed(writer, self._index_entry(writer) + 1, writer.last_confirmed)
        sent = self.pending.sent
        while sent:
            self.pending.enqueue(sent.pop(), in_front=True)

    def _index_entry(self, writer: Writer) -> int:
        confirmed = self._index.last_confirmed
        return confirmed.entry_id if confirmed.ledger_id == writer.ledger_id else -1

    async def _next_ledger(self) -> Writer | None:
        """Make the next ledger and store the list with it. None if the log was fenced meanwhile."""
        async with self._stored.lock:
            if self.state is not State.SWITCHING:
                return None
            writer = await self._stored.new_ledger(self._list_with_closed())
            self._unclosed = self._failed_writer = None
        return writer

    def _list_with_closed(self) -> LedgerList:
        value, writer = self._stored.value, self._unclosed
        if writer is None or not value.ledgers or value.ledgers[-1].ledger_id != writer.ledger_id:
            return value
        unconfirmed = self._unconfirmed_bytes(writer)
        return value.closed(
            writer.ledger_id,
            entries=writer.last_confirmed + 1,
            size=writer.length - unconfirmed,
            now_ms=self._world.clock.wall_ms(),
        )

    def _unconfirmed_bytes(self, writer: Writer) -> int:
        """Payload bytes that the ledger counts and that were not confirmed."""
        first = writer.last_confirmed + 1
        if first > writer.last_pushed:
            return 0
        return sum(map(len, writer.sealed(first, writer.last_pushed)))

    def _give_up_for_now(self, reason: str) -> None:
        self._log.warning("no next ledger for now", reason=reason)
        self._give_up(ManagedLedgerUnavailableError(f"{self._name} has no ledger to write to: {reason}"))

    def _give_up(self, error: ManagedLedgerError) -> None:
        """What waits fails; the next append tries again."""
        self.state = State.IDLE
        for sink in self.pending.take_all():
            sink.failed(error)

    # The end

    def fence(self, reason: str) -> None:
        """Somebody else has the log."""
        if self.state in (State.FENCED, State.CLOSED):
            return
        self._log.warning("log is fenced", reason=reason)
        self.state = State.FENCED
        self._stop()
        error = ManagedLedgerFencedError(f"{self._name} was taken over: {reason}")
        for sink in self.pending.take_all():
            sink.failed(error)
        self._drained.set()
        self._listeners.fenced()

    def terminate(self) -> None:
        """The log takes no entries, as its list says."""
        self.state = State.TERMINATED

    async def close(self) -> None:
        """Take nothing more, wait for what is under way, close the ledger. What is not confirmed by then fails.
        Whatever it raises (LedgerError, MetadataError), the next open recovers the ledger."""
        while self.state is State.SWITCHING:
            await self._settled.wait()
        if self.state in (State.FENCED, State.CLOSED, State.CLOSING):
            return
        writer = self.writer if self.state is State.OPEN else self._unclosed
        self.state = State.CLOSING
        try:
            while writer is not None and writer is not self._failed_writer and self.pending.sent:
                self._drained = trio.Event()
                await self._drained.wait()
            if writer is not None and self._is_closing():
                await writer.close()
        finally:
            if self._is_closing():
                self.state = State.CLOSED
                self._stop()
                for sink in self.pending.take_all():
                    sink.failed(ManagedLedgerClosedError(f"{self._name} is closed"))

    def _is_closing(self) -> bool:
        return self.state is State.CLOSING

    def _stop(self) -> None:
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.on_confirmed = _ignore_confirmed
            writer.on_failed = _ignore_failed

    def _refusal(self) -> ManagedLedgerError:
        if self.state is State.FENCED:
            return ManagedLedgerFencedError(f"{self._name} was taken over")
        if self.state is State.TERMINATED:
            return ManagedLedgerTerminatedError(f"{self._name} is terminated")
        return ManagedLedgerClosedError(f"{self._name} is closed")


def _ignore_confirmed(first: int, last: int) -> None:
    pass


def _ignore_failed(error: LedgerError) -> None:
    pass
