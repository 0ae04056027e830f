"""Frames: sizes, magic numbers, and the encoding of commands that carry no payload.

    simple    totalSize(4) commandSize(4) command                                   totalSize counts what follows it
    payload   totalSize(4) commandSize(4) command entry                             SEND and MESSAGE
    entry     0x0e01(2) crc32c(4) metadataSize(4) metadata payload                  as stored in the ledger, verbatim
              the crc32c (Castagnoli) covers everything behind itself

All integers big-endian. Before the entry a broker may put 0x0e02(2) size(4) BrokerEntryMetadata; clients never do.
Source: reading of the official clients.
"""

from __future__ import annotations

from struct import Struct

from quire.wire.pulsar.PulsarApi_pb2 import BaseCommand

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
