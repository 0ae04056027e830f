"""The bytes of one connection on their way from the socket to the splitter, without a copy of what is whole.

Normally 256 KiB are received into one buffer, split, and the partial frame at the end moves to the front. A frame that
does not fit gets larger buffers as its bytes arrive, the last one of exactly its size; that is checked against the limit
before the first is made.
"""

from __future__ import annotations

from quire.wire.pulsar.splitter import Item, SendRun, Splitter

CHUNK_SIZE = 256 * 1024
"""Bytes received at most in one go."""

KEPT_MIN = 16 * 1024
"""Payloads above this many bytes are kept by those who get them, so the buffer they lie in is never written again;
smaller ones are copied out before the next `received`."""


GROWTH = 4
"""The buffer of a large frame grows by this factor when it is full, up to the frame's size."""


class ReceiveBuffer:
    """For one connection: `space()` to receive into, then `received(n)` for what came of it.

    Views of payloads of up to KEPT_MIN bytes are valid until the next `space()`; views of larger ones stay valid.
    """

    __slots__ = ("_end", "_splitter", "_start", "_view", "missing")

    def __init__(self, frame_max: int) -> None:
        """`frame_max`: the largest frame accepted, in bytes, its length field included."""
        self._splitter = Splitter(frame_max)
        self._view = memoryview(bytearray(CHUNK_SIZE))
        self._start = 0
        self._end = 0
        self.missing = 1
        """Bytes without which nothing more is complete, as far as that is known."""

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return self._end - self._start

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._start:
            self._move(self._view)
        return self._view[self._end :]

    def received(self, size: int) -> list[Item]:
        """`size` bytes were put at the start of `space()`: all that is complete now. FrameError as from the splitter."""
        view = self._view
        self._end += size
        items, consumed = self._splitter.split(view, self._start, self._end)
        self._start += consumed
        needed = self._splitter.needed(view, self._start, self._end)
        held = self._end - self._start
        self.missing = max(1, needed - held)
        if _kept(items) or (needed <= KEPT_MIN and len(view) != CHUNK_SIZE):
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


def _kept(items: list[Item]) -> bool:
    """Whether a payload in `items` is one that is kept."""
    return any(type(item) is SendRun and max(map(len, item.payloads)) > KEPT_MIN for item in items)
