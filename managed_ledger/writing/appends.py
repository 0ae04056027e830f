"""The writing side of a log: one open ledger at a time, and the appends that it has not confirmed.

    OPEN -- full, old or failed --> SWITCHING -- next ledger made and in the list --> OPEN
                                        | not possible for retry_timeout_s
                                        v
                            opened -> IDLE -- next append --> SWITCHING
    any -- list or ledger changed by another --> FENCED          any -- close --> CLOSING --> CLOSED

While SWITCHING, appends queue, until `switching` has closed the old ledger and put the next one into the list. A log
that was opened is IDLE with all its ledgers closed in the list, unless it had none: what is not written to needs no
open ledger.
Nothing is rolled while the metadata service is known to be away: the open ledger serves on, however full.

What holds:
- OnlyOneLedgerOpenAtATime: the old ledger is closed before the next one enters the list.
- NoOutOfOrderEntries: appends are confirmed in the order they came; nothing of a later ledger is confirmed before an
  earlier one is closed.
- AllAckedEntriesAreReadable: an entry is reported to its sink only when its ledger is in the stored list, and closed at
  or above it.
- Fencing, not time, keeps two owners apart: once FENCED nothing is confirmed, and nothing stored. A fenced ledger does
  not prove that there is another owner (see `predecessor`); the list does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import trio

from cursors.doors import Writer
from cursors.topic_log import topic_log
from managed_ledger.errors import (
    EntryTooLargeError,
    ManagedLedgerClosedError,
    ManagedLedgerFencedError,
    ManagedLedgerUnavailableError,
)
from managed_ledger.log_index import NO_LEDGER, LogIndex
from managed_ledger.services import Services
from managed_ledger.stored_list import StoredList
from managed_ledger.writing.fill_limits import NO_MARKS, Fill, LedgerMarks
from managed_ledger.writing.pending import NO_PENDING, AppendSink, PendingAppend, PendingAppends
from managed_ledger.writing.state import AppendListener, State, refusal
from managed_ledger.writing.switching import Switching, let_go
from quire.ledger.errors import EntryTooLargeError as LedgerEntryTooLargeError
from quire.ledger.errors import LedgerError, TooManyPendingError
from quire.ledger.position import Position
from quire.ledger.writing.unheard import ignore_confirmed, ignore_failed
from quire.metadata.errors import MetadataError
from quire.service.log import Logger, get_logger
from quire.world.doors import Buffer

log = get_logger(__name__)

FULL_LIST_WARNING_S = 600.0


class Appends:
    """Appends to one log, from `begin` on."""

    __slots__ = (
        "_entries",
        "_index",
        "_listener",
        "_marks",
        "_services",
        "_stored",
        "_switching",
        "entries_added",
        "pending",
        "readers",
        "state",
        "writer",
    )

    def __init__(self, services: Services, stored: StoredList, index: LogIndex, listener: AppendListener) -> None:
        """Take the parts it uses."""
        self.state = State.IDLE
        self.writer: Writer | None = None
        """The current ledger; while SWITCHING the previous one, for reading; None until the first append after the
        open."""
        self.readers = 0
        """Number of cursors that are expected to read what is appended."""
        self.pending = NO_PENDING
        """Set from the first append on."""
        self.entries_added = 0
        """Entries confirmed since the log was opened."""
        self._services = services
        self._stored = stored
        self._index = index
        self._listener = listener
        self._switching: Switching | None = None
        """Set from the first switch, or ledger that is nearly full, on: a log that is not written to has none."""
        self._entries = 0
        self._marks = NO_MARKS
        """Set from the first ledger on."""

    @property
    def _log(self) -> Logger:
        return topic_log(log, self._name)

    @property
    def _name(self) -> str:
        return self._stored.name

    def _queue(self, run: PendingAppend, *, in_front: bool = False) -> None:
        self._made_pending().enqueue(run, in_front=in_front)

    def _made_pending(self) -> PendingAppends:
        if self.pending is NO_PENDING:
            self.pending = PendingAppends()
        return self.pending

    # The hot path

    def append_later(self, payloads: Sequence[Buffer], sink: AppendSink) -> None:
        """As `push`, while there is no open ledger: the run waits for one, or is refused."""
        if self.state is State.SWITCHING:
            self._queue(PendingAppend(sink, payloads))
        elif self.state is State.IDLE:
            self._queue(PendingAppend(sink, payloads))
            self._made_switching().start()
        else:
            sink.failed(refusal(self.state, self._name))

    def push(self, run: PendingAppend) -> None:
        """Send a run to the current ledger, as far as there is room in it."""
        entries, marks = self._entries + run.count, self._marks
        if entries > marks.entries_max and self._may_roll():
            room = marks.entries_max - self._entries
            if room > 0 and not self._send(run.take(room)):
                return
            self._made_switching().start()
            self._queue(run, in_front=True)
            return
        if self._send(run) and self.state is State.OPEN:
            assert self.writer is not None, "an open log has a ledger"
            if entries >= marks.entries_near or self.writer.length >= marks.size_near:
                self._filling(marks.filled(entries, self.writer.length))

    def _filling(self, fill: Fill) -> None:
        """Handle that the ledger is full, or will be soon."""
        if fill is Fill.FULL:
            if self._may_roll():
                self._made_switching().start()
        elif self._services.metadata_is_up():
            self._marks.pass_near()
            self._made_switching().want_ahead()

    def _may_roll(self) -> bool:
        """Return whether a switch is possible now.

        False while the metadata is away, or the list is too large for another ledger. The ledger then exceeds its
        limits until `check_age` finds that it can roll."""
        if self._services.metadata_is_up() and not self._stored.is_full:
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

    def confirmed(self, first: int, last: int) -> None:
        """Confirm entries `first` to `last` of the current ledger. An abandoned ledger reports to
        `ignore_confirmed`."""
        writer = self.writer
        assert writer is not None, "what is confirmed was sent to a ledger"
        ledger_id = writer.ledger_id
        told = self.pending.confirm_through(last)
        self._index.last_confirmed = Position(ledger_id, last)
        self.entries_added += last - first + 1
        if self.readers:
            payloads = cast("list[Buffer]", writer.sealed(first, last))
            self._listener.cache.add(ledger_id, first, payloads, self.readers, trio.current_time())
        for sink, start, count in told:
            sink.confirmed(ledger_id, start, count)
        self._listener.on_appended()
        if self.state is not State.OPEN and not self.pending.sent:
            self._made_switching().drained()

    # Switching

    def begin(self, writer: Writer) -> None:
        """Continue in this ledger, which is in the stored list, first with the queued appends."""
        self._unhook()
        writer.on_confirmed = self.confirmed
        writer.on_failed = self._writer_failed
        self.writer = writer
        self._entries = 0
        self._made_pending()
        if self._marks is NO_MARKS:
            self._marks = LedgerMarks(self._services.limits)
        self._marks.begin(writer.ledger_id, trio.current_time())
        self._index.set(self._stored.value.ledgers, writer.ledger_id)
        self.state = State.OPEN
        while self.pending.queued and self.state is State.OPEN:
            self.push(self.pending.dequeue())

    def check_age(self, now: float) -> None:
        """Roll a ledger that has reached its age, idle or not. Called periodically with trio's time."""
        if not self._marks.is_due(now) or self.state is not State.OPEN or self.writer is None:
            return
        if not self._entries or not self._services.metadata_is_up():
            return
        fill = self._marks.at_age(now, self._entries, self.writer.length)
        if fill is Fill.FULL:
            if self._may_roll():
                self._made_switching().start()
            else:
                self._warn_of_full_list()
        elif fill is Fill.NEARLY_FULL:
            self._made_switching().want_ahead()

    def _warn_of_full_list(self) -> None:
        """Warn periodically that the log cannot roll any more, which an operator can correct."""
        if self._stored.is_full:
            self._marks.rest_until(trio.current_time() + FULL_LIST_WARNING_S)
            self._log.warning(
                "ledger list full, the log cannot roll: trim it, or use larger ledgers",
                ledgers=len(self._stored.value.ledgers),
            )

    def rest(self) -> None:
        """Give back memory that only appending needs, if nothing is being appended."""
        if self.state is State.OPEN and self.writer is not None:
            self.writer.rest()

    def roll(self) -> None:
        """Switch to a new ledger, if the current one has entries and that is possible now."""
        if self.state is State.OPEN and self._entries and self._may_roll():
            self._made_switching().start()

    @property
    def trouble(self) -> str:
        """Return why the last attempt to get the next ledger failed; "" if none did."""
        return "" if self._switching is None else self._switching.trouble

    @property
    def all_are_closed(self) -> bool:
        """Return whether every ledger of the list is closed there, since nothing was written to the log after its
        open."""
        return self.state is State.IDLE and self._index.current_id == NO_LEDGER

    async def settled(self) -> None:
        """Wait until no switch is under way."""
        while self.state is State.SWITCHING:
            await self._made_switching().settled()

    async def leave_last(self) -> None:
        """Switch to a new ledger if all are closed, so that the last of them can be trimmed. Returns when that has
        succeeded or failed."""
        if self.all_are_closed and self._may_roll():
            switching = self._made_switching()
            switching.start()
            await switching.settled()

    def leave_consumed(self) -> bool:
        """Switch to a new ledger although it may have no room, because this one is consumed and may be deleted when
        closed.

        Returns whether that has begun."""
        left = self.state is State.OPEN and self._entries > 0
        # Without an open ledger, the last ledger of the list is not trimmed until another follows it.
        idle = self.state is State.IDLE and self._index.count() > 0
        if not (left or idle) or not self._may_roll():
            return False
        self._made_switching().start()
        return True

    def _writer_failed(self, error: LedgerError) -> None:
        self._made_switching().failed(error)

    def _made_switching(self) -> Switching:
        switching = self._switching
        if switching is None:
            services = self._services
            switching = self._switching = Switching(
                self,
                self._name,
                services.world,
                services.nursery,
                self._stored,
                self._index,
                self._listener,
                services.config.retry_timeout_s,
                services.no_room,
            )
        return switching

    # The end

    @property
    def is_usable(self) -> bool:
        return self.state not in (State.FENCED, State.CLOSING, State.CLOSED)

    def check_usable(self) -> None:
        """Raise ManagedLedgerFencedError or ManagedLedgerClosedError if the log is unusable."""
        if not self.is_usable:
            raise refusal(self.state, self._name)

    def fence(self, reason: str) -> None:
        """Stop because another broker has the log: from now on nothing is confirmed, and nothing written."""
        if self.state in (State.FENCED, State.CLOSED):
            return
        self._log.warning("log is fenced", reason=reason)
        self.state = State.FENCED
        self._stored.give_up(reason)
        writer, switching = self._stop(), self._switching
        if writer is None and switching is not None:
            writer = switching.left
        self.unneeded()
        error = ManagedLedgerFencedError(f"{self._name} was taken over: {reason}")
        for sink in self.pending.take_all():
            sink.failed(error)
        if switching is not None:
            switching.drained()
        if writer is not None:
            self._services.nursery.start_soon(let_go, writer, name=f"last ledger of {self._name}")
        self._listener.on_taken_over()

    async def terminate(self) -> None:
        """End the log behind everything that was appended: it takes no more, for ever.

        Raises ManagedLedgerFencedError, also if the outcome is unknown, so that it is opened again;
        ManagedLedgerUnavailableError: not done."""
        await self.settled()
        self.check_usable()
        if self.state is State.TERMINATED:
            return
        try:
            await self._made_switching().terminate()
        except (LedgerError, MetadataError) as error:
            raise ManagedLedgerUnavailableError(f"{self._name} is not terminated: {error}") from error
        self.check_usable()

    def terminated(self) -> None:
        """Refuse entries from now on, because the stored list is terminated."""
        self.state = State.TERMINATED
        self._stop()
        for sink in self.pending.take_all():
            sink.failed(refusal(self.state, self._name))

    async def close(self) -> None:
        """Accept nothing more, wait for pending appends, close the ledger. Unconfirmed appends fail then.

        After any error (LedgerError, MetadataError) the next open recovers the ledger."""
        await self.settled()
        if self.state in (State.FENCED, State.CLOSED, State.CLOSING):
            return
        switching = self._made_switching()
        writer = self.writer if self.state is State.OPEN else switching.uncontested()
        self.state = State.CLOSING
        try:
            if writer is not None:
                await switching.drain(writer)
            if writer is not None and self._is_closing():
                await writer.close()
            await switching.ahead_settled()
        finally:
            if self._is_closing():
                self.state = State.CLOSED
                self._stop()
                for sink in self.pending.take_all():
                    sink.failed(ManagedLedgerClosedError(f"{self._name} is closed"))

    @property
    def closes_at_once(self) -> bool:
        """Return whether `close` has nothing to wait for: no ledger was opened or made ahead since the open."""
        return self.state in (State.IDLE, State.TERMINATED) and self._switching is None and not self.pending

    def close_at_once(self) -> None:
        """Accept nothing more, in this step. Only if it `closes_at_once`."""
        assert self.closes_at_once, f"{self._name} has a ledger to close"
        self.state = State.CLOSED

    @property
    def next_ledger_id(self) -> int:
        """Return the id of the ledger made ahead, which the list names for deletion until it is needed; -1: none."""
        return -1 if self._switching is None else self._switching.next_ledger_id

    def unneeded(self) -> int | None:
        """Drop a ledger that was made ahead; return its id, if there is one, which the list names for deletion."""
        return None if self._switching is None else self._switching.unneeded()

    def _is_closing(self) -> bool:
        return self.state is State.CLOSING

    def _stop(self) -> Writer | None:
        """Ignore the former ledger from now on."""
        self._unhook()
        writer, self.writer = self.writer, None
        return writer

    def _unhook(self) -> None:
        if self.writer is not None:
            self.writer.on_confirmed = ignore_confirmed
            self.writer.on_failed = ignore_failed
