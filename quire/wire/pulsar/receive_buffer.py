"""The bytes of one connection on their way from the socket to the splitter, without a copy of what is whole.

A connection begins with 4 KiB, and gets eight times as much whenever a receive has filled its buffer, up to 256 KiB: so an
idle one holds little, and a busy one has the large buffer after two receives. The partial frame at the end moves to the
front. A frame that does not fit gets larger buffers as its bytes arrive, the last one of exactly its size; that is checked
against the limit before the first is made.
"""

from __future__ import annotations

import mmap
from typing import Generic, Protocol, TypeVar

from quire.wire.pulsar.splitter import Item, SendRun, Splitter

T = TypeVar("T")

IDLE_SIZE = 4 * 1024
"""Bytes of the buffer of a connection that has little to say."""
CHUNK_SIZE = 256 * 1024
"""Bytes received at most in one go."""
CHUNK_GROWTH = 8
"""The buffer grows by this factor when a receive has filled it, up to CHUNK_SIZE."""

KEPT_MIN = 16 * 1024
"""Payloads above this many bytes are kept by those who get them, so the buffer they lie in is never written again;
smaller ones are copied out before the next `received`."""


GROWTH = 4
"""The buffer of a large frame grows by this factor when it is full, up to the frame's size."""


class Cutter(Protocol[T]):
    """Cuts bytes into what they mean; see `Splitter` and `ClientSplitter`."""

    def needed(self, chunk: memoryview, start: int, end: int) -> int:
        """Bytes of the whole frame that begins at `start`, at least 4; FrameError if it is above the limit."""

    def split(self, chunk: memoryview, start: int, end: int) -> tuple[list[T], int]:
        """Read all whole frames in chunk[start:end]; what they are, and how many bytes they took."""


class ChunkBuffer(Generic[T]):
    """For one connection: `space()` to receive into, then `received(n)` for what came of it.

    What a cutter hands out as views is valid until the next `space()`, unless `_kept` says that it stays.
    """

    __slots__ = ("_chunk", "_end", "_splitter", "_start", "_view", "missing", "more")

    def __init__(self, splitter: Cutter[T]) -> None:
        self._splitter = splitter
        self._chunk = IDLE_SIZE
        """Size of a buffer with no large frame in it, as the traffic has made it so far."""
        self._view = memoryview(bytearray(IDLE_SIZE))
        self._start = 0
        self._end = 0
        self.missing = 1
        """Bytes without which nothing more is complete, as far as that is known."""
        self.more = False
        """The splitter stopped before the end of what is whole: call `received(0)` before more is received."""

    @property
    def buffered(self) -> int:
        """Bytes that are not split yet: of a frame that is not complete, or whole ones after `more`."""
        return self._end - self._start

    @property
    def size(self) -> int:
        """Bytes of memory held."""
        return len(self._view)

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._start:
            self._move(self._view)
        return self._view[self._end :]

    def received(self, size: int) -> list[T]:
        """`size` bytes were put at the start of `space()`: what is complete now; all of it unless `more` is set then.
        FrameError as from the splitter."""
        view = self._view
        self._end += size
        filled = self._end == len(view)
        items, consumed = self._splitter.split(view, self._start, self._end)
        self._start += consumed
        needed = self._splitter.needed(view, self._start, self._end)
        held = self._end - self._start
        self.missing = max(1, needed - held)
        self.more = needed <= held
        if filled and self._chunk < CHUNK_SIZE:
            self._chunk = min(CHUNK_SIZE, CHUNK_GROWTH * self._chunk)
        if self._kept(items):
            # A large frame that begins here gets what it needs: its buffer is kept as well, and should hold little else.
            exact = held < KEPT_MIN < needed <= self._chunk
            size = needed if exact else max(self._chunk, held + 1, min(needed, GROWTH * held))
            self._move(memoryview(bytearray(size)))
        elif needed <= KEPT_MIN and len(view) != self._chunk and held < self._chunk:
            self._move(_lasting(self._chunk))
        elif held == len(view):
            # Grown as the bytes arrive: a length that is only announced takes no memory.
            self._move(_lasting(max(self._chunk, min(needed, GROWTH * held), held + 1)))
        return items

    def rest(self) -> None:
        """Nothing has come for a while: hold no more than a new connection does, and what is buffered. Not while a view from
        `space()` is in use."""
        self._chunk = IDLE_SIZE
        size = max(IDLE_SIZE, self.buffered + 1)
        if size < len(self._view):
            self._move(memoryview(bytearray(size)))

    def _move(self, target: memoryview) -> None:
        """Continue in `target` (maybe the same buffer) with the partial frame at its front."""
        pending = self._end - self._start
        target[:pending] = self._view[self._start : self._end]
        self._view = target
        self._start = 0
        self._end = pending

    def _kept(self, items: list[T]) -> bool:
        """Whether something in `items` is a view that somebody may keep: then this buffer is never written again."""
        return False


def _lasting(size: int) -> memoryview:
    """A buffer that is used for long. A large one has pages of its own, which the machine has back when it is dropped: on the
    heap thousands of them would leave holes that stay with the process. (Making it costs ten times as much, so buffers that
    are kept with the payloads in them are not of this kind.)"""
    return memoryview(mmap.mmap(-1, size) if size == CHUNK_SIZE else bytearray(size))


class ReceiveBuffer(ChunkBuffer[Item]):
    """What a server receives. Views of payloads of up to KEPT_MIN bytes are valid until the next `space()`; views of larger
    ones stay valid."""

    __slots__ = ()

    def __init__(self, frame_max: int) -> None:
        """`frame_max`: the largest frame accepted, in bytes, its length field included."""
        super().__init__(Splitter(frame_max))

    def _kept(self, items: list[Item]) -> bool:
        """Whether a payload in `items` is one that is kept."""
        return any(type(item) is SendRun and max(map(len, item.payloads)) > KEPT_MIN for item in items)
