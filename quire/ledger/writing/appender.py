"""Appender: sends sealed runs to the bookies of the current ensemble and reports what is confirmed. Synchronous throughout.

It is the engine of the writer and of recovery, which differ in what becomes of a failed bookie: it tells them by
`on_bookies_failed`, and they answer with `change_ensemble` or `fail`. Until then nothing is confirmed. Where `excuses` says
so, a failed bookie keeps its place: the others go on without it, and it is taken back after a pause.

    append -> seal -> pending -> channels (one per bookie) ... adds_answered -> AckTracker -> on_confirmed -> run let go

Nothing is reported from within `append`: answers that come that early are reported in a pass of their own right after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from quire.ledger.bookies.pool import AddChannel
from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    AddQuorumTimeoutError,
    BookieError,
    BookieProtocolError,
    BookieRefusedError,
    BookieTimeoutError,
    BookieUnavailableError,
    LedgerError,
    LedgerFencedError,
    LedgerUnauthorizedError,
    rc_name,
)
from quire.ledger.striping import Striping
from quire.ledger.writing.ack_tracker import AckTracker
from quire.ledger.writing.add_deadlines import AddDeadlines
from quire.ledger.writing.pending_runs import PendingRun, Sealer
from quire.ledger.writing.second_tries import SecondTries
from quire.ledger.writing.unacked_notes import WHOLE, note_unacked
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from quire.world.errors import again


def ignore_confirmed(first: int, last: int) -> None:
    """Nobody wants to know."""


def ignore_failed(error: LedgerError) -> None:
    """Nobody wants to know."""


def ignore_bookies_failed() -> None:
    """Part of the default: a failed bookie stays failed."""


def excuse_nobody(index: int, error: BookieError) -> bool:
    """Every bookie that fails is to be replaced."""
    return False


class Appender:
    """Appends to one ledger, as the only writer in this process."""

    __slots__ = (
        "__weakref__",  # (the simulator keeps its observations by writer)
        "_ack_quorum",
        "_channels",
        "_context",
        "_deadlines",
        "_ledger_id",
        "_lingering",
        "_opened",
        "_pending",
        "_sealer",
        "_second",
        "_sending",
        "_striping",
        "_ticking",
        "_tracker",
        "_write_flags",
        "ensemble",
        "error",
        "excuses",
        "failed",
        "lac",
        "lac_sent",
        "last_confirmed",
        "length",
        "on_bookies_failed",
        "on_confirmed",
        "on_failed",
        "pending_bytes",
    )

    def __init__(
        self,
        context: LedgerContext,
        ledger_id: int,
        ensemble: Sequence[str],
        striping: Striping,
        ack_quorum: int,
        sealer: Sealer,
        *,
        confirmed: int = -1,
        length: int = 0,
        tracker: AckTracker | None = None,
        write_flags: int = 0,
    ) -> None:
        """`tracker`: another than that of entries whose ids grow. `write_flags`: v3.DEFERRED_SYNC or 0; with it the LAC
        is moved by the owner."""
        self.on_confirmed: Callable[[int, int], None] = ignore_confirmed
        """Called with the first and the last entry confirmed, inclusive, in order. Their payloads are `sealed` until it returns."""
        self.on_failed: Callable[[LedgerError], None] = ignore_failed
        """Called once: nothing more will be confirmed."""
        self.on_bookies_failed: Callable[[], None] = ignore_bookies_failed
        """Called when `failed` has grown."""
        self.excuses: Callable[[int, BookieError], bool] = excuse_nobody
        """Whether the bookie at an index, which failed so, keeps its place; if not, those excused before fail with it."""
        self.ensemble = tuple(ensemble)
        self.failed: dict[int, BookieError] = {}
        """Ensemble indices that wait for a replacement, and why."""
        self.error: LedgerError | None = None
        """Why no more can be appended."""
        self.last_confirmed = confirmed
        """Last entry reported as confirmed, -1 for none."""
        self.lac = confirmed
        """Last add confirmed, as entries carry it; that which is reported, unless syncs are deferred."""
        self.lac_sent = -1
        """The LAC that the last entry sent carries."""
        self.length = length
        """Payload bytes of the ledger up to the last entry pushed."""
        self.pending_bytes = 0
        """Bytes of the frames kept for entries that are not confirmed."""
        self._context = context
        self._ledger_id = ledger_id
        self._striping = striping
        self._ack_quorum = ack_quorum
        self._sealer = sealer
        self._tracker = tracker or AckTracker(striping, ack_quorum, confirmed=confirmed)
        self._write_flags = write_flags
        self._pending: list[PendingRun] = []
        self._channels: list[AddChannel | None] = [None] * striping.ensemble_size
        self._opened: list[int] = [0] * striping.ensemble_size
        self._sending = 0
        self._lingering: trio.Event | None = None
        """Set when a member answers after the end, while its last acknowledgements are waited for."""
        self._ticking = False
        self._deadlines: AddDeadlines | None = None
        """While `_ticking`."""
        self._second: SecondTries | None = None
        """From the first bookie on that is asked again."""

    @property
    def last_pushed(self) -> int:
        """Last entry sent (LAP), -1 for none."""
        return self._tracker.pushed_last

    @property
    def excused(self) -> dict[int, BookieError]:
        """Ensemble indices that failed and keep their place, and why. They are sent nothing for now."""
        return {} if self._second is None else self._second.excused

    @property
    def confirmed(self) -> int:
        """Last entry confirmed, perhaps not reported yet."""
        return self._tracker.confirmed

    @property
    def confirmed_length(self) -> int:
        """Payload bytes of the ledger up to the last confirmed entry."""
        length = self.length
        for run in self._pending:
            unconfirmed = run.sizes[max(0, self.confirmed + 1 - run.first) :]
            length -= sum(unconfirmed)
        return length

    def append(self, payloads: Sequence[Buffer]) -> int:
        """Send a run of entries; returns the id of the first. Raises the writer's error, or EntryTooLargeError."""
        if self.error is not None:
            raise again(self.error) from self.error
        first = self._tracker.pushed_last + 1
        run = self._sealer.seal(first, self.lac, self.length, payloads)
        self._pending.append(run)
        self._push(run)
        return first

    def append_at(self, first: int, payloads: Sequence[Buffer]) -> None:
        """The same with the id of the first given; the tracker must know how to deal with that."""
        if self.error is not None:
            raise again(self.error) from self.error
        run = self._sealer.seal(first, self.lac, self.length, payloads)
        pending = self._pending
        place = len(pending)
        while place and pending[place - 1].first > first:
            place -= 1
        pending.insert(place, run)
        self._push(run)

    def _push(self, run: PendingRun) -> None:
        """Send what was put among the pending."""
        self.length += run.payload_size
        self.pending_bytes += run.size
        self.lac_sent = self.lac
        self._tracker.pushed(run.first, run.last)
        if not self._ticking:
            self._watch()
        self._sending += 1
        striped = self._striping.striped
        for index, channel in enumerate(self._channels):
            channel = channel or self._open_channel(index)
            if channel is None:
                continue
            if striped:
                frames, count = run.frames_between(index, run.first, run.last)
                if count:
                    channel.send(frames, count)
            else:
                channel.send(run.frames, len(run.sizes))
        self._sending -= 1

    def sealed(self, first: int, last: int) -> list[memoryview]:
        """Payloads of pending entries, `first` to `last` inclusive, without a copy. A view keeps its run's frame alive."""
        views: list[memoryview] = []
        for run in self._pending:
            if run.first > last:
                break
            if run.last >= first:
                views += run.payloads(first, last)
        return views

    def change_ensemble(self, ensemble: Sequence[str]) -> None:
        """Go on with these bookies: those that are new at their index get everything that is not confirmed."""
        if self.error is not None:
            return
        changed = [index for index, bookie_id in enumerate(ensemble) if bookie_id != self.ensemble[index]]
        self.ensemble = tuple(ensemble)
        for index in changed:
            self.failed.pop(index, None)
            self.excused.pop(index, None)
            self._release(index)
            self._tracker.replaced(index)
        for index in changed:
            self.resend(index)
        if self._tracker.resume() or self._tracker.confirmed > self.last_confirmed:
            self._report_confirmed()

    def resend(self, index: int) -> None:
        """Send everything that is not confirmed to the bookie at `index`."""
        if self._pending and not self._ticking:
            self._watch()
        self._sending += 1
        channel = self._channels[index] or self._open_channel(index)
        start = self._tracker.confirmed + 1
        for run in self._pending:
            if channel is None or self._channels[index] is not channel:
                break
            frames, count = run.frames_between(index, start, run.last)
            if count:
                channel.send(frames, count)
        self._sending -= 1

    def fail(self, error: LedgerError) -> None:
        """Nothing more is appended or confirmed. What is pending stays `sealed`."""
        if self.error is not None:
            return
        self.error = error
        self._linger()
        if self._sending:
            self._context.afterwards.call(self._report_failed)
        else:
            self._report_failed()

    def stop(self, error: LedgerError) -> None:
        """The same at the owner's wish: reported only if entries are pending."""
        if self.error is not None:
            return
        self._report_confirmed()
        if self._pending:
            self.fail(error)
        else:
            self.error = error
            self._linger()

    # --- what the channels and the wheel say

    def adds_answered(self, channel: AddChannel, rc: int, first: int, last: int) -> None:
        """Part of AddReceiver."""
        if not self._tracker.sent(first, last):
            error = BookieProtocolError(
                f"bookie {channel.bookie_id} answered adds {first}..{last}, which were not sent"
            )
            self._bookie_failed(channel.index, error)
        elif rc == Rc.OK and self.error is not None:
            # Entries that were not confirmed by the end never are: the ledger is closed before them.
            last = min(last, self._tracker.confirmed)
            if first <= last:
                self._tracker.acked(channel.index, first, last)
            if self._lingering is not None:
                self._lingering.set()
        elif rc == Rc.OK:
            if self._tracker.acked(channel.index, first, last):
                if self._sending:
                    self._context.afterwards.call(self._report_confirmed)
                else:
                    self._report_confirmed()
        elif self.error is not None:
            return
        elif rc == Rc.FENCED:
            self.fail(LedgerFencedError(f"ledger {self._ledger_id} was fenced, says bookie {channel.bookie_id}"))
        elif rc == Rc.UNAUTHORIZED:
            self.fail(
                LedgerUnauthorizedError(f"bookie {channel.bookie_id} knows ledger {self._ledger_id} by another key")
            )
        elif rc == Rc.TOO_MANY_REQUESTS:
            self._add_refused(channel, first, last)
        else:
            text = f"bookie {channel.bookie_id} answered {rc_name(rc)} to the add of {self._ledger_id}:{first}"
            self._bookie_failed(channel.index, BookieRefusedError(text, rc))

    def bookie_lost(self, channel: AddChannel, error: BookieUnavailableError) -> None:
        """Part of AddReceiver. With nothing under way the link is only made anew at the next append; but if syncs are deferred
        the bookie may have lost what it acknowledged, unless it was forced."""
        index = channel.index
        if self._channels[index] is not channel:
            return
        if self._lingering is not None:
            self._channels[index] = None
            self._lingering.set()
        elif self._tracker.waits(index) or (self._write_flags and self.lac < self._tracker.pushed_last):
            self._bookie_failed(index, error)
        else:
            self._channels[index] = None

    def tick(self, now: int) -> bool:
        """Part of Watched: bookies that lack what was sent before the timeout have failed."""
        tracker = self._tracker
        deadlines = self._deadlines
        assert deadlines is not None, "an appender that is watched has deadlines"
        watched = [index for index in range(len(self._channels)) if index not in self.excused]
        waiting = self.error is None and (
            any([tracker.waits(index) for index in watched]) or (deadlines.of_quorums and bool(self._pending))
        )
        moment = tracker.moment()
        if not waiting:
            self._ticking = False
            self._deadlines = None
            return False
        for due in deadlines.passed(now, moment):
            late = [index for index in watched if tracker.overdue(index, due)]
            for index in late:
                if deadlines.opened_in_time(now, self._opened[index]):
                    text = f"bookie {self.ensemble[index]} did not acknowledge adds of ledger {self._ledger_id} in time"
                    self._bookie_failed(index, BookieTimeoutError(text))
            if any([index not in self.failed and index not in self.excused for index in late]):
                deadlines.again(now, due)
        if any([tracker.unconfirmed(due) for due in deadlines.quorums_due(now)]):
            text = (
                f"an entry of ledger {self._ledger_id} after {tracker.confirmed} did not reach its ack quorum in time"
            )
            self.fail(AddQuorumTimeoutError(text))
        return True

    # --- members that lack confirmed entries

    def lacking(self) -> list[int]:
        """Indices of members that have not acknowledged all confirmed entries that they store."""
        tracker = self._tracker
        return [index for index in range(len(self._channels)) if tracker.lacks(index, tracker.confirmed)]

    def _linger(self) -> None:
        """Let go of the members; of those that lack confirmed entries when they have acknowledged them, or in a while."""
        late = self.lacking() if self._ack_quorum < self._striping.write_quorum else []
        for index in range(len(self._channels)):
            if index not in late:
                self._release(index)
        if late:
            self._lingering = trio.Event()
            self._context.start(self._await_late, f"last acknowledgements of ledger {self._ledger_id}")

    async def _await_late(self) -> None:
        with trio.move_on_after(self._context.config.add_timeout_s):
            while any([self._channels[index] is not None for index in self.lacking()]):
                self._lingering = trio.Event()
                await self._lingering.wait()
        self._lingering = None
        late = self.lacking()
        for index in range(len(self._channels)):
            self._release(index)
        if late:
            await note_unacked(self._context, self._ledger_id, WHOLE)

    # --- inside

    def _open_channel(self, index: int) -> AddChannel | None:
        """The channel to the bookie at `index`, made now; None if it has failed."""
        if index in self.failed or index in self.excused or self.error is not None:
            return None
        self._opened[index] = self._context.wheel.now
        try:
            channel = self._context.bookies.channel(
                self.ensemble[index], self._ledger_id, self, index, self._write_flags
            )
        except BookieUnavailableError as error:
            self._bookie_failed(index, error)
            return None
        self._channels[index] = channel
        return channel

    def _release(self, index: int) -> None:
        channel = self._channels[index]
        self._channels[index] = None
        if channel is not None:
            channel.release()

    def _bookie_failed(self, index: int, error: BookieError) -> None:
        if self.error is not None or index in self.failed:
            return
        self._context.health.failed(self.ensemble[index], error)
        self._release(index)
        if self.excuses(index, error):
            self._second_tries().excuse(index, error)
            return
        self.failed[index] = error
        self.failed.update(self.excused)
        self.excused.clear()
        for each in self.failed:
            self._tracker.failed(each)
        self.on_bookies_failed()

    def _renew(self, index: int) -> None:
        """Take a bookie back that was excused: what it acknowledged before is asked for again, if it is not confirmed."""
        if self.error is None and index not in self.failed:
            self._tracker.replaced(index)
            self.resend(index)

    def _add_refused(self, channel: AddChannel, first: int, last: int) -> None:
        """The bookie has too much to do: the same entries again after a pause, until the timeout. If they are confirmed
        and gone the bookie has failed, as it would miss them."""
        frames: list[v2.Frame] = []
        count = 0
        for run in self._pending:
            part, entries = run.frames_between(channel.index, first, last)
            frames += part
            count += entries
        if count < last - first + 1:
            text = f"bookie {channel.bookie_id} refused {self._ledger_id}:{first}..{last}: too many requests"
            self._bookie_failed(channel.index, BookieRefusedError(text, Rc.TOO_MANY_REQUESTS))
            return
        self._second_tries().refused(channel, frames, count)

    def _send_again(self, channel: AddChannel, frames: Sequence[v2.Frame], count: int) -> None:
        if self._channels[channel.index] is channel:
            channel.send(frames, count)

    def _second_tries(self) -> SecondTries:
        if self._second is None:
            name = f"ledger {self._ledger_id}"
            self._second = SecondTries(self._context, name, send=self._send_again, renew=self._renew)
        return self._second

    def _watch(self) -> None:
        self._ticking = True
        wheel, config = self._context.wheel, self._context.config
        quorum_timeout_s = config.add_quorum_timeout_s
        self._deadlines = AddDeadlines(
            wheel.ticks(config.add_timeout_s), None if quorum_timeout_s is None else wheel.ticks(quorum_timeout_s)
        )
        wheel.watch(self)

    def _report_confirmed(self) -> None:
        first = self.last_confirmed + 1
        last = self._tracker.confirmed
        if first > last:
            return
        self.last_confirmed = last
        if not self._write_flags:
            self.lac = last
        try:
            self.on_confirmed(first, last)
        except Exception as error:
            self._context.faults.raised(f"what hears of confirmed entries of ledger {self._ledger_id}", error)
        pending = self._pending
        done = 0
        for run in pending:
            if run.last > last:
                break
            self.pending_bytes -= run.size
            done += 1
        del pending[:done]

    def _report_failed(self) -> None:
        assert self.error is not None
        self._report_confirmed()
        try:
            self.on_failed(self.error)
        except Exception as error:
            self._context.faults.raised(f"what hears of the end of the writer of ledger {self._ledger_id}", error)
