"""A connection in memory whose window, and whose cuts between receives, a test chooses."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import trio

from quire.world.doors import Buffer


class Pipe:
    """One end. Everything is accepted at once, or at most `window` unread bytes."""

    peer = "pipe"
    peer_certificate: bytes | None = None

    def __init__(self, window: int, cuts: Iterable[int]) -> None:
        self.window = window
        self.sent = bytearray()
        """Everything that was ever sent."""
        self.sends = 0
        self.receives = 0
        """Receives that returned bytes."""
        self.flip_next = False
        """Change a bit of what is sent next."""
        self.closed = False
        self.other: Pipe = self
        self._cuts: Iterator[int] = itertools.cycle(cuts)
        self._arrived = bytearray()
        self._changed = trio.Event()

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        assert 0 < at_least <= len(buffer)
        await trio.lowlevel.checkpoint()
        while not self._arrived and not self.closed and not self.other.closed:
            await self._changed.wait()
        if self.closed:
            return 0
        size = min(len(buffer), len(self._arrived), next(self._cuts))
        buffer[:size] = self._arrived[:size]
        del self._arrived[:size]
        self.receives += bool(size)
        self.other.wake()
        return size

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        if self.closed or self.other.closed:
            raise BrokenPipeError(32, "closed")
        data = bytearray(b"".join(parts)[: max(0, self.window - len(self.other._arrived))])
        self.sends += 1
        if self.flip_next and data:
            self.flip_next = False
            data[-1] ^= 1
        self.sent += data
        self.other._arrived += data
        self.other.wake()
        return len(data)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while len(self.other._arrived) >= self.window and not self.closed and not self.other.closed:
            await self._changed.wait()
        if self.closed or self.other.closed:
            raise BrokenPipeError(32, "closed")

    def close(self) -> None:
        self.closed = True
        self.wake()
        self.other.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def pipe_pair(*, window: int = 1 << 30, cuts: Iterable[int] = (1 << 30,)) -> tuple[Pipe, Pipe]:
    """Return both ends; a receive returns at most the next of `cuts` bytes, in turn."""
    cuts = tuple(cuts)
    near, far = Pipe(window, cuts), Pipe(window, cuts)
    near.other, far.other = far, near
    return near, far
