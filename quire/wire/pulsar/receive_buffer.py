"""Receive buffer of one connection, between socket and splitter; complete frames are not copied.

A connection begins with 4 KiB, and gets eight times as much whenever a receive has filled its buffer, up to 256 KiB. So
an idle connection holds little, and a busy one has the large buffer after two receives. The partial frame at the end
moves to the front. A frame that does not fit gets larger buffers as its bytes arrive, the last one of exactly its size.
The size is checked against the limit before the first one is allocated.
"""

from __future__ import annotations

import mmap
from typing import Generic, Protocol, TypeVar

from quire.wire.pulsar.splitter import Item, SendRun, Splitter

T = TypeVar("T")

IDLE_SIZE = 4 * 1024
"""Bytes of the buffer of an idle connection."""
CHUNK_SIZE = 256 * 1024
"""Largest number of bytes received at once."""
CHUNK_GROWTH = 8
"""Growth factor of the buffer when a receive has filled it, up to CHUNK_SIZE."""

KEPT_MIN = 16 * 1024
"""Size in bytes above which receivers keep payloads, so that their buffer is never written again.

Smaller ones are copied out before the next `received`.
"""


GROWTH = 4
"""Growth factor of the buffer of a large frame when it is full, up to the frame's size."""


class Cutter(Protocol[T]):
    """Splitter of bytes into items; see `Splitter` and `ClientSplitter`."""

    def needed(self, chunk: memoryview, start: int, end: int) -> int:
        """Return the size of the frame that begins at `start`, at least 4; FrameError if it is above the limit."""

    def split(self, chunk: memoryview, start: int, end: int) -> tuple[list[T], int]:
        """Read all whole frames in chunk[start:end]; return the items, and the number of bytes they took."""


class ChunkBuffer(Generic[T]):
    """Buffer of one connection: receive into `space()`, then call `received(n)` to get the items.

    Views in items are valid until the next `space()`, unless `_kept` returns that they stay.
    """

    __slots__ = ("_chunk", "_end", "_splitter", "_start", "_view", "missing", "more")

    def __init__(self, splitter: Cutter[T]) -> None:
        self._splitter = splitter
        self._chunk = IDLE_SIZE
        """Size of a buffer without a large frame, as determined by past traffic."""
        self._view = memoryview(bytearray(IDLE_SIZE))
        self._start = 0
        self._end = 0
        self.missing = 1
        """Number of bytes without which no further frame is complete, as far as known."""
        self.more = False
        """True if the splitter stopped before the end of the complete frames: call `received(0)` before receiving more.
        """

    @property
    def buffered(self) -> int:
        """Return the bytes not split yet: of an incomplete frame, or whole frames after `more`."""
        return self._end - self._start

    @property
    def size(self) -> int:
        """Return the bytes of memory held."""
        return len(self._view)

    def space(self) -> memoryview:
        """Return the memory for the next bytes; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            self._move(self._view)
        return self._view[self._end :]

    def received(self, size: int) -> list[T]:
        """Take `size` bytes from the start of `space()`; return the complete items, all of them unless `more` is set
        then.

        FrameError as from the splitter.
        """
        view = self._view
        self._end += size
        filled = self._end == len(view)
        items, consumed = self._splitter.split(view, self._start, self._end)
        self._start += consumed
        held = self._end - self._start
        needed = self._splitter.needed(view, self._start, self._end) if held else 4
        self.missing = max(1, needed - held)
        self.more = needed <= held
        if filled and self._chunk < CHUNK_SIZE:
            self._chunk = min(CHUNK_SIZE, CHUNK_GROWTH * self._chunk)
        if self._kept(items):
            # A large frame that begins here gets exactly the size it needs: its buffer is kept, and should hold little
            # else.
            exact = held < KEPT_MIN < needed <= self._chunk
            size = needed if exact else max(self._chunk, held + 1, min(needed, GROWTH * held))
            self._move(memoryview(bytearray(size)))
        elif needed <= KEPT_MIN and len(view) != self._chunk and held < self._chunk:
            self._move(_lasting(self._chunk))
        elif held == len(view):
            # Grow the buffer as bytes arrive: an announced length alone takes no memory.
            self._move(_lasting(max(self._chunk, min(needed, GROWTH * held), held + 1)))
        return items

    def rest(self) -> None:
        """Shrink to the size of a new connection plus the buffered bytes, after a time without traffic.

        Not while a view from `space()` is in use.
        """
        self._chunk = IDLE_SIZE
        size = max(IDLE_SIZE, self.buffered + 1)
        if size < len(self._view):
            self._move(memoryview(bytearray(size)))

    def _move(self, target: memoryview) -> None:
        """Continue in `target` (perhaps the same buffer) with the partial frame at its front."""
        pending = self._end - self._start
        target[:pending] = self._view[self._start : self._end]
        self._view = target
        self._start = 0
        self._end = pending

    def _kept(self, items: list[T]) -> bool:
        """Return whether `items` contain a view that may be kept: then this buffer is never written again."""
        return False


def _lasting(size: int) -> memoryview:
    """Return a buffer for long use.

    A large one has pages of its own, which are returned to the system when it is dropped. On the heap, thousands of
    them would leave gaps that stay with the process. (Allocating it costs ten times as much, so buffers that are kept
    with their payloads are allocated normally.)
    """
    return memoryview(mmap.mmap(-1, size) if size == CHUNK_SIZE else bytearray(size))


class ReceiveBuffer(ChunkBuffer[Item]):
    """Receive buffer of a server.

    Views of payloads of up to KEPT_MIN bytes are valid until the next `space()`; views of larger ones stay valid.
    """

    __slots__ = ("accept",)

    def __init__(self, frame_max: int) -> None:
        """`frame_max`: the largest frame accepted, in bytes, its length field included; `accept` changes it."""
        splitter = Splitter(frame_max)
        super().__init__(splitter)
        self.accept = splitter.accept

    def _kept(self, items: list[Item]) -> bool:
        """Return whether `items` contain a payload that is kept."""
        return any(type(item) is SendRun and max(map(len, item.payloads)) > KEPT_MIN for item in items)
