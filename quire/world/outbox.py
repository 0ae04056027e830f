"""Outbox: data waiting to be sent on one connection. Turn: the pass of the event loop at whose end it leaves.

Writers append to an outbox and continue. One `flush` at the end of a pass sends everything the peer's window accepts in
one call. Only the rest needs a task: `run`, started once per connection, waits until the peer accepts more.

A server with many connections has one turn, in which it marks each outbox that it writes to. A pass that knows its end
(a chunk was received and worked on) calls `Turn.flush`; marks made elsewhere (a journal group was confirmed) are
flushed by the task `Turn.run`, in the next step of the scheduler. So no output waits, and none is written twice.

A pass is also bounded in the work that it may do (`left`). What has to go on is put off with `later`: the task `run`
calls it in a step of its own, in order, so that others have their turn between two steps.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence

import trio

from quire.world.doors import Buffer, Stream
from quire.world.faults import Faults

PASS_WORK = 4000
"""Work of one pass, in units of about one entry that a broker delivers to an Exclusive consumer.

4000 entries to an Exclusive consumer, 1300 to Shared or 500 to Key_Shared ones take 2 to 5 ms each. So one FLOW of an
official client (half of its queue, 500) is served in one pass."""


class Queued:
    """Bytes that wait in several outboxes together."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Outbox:
    """Sends parts over `stream`, whole and in order, without waiting if possible.

    Parts are not copied: they must not change until sent. More than `bytes_max` unsent bytes break the connection
    (OSError, ENOBUFS): the bound for writers that do not use `wait_below`.
    A broken connection is recorded in `broken` and reported once, to `on_broken`, which is called within `flush` or
    `run` and must not raise; from then on everything written is dropped.

    Data that a peer does not accept at once is sent by a task: one that runs all the time (`run`), or, if there are
    thousands of outboxes, one that `on_stalled` starts when needed (`drain`).
    """

    __slots__ = (
        "_bytes_max",
        "_on_broken",
        "_on_stalled",
        "_parts",
        "_progress",
        "_queued",
        "_running",
        "_stalled",
        "_stream",
        "broken",
        "pending_bytes",
    )

    def __init__(
        self,
        stream: Stream,
        *,
        bytes_max: int = 64 << 20,
        on_broken: Callable[[OSError], None] | None = None,
        on_stalled: Callable[[], None] | None = None,
        queued: Queued | None = None,
    ) -> None:
        self._stream = stream
        self._bytes_max = bytes_max
        self._on_broken = on_broken
        self._on_stalled = on_stalled
        """Starts `drain`; called within `flush`, and not again before `drain` has ended."""
        self._queued = queued or Queued()
        """Shared counter that includes the bytes pending here."""
        self._parts: list[Buffer] = []
        self._stalled = trio.Event()
        """Set while the peer's window is full and `run` has to wait for it."""
        self._progress: trio.Event | None = None
        """Set when bytes are sent, for a task that waits for fewer pending bytes."""
        self._running = False
        self.pending_bytes = 0
        """Bytes written and not yet accepted by the peer's window."""
        self.broken: OSError | None = None
        """Error after which nothing can be sent, if any."""

    def write(self, parts: Sequence[Buffer], size: int = -1) -> None:
        """Append `parts`; they leave with the next `flush`.

        `size`: their bytes, if known to the caller (-1: unknown).
        """
        if self.broken is None:
            self._parts += parts
            if size < 0:
                size = sum(map(len, parts))
            self.pending_bytes += size
            self._queued.bytes += size

    def flush(self) -> None:
        """Send what the peer accepts now; `run` sends the rest."""
        # While `run` waits for the peer's window another attempt is pointless, and its order is the right one.
        if self._parts and not (self._running and self._stalled.is_set()):
            self._send()
            if self._on_stalled is not None and not self._running and self._stalled.is_set() and self.broken is None:
                self._running = True
                self._on_stalled()
        if self.pending_bytes > self._bytes_max:
            self.fail(OSError(errno.ENOBUFS, f"the peer is too slow: {self.pending_bytes} bytes wait"))

    def fail(self, error: OSError) -> None:
        """Break the connection for a reason given by the caller; only the first call counts."""
        if self.broken is None:
            # They have frames of the whole pass, with everything that was received in it.
            error.__traceback__ = error.__context__ = None
            self.broken = error
            self._parts = []
            self._queued.bytes -= self.pending_bytes
            self.pending_bytes = 0
            self._stalled.set()
            self._wake()
            on_broken, self._on_broken, self._on_stalled = self._on_broken, None, None  # they hold their owner
            if on_broken is not None:
                on_broken(error)

    async def run(self) -> None:
        """Send the rest left by `flush`, whenever the peer accepts more. Returns when the connection is broken."""
        self._running = True
        try:
            while True:
                await self._stalled.wait()
                await self._send_rest()
                if self.broken is not None:
                    return
        finally:
            self._running = False

    async def drain(self) -> None:
        """Send the rest left by `flush`; return when all of it is sent, or the connection is broken."""
        try:
            await self._send_rest()
        finally:
            self._running = False

    async def _send_rest(self) -> None:
        while self._parts and self.broken is None:
            try:
                await self._stream.wait_writable()
            except OSError as error:
                self.fail(error)
            else:
                self._send()
        if self.broken is None:
            self._stalled = trio.Event()

    async def wait_below(self, size: int) -> None:
        """Wait until at most `size` bytes are pending, or the connection is broken. Needs `run`, or `on_stalled`."""
        while self.pending_bytes > size:
            if self._progress is None:
                self._progress = trio.Event()
            await self._progress.wait()

    def _send(self) -> None:
        parts = self._parts
        try:
            taken = self._stream.send_nowait(parts)
        except OSError as error:
            self.fail(error)
            return
        if taken == self.pending_bytes:
            self._parts = []
        else:
            self._stalled.set()
            if taken == 0:
                return
            self._drop(taken)
        self.pending_bytes -= taken
        self._queued.bytes -= taken
        if self._progress is not None:
            self._wake()

    def _drop(self, size: int) -> None:
        """Forget the first `size` pending bytes, which end within some part."""
        parts = self._parts
        index = 0
        while size >= len(parts[index]):
            size -= len(parts[index])
            index += 1
        del parts[:index]
        if size:
            parts[0] = memoryview(parts[0])[size:]

    def _wake(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None


class Turn:
    """Passes of one process: what they write leaves in one write per connection."""

    __slots__ = ("_dirty", "_later", "_task", "_woken", "faults", "left", "working")

    def __init__(self) -> None:
        self.faults = Faults()
        """Handler of exceptions raised in a flush."""
        self._dirty: dict[Outbox, None] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._task: trio.lowlevel.Task | None = None
        self._woken = False
        self.working = False
        """True while a pass is under way that calls `flush` at its end, so that no task has to be woken."""
        self.left = PASS_WORK
        """Remaining work of the pass; may go below 0. Work that finds 0 or less goes on `later`."""

    def mark(self, outbox: Outbox) -> None:
        """Mark `outbox`: it has something to send at the end of this pass."""
        if not self.working:
            self._wake()
        self._dirty[outbox] = None

    def later(self, work: Callable[[], None]) -> None:
        """Call `work` in a later step of the event loop, after work deferred earlier."""
        self._wake()
        self._later.append(work)

    @property
    def busy(self) -> bool:
        """Return whether any work was deferred."""
        return bool(self._later)

    def _wake(self) -> None:
        if self._task is not None and not self._woken:
            self._woken = True
            trio.lowlevel.reschedule(self._task)

    def flush(self) -> None:
        """Send the marked output at the end of a pass."""
        self.working = False
        self.left = PASS_WORK
        try:
            while self._dirty:
                dirty = self._dirty
                self._dirty = {}
                for outbox in dirty:
                    outbox.flush()
        except Exception as error:
            # Not the fault of the connection whose pass this is: what the other outboxes hold may never leave.
            self.faults.raised("the end of a pass", error)

    def step(self) -> None:
        """Send the marked output, then run one pass of the deferred work."""
        self.flush()
        if self._later:
            self.working = True
            try:
                while self._later and self.left > 0:
                    self._later.popleft()()
            finally:
                self.flush()

    async def run(self) -> None:
        """Do, step by step, what was put off, and flush whatever was marked outside of a pass with an end of its own.
        Runs until cancelled."""

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            if self._dirty or self._later:
                self.faults.call("the end of a pass", self.step)
                await trio.lowlevel.cancel_shielded_checkpoint()
                continue
            self._task = trio.lowlevel.current_task()
            self._woken = False
            await trio.lowlevel.wait_task_rescheduled(abort)
            self._task = None
