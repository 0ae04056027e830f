"""The writing side of a log: one open ledger at a time, and the appends that it has not confirmed.

    OPEN -- full, old or failed --> SWITCHING -- next ledger made and in the list --> OPEN
                                        | not possible for retry_timeout_s
                                        v
                            opened -> IDLE -- next append --> SWITCHING
    any -- list or ledger changed by another --> FENCED          any -- close --> CLOSING --> CLOSED

While SWITCHING, appends queue; a task closes the old ledger at its last confirmed entry, puts the next one into the
list (made ahead, or made by that very write), and sends every append that is not confirmed, in order. A log that was
opened is IDLE with all its ledgers closed in the list, unless it had none: what is not written to needs no open ledger.
Nothing is rolled while the metadata service is known to be away: the open ledger serves on, however full.

What holds:
- OnlyOneLedgerOpenAtATime: the old ledger is closed before the next one enters the list.
- NoOutOfOrderEntries: appends are confirmed in the order they came; nothing of a later ledger is confirmed before an
  earlier one is closed.
- AllAckedEntriesAreReadable: an entry is reported to its sink only when its ledger is in the stored list, and closed at
  or
  above it.
- Fencing, not time, keeps two owners apart: once FENCED nothing is confirmed, and nothing stored. A fenced ledger does
  not prove that there is another owner (see `predecessor`); the list does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, cast

import trio

from cursors.doors import Writer
from cursors.topic_log import topic_log
from managed_ledger.barren import RETRY_FIRST_S, RETRY_MAX_S, BarrenLedgers
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
from managed_ledger.fill_limits import Fill, LedgerMarks
from managed_ledger.ledger_ahead import LedgerAhead
from managed_ledger.log_index import NO_LEDGER, LogIndex
from managed_ledger.pending import AppendSink, PendingAppend, PendingAppends
from managed_ledger.predecessor import Predecessor
from managed_ledger.rollover import RolloverLimits
from managed_ledger.stored_list import StoredList
from quire.ledger.errors import EntryTooLargeError as LedgerEntryTooLargeError
from quire.ledger.errors import LedgerConflictError, LedgerError, LedgerFencedError, TooManyPendingError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError
from quire.service.log import Logger, get_logger
from quire.world.backoff import Backoff
from quire.world.doors import Buffer, World

log = get_logger(__name__)

FULL_LIST_WARNING_S = 600.0


class State(Enum):
    OPEN = "open"
    SWITCHING = "switching"
    IDLE = "idle"
    FENCED = "fenced"
    TERMINATED = "terminated"
    CLOSING = "closing"
    CLOSED = "closed"


class Listener(Protocol):
    """Receiver of the events of the write path: its log. The methods must not raise."""

    def on_appended(self) -> None:
        """Note that new entries can be read."""

    def on_switched(self) -> None:
        """Note that a ledger was closed and another one opened."""

    def on_taken_over(self) -> None: ...

    def on_unneeded(self, ledger_id: int) -> None:
        """Note that a ledger, which the list names for deletion, will not be used."""


class Appends:
    """Appends to one log, from `begin` on."""

    __slots__ = (
        "_ahead",
        "_barren",
        "_cache",
        "_drained",
        "_entries",
        "_failed_writer",
        "_failure",
        "_index",
        "_listener",
        "_marks",
        "_metadata_is_up",
        "_name",
        "_no_room",
        "_nursery",
        "_retry_timeout_s",
        "_settled",
        "_stored",
        "_unclosed",
        "_world",
        "entries_added",
        "pending",
        "readers",
        "state",
        "writer",
    )

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
        listener: Listener,
        metadata_is_up: Callable[[], bool],
        no_room: Callable[[], str],
    ) -> None:
        """Take the parts it uses. `no_room`: returns the certain reason why bookies accept no entries; "" otherwise."""
        self.state = State.IDLE
        self.writer: Writer | None = None
        """The current ledger; while SWITCHING the previous one, for reading; None until the first append after the
        open."""
        self.readers = 0
        """Number of cursors that are expected to read what is appended."""
        self.pending = PendingAppends()
        self.entries_added = 0
        """Entries confirmed since the log was opened."""
        self._name = name
        self._world = world
        self._nursery = nursery
        self._stored = stored
        self._index = index
        self._cache = cache
        self._retry_timeout_s = retry_timeout_s
        self._listener = listener
        self._metadata_is_up = metadata_is_up
        self._no_room = no_room
        self._ahead: LedgerAhead | None = None
        """Set after the first ledger that is nearly full."""
        self._entries = 0
        self._marks = LedgerMarks(limits)
        self._failed_writer: Writer | None = None
        self._failure = ""
        self._barren: BarrenLedgers | None = None
        """Set after the first ledger that fails without an entry."""
        self._unclosed: Predecessor | None = None
        """The previous ledger, until it is closed and marked so in the list."""
        self._drained: trio.Event | None = None
        """Set while `_drain` waits."""
        self._settled: trio.Event | None = None
        """Set from the first switch on: the last one."""

    @property
    def _log(self) -> Logger:
        return topic_log(log, self._name)

    # The hot path

    def append_later(self, payloads: Sequence[Buffer], sink: AppendSink) -> None:
        """As `push`, while there is no open ledger: the run waits for one, or is refused."""
        if self.state is State.SWITCHING:
            self.pending.enqueue(PendingAppend(sink, payloads))
        elif self.state is State.IDLE:
            self.pending.enqueue(PendingAppend(sink, payloads))
            self._start_switch()
        else:
            sink.failed(self._refusal())

    def push(self, run: PendingAppend) -> None:
        """Send a run to the current ledger, as far as there is room in it."""
        entries, marks = self._entries + run.count, self._marks
        if entries > marks.entries_max and self._may_roll():
            room = marks.entries_max - self._entries
            if room > 0 and not self._send(run.take(room)):
                return
            self._start_switch()
            self.pending.enqueue(run, in_front=True)
            return
        if self._send(run) and self.state is State.OPEN:
            assert self.writer is not None, "an open log has a ledger"
            if entries >= marks.entries_near or self.writer.length >= marks.size_near:
                self._filling(marks.filled(entries, self.writer.length))

    def _filling(self, fill: Fill) -> None:
        """Handle that the ledger is full, or will be soon."""
        if fill is Fill.FULL:
            if self._may_roll():
                self._start_switch()
        elif self._metadata_is_up():
            self._marks.pass_near()
            self._want_ahead()

    def _may_roll(self) -> bool:
        """Return whether a switch is possible now.

        False while the metadata is away, or the list is too large for another ledger. The ledger then exceeds its
        limits until `check_age` finds that it can roll."""
        if self._metadata_is_up() and not self._stored.is_full:
            return True
        self._marks.lift()
        return False

    def _send(self, run: PendingAppend) -> bool:
        """Send a run; return False if it was refused and its sink notified."""
        writer, payloads = self.writer, run.payloads
        assert writer is not None, "an open log has a ledger"
        assert payloads is not None, "what is not sent has its payloads"
        try:
            run.first = writer.append(payloads)
        except LedgerEntryTooLargeError as error:
            run.sink.failed(EntryTooLargeError(f"{self._name}: {error}"))
            return False
        except TooManyPendingError as error:
            run.sink.failed(ManagedLedgerUnavailableError(f"{self._name} takes no more for now: {error}"))
            return False
        except LedgerError as error:
            run.first = writer.last_pushed + 1
            self.pending.sent.append(run)
            self._writer_failed(error)
            return True
        run.payloads = None
        self.pending.sent.append(run)  # nothing is confirmed before `append` returns
        self._entries += run.count
        return True

    def _confirmed(self, first: int, last: int) -> None:
        """Confirm entries `first` to `last` of the current ledger. An abandoned ledger reports to
        `_ignore_confirmed`."""
        writer = self.writer
        assert writer is not None, "what is confirmed was sent to a ledger"
        ledger_id = writer.ledger_id
        told = self.pending.confirm_through(last)
        self._index.last_confirmed = Position(ledger_id, last)
        self.entries_added += last - first + 1
        if self.readers:
            payloads = cast("list[Buffer]", writer.sealed(first, last))
            self._cache.add(ledger_id, first, payloads, self.readers, trio.current_time())
        for sink, start, count in told:
            sink.confirmed(ledger_id, start, count)
        self._listener.on_appended()
        if self.state is not State.OPEN and not self.pending.sent:
            self._has_drained()

    def _has_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()

    # Switching

    def begin(self, writer: Writer) -> None:
        """Continue in this ledger, which is in the stored list, first with the queued appends."""
        self._unhook()
        writer.on_confirmed = self._confirmed
        writer.on_failed = self._writer_failed
        self.writer = writer
        self._entries = 0
        self._marks.begin(writer.ledger_id, trio.current_time())
        self._index.set(self._stored.value.ledgers, writer.ledger_id)
        self.state = State.OPEN
        while self.pending.queued and self.state is State.OPEN:
            self.push(self.pending.dequeue())

    def check_age(self, now: float) -> None:
        """Roll a ledger that has reached its age, idle or not. Called periodically with trio's time."""
        if not self._marks.is_due(now) or self.state is not State.OPEN or self.writer is None:
            return
        if not self._entries or not self._metadata_is_up():
            return
        fill = self._marks.at_age(now, self._entries, self.writer.length)
        if fill is Fill.FULL:
            if self._may_roll():
                self._start_switch()
            else:
                self._warn_of_full_list()
        elif fill is Fill.NEARLY_FULL:
            self._want_ahead()

    def _want_ahead(self) -> None:
        if self._ahead is None:
            self._ahead = LedgerAhead(self._name, self._nursery, self._stored, lambda: self.state is State.OPEN)
        self._ahead.want()

    def _warn_of_full_list(self) -> None:
        """Warn periodically that the log cannot roll any more, which an operator can correct."""
        if self._stored.is_full:
            self._marks.rest_until(trio.current_time() + FULL_LIST_WARNING_S)
            self._log.warning(
                "ledger list full, the log cannot roll: trim it, or use larger ledgers",
                ledgers=len(self._stored.value.ledgers),
            )

    def roll(self) -> None:
        """Switch to a new ledger, if the current one has entries and that is possible now."""
        if self.state is State.OPEN and self._entries and self._may_roll():
            self._start_switch()

    @property
    def all_are_closed(self) -> bool:
        """Return whether every ledger of the list is closed there, since nothing was written to the log after its
        open."""
        return self.state is State.IDLE and self._index.current_id == NO_LEDGER

    async def leave_last(self) -> None:
        """Switch to a new ledger if all are closed, so that the last of them can be trimmed. Returns when that has
        succeeded or failed."""
        if self.all_are_closed and self._may_roll():
            self._start_switch()
            assert self._settled is not None, "a switch says when it is done"
            await self._settled.wait()

    def leave_consumed(self) -> bool:
        """Switch to a new ledger although it may have no room, because this one is consumed and may be deleted when
        closed.

        Returns whether that has begun."""
        left = self.state is State.OPEN and self._entries > 0
        # Without an open ledger, the last ledger of the list is not trimmed until another follows it.
        idle = self.state is State.IDLE and self._index.count() > 0
        if not (left or idle) or not self._may_roll():
            return False
        self._start_switch()
        return True

    def _writer_failed(self, error: LedgerError) -> None:
        """Abandon a failed ledger: unconfirmed entries go into the next one."""
        writer = self.writer
        if writer is None or writer is self._failed_writer:
            return
        self._failed_writer = writer
        self._failure = str(error)
        if self.state is State.OPEN:
            self._log.warning("ledger failed", ledger=writer.ledger_id, reason=str(error))
            self._start_switch()
        if self._unclosed is not None and isinstance(error, LedgerFencedError | LedgerConflictError):
            self._unclosed.contested = True
        self._has_drained()

    def _start_switch(self) -> None:
        if self.state is State.OPEN:
            assert self.writer is not None, "an open log has a ledger"
            self._unclosed = Predecessor(self.writer)
        if self.state in (State.OPEN, State.IDLE):
            first = self.all_are_closed and bool(self.pending)
            self.state = State.SWITCHING
            settled = self._settled = trio.Event()
            self._nursery.start_soon(self._switch, settled, first, name=f"next ledger of {self._name}")

    async def _switch(self, settled: trio.Event, first: bool) -> None:
        """Switch to the next ledger.

        Queued appends may fill the next ledger at once, which begins the following switch in a task of its own.
        `first`: to the ledger of the first append after the open, when trimming would come too early."""
        deadline = await self._wait_if_barren()
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, self._world.rng)
        while self.state is State.SWITCHING:
            try:
                await self._close_ledger()
                writer = await self._next_ledger()
            except ManagedLedgerFencedError as error:
                self.fence(str(error))
            except LedgerIdOrderError as error:
                self._log.error("no next ledger", reason=str(error))
                self._give_up(error)
            except (LedgerError, MetadataError) as error:
                pause_s = backoff.next()
                if trio.current_time() + pause_s > deadline:
                    self._give_up_for_now(str(error))
                else:
                    await trio.sleep(pause_s)
            else:
                if writer is not None:
                    self.begin(writer)
                    if not first:
                        self._listener.on_switched()
                    break
        settled.set()

    async def _wait_if_barren(self) -> float:
        """Pause, or give up, before the ledger that follows one without any stored entry.

        Returns the time until which the creation of the next ledger may be retried."""
        now = trio.current_time()
        writer = None if self._unclosed is None else self._unclosed.writer
        if self.pending and writer is not None and writer is self._failed_writer and (reason := self._no_room()):
            self._give_up_for_now(reason)
            return now
        if writer is None or writer is not self._failed_writer or writer.last_confirmed >= 0:
            self._barren = None
            return now + self._retry_timeout_s
        if self._barren is None:
            self._barren = BarrenLedgers(self._retry_timeout_s, self._world.rng)
        pause_s, deadline = self._barren.failed(now)
        if pause_s is None:
            self._give_up_for_now(self._failure)
        else:
            await trio.sleep(pause_s)
        return deadline

    async def _close_ledger(self) -> None:
        """Wait for pending appends, then close the old ledger. Unconfirmed appends wait for the next one."""
        before = self._unclosed
        if before is None:
            return
        writer = before.writer
        await self._drain(writer)
        if self.state is not State.SWITCHING:
            return
        await before.close(self._stored)
        if self.state is not State.SWITCHING:
            return
        known = self._index_entry(writer)
        if before.last_entry_id > known:
            assert writer is self.writer, "until the next one is there, it is the current one"
            self._confirmed(known + 1, before.last_entry_id)
        sent = self.pending.sent
        while sent:
            run = sent.pop()
            if run.payloads is None:
                run.payloads = cast("list[Buffer]", writer.sealed(run.first, run.first + run.count - 1))
            self.pending.enqueue(run, in_front=True)

    async def _drain(self, writer: Writer) -> None:
        """Wait until everything sent is confirmed, or the ledger failed, or the state has changed."""
        state = self.state
        while writer is not self._failed_writer and self.pending.sent and self.state is state:
            self._drained = trio.Event()
            await self._drained.wait()
        self._drained = None

    def _index_entry(self, writer: Writer) -> int:
        confirmed = self._index.last_confirmed
        return confirmed.entry_id if confirmed.ledger_id == writer.ledger_id else -1

    async def _next_ledger(self) -> Writer | None:
        """Store the list with the next ledger; return None if the log was fenced meanwhile."""
        stored, before = self._stored, self._unclosed
        async with stored.held():
            if self.state is not State.SWITCHING:
                return None
            value = stored.value
            if before is not None:
                value = before.marked_in(value, self._world.clock.wall_ms())
            if before is not None and before.writer is self._failed_writer:
                self._drop_ahead()  # its bookies may include the failed ones
            ahead = self._ahead
            writer = None if ahead is None else ahead.take()
            if ahead is None or writer is None:
                self._drop_ahead()
                writer = await stored.new_ledger(value)
            else:
                try:
                    await stored.open_ahead(value, writer.ledger_id)
                except MetadataError:
                    ahead.give_back(writer)
                    raise
            if self.state is not State.SWITCHING:
                return None  # the next owner recovers it
            self._unclosed = self._failed_writer = None
        return writer

    def _drop_ahead(self) -> None:
        unneeded = self.unneeded()
        if unneeded is not None:
            self._listener.on_unneeded(unneeded)

    def _give_up_for_now(self, reason: str) -> None:
        self._log.warning("no next ledger for now", reason=reason)
        self._give_up(ManagedLedgerUnavailableError(f"{self._name} has no ledger to write to: {reason}"))

    def _give_up(self, error: ManagedLedgerError) -> None:
        """Fail the queued appends; the next append tries again."""
        self.state = State.IDLE
        for sink in self.pending.take_all():
            sink.failed(error)

    # The end

    @property
    def is_usable(self) -> bool:
        return self.state not in (State.FENCED, State.CLOSING, State.CLOSED)

    def check_usable(self) -> None:
        """Raise ManagedLedgerFencedError or ManagedLedgerClosedError if the log is unusable."""
        if self.state is State.FENCED:
            raise ManagedLedgerFencedError(f"{self._name} was taken over")
        if not self.is_usable:
            raise ManagedLedgerClosedError(f"{self._name} is closed")

    def fence(self, reason: str) -> None:
        """Stop because another broker has the log: from now on nothing is confirmed, and nothing written."""
        if self.state in (State.FENCED, State.CLOSED):
            return
        self._log.warning("log is fenced", reason=reason)
        self.state = State.FENCED
        self._stored.give_up(reason)
        unclosed = None if self._unclosed is None else self._unclosed.writer
        writer = self._stop()
        if writer is None:
            writer = unclosed
        self.unneeded()
        error = ManagedLedgerFencedError(f"{self._name} was taken over: {reason}")
        for sink in self.pending.take_all():
            sink.failed(error)
        self._has_drained()
        if writer is not None:
            self._nursery.start_soon(_let_go, writer, name=f"last ledger of {self._name}")
        self._listener.on_taken_over()

    def terminate(self) -> None:
        """Refuse entries from now on, because the stored list is terminated."""
        self.state = State.TERMINATED

    async def close(self) -> None:
        """Accept nothing more, wait for pending appends, close the ledger. Unconfirmed appends fail then.

        After any error (LedgerError, MetadataError) the next open recovers the ledger."""
        while self.state is State.SWITCHING:
            assert self._settled is not None, "a switch says when it is done"
            await self._settled.wait()
        if self.state in (State.FENCED, State.CLOSED, State.CLOSING):
            return
        writer = self.writer if self.state is State.OPEN else None
        if writer is None and self._unclosed is not None and not self._unclosed.contested:
            writer = self._unclosed.writer
        self.state = State.CLOSING
        try:
            if writer is not None:
                await self._drain(writer)
            if writer is not None and self._is_closing():
                await writer.close()
            if self._ahead is not None:
                await self._ahead.settle()
        finally:
            if self._is_closing():
                self.state = State.CLOSED
                self._stop()
                for sink in self.pending.take_all():
                    sink.failed(ManagedLedgerClosedError(f"{self._name} is closed"))

    @property
    def next_ledger_id(self) -> int:
        """Return the id of the ledger made ahead, which the list names for deletion until it is needed; -1: none."""
        return -1 if self._ahead is None else self._ahead.ledger_id

    def unneeded(self) -> int | None:
        """Drop a ledger that was made ahead; return its id, if there is one, which the list names for deletion."""
        return None if self._ahead is None else self._ahead.drop()

    def _is_closing(self) -> bool:
        return self.state is State.CLOSING

    def _stop(self) -> Writer | None:
        """Ignore the former ledger from now on."""
        self._unhook()
        writer, self.writer = self.writer, None
        return writer

    def _unhook(self) -> None:
        if self.writer is not None:
            self.writer.on_confirmed = _ignore_confirmed
            self.writer.on_failed = _ignore_failed

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


async def _let_go(writer: Writer) -> None:
    """Abandon a writer and store nothing.

    Its close gives up unconfirmed entries, and is cancelled before it waits for anything. For a ledger that another
    broker has, or that must not be closed."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await writer.close()
