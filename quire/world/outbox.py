"""Outbox: data waiting to be sent on one connection.

Writers append and continue. One `flush` at the end of a pass sends everything the peer's window accepts in one call.
Only the rest needs a task: `run`, started once per connection, waits until the peer accepts more.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import trio

from quire.world.doors import Buffer, Stream


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
            self.broken = error
            self._parts = []
            self._queued.bytes -= self.pending_bytes
            self.pending_bytes = 0
            self._stalled.set()
            self._wake()
            if self._on_broken is not None:
                self._on_broken(error)

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
