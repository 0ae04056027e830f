"""Cutting a stream of bytes into whole frames, with limits. Pure: it owns the buffer, not the socket.

    stream = FrameStream()
    while n := await socket.receive_into(stream.space()):
        chunk = stream.received(n)          # whole frames end to end, of either version: their decode_requests, decode_responses

What is handed out is never written to again, so views of it may be kept. A frame's length is checked before anything is
allocated for it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.v2 import FRAME_MAX

CHUNK_SIZE: Final = 256 << 10
_LENGTH = Struct("!i")


class FrameStream:
    """`frame_max`: bytes a frame may have without its length field."""

    def __init__(self, frame_max: int = FRAME_MAX, chunk_size: int = CHUNK_SIZE) -> None:
        self._frame_max = frame_max
        self._chunk_size = chunk_size
        self._buffer = bytearray(chunk_size)
        self._filled = 0
        self.error: MalformedError | None = None
        """The bytes after those handed out are no frame: close the connection when they are dealt with."""

    def space(self) -> memoryview:
        """Where to receive into; never empty. For the next `received` only."""
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
        if position == filled and len(buffer) > self._chunk_size:
            # One big frame, in a buffer made for it: handed out as it is.
            self._buffer = bytearray(self._chunk_size)
            self._filled = 0
            return buffer
        whole = bytes(memoryview(buffer)[:position])
        self._keep_tail(position, needed)
        return whole

    def _keep_tail(self, position: int, needed: int) -> None:
        """Move what is left of a frame to the start of a buffer that the whole frame of `needed` bytes fits in."""
        if not position and needed <= len(self._buffer):
            return
        tail = bytes(memoryview(self._buffer)[position : self._filled])
        if needed > len(self._buffer):
            self._buffer = bytearray(needed)
        self._buffer[: len(tail)] = tail
        self._filled = len(tail)
