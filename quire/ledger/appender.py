"""Appender: sends sealed runs to the bookies of the current ensemble and reports what is confirmed. Synchronous throughout.

It is the engine of the writer and of recovery, which differ in what becomes of a failed bookie: it tells them by
`on_bookies_failed`, and they answer with `change_ensemble` or `fail`. Until then nothing is confirmed.

    append -> seal -> pending -> channels (one per bookie) ... adds_answered -> AckTracker -> on_confirmed -> run let go

Nothing is reported from within `append`: answers that come that early are reported in a pass of their own right after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import trio

from quire.ledger.ack_tracker import AckTracker
from quire.ledger.bookie_client import AddChannel
from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
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
from quire.ledger.pending import PendingRun, Sealer
from quire.ledger.striping import Striping
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc


def ignore_confirmed(first: int, last: int) -> None:
    """Nobody wants to know."""


def ignore_failed(error: LedgerError) -> None:
    """Nobody wants to know."""


class Appender:
    """Appends to one ledger, as the only writer in this process."""

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
    ) -> None:
        self.on_confirmed: Callable[[int, int], None] = ignore_confirmed
        """Called with the first and the last entry confirmed, inclusive, in order. Their payloads are `sealed` until it returns."""
        self.on_failed: Callable[[LedgerError], None] = ignore_failed
        """Called once: nothing more will be confirmed."""
        self.on_bookies_failed: Callable[[], None] = lambda: None
        """Called when `failed` has grown."""
        self.ensemble = tuple(ensemble)
        self.failed: dict[int, BookieError] = {}
        """Ensemble indices that wait for a replacement, and why."""
        self.error: LedgerError | None = None
        """Why no more can be appended."""
        self.last_confirmed = confirmed
        """Last entry reported as confirmed (LAC), -1 for none."""
        self.length = length
        """Payload bytes of the ledger up to the last entry pushed."""
        self.pending_bytes = 0
        """Bytes of the frames kept for entries that are not confirmed."""
        self._context = context
        self._ledger_id = ledger_id
        self._striping = striping
        self._sealer = sealer
        self._tracker = AckTracker(striping, ack_quorum, confirmed=confirmed)
        self._pending: deque[PendingRun] = deque()
        self._channels: list[AddChannel | None] = [None] * striping.ensemble_size
        self._opened: list[int] = [0] * striping.ensemble_size
        self._sending = 0
        self._ticking = False
        self._history: deque[tuple[int, int]] = deque()
        self._timeout_ticks = context.wheel.ticks(context.config.add_timeout_s)
        self._refused: list[tuple[AddChannel, list[v2.Frame], int]] = []
        self._retrying = False

    @property
    def last_pushed(self) -> int:
        """Last entry sent (LAP), -1 for none."""
        return self._tracker.pushed_last

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
            raise type(self.error)(*self.error.args)
        tracker = self._tracker
        first = tracker.pushed_last + 1
        run = self._sealer.seal(first, self.last_confirmed, self.length, payloads)
        self.length += run.payload_size
        self.pending_bytes += run.size
        self._pending.append(run)
        tracker.pushed(first, run.last)
        if not self._ticking:
            self._ticking = True
            self._context.wheel.watch(self)
        self._sending += 1
        striped = self._striping.striped
        for index, channel in enumerate(self._channels):
            channel = channel or self._open_channel(index)
            if channel is None:
                continue
            if striped:
                frames, count = run.frames_between(index, first, run.last)
                if count:
                    channel.send(frames, count)
            else:
                channel.send(run.frames, len(run.sizes))
        self._sending -= 1
        return first

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
            self._release(index)
            self._tracker.replaced(index)
        for index in changed:
            self.resend(index)
        if self._tracker.resume() or self._tracker.confirmed > self.last_confirmed:
            self._report_confirmed()

    def resend(self, index: int) -> None:
        """Send everything that is not confirmed to the bookie at `index`."""
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
        for index in range(len(self._channels)):
            self._release(index)
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
            for index in range(len(self._channels)):
                self._release(index)

    # --- what the channels and the wheel say

    def adds_answered(self, channel: AddChannel, rc: int, first: int, last: int) -> None:
        """Part of AddReceiver."""
        if first < 0 or last > self._tracker.pushed_last:
            error = BookieProtocolError(
                f"bookie {channel.bookie_id} answered adds {first}..{last}, which were not sent"
            )
            self._bookie_failed(channel.index, error)
        elif rc == Rc.OK:
            if self._tracker.acked(channel.index, first, last):
                if self._sending:
                    self._context.afterwards.call(self._report_confirmed)
                else:
                    self._report_confirmed()
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
        """Part of AddReceiver. With nothing under way the link is only made anew at the next append."""
        index = channel.index
        if self._channels[index] is not channel:
            return
        if self._tracker.lacks(index, self._tracker.pushed_last):
            self._bookie_failed(index, error)
        else:
            self._channels[index] = None

    def tick(self, now: int) -> bool:
        """Part of Watched: bookies that lack what was sent before the timeout have failed."""
        pushed_last = self._tracker.pushed_last
        waiting = self.error is None and any(
            self._tracker.lacks(index, pushed_last) for index in range(len(self._channels))
        )
        if not waiting:
            self._ticking = False
            self._history.clear()
            return False
        self._history.append((now, pushed_last))
        overdue = now - self._timeout_ticks
        overdue_last = -1
        while self._history and self._history[0][0] <= overdue:
            overdue_last = self._history.popleft()[1]
        for index, bookie_id in enumerate(self.ensemble):
            if self._opened[index] <= overdue and self._tracker.lacks(index, overdue_last):
                text = f"bookie {bookie_id} did not acknowledge ledger {self._ledger_id} up to entry {overdue_last} in time"
                self._bookie_failed(index, BookieTimeoutError(text))
        return True

    # --- inside

    def _open_channel(self, index: int) -> AddChannel | None:
        """The channel to the bookie at `index`, made now; None if it has failed."""
        if index in self.failed or self.error is not None:
            return None
        self._opened[index] = self._context.wheel.now
        try:
            channel = self._context.bookies.channel(self.ensemble[index], self._ledger_id, self, index)
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
        self.failed[index] = error
        self._tracker.failed(index)
        self._release(index)
        self.on_bookies_failed()

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
        self._refused.append((channel, frames, count))
        if not self._retrying:
            self._retrying = True
            self._context.start(self._send_refused, f"ledger {self._ledger_id} retry")

    async def _send_refused(self) -> None:
        config = self._context.config
        pause = config.retry_pause_s
        while self._refused:
            await trio.sleep(pause)
            pause = min(pause * 2, config.retry_pause_max_s)
            refused, self._refused = self._refused, []
            for channel, frames, count in refused:
                if self._channels[channel.index] is channel:
                    channel.send(frames, count)
        self._retrying = False

    def _report_confirmed(self) -> None:
        first = self.last_confirmed + 1
        last = self._tracker.confirmed
        if first > last:
            return
        self.last_confirmed = last
        self.on_confirmed(first, last)
        pending = self._pending
        while pending and pending[0].last <= last:
            self.pending_bytes -= pending.popleft().size

    def _report_failed(self) -> None:
        assert self.error is not None
        self._report_confirmed()
        self.on_failed(self.error)
