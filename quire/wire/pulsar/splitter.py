"""Splits received bytes into runs of SENDs, and single commands of every other kind.

The hottest module of a broker: one call handles a whole received chunk. SEND is parsed here, everything else by
protobuf. A SEND command looks like this in practice, and differs from its predecessor in one byte:

    totalSize(4) head low tail crc32c(4) metadataSize(4) ...
        head   commandSize(4) 08 06 32 LL 08 producer.. 10
        low    lowest seven bits of the sequence id
        tail   rest of the sequence id, other fields.., 0x0e01

So after one SEND has been parsed in full, the next frame is compared with it. A frame with the same head, the same tail
and a `low` byte that is one higher (without a carry out of its seven bits) is the same command with the next sequence
id. Any other frame is parsed field by field, and unexpected input goes to protobuf: the result is protobuf's.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

from crc32c import crc32c

from quire.wire.pulsar.commands import parse_command
from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.frames import BROKER_ENTRY_MAGIC, MAGIC
from quire.wire.pulsar.large_commands import LARGE_BYTES, LargeCommand, large_command
from quire.wire.pulsar.metadata import naming_transaction
from quire.wire.pulsar.PulsarApi_pb2 import BaseCommand

ENTRY_HEAD = 10
"""Bytes of an entry before its metadata: magic, crc32c, metadata size."""

CHUNK = 1
"""The entry is one part of a chunked message."""
MARKER = 2
"""The entry was written by a server (replication) for servers."""
TRANSACTION = 4
"""The message belongs to a transaction."""
SHADOW = 8
"""The message carries the message id it has on another topic."""


class SendRun:
    """Consecutive SENDs of one producer that agree in `flags`. The lists are parallel, one element per entry.

    `payloads` are views of the received bytes, from the magic 0x0e01 to the end of the frame; their crc32c was right.
    Those whose transaction only the command names, as the Go client does it, are copies whose metadata names it too.
    """

    __slots__ = ("counts", "flags", "highest_ids", "payloads", "producer_id", "sequence_ids")

    def __init__(self, producer_id: int, flags: int, highest: bool) -> None:
        self.producer_id = producer_id
        self.flags = flags
        self.sequence_ids: list[int] = []
        """Sequence ids as sent (0 to 2^64-1): a receipt has to carry them."""
        self.highest_ids: list[int] | None = [] if highest else None
        """Highest sequence id in each batch; None if these SENDs do not have it."""
        self.counts: list[int] = []
        """Number of messages in each entry according to the client: 1 to 2^31-1."""
        self.payloads: list[memoryview] = []

    def part(self, start: int, stop: int) -> SendRun:
        """Return the SENDs from `start` to `stop` (exclusive)."""
        part = SendRun(self.producer_id, self.flags, self.highest_ids is not None)
        part.sequence_ids = self.sequence_ids[start:stop]
        part.counts = self.counts[start:stop]
        part.payloads = self.payloads[start:stop]
        if self.highest_ids is not None:
            part.highest_ids = self.highest_ids[start:stop]
        return part

    def __repr__(self) -> str:
        return f"SendRun(producer_id={self.producer_id}, sequence_ids={self.sequence_ids}, flags={self.flags})"


class BadChecksum:
    """A SEND whose crc32c is wrong, or whose metadata size exceeds the frame. Its payload is not kept."""

    __slots__ = ("producer_id", "sequence_id")

    def __init__(self, producer_id: int, sequence_id: int) -> None:
        self.producer_id = producer_id
        self.sequence_id = sequence_id

    def __repr__(self) -> str:
        return f"BadChecksum(producer_id={self.producer_id}, sequence_id={self.sequence_id})"


class Other:
    """Any command except SEND: complete, of a known type, with the part that belongs to its type, all text valid."""

    __slots__ = ("command",)

    def __init__(self, command: BaseCommand) -> None:
        self.command = command

    def __repr__(self) -> str:
        return f"Other({BaseCommand.Type.Name(self.command.type)})"


Item: TypeAlias = SendRun | BadChecksum | Other | LargeCommand


class BadFrameError(FrameError):
    """A chunk has bytes that are not a frame. Final: handle `items`, then close the connection."""

    def __init__(self, message: str, items: list[Item]) -> None:
        super().__init__(message)
        self.items = items
        """Items read before the bad frame, in order."""


_SIZES = Struct("!II")
_TOTAL = Struct("!I")
_ENTRY = Struct("!HII")
_SEND_START = b"\x08\x06\x32"  # type = SEND, then the field `send`
_COMMAND_MAX = 64  # a SEND command longer than this is not worth a template
_SEND = int(BaseCommand.SEND)
COMMAND_BYTES_MAX = 512 * 1024
"""Largest size in bytes of a command that protobuf parses in one call: 7 ms in the worst case."""
OTHERS_MAX = 1024
"""Largest number of items (commands or runs of SENDs) read in one call: a chunk may have 20,000 of them."""
PARSED_BYTES_MAX = 32 * 1024
"""Largest number of bytes of commands except SEND in one call, not counting the last one: eight bytes may be one
property.
"""

# (producer id, sequence id, count, highest id or -1, flags, where the sequence id is or 0)
_Send: TypeAlias = tuple[int, int, int, int, int, int]


class _Template:
    """Expected bytes of the next SEND if only its sequence id advances."""

    __slots__ = (
        "count",
        "entry_at",
        "flags",
        "head",
        "highest",
        "low",
        "producer_id",
        "sequence_id",
        "stop",
        "struct",
        "tail",
    )

    def __init__(self, send: _Send, frame_head: bytes, low_at: int) -> None:
        self.producer_id, self.sequence_id, self.count, self.highest, self.flags, _ = send
        self.head = frame_head[4:low_at]
        self.low = frame_head[low_at]
        self.stop = 0x100 if self.low & 0x80 else 0x80
        """The first `low` that cannot follow without a carry."""
        self.tail = frame_head[low_at + 1 :]
        self.entry_at = len(frame_head) - 2
        self.struct = _template_struct(len(self.head), len(self.tail))


_STRUCTS: dict[tuple[int, int], Struct] = {}


def _template_struct(head: int, tail: int) -> Struct:
    struct = _STRUCTS.get((head, tail))
    if struct is None:  # few: both lengths are below _COMMAND_MAX
        struct = _STRUCTS[head, tail] = Struct(f"!I{head}sB{tail}sII")
    return struct


class Splitter:
    """Splitter for one connection. It owns no buffer and no socket, and remembers only the form of the last SEND."""

    __slots__ = ("_producer_id", "_sequence_id", "_template", "_total_max")

    def __init__(self, frame_max: int) -> None:
        """`frame_max`: the largest frame accepted, in bytes, its length field included."""
        self._total_max = frame_max - 4
        self._template: _Template | None = None
        self._producer_id = -1
        self._sequence_id = -1  # both ids are from the last SEND parsed field by field

    def accept(self, frame_max: int) -> None:
        """Change the largest frame accepted."""
        self._total_max = frame_max - 4

    def needed(self, chunk: memoryview, start: int, end: int) -> int:
        """Return the bytes of the whole frame that begins at `start`, at least 4; BadFrameError if it is above the
        limit.
        """
        if end - start < 4:
            return 4
        return 4 + self._check_total(_TOTAL.unpack_from(chunk, start)[0], [])

    def split(self, chunk: memoryview, start: int, end: int) -> tuple[list[Item], int]:
        """Read the whole frames in chunk[start:end], up to OTHERS_MAX items and about PARSED_BYTES_MAX of commands;
        return the items and the number of bytes they took.

        Raises BadFrameError for bytes that are not a frame, with the items before it; then the connection must be
        closed.
        """
        items: list[Item] = []
        run: SendRun | None = None
        position = start
        parsed_bytes = 0
        while len(items) < OTHERS_MAX and parsed_bytes < PARSED_BYTES_MAX:
            template = self._template
            if template is not None:
                run, position = self._split_alike(template, run, items, chunk, position, end)
            if end - position < 8:
                break
            total, command_size = _SIZES.unpack_from(chunk, position)
            self._check_total(total, items)
            stop = position + 4 + total
            if stop > end:
                break
            entry = position + 8 + command_size
            if entry > stop:
                raise BadFrameError(f"a command of {command_size} bytes in a frame of {total}", items)
            command = bytes(chunk[position + 8 : entry])
            transaction: tuple[int, int] | None = None
            send = _parse_send(command) if command.startswith(_SEND_START) else None
            if send is None:
                large = _large(command, items) if command_size > LARGE_BYTES else None
                try:
                    parsed = parse_command(command, bounded=True) if large is None else None
                except FrameError as error:
                    raise BadFrameError(str(error), items) from None
                if parsed is None or parsed.type != _SEND:
                    if entry != stop:
                        raise BadFrameError(f"{stop - entry} bytes behind a command that has no payload", items)
                    if large is not None:
                        items.append(large)
                    elif parsed is not None:
                        items.append(Other(parsed))
                    run = None
                    position = stop
                    parsed_bytes += command_size
                    continue
                send, transaction = _send_of(parsed), _transaction_of(parsed)
            producer_id, sequence_id, count, highest, flags, low_at = send
            if not _entry_is_whole(chunk, entry, stop, items):
                items.append(BadChecksum(producer_id, sequence_id))
                run = None
                position = stop
                continue
            run = _run_for(run, items, producer_id, flags, highest >= 0)
            run.sequence_ids.append(sequence_id)
            run.counts.append(count)
            payload = chunk[entry:stop]
            run.payloads.append(payload if transaction is None else naming_transaction(payload, transaction))
            if run.highest_ids is not None:
                run.highest_ids.append(highest)
            if producer_id == self._producer_id and sequence_id == self._sequence_id + 1:
                if low_at and command_size <= _COMMAND_MAX:
                    self._template = _Template(send, bytes(chunk[position : entry + 2]), 8 + low_at)
            else:
                self._producer_id = producer_id
            self._sequence_id = sequence_id
            position = stop
        if end - position >= 4:
            self._check_total(_TOTAL.unpack_from(chunk, position)[0], items)
        return items, position - start

    def _split_alike(
        self, template: _Template, run: SendRun | None, items: list[Item], chunk: memoryview, position: int, end: int
    ) -> tuple[SendRun | None, int]:
        """Take the frames from `position` on that continue `template`; return their run, and where they end."""
        unpack = template.struct.unpack_from
        last_start = end - template.struct.size
        head = template.head
        tail = template.tail
        entry_at = template.entry_at
        overhead = entry_at + ENTRY_HEAD - 4  # of totalSize, the part that is neither metadata nor payload
        total_max = self._total_max
        payloads: list[memoryview] = []
        append = payloads.append
        for low in range(template.low + 1, template.stop):
            if position > last_start:
                break
            total, frame_head, frame_low, frame_tail, crc, metadata_size = unpack(chunk, position)
            if frame_low != low or frame_head != head or frame_tail != tail:
                break
            stop = position + 4 + total
            if stop > end or metadata_size > total - overhead or total > total_max:
                break
            payload = chunk[position + entry_at : stop]
            if crc32c(payload[6:]) != crc:
                break
            append(payload)
            position = stop
        taken = len(payloads)
        if not taken:
            if position <= last_start:  # there is a frame, and it differs
                self._template = None
            return run, position
        highest = template.highest
        run = _run_for(run, items, template.producer_id, template.flags, highest >= 0)
        sequence_id = template.sequence_id
        run.sequence_ids.extend(range(sequence_id + 1, sequence_id + 1 + taken))
        run.counts.extend([template.count] * taken)
        run.payloads.extend(payloads)
        if run.highest_ids is not None:
            run.highest_ids.extend([highest] * taken)
        self._sequence_id = template.sequence_id = sequence_id + taken
        template.low += taken
        return run, position

    def _check_total(self, total: int, items: list[Item]) -> int:
        if total < 4:
            raise BadFrameError(f"a frame of {total} bytes has no room for its command's size", items)
        if total > self._total_max:
            raise BadFrameError(f"a frame of {total} bytes is above the limit of {self._total_max}", items)
        return total


def _large(command: bytes, items: list[Item]) -> LargeCommand | None:
    """Return a command to be read in pieces; None if it may be parsed at once.

    BadFrameError if it is too large for that.
    """
    try:
        large = large_command(command)
    except (FrameError, IndexError) as error:
        raise BadFrameError(f"a command that cannot be read: {error}", items) from None
    if large is None and len(command) > COMMAND_BYTES_MAX:
        raise BadFrameError(f"a command of {len(command)} bytes is above the limit of {COMMAND_BYTES_MAX}", items)
    return large


def _run_for(run: SendRun | None, items: list[Item], producer_id: int, flags: int, highest: bool) -> SendRun:
    """Return the run for a SEND: the last one if it fits, else a new one."""
    if run is None or run.producer_id != producer_id or run.flags != flags or (run.highest_ids is None) is highest:
        run = SendRun(producer_id, flags, highest)
        items.append(run)
    return run


def _entry_is_whole(chunk: memoryview, entry: int, stop: int, items: list[Item]) -> bool:
    """Return whether the crc32c and the metadata's size fit the bytes in chunk[entry:stop].

    BadFrameError if they are not an entry.
    """
    if stop - entry < ENTRY_HEAD:
        raise BadFrameError(f"a SEND with {stop - entry} bytes of payload part", items)
    magic, crc, metadata_size = _ENTRY.unpack_from(chunk, entry)
    if magic == BROKER_ENTRY_MAGIC:
        raise BadFrameError("a SEND with broker entry metadata, which only brokers add", items)
    if magic != MAGIC:
        # Without the magic there is no checksum, which only clients before protocol version 6 leave out; official
        # consumers refuse such an entry, so it must not get into a topic.
        raise BadFrameError(f"a SEND without checksum (0x{magic:04x} instead of 0x{MAGIC:04x})", items)
    if metadata_size > stop - entry - ENTRY_HEAD:
        return False
    return bool(crc32c(chunk[entry + 6 : stop]) == crc)


def _parse_send(command: bytes) -> _Send | None:
    """Read a SEND command of the usual shape; None if it has another shape, which does not mean that it is invalid."""
    size = len(command)
    if size < 8 or command[3] != size - 4:
        return None
    producer_id = sequence_id = highest = -1
    count = 1
    flags = 0
    low_at = 0
    at = 4
    while at < size:
        tag = command[at]
        at += 1
        if tag > 0x40 or tag & 7:
            return None
        value = 0
        shift = 0
        first = at
        while True:
            if at >= size or shift > 56:  # nine bytes: protobuf decides about ten
                return None
            byte = command[at]
            at += 1
            if byte < 0x80:
                value |= byte << shift
                break
            value |= (byte & 0x7F) << shift
            shift += 7
        if tag == 0x08 and producer_id < 0:
            producer_id = value
        elif tag == 0x10 and sequence_id < 0:
            sequence_id = value
            low_at = first
        elif tag == 0x18:
            count = value if 0 < value < 0x8000_0000 else 1
        elif tag == 0x20 or tag == 0x28:
            return None  # a transaction, whose id may be 0
        elif tag == 0x30:
            highest = value
        elif tag == 0x38:
            flags = flags | CHUNK if value else flags & ~CHUNK
        elif tag == 0x40:
            flags = flags | MARKER if value else flags & ~MARKER
        else:
            return None
    if producer_id < 0 or sequence_id < 0:
        return None
    return producer_id, sequence_id, count, highest, flags, low_at


def _transaction_of(command: BaseCommand) -> tuple[int, int] | None:
    """Return the transaction of a SEND, most significant bits first; None: it is in none."""
    send = command.send
    has_id = send.HasField("txnid_least_bits") and send.HasField("txnid_most_bits")
    if has_id or send.txnid_least_bits or send.txnid_most_bits:
        return send.txnid_most_bits, send.txnid_least_bits
    return None


def _send_of(command: BaseCommand) -> _Send:
    """Return the same from a SEND parsed by protobuf."""
    send = command.send
    flags = 0
    if send.is_chunk:
        flags |= CHUNK
    if send.marker:
        flags |= MARKER
    if _transaction_of(command) is not None:
        flags |= TRANSACTION
    if send.HasField("message_id"):
        flags |= SHADOW
    highest = send.highest_sequence_id if send.HasField("highest_sequence_id") else -1
    return send.producer_id, send.sequence_id, max(send.num_messages, 1), highest, flags, 0
