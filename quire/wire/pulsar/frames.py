"""Frames of Pulsar's protocol: sizes, magic numbers, and the encoders of every frame.

    simple    totalSize(4) commandSize(4) command                                   totalSize counts what follows it
    payload   totalSize(4) commandSize(4) command entry                             SEND and MESSAGE
    entry     0x0e01(2) crc32c(4) metadataSize(4) metadata payload                  as stored in the ledger, verbatim
              the crc32c (Castagnoli) covers everything behind itself

All integers big-endian. Before the entry a broker may put 0x0e02(2) size(4) BrokerEntryMetadata; clients never do.
Source: reading of the official clients.

Runs of SEND, SEND_RECEIPT and MESSAGE are encoded without a protobuf object per message. Frames of a run differ in few
bytes: consecutive ids differ in the lowest seven bits until these overflow. So a block of equal frames is built by
repetition, and the bytes that differ are set by strided assignment.

    send      totalSize commandSize 08 06 32 LL  08 producer 10 sequence 18 messages  entry
    receipt   totalSize commandSize 08 07 3a LL  08 producer 10 sequence 1a LL ( 08 ledger 10 entry [18 partition] )
              [20 highest]
    message   totalSize commandSize 08 09 4a LL  08 consumer 12 LL ( 08 ledger 10 entry [18 partition] )
              [18 redeliveries] [20 ack word]* [28 epoch]  entry

The result is byte for byte the same as protobuf's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TypeAlias

from quire.wire.pulsar.PulsarApi_pb2 import BaseCommand

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = 0x0E01
BROKER_ENTRY_MAGIC = 0x0E02

MESSAGE_SIZE_MAX = 5 * 1024 * 1024
"""Bytes of metadata and payload in one message, as announced in CONNECTED unless configured otherwise."""

FRAME_HEADROOM = 10 * 1024
"""Bytes that a frame may have on top of the largest message."""

FRAME_SIZE_MAX = MESSAGE_SIZE_MAX + FRAME_HEADROOM
"""Bytes of a whole frame, its length field included."""

PROTOCOL_VERSION = 20
"""Highest protocol version that we announce."""

NO_REQUEST = (1 << 64) - 1
"""request_id of a command that answers no request, such as the server's own CLOSE_PRODUCER."""

_SIZES = Struct("!II")
_LOW = bytes(range(256))
_BLOCK_MIN = 24  # strided assignment pays from about this many frames on


def encode(command: BaseCommand) -> bytes:
    """Return a whole frame with this command and no payload. A missing required field is our own bug: EncodeError."""
    body: bytes = command.SerializeToString()
    size = len(body)
    return _SIZES.pack(4 + size, size) + body


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def encode_varint(value: int) -> bytes:
    """Return the varint of `value`, taken as 64 bits: -1 is 2^64-1, ten bytes.

    >>> encode_varint(300).hex(), len(encode_varint(-1))
    ('ac02', 10)
    """
    if 0 <= value < 0x1000_0000:  # the usual ids, unrolled: this is called for every id written
        if value < 0x80:
            return _ONE_BYTE[value]
        if value < 0x4000:
            return bytes((value & 0x7F | 0x80, value >> 7))
        if value < 0x20_0000:
            return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class SendEncoder:
    """Encoder of one producer's SENDs."""

    __slots__ = ("_producer",)

    def __init__(self, producer_id: int) -> None:
        self._producer = b"\x08" + encode_varint(producer_id) + b"\x10"

    def frames(self, first_sequence_id: int, counts: Sequence[int], entries: Sequence[bytes]) -> list[bytes]:
        """Return head and entry for each of `entries`; `counts` has the number of messages of each. The sequence id of
        an entry is that of its first message, and messages are numbered consecutively.
        """
        parts: list[bytes] = []
        pack = _SIZES.pack
        producer = self._producer
        sequence_id = first_sequence_id
        for count, entry in zip(counts, entries, strict=True):
            body = b"%b%b\x18%b" % (producer, encode_varint(sequence_id), encode_varint(count))
            size = len(body)  # below 128: each id has at most ten bytes
            parts.append(pack(8 + size + len(entry), 4 + size) + b"\x08\x06\x32%c%b" % (size, body))
            parts.append(entry)
            sequence_id += count
        return parts


class _MessageIds:
    """Bytes of the MessageIdData around the entry id, one ledger after the other. An id has at most 33 bytes."""

    __slots__ = ("after", "before", "ledger_id")

    def __init__(self, partition: int) -> None:
        self.begin(0)
        self.after = b"" if partition < 0 else b"\x18" + encode_varint(partition)
        """Bytes behind the entry id; empty for a topic without partitions."""

    def begin(self, ledger_id: int) -> None:
        """Set `before`, the bytes before the entry id."""
        self.ledger_id = ledger_id
        self.before = b"\x08%b\x10" % encode_varint(ledger_id)


class ReceiptEncoder:
    """Encoder of one producer's SEND_RECEIPTs."""

    __slots__ = ("_ids", "_producer")

    def __init__(self, producer_id: int, partition: int = -1) -> None:
        """`partition` -1: the topic is not partitioned."""
        self._producer = b"\x08" + encode_varint(producer_id) + b"\x10"
        self._ids = _MessageIds(partition)

    def encode(
        self,
        sequence_ids: Sequence[int],
        highest_ids: Sequence[int] | None,
        ledger_id: int,
        first_entry_id: int,
    ) -> bytes:
        """Return receipts for SENDs that became consecutive entries from `first_entry_id` on, end to end.

        A duplicate's receipt has ledger and entry -1: pass those one at a time.
        """
        if ledger_id != self._ids.ledger_id:
            self._ids.begin(ledger_id)
        count = len(sequence_ids)
        first = sequence_ids[0]
        steady = count > 2 and highest_ids is None and sequence_ids[-1] - first == count - 1
        if steady and list(sequence_ids) == list(range(first, first + count)):
            blocks: list[bytes | bytearray] = []
            done = 0
            while done < count:
                sequence_id = first + done
                entry_id = first_entry_id + done
                size = min(count - done, 128 - (sequence_id & 0x7F), 128 - (entry_id & 0x7F))
                blocks.append(self._block(sequence_id, entry_id, size))
                done += size
            return b"".join(blocks)
        if count == 1:
            return self._one(first, -1 if highest_ids is None else highest_ids[0], first_entry_id)
        highest = [-1] * count if highest_ids is None else highest_ids
        entry_ids = range(first_entry_id, first_entry_id + count)
        return b"".join(map(self._one, sequence_ids, highest, entry_ids))

    def _one(self, sequence_id: int, highest: int, entry_id: int) -> bytes:
        ids = self._ids
        message_id = ids.before + encode_varint(entry_id) + ids.after
        body = b"%b%b\x1a%c%b" % (self._producer, encode_varint(sequence_id), len(message_id), message_id)
        if highest >= 0:
            body += b"\x20" + encode_varint(highest)
        size = len(body)  # below 128: the ids have at most ten bytes each
        return _SIZES.pack(size + 8, size + 4) + b"\x08\x07\x3a%c%b" % (size, body)

    def _block(self, sequence_id: int, entry_id: int, count: int) -> bytearray | bytes:
        """Return `count` receipts whose ids advance together without a carry out of their lowest seven bits."""
        frame = self._one(sequence_id, -1, entry_id)
        if count == 1:
            return frame
        size = len(frame)
        sequence_at = 12 + len(self._producer)
        entry_at = size - len(self._ids.after) - len(encode_varint(entry_id))
        frames = bytearray(frame * count)
        frames[sequence_at::size] = _LOW[frame[sequence_at] : frame[sequence_at] + count]
        frames[entry_at::size] = _LOW[frame[entry_at] : frame[entry_at] + count]
        return frames


@lru_cache(maxsize=256)
def _struct(form: str) -> Struct:
    return Struct(form)


class MessageEncoder:
    """Encoder of one consumer's MESSAGE frames."""

    __slots__ = ("_consumer", "_ids")

    def __init__(self, consumer_id: int, partition: int = -1) -> None:
        self._consumer = b"\x08" + encode_varint(consumer_id) + b"\x12"
        self._ids = _MessageIds(partition)

    def frames(
        self,
        out: list[Buffer],
        ledger_id: int,
        first_entry_id: int,
        payloads: Sequence[Buffer],
        redelivery_counts: Sequence[int] | None = None,
        ack_sets: Sequence[Sequence[int] | None] | None = None,
        entry_ids: Sequence[int] | None = None,
        consumer_epoch: int | None = None,
    ) -> int:
        """Append to `out` a head and the entry for each of `payloads`; return the bytes appended.

        The entries are `entry_ids`, or consecutive from `first_entry_id` on. Payloads are entries as stored. The other
        lists are parallel to `payloads`; a redelivery count of 0 and an ack set of None are left out. Ack set words
        are signed.
        """
        if ledger_id != self._ids.ledger_id:
            self._ids.begin(ledger_id)
        count = len(payloads)
        epoch = b"" if consumer_epoch is None else b"\x28" + encode_varint(consumer_epoch)
        if (redelivery_counts is not None and any(redelivery_counts)) or (ack_sets is not None and any(ack_sets)):
            entries = range(first_entry_id, first_entry_id + count) if entry_ids is None else entry_ids
            tails = _tails(count, redelivery_counts, ack_sets, epoch)
            return self._each(out, entries, payloads, tails)
        if count < 3:
            entries = range(first_entry_id, first_entry_id + count) if entry_ids is None else entry_ids
            return self._each(out, entries, payloads, [epoch] * count)
        if entry_ids is not None or count < _BLOCK_MIN:
            entries = range(first_entry_id, first_entry_id + count) if entry_ids is None else entry_ids
            return self._scattered(out, entries, payloads, epoch)
        size = 0
        done = 0
        while done < count:
            entry_id = first_entry_id + done
            block = min(count - done, 128 - (entry_id & 0x7F))
            size += self._block(out, entry_id, payloads[done : done + block], epoch)
            done += block
        return size

    def _head(self, entry_id: int, tail: bytes, payload_size: int) -> bytes:
        ids = self._ids
        message_id = ids.before + encode_varint(entry_id) + ids.after
        body = b"%b%c%b%b" % (self._consumer, len(message_id), message_id, tail)
        size = encode_varint(len(body))  # an ack set may make it longer than 127 bytes
        command_size = 3 + len(size) + len(body)
        return _SIZES.pack(4 + command_size + payload_size, command_size) + b"\x08\x09\x4a%b%b" % (size, body)

    def _each(
        self, out: list[Buffer], entry_ids: Sequence[int], payloads: Sequence[Buffer], tails: Sequence[bytes]
    ) -> int:
        """Append frames that have little in common."""
        size = 0
        for entry_id, payload, tail in zip(entry_ids, payloads, tails, strict=True):
            head = self._head(entry_id, tail, len(payload))
            out.append(head)
            out.append(payload)
            size += len(head) + len(payload)
        return size

    def _scattered(self, out: list[Buffer], entry_ids: Sequence[int], payloads: Sequence[Buffer], tail: bytes) -> int:
        """Append frames that differ in entry id and size only, ids in any order."""
        size = 0
        high = -1
        for entry_id, payload in zip(entry_ids, payloads, strict=True):
            if entry_id >> 7 != high:
                high = entry_id >> 7
                model = self._head(entry_id, tail, 0)
                low_at = self._low_at(model, entry_id, tail)
                more = model[low_at] & 0x80
                before = model[4:low_at]
                after = model[low_at + 1 :]
                total = len(model) - 4
                pack = _struct(f"!I{len(before)}sB{len(after)}s").pack
            payload_size = len(payload)
            out.append(pack(total + payload_size, before, entry_id & 0x7F | more, after))
            out.append(payload)
            size += total + payload_size
        return size + 4 * len(payloads)

    def _block(self, out: list[Buffer], entry_id: int, payloads: Sequence[Buffer], tail: bytes) -> int:
        """Append frames whose entry ids advance without a carry out of their lowest seven bits."""
        head = self._head(entry_id, tail, 0)
        size = len(head)
        count = len(payloads)
        sizes = list(map(len, payloads))
        low_at = self._low_at(head, entry_id, tail)
        heads = bytearray(head * count)
        heads[low_at::size] = _LOW[head[low_at] : head[low_at] + count]
        total = size - 4
        totals = _struct(f"!{count}I").pack(*[total + payload_size for payload_size in sizes])
        heads[0::size] = totals[0::4]
        heads[1::size] = totals[1::4]
        heads[2::size] = totals[2::4]
        heads[3::size] = totals[3::4]
        whole = bytes(heads)
        parts: list[Buffer] = [b""] * (2 * count)
        parts[0::2] = [whole[at : at + size] for at in range(0, size * count, size)]
        parts[1::2] = payloads
        out += parts
        return size * count + sum(sizes)

    def _low_at(self, head: bytes, entry_id: int, tail: bytes) -> int:
        """Return the offset in a head of the lowest seven bits of its entry id."""
        return len(head) - len(tail) - len(self._ids.after) - len(encode_varint(entry_id))


def _tails(
    count: int,
    redelivery_counts: Sequence[int] | None,
    ack_sets: Sequence[Sequence[int] | None] | None,
    epoch: bytes,
) -> list[bytes]:
    """Return the bytes behind the message id, per message."""
    tails = []
    for index in range(count):
        tail = b""
        if redelivery_counts is not None and redelivery_counts[index]:
            tail = b"\x18" + encode_varint(redelivery_counts[index])
        if ack_sets is not None:
            for word in ack_sets[index] or ():
                tail += b"\x20" + encode_varint(word)
        tails.append(tail + epoch)
    return tails
