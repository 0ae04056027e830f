"""ACK and REDELIVER commands with many ids, read in pieces to keep each step of the event loop short. Pure.

A frame has up to 5 MiB, which is 800,000 message ids or two million words of an ack set: 50 to 70 ms for protobuf in
one call. A command above LARGE_BYTES is therefore kept as bytes by the splitter and read here piece by piece, each
piece a part of the command that is itself a valid message: repeated fields of protobuf may be cut between any two
elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from google.protobuf.message import DecodeError

from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandRedeliverUnacknowledgedMessages,
    MessageIdData,
)

LARGE_BYTES = 64 * 1024
"""Size above which commands are read in pieces, or refused by the splitter if they are of another kind."""
ID_BYTES_MAX = 16 * 1024
"""Size of one message id with its ack set above which the id is not parsed and the command is refused."""
HEAD_BYTES_MAX = 64 * 1024
"""Bytes of everything in a command except its message ids."""
PIECE_BYTES = 8 * 1024
_STARTS = {
    b"\x08" + bytes((kind,)) + tag: (kind, ids_tag)
    for kind, tag, ids_tag in (
        (int(BaseCommand.ACK), b"\x52", 0x1A),
        (int(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES), b"\xa2\x01", 0x12),
    )
}
_FIXED_SIZES = {1: 8, 5: 4}

Part: TypeAlias = CommandAck | CommandRedeliverUnacknowledgedMessages


class LargeCommand:
    """A large command.

    Iterate over `pieces` to the end, with other work between its steps; then read `part` and `ids`.
    """

    __slots__ = ("_at", "_ids_tag", "_raw", "ids", "kind", "part", "refused")

    def __init__(self, raw: bytes, kind: int, ids_tag: int, at: int) -> None:
        self._raw = raw
        self._ids_tag = ids_tag
        self._at = at
        self.kind = kind
        self.part: Part = _part(kind)
        """The command without its message ids."""
        self.ids: list[Sequence[MessageIdData]] = []
        """The message ids, in order, as lists of lists."""
        self.refused: str | None = None
        """Reason why the command cannot be executed although its frame is valid; then `ids` is incomplete."""

    def __repr__(self) -> str:
        return f"LargeCommand({BaseCommand.Type.Name(self.kind)}, {len(self._raw)} bytes)"

    def pieces(self, ids_max: int) -> Iterator[None]:
        """Continue reading, one piece per step.

        Ids above `ids_max` are not kept. FrameError if it is not such a command.
        """
        raw, at, end, ids_tag = self._raw, self._at, len(self._raw), self._ids_tag
        head: list[bytes] = []
        head_size = kept = 0
        begin = at  # of ids that are not parsed yet
        try:
            while at < end:
                start = at
                tag, at = _varint(raw, at)
                at = _field_end(raw, at, tag & 7)
                if at > end:
                    raise FrameError("a command that ends within a field")
                is_id = tag == ids_tag
                if is_id and at - start <= ID_BYTES_MAX:
                    if at - begin >= PIECE_BYTES:
                        kept += self._keep(begin, at, kept, ids_max)
                        begin = at
                        yield
                    continue
                kept += self._keep(begin, start, kept, ids_max)
                begin = at
                if is_id:
                    self.refused = f"a message id of {at - start} bytes is longer than {ID_BYTES_MAX} bytes"
                    continue
                head_size += at - start
                if head_size > HEAD_BYTES_MAX:
                    raise FrameError(f"a command with more than {HEAD_BYTES_MAX} bytes besides its message ids")
                head.append(raw[start:at])
            self._keep(begin, end, kept, ids_max)
            self.part.ParseFromString(b"".join(head))
        except (IndexError, DecodeError) as error:
            raise FrameError(f"a command that cannot be read: {error}") from None
        if not self.part.IsInitialized():
            raise FrameError("a command with a required field missing")

    def _keep(self, begin: int, end: int, kept: int, ids_max: int) -> int:
        """Parse the ids in raw[begin:end]; return their number."""
        if begin == end or kept > ids_max:
            return 0
        piece = _part(self.kind)
        piece.ParseFromString(self._raw[begin:end])
        piece.consumer_id = 0
        if isinstance(piece, CommandAck):
            piece.ack_type = CommandAck.Individual
        if not piece.IsInitialized():
            raise FrameError("a message id with a required field missing")
        ids = piece.message_id if isinstance(piece, CommandAck) else piece.message_ids
        if kept + len(ids) > ids_max:
            self.refused = f"more than {ids_max} message ids in one command"
        else:
            self.ids.append(ids)
        return len(ids)


def large_command(raw: bytes) -> LargeCommand | None:
    """Return the unread command in `raw` if it is an ACK or a REDELIVER of the usual shape: its type, then its part, to
    the end.
    """
    for start, (kind, ids_tag) in _STARTS.items():
        if raw.startswith(start):
            size, at = _varint(raw, len(start))
            if at + size == len(raw):
                return LargeCommand(raw, kind, ids_tag, at)
    return None


def _part(kind: int) -> Part:
    return CommandAck() if kind == int(BaseCommand.ACK) else CommandRedeliverUnacknowledgedMessages()


def _field_end(raw: bytes, at: int, wire_type: int) -> int:
    """Return where the field ends whose tag ends at `at`. FrameError, IndexError."""
    if wire_type == 2:
        size, at = _varint(raw, at)
        return at + size
    if wire_type == 0:
        return _varint(raw, at)[1]
    if wire_type not in _FIXED_SIZES:
        raise FrameError(f"a command with a field of wire type {wire_type}")
    return at + _FIXED_SIZES[wire_type]


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, and where it ends. IndexError, FrameError."""
    value = raw[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    for shift in range(7, 70, 7):
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise FrameError("a command with a number of more than ten bytes")
