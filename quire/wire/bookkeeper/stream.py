"""Cutting a stream of bytes into whole frames, with limits. Pure: it owns the buffer, not the socket.

    stream = FrameStream()
    while n := await socket.receive_into(stream.space()):
        chunk = stream.received(n)          # whole frames end to end, of either version: their decode_requests, decode_responses

What is handed out is never written to again, so views of it may be kept; unless its reader asked to be lent chunks of
small frames, which it copies anyway. A frame's length is checked before anything is allocated for it.
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
"""Frames of one size that follow each other are looked at so many at a time: a flood of adds is of one size."""
_BLOCK_LENGTH_MAX: Final = 16 << 10


class FrameStream:
    """`frame_max`: bytes a frame may have without its length field. Chunks whose frames have at most `lent_max` are lent:
    good until the next `space`."""

    def __init__(self, frame_max: int = FRAME_MAX, chunk_size: int = CHUNK_SIZE, *, lent_max: int = 0) -> None:
        self._frame_max = frame_max
        self._chunk_size = chunk_size
        self._lent_max = lent_max
        self._buffer = bytearray(chunk_size)
        self._filled = 0
        self._taken = 0
        """Bytes of the buffer that were handed out."""
        self._needed = 0
        """Bytes of the frame that begins behind them, as far as they are known."""
        self.error: MalformedError | None = None
        """The bytes after those handed out are no frame: close the connection when they are dealt with."""

    def space(self) -> memoryview:
        """Where to receive into; never empty. For the next `received` only."""
        if self._taken or self._needed > len(self._buffer):
            self._keep_tail()
        return memoryview(self._buffer)[self._filled :]

    def received(self, size: int) -> Buffer:
        """`size` bytes were put at the start of `space`. Returns the whole frames there are now, end to end; empty if
        there are none. MalformedError for a length that no frame has; if frames came before it they are returned first,
        and `error` is set."""
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
            # One big frame, in a buffer made for it: handed out as it is.
            self._buffer = bytearray(self._chunk_size)
            self._filled = self._needed = 0
            return buffer
        self._taken, self._needed = position, needed
        whole = memoryview(buffer)[:position]
        return whole if longest <= self._lent_max else bytes(whole)

    def _keep_tail(self) -> None:
        """Move what is left of a frame to the start of a buffer that the whole of it fits in."""
        tail = bytes(memoryview(self._buffer)[self._taken : self._filled])
        if self._needed > len(self._buffer):
            self._buffer = bytearray(self._needed)
        self._buffer[: len(tail)] = tail
        self._filled = len(tail)
        self._taken = self._needed = 0


@lru_cache(maxsize=64)
def _block_of(length: int) -> tuple[Struct, tuple[int, ...]]:
    """_BLOCK frames of `length` each: how their lengths are read, and what they must be."""
    return Struct("!" + f"i{length}x" * _BLOCK), (length,) * _BLOCK
