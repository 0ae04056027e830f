"""Cutting a stream of bytes into whole frames, with limits. Pure: it owns the buffer, not the socket.

    stream = FrameStream()
    while n := await socket.receive_into(stream.space()):
        chunk = stream.received(n)          # whole frames of either version: decode_requests, decode_responses

Returned chunks are never written to again, so views of them may be kept, unless the reader asked to be lent chunks of
small frames, which it copies anyway. A frame's length is checked before memory is allocated for it.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.v2 import FRAME_MAX

CHUNK_SIZE: Final = 256 << 10
_LENGTH = Struct("!i")
_BLOCK: Final = 16
"""Adjacent frames of one size examined at once: a flood of adds has one size."""
_BLOCK_LENGTH_MAX: Final = 16 << 10


class FrameStream:
    """Cuts a stream into frames.

    `frame_max`: bytes a frame may have without its length field. Chunks whose frames have at most `lent_max` bytes are
    lent: valid until the next `space`.
    """

    def __init__(self, frame_max: int = FRAME_MAX, chunk_size: int = CHUNK_SIZE, *, lent_max: int = 0) -> None:
        self._frame_max = frame_max
        self._chunk_size = chunk_size
        self._lent_max = lent_max
        self._buffer = bytearray(chunk_size)
        self._filled = 0
        self._taken = 0
        """Bytes of the buffer that were returned."""
        self._needed = 0
        """Bytes needed for the frame that begins behind them, as far as known."""
        self.error: MalformedError | None = None
        """Error of the bytes after the returned frames: close the connection when the frames are handled."""

    def space(self) -> memoryview:
        """Return the memory to receive into; never empty. Valid for the next `received` only."""
        if self._taken or self._needed > len(self._buffer):
            self._keep_tail()
        return memoryview(self._buffer)[self._filled :]

    def received(self, size: int) -> Buffer:
        """Take `size` bytes from the start of `space`; return the whole frames available, end to end, perhaps none.

        MalformedError for an impossible length; if frames precede it they are returned first, and `error` is set.
        """
        if self.error is not None:
            raise self.error
        self._filled += size
        filled = self._filled
        buffer = self._buffer
        position = 0
        needed = 0
        longest = 0
        last = -1
        while filled - position >= 4:
            length: int = _LENGTH.unpack_from(buffer, position)[0]
            if not 4 <= length <= self._frame_max:
                self.error = MalformedError(f"a frame of {length} bytes; 4 to {self._frame_max} are allowed")
                if position == 0:
                    raise self.error
                break
            if position + 4 + length > filled:
                needed = 4 + length
                break
            position += 4 + length
            if length != last:
                last = length
                longest = max(longest, length)
            elif length <= _BLOCK_LENGTH_MAX:
                block, lengths = _block_of(length)
                while position + block.size <= filled and block.unpack_from(buffer, position) == lengths:
                    position += block.size
                last = -1
        if position == filled and len(buffer) > self._chunk_size:
            # One big frame, in a buffer of its own: returned without a copy.
            self._buffer = bytearray(self._chunk_size)
            self._filled = self._needed = 0
            return buffer
        self._taken, self._needed = position, needed
        whole = memoryview(buffer)[:position]
        return whole if longest <= self._lent_max else bytes(whole)

    def _keep_tail(self) -> None:
        """Move the rest, an incomplete frame, to the start of a buffer that fits the whole frame."""
        tail = memoryview(self._buffer)[self._taken : self._filled]
        if self._needed > len(self._buffer):
            self._buffer = bytearray(self._needed)
        memoryview(self._buffer)[: len(tail)] = tail  # which may overlap
        self._filled = len(tail)
        self._taken = self._needed = 0


@lru_cache(maxsize=64)
def _block_of(length: int) -> tuple[Struct, tuple[int, ...]]:
    """Return how to read the lengths of _BLOCK frames of `length` each, and their expected values."""
    return Struct("!" + f"i{length}x" * _BLOCK), (length,) * _BLOCK
