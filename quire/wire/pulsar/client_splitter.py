"""Splits data received by a client into runs of MESSAGEs, runs of SEND_RECEIPTs, and single commands.

The counterpart of `splitter`, with the same technique: frames of a run differ from their predecessor in one byte, so
after one has been parsed in full the next is compared with it.

    MESSAGE        totalSize(4) head low tail entry
        head       commandSize(4) 08 09 4a LL 08 consumer.. 12 LL 08 ledger.. 10
        low        lowest seven bits of the entry id
        tail       rest of the entry id, [18 partition..]
    SEND_RECEIPT   totalSize(4) head low middle low tail
        head       commandSize(4) 08 07 3a LL 08 producer.. 10
        low        lowest seven bits of the sequence id, then of the entry id
        middle     rest of the sequence id, 1a LL 08 ledger.. 10

Any other frame is parsed field by field, and unexpected input goes to protobuf. Entries are not examined; code that
opens them checks their checksums.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

from quire.wire.pulsar.commands import parse_command
from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.PulsarApi_pb2 import BaseCommand
from quire.wire.pulsar.splitter import Other


class MessageRun:
    """Consecutive MESSAGEs of one consumer. The lists are parallel, one element per entry."""

    __slots__ = ("consumer_id", "entries", "entry_ids", "ledger_ids", "size")

    def __init__(self, consumer_id: int) -> None:
        self.consumer_id = consumer_id
        self.ledger_ids: list[int] = []
        self.entry_ids: list[int] = []
        self.entries: list[bytes] = []
        """Copies of the bytes behind each command: entries as stored, perhaps with broker entry metadata before them.
        """
        self.size = 0
        """Bytes of `entries`."""

    def __repr__(self) -> str:
        return f"MessageRun(consumer_id={self.consumer_id}, ledger_ids={self.ledger_ids}, entry_ids={self.entry_ids})"


class ReceiptRun:
    """Consecutive SEND_RECEIPTs of one producer."""

    __slots__ = ("entry_id", "ledger_id", "partition", "producer_id", "sequence_ids")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.sequence_ids: list[int] = []
        self.ledger_id = -1
        """Ledger, entry and partition of the last one; -1 if the broker sends none."""
        self.entry_id = -1
        self.partition = -1

    def __repr__(self) -> str:
        return f"ReceiptRun(producer_id={self.producer_id}, sequence_ids={self.sequence_ids})"


ClientItem: TypeAlias = MessageRun | ReceiptRun | Other

_SIZES = Struct("!II")
_TOTAL = Struct("!I")
_MESSAGE_START = b"\x08\x09\x4a"  # type = MESSAGE, then the field `message`
_RECEIPT_START = b"\x08\x07\x3a"  # type = SEND_RECEIPT, then the field `send_receipt`
_MESSAGE = int(BaseCommand.MESSAGE)
_RECEIPT = int(BaseCommand.SEND_RECEIPT)
_COMMAND_MAX = 127  # a longer command has a size of two bytes and is left to protobuf
_STRUCTS: dict[tuple[int, ...], Struct] = {}

# (first id of the command, ledger id, entry id, partition, second id's value, where the id is that counts, where the
# entry id is)
_Fields: TypeAlias = tuple[int, int, int, int, int, int, int]


def _struct(form: str, *sizes: int) -> Struct:
    struct = _STRUCTS.get(sizes)
    if struct is None:  # few: all sizes are below _COMMAND_MAX
        struct = _STRUCTS[sizes] = Struct(form % sizes)
    return struct


class _MessageTemplate:
    """Expected bytes of the next MESSAGE if only its entry id advances."""

    __slots__ = ("consumer_id", "entry_at", "entry_id", "head", "ledger_id", "low", "stop", "struct", "tail")

    def __init__(self, frame_head: bytes, fields: _Fields) -> None:
        self.consumer_id, self.ledger_id, self.entry_id, _, _, _, entry_id_at = fields
        low_at = 8 + entry_id_at
        self.head = frame_head[4:low_at]
        self.low = frame_head[low_at]
        self.stop = 0x100 if self.low & 0x80 else 0x80
        """The first `low` that cannot follow without a carry."""
        self.tail = frame_head[low_at + 1 :]
        self.entry_at = len(frame_head)
        self.struct = _struct("!I%dsB%ds", len(self.head), len(self.tail))


class _ReceiptTemplate:
    """Expected bytes of the next SEND_RECEIPT if only its ids advance."""

    __slots__ = (
        "entry_id",
        "entry_low",
        "frame",
        "ledger_id",
        "left",
        "low",
        "partition",
        "producer_id",
        "sequence_id",
    )

    def __init__(self, frame: bytes, fields: _Fields) -> None:
        self.producer_id, self.ledger_id, self.entry_id, self.partition, self.sequence_id, at, entry_id_at = fields
        self.frame = frame
        self.low = 8 + at
        self.entry_low = 8 + entry_id_at
        self.left = min(0x7F - (frame[self.low] & 0x7F), 0x7F - (frame[self.entry_low] & 0x7F))
        """Number of frames that may follow without a carry."""


class ClientSplitter:
    """Splitter for one connection.

    It owns no buffer and no socket, and remembers only the form of the last MESSAGE and receipt.
    """

    __slots__ = ("_message", "_total_max")

    def __init__(self, frame_max: int) -> None:
        """`frame_max`: the largest frame accepted, in bytes, its length field included."""
        self._total_max = frame_max - 4
        self._message: _MessageTemplate | None = None

    def accept(self, frame_max: int) -> None:
        """Change the bound, once the broker has announced its own."""
        self._total_max = frame_max - 4

    def needed(self, chunk: memoryview, start: int, end: int) -> int:
        """Return the size of the frame that begins at `start`, at least 4; FrameError if it is above the limit."""
        if end - start < 4:
            return 4
        return 4 + self._check_total(_TOTAL.unpack_from(chunk, start)[0])

    def split(self, chunk: memoryview, start: int, end: int) -> tuple[list[ClientItem], int]:
        """Read all whole frames in chunk[start:end]; return the items and the number of bytes they took.

        Raises FrameError for bytes that are not a frame. Then nothing of the chunk counts, and the connection must be
        closed.
        """
        items: list[ClientItem] = []
        position = start
        while end - position >= 8:
            if self._message is not None:
                position = self._messages_alike(self._message, items, chunk, position, end)
                if end - position < 8:
                    break
            total, command_size = _SIZES.unpack_from(chunk, position)
            stop = position + 4 + self._check_total(total)
            if stop > end:
                break
            rest = position + 8 + command_size
            if rest > stop:
                raise FrameError(f"a command of {command_size} bytes in a frame of {total}")
            command = bytes(chunk[position + 8 : rest])
            if command.startswith(_MESSAGE_START):
                self._one_message(items, chunk, position, command, rest, stop)
            elif rest != stop:
                raise FrameError(f"{stop - rest} bytes behind a command that has no payload")
            elif command.startswith(_RECEIPT_START):
                stop = self._receipts(items, chunk, position, command, stop, end)
            else:
                parsed = parse_command(command)
                if parsed.type in (_MESSAGE, _RECEIPT):
                    raise FrameError("a command whose fields are out of order")
                items.append(Other(parsed))
            position = stop
        return items, position - start

    def _one_message(
        self, items: list[ClientItem], chunk: memoryview, position: int, command: bytes, rest: int, stop: int
    ) -> None:
        fields = _parse_fields(command, with_second_id=False)
        if fields is None:
            message = parse_command(command).message
            place = message.message_id
            consumer_id, ledger_id, entry_id = message.consumer_id, _signed(place.ledgerId), _signed(place.entryId)
            self._message = None
        else:
            consumer_id, ledger_id, entry_id = fields[:3]
            self._message = _MessageTemplate(bytes(chunk[position:rest]), fields)
        run = _message_run(items, consumer_id)
        run.ledger_ids.append(ledger_id)
        run.entry_ids.append(entry_id)
        run.entries.append(bytes(chunk[rest:stop]))
        run.size += stop - rest

    def _messages_alike(
        self, template: _MessageTemplate, items: list[ClientItem], chunk: memoryview, position: int, end: int
    ) -> int:
        """Take the frames from `position` on that continue `template`; return where they end."""
        struct = template.struct
        unpack = struct.unpack_from
        last_start = end - struct.size
        head = template.head
        tail = template.tail
        entry_at = template.entry_at
        overhead = entry_at - 4  # bytes of totalSize that are not the entry
        total_max = self._total_max
        start = position
        entries: list[bytes] = []
        append = entries.append
        for low in range(template.low + 1, template.stop):
            if position > last_start:
                break
            total, frame_head, frame_low, frame_tail = unpack(chunk, position)
            if frame_low != low or frame_head != head or frame_tail != tail or not overhead <= total <= total_max:
                break
            stop = position + 4 + total
            if stop > end:
                break
            append(chunk[position + entry_at : stop].tobytes())
            position = stop
        taken = len(entries)
        if taken:
            run = _message_run(items, template.consumer_id)
            run.ledger_ids += [template.ledger_id] * taken
            run.entry_ids += range(template.entry_id + 1, template.entry_id + 1 + taken)
            run.entries += entries
            run.size += position - start - taken * entry_at
            template.low += taken
            template.entry_id += taken
        return position

    def _receipts(
        self, items: list[ClientItem], chunk: memoryview, position: int, command: bytes, stop: int, end: int
    ) -> int:
        """Read one SEND_RECEIPT, and those behind it that only advance; return where they end."""
        fields = _parse_fields(command, with_second_id=True)
        if fields is None:
            receipt = parse_command(command).send_receipt
            run = _receipt_run(items, receipt.producer_id)
            run.sequence_ids.append(receipt.sequence_id)
            if receipt.HasField("message_id"):
                place = receipt.message_id
                run.ledger_id, run.entry_id = _signed(place.ledgerId), _signed(place.entryId)
                run.partition = place.partition
            else:
                run.ledger_id = run.entry_id = run.partition = -1
            return stop
        template = _ReceiptTemplate(bytes(chunk[position:stop]), fields)
        taken = _receipts_alike(template, chunk, stop, end)
        run = _receipt_run(items, template.producer_id)
        run.sequence_ids += range(template.sequence_id, template.sequence_id + 1 + taken)
        run.ledger_id = template.ledger_id
        run.entry_id = template.entry_id + taken
        run.partition = template.partition
        return stop + taken * len(template.frame)

    def _check_total(self, total: int) -> int:
        if total < 4:
            raise FrameError(f"a frame of {total} bytes has no room for its command's size")
        if total > self._total_max:
            raise FrameError(f"a frame of {total} bytes is above the limit of {self._total_max}")
        return total


def _receipts_alike(template: _ReceiptTemplate, chunk: memoryview, position: int, end: int) -> int:
    """Return how many whole frames from `position` on continue the template, compared as one block."""
    frame = template.frame
    size = len(frame)
    count = min(template.left, (end - position) // size)
    if count <= 0:
        return 0
    block = bytes(chunk[position : position + count * size])
    wanted = bytearray(frame * count)
    for at in (template.low, template.entry_low):
        first = frame[at] + 1
        wanted[at::size] = bytes(range(first, first + count))
    if block == wanted:
        return count
    taken = 0
    while block.startswith(wanted[taken * size : (taken + 1) * size], taken * size):
        taken += 1
    return taken


def _message_run(items: list[ClientItem], consumer_id: int) -> MessageRun:
    """Return the run for a MESSAGE: the last one if it fits, else a new one."""
    if items:
        last = items[-1]
        if type(last) is MessageRun and last.consumer_id == consumer_id:
            return last
    run = MessageRun(consumer_id)
    items.append(run)
    return run


def _receipt_run(items: list[ClientItem], producer_id: int) -> ReceiptRun:
    if items:
        last = items[-1]
        if type(last) is ReceiptRun and last.producer_id == producer_id:
            return last
    run = ReceiptRun(producer_id)
    items.append(run)
    return run


def _parse_fields(command: bytes, *, with_second_id: bool) -> _Fields | None:
    """Read a MESSAGE (consumer id, message id) or a SEND_RECEIPT (producer id, sequence id, message id) of the usual
    shape.

    None if it has another shape, which does not mean that it is invalid.
    """
    size = len(command)
    if size > _COMMAND_MAX or size < 8 or command[3] != size - 4 or command[4] != 0x08:
        return None
    owner, at = _varint(command, 5)
    second = -1
    second_at = 0
    tag = 0x12
    if with_second_id:
        if at >= size or command[at] != 0x10:
            return None
        second_at = at + 1
        second, at = _varint(command, second_at)
        tag = 0x1A
    if at + 2 >= size or command[at] != tag:
        return None
    id_stop = at + 2 + command[at + 1]
    if id_stop != size or command[at + 2] != 0x08:
        return None  # data behind the message id, or a size of two bytes
    ledger_id, at = _varint(command, at + 3)
    if at >= size or command[at] != 0x10:
        return None
    entry_id_at = at + 1
    entry_id, at = _varint(command, entry_id_at)
    partition = -1
    if at < size:
        if command[at] != 0x18:
            return None
        partition, at = _varint(command, at + 1)
    if at != size or min(owner, ledger_id, entry_id) < 0 or (with_second_id and second < 0) or partition >= 1 << 31:
        return None
    return owner, ledger_id, entry_id, partition, second, second_at, entry_id_at


def _varint(command: bytes, at: int) -> tuple[int, int]:
    """Return a value and the offset behind it; (-1, len(command) + 1) if there is none of at most nine bytes."""
    value = 0
    shift = 0
    for index in range(at, min(at + 9, len(command))):
        byte = command[index]
        if byte < 0x80:
            return value | byte << shift, index + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return -1, len(command) + 1


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
