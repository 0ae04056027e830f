"""Appender: sends sealed runs to the bookies of the current ensemble and reports confirmations. It is synchronous
throughout.

It is used by writers and by recovery, which handle failed bookies differently: it calls `on_bookies_failed`, and they
call `change_ensemble` or `fail`. Until then nothing is confirmed. If `excuses` returns True, a failed bookie keeps its
place: the others continue without it, and it is used again after a pause.

    append -> seal -> pending -> channels (one per bookie) ... adds_answered -> AckTracker -> on_confirmed -> run let go

Nothing is reported from within `append`: answers that arrive so early are reported in a pass of their own right after.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from operator import attrgetter

from quire.ledger.bookies.pool import AddChannel
from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    BookieError,
    BookieRefusedError,
    BookieUnavailableError,
    LedgerError,
)
from quire.ledger.striping import Striping
from quire.ledger.writing.ack_tracker import AckTracker
from quire.ledger.writing.add_deadlines import AddDeadlines
from quire.ledger.writing.answers import late_bookie, late_quorum, refusal_of, unasked
from quire.ledger.writing.late_acks import LateAcks
from quire.ledger.writing.pending_runs import PendingRun, Sealer, frames_of, payload_bytes_behind, take_confirmed
from quire.ledger.writing.second_tries import SecondTries
from quire.ledger.writing.unheard import excuse_nobody, ignore_bookies_failed, ignore_confirmed, ignore_failed
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from quire.world.errors import again


class Appender:
    """Appender to one ledger. It must be the only one in this process."""

    __slots__ = (
        "__weakref__",  # (the simulator keeps its observations by writer)
        "_ack_quorum",
        "_channels",
        "_context",
        "_deadlines",
        "_late",
        "_ledger_id",
        "_opened",
        "_pending",
        "_sealer",
        "_second",
        "_sending",
        "_striping",
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
        """`tracker`: an ack tracker for ids that do not ascend. `write_flags`: v3.DEFERRED_SYNC or 0; with it the owner
        advances the LAC."""
        self.on_confirmed: Callable[[int, int], None] = ignore_confirmed
        """Called with the first and the last confirmed entry, inclusive, in order. Their payloads are `sealed` until it
        returns."""
        self.on_failed: Callable[[LedgerError], None] = ignore_failed
        """Called once, when nothing more will be confirmed."""
        self.on_bookies_failed: Callable[[], None] = ignore_bookies_failed
        """Called when `failed` has grown."""
        self.excuses: Callable[[int, BookieError], bool] = excuse_nobody
        """Decides whether the bookie at an index keeps its place after this error. If not, bookies excused earlier fail
        with it."""
        self.ensemble = tuple(ensemble)
        self.failed: dict[int, BookieError] = {}
        """Ensemble indices that wait for a replacement, with the errors."""
        self.error: LedgerError | None = None
        """Error that ended the appender, if any."""
        self.last_confirmed = confirmed
        """Last entry reported as confirmed, -1 for none."""
        self.lac = confirmed
        """Last add confirmed as carried by entries: the reported one, unless syncs are deferred."""
        self.lac_sent = -1
        """LAC carried by the last entry sent."""
        self.length = length
        """Payload bytes of the ledger up to the last entry pushed."""
        self.pending_bytes = 0
        """Bytes of the frames kept for unconfirmed entries."""
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
        self._late: LateAcks | None = None
        """Set at the end, if last acknowledgements are waited for."""
        self._deadlines: AddDeadlines | None = None
        """Deadlines while the wheel watches the appender, else None."""
        self._second: SecondTries | None = None
        """Second tries, created when the first bookie has to be asked again."""

    @property
    def last_pushed(self) -> int:
        """Return the last entry sent (LAP), -1 for none."""
        return self._tracker.pushed_last

    @property
    def excused(self) -> dict[int, BookieError]:
        """Return ensemble indices that failed and keep their place, with the errors. They are sent nothing for now."""
        return {} if self._second is None else self._second.excused

    @property
    def confirmed(self) -> int:
        """Return the last entry confirmed, perhaps not reported yet."""
        return self._tracker.confirmed

    @property
    def confirmed_length(self) -> int:
        """Return the payload bytes of the ledger up to the last confirmed entry."""
        return self.length - payload_bytes_behind(self._pending, self.confirmed)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is under way, and no bookie has failed."""
        busy = self._pending or self._deadlines or self._second or self.failed or self.error
        return not busy and not any(map(self._tracker.waits, range(len(self._channels))))

    def append(self, payloads: Sequence[Buffer], at: int = -1) -> int:
        """Send a run of entries; return the id of the first. Raises the appender's error, or EntryTooLargeError.

        `at`: id of the first entry, if the owner gives it; the tracker must support that.
        """
        if self.error is not None:
            raise again(self.error) from self.error
        first = self._tracker.pushed_last + 1 if at < 0 else at
        run = self._sealer.seal(first, self.lac, self.length, payloads)
        if at < 0:
            self._pending.append(run)
        else:
            insort(self._pending, run, key=attrgetter("first"))
        self.length += run.payload_size
        self.pending_bytes += run.size
        self.lac_sent = self.lac
        self._tracker.pushed(run.first, run.last)
        self._context.stats.pushed(run)
        if self._deadlines is None:
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
        return first

    def sealed(self, first: int, last: int) -> list[memoryview]:
        """Return views of the payloads of pending entries, `first` to `last` inclusive.

        A view keeps its run's frame alive.
        """
        views: list[memoryview] = []
        for run in self._pending:
            if run.first > last:
                break
            if run.last >= first:
                views += run.payloads(first, last)
        return views

    def change_ensemble(self, ensemble: Sequence[str]) -> None:
        """Continue with these bookies: those that are new at their index get all unconfirmed entries."""
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
        """Send all unconfirmed entries to the bookie at `index`."""
        if self._pending and self._deadlines is None:
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
        """End the appender with an error: nothing more is appended or confirmed. Pending entries stay `sealed`."""
        if self.error is not None:
            return
        self.error = error
        self._linger()
        if self._sending:
            self._context.afterwards.call(self._report_failed)
        else:
            self._report_failed()

    def stop(self, error: LedgerError) -> None:
        """End the appender at the owner's request; reported only if entries are pending."""
        if self.error is not None:
            return
        self._report_confirmed()
        if self._pending:
            self.fail(error)
        else:
            self.error = error
            self._linger()

    # --- called by the channels and the wheel

    def adds_answered(self, channel: AddChannel, rc: int, first: int, last: int) -> None:
        """Handle answers to adds. Part of AddReceiver."""
        if not self._tracker.sent(first, last):
            error = unasked(channel.bookie_id, first, last)
            self._bookie_failed(channel.index, error)
        elif rc == Rc.OK and self.error is not None:
            # Entries that are unconfirmed at the end are never confirmed: the ledger is closed before them.
            last = min(last, self._tracker.confirmed)
            if first <= last:
                self._tracker.acked(channel.index, first, last)
            if self._late is not None:
                self._late.answered()
        elif rc == Rc.OK:
            if self._tracker.acked(channel.index, first, last):
                if self._sending:
                    self._context.afterwards.call(self._report_confirmed)
                else:
                    self._report_confirmed()
        elif self.error is not None:
            return
        elif rc == Rc.TOO_MANY_REQUESTS:
            self._add_refused(channel, first, last)
        else:
            refusal = refusal_of(rc, self._ledger_id, first, channel.bookie_id)
            if isinstance(refusal, BookieError):
                self._bookie_failed(channel.index, refusal)
            else:
                self.fail(refusal)

    def bookie_lost(self, channel: AddChannel, error: BookieUnavailableError) -> None:
        """Handle a broken link. Part of AddReceiver.

        If nothing is pending, the link is only opened again at the next append. But with deferred syncs the bookie may
        have lost acknowledged entries, unless they were forced.
        """
        index = channel.index
        if self._channels[index] is not channel:
            return
        if self._late is not None:
            self._channels[index] = None
            self._late.answered()
        elif self._tracker.waits(index) or (self._write_flags and self.lac < self._tracker.pushed_last):
            self._bookie_failed(index, error)
        else:
            self._channels[index] = None

    def tick(self, now: int) -> bool:
        """Fail bookies that have not acknowledged entries sent before the timeout. Part of Watched."""
        tracker = self._tracker
        deadlines = self._deadlines
        assert deadlines is not None, "an appender that is watched has deadlines"
        watched = [index for index in range(len(self._channels)) if index not in self.excused]
        waiting = self.error is None and (
            any([tracker.waits(index) for index in watched]) or (deadlines.of_quorums and bool(self._pending))
        )
        moment = tracker.moment()
        if not waiting:
            self._deadlines = None
            return False
        for due in deadlines.passed(now, moment):
            late = [index for index in watched if tracker.overdue(index, due)]
            for index in late:
                if deadlines.opened_in_time(now, self._opened[index]):
                    self._bookie_failed(index, late_bookie(self.ensemble[index], self._ledger_id))
            if any([index not in self.failed and index not in self.excused for index in late]):
                deadlines.again(now, due)
        if any([tracker.unconfirmed(due) for due in deadlines.quorums_due(now)]):
            self.fail(late_quorum(self._ledger_id, tracker.confirmed))
        return True

    # --- members that lack confirmed entries

    def lacking(self) -> list[int]:
        """Return indices of members that have not acknowledged all confirmed entries that they store."""
        return self._tracker.lacking()

    async def note_late(self) -> None:
        """Have the ledger noted if a member lacks confirmed entries; after the end, before the close is stored."""
        if self._late is not None:
            await self._late.note()

    def _linger(self) -> None:
        """Release the members.

        Members that lack confirmed entries are released when they have acknowledged them, or after a while.
        """
        late = self.lacking() if self._ack_quorum < self._striping.write_quorum else []
        for index in range(len(self._channels)):
            if index not in late:
                self._release(index)
        if late:
            self._late = LateAcks(self._context, self._ledger_id, self._tracker, self._channels)
            self._context.start(self._late.wait, f"last acknowledgements of ledger {self._ledger_id}")

    # --- internals

    def _open_channel(self, index: int) -> AddChannel | None:
        """Open the channel to the bookie at `index`; None if it has failed."""
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
        self._context.stats.adds_lacking += self._tracker.lacked(index)
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
        """Use an excused bookie again: send the unconfirmed entries that it acknowledged before once more."""
        if self.error is None and index not in self.failed:
            self._tracker.replaced(index)
            self.resend(index)

    def _add_refused(self, channel: AddChannel, first: int, last: int) -> None:
        """Send the entries again after a pause, until the timeout: the bookie is overloaded.

        If the entries are confirmed and no longer kept, the bookie has failed, because it would lack them.
        """
        frames, count = frames_of(self._pending, channel.index, first, last)
        if count < last - first + 1:
            text = f"bookie {channel.bookie_id} refused {self._ledger_id}:{first}..{last}: too many requests"
            self._bookie_failed(channel.index, BookieRefusedError(text, Rc.TOO_MANY_REQUESTS))
            return
        self._second_tries().refused(channel, frames, count)

    def _second_tries(self) -> SecondTries:
        if self._second is None:
            name = f"ledger {self._ledger_id}"
            self._second = SecondTries(self._context, name, self._channels, renew=self._renew)
        return self._second

    def _watch(self) -> None:
        config, wheel = self._context.config, self._context.wheel
        self._deadlines = AddDeadlines.of(config.add_timeout_s, config.add_quorum_timeout_s, wheel.ticks)
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
            self._context.faults.raised(f"callback for confirmed entries of ledger {self._ledger_id}", error)
        done = take_confirmed(self._pending, last)
        self.pending_bytes -= sum([run.size for run in done])
        self._context.stats.ended(done, good=True)

    def _report_failed(self) -> None:
        assert self.error is not None
        self._report_confirmed()
        self._context.stats.ended(self._pending, good=False)
        try:
            self.on_failed(self.error)
        except Exception as error:
            self._context.faults.raised(f"callback for the end of the writer of ledger {self._ledger_id}", error)
