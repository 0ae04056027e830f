"""The bytes of one connection on their way from the socket to the splitter, without a copy of what is whole.

Normally 256 KiB are received into one buffer, split, and the partial frame at the end moves to the front. A frame that
does not fit gets larger buffers as its bytes arrive, the last one of exactly its size; that is checked against the limit
before the first is made.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from quire.wire.pulsar.splitter import Item, SendRun, Splitter

T = TypeVar("T")

CHUNK_SIZE = 256 * 1024
"""Bytes received at most in one go."""

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

    __slots__ = ("_end", "_splitter", "_start", "_view", "missing", "more")

    def __init__(self, splitter: Cutter[T]) -> None:
        self._splitter = splitter
        self._view = memoryview(bytearray(CHUNK_SIZE))
        self._start = 0
        self._end = 0
        self.missing = 1
        """Bytes without which nothing more is complete, as far as that is known."""
        self.more = False
        """The cutter left whole frames: `received(0)` gives the next."""

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return self._end - self._start

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._start:
            self._move(self._view)
        return self._view[self._end :]

    def received(self, size: int) -> list[T]:
        """`size` bytes were put at the start of `space()`: all that is complete now. FrameError as from the splitter."""
        view = self._view
        self._end += size
        items, consumed = self._splitter.split(view, self._start, self._end)
        self._start += consumed
        needed = self._splitter.needed(view, self._start, self._end)
        held = self._end - self._start
        self.more = needed <= held
        self.missing = max(1, needed - held)
        if self._kept(items) or (needed <= KEPT_MIN and len(view) != CHUNK_SIZE):
            # A large frame that begins here gets what it needs: its buffer is kept as well, and should hold little else.
            size = needed if KEPT_MIN < needed <= CHUNK_SIZE else max(CHUNK_SIZE, min(needed, GROWTH * held))
            self._move(memoryview(bytearray(size)))
        elif held == len(view):
            # Grown as the bytes arrive: a length that is only announced takes no memory.
            self._move(memoryview(bytearray(min(needed, GROWTH * held))))
        return items

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
