"""Entries of a compacted ledger: a message of the log with its id in front (pure).

    idSize(4) MessageIdData  size(4) entry

The entry is as its producer sent it, without what brokers put in front. The partition of the id is written always, -1
for a topic that is none. Source: Pulsar's RawMessageImpl.
"""

from __future__ import annotations

from struct import Struct

from google.protobuf.message import DecodeError

from broker.positions import position_of
from quire.ledger.position import Position
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.PulsarApi_pb2 import MessageIdData
from quire.world.doors import Buffer

_SIZE = Struct("!I")


def encode(position: Position, partition: int, entry: Buffer) -> bytes:
    """Return an entry of a compacted ledger. `partition`: -1 for none."""
    packed = MessageIdData(ledgerId=position[0], entryId=position[1], partition=partition).SerializeToString()
    return b"".join((_SIZE.pack(len(packed)), packed, _SIZE.pack(len(entry)), entry))


def decode(raw: Buffer) -> tuple[Position, memoryview]:
    """Return the id and the entry of the log. Raises MalformedMetadataError."""
    position, at = _position(raw)
    view = memoryview(raw)
    if at + 4 > len(view):
        raise MalformedMetadataError(f"a compacted entry of {len(view)} bytes ends before its message")
    size = _SIZE.unpack_from(view, at)[0]
    if at + 4 + size > len(view):
        raise MalformedMetadataError(f"a message of {size} bytes in a compacted entry of {len(view)}")
    return position, view[at + 4 : at + 4 + size]


def position_in(raw: Buffer) -> Position:
    """Return the id alone. Raises MalformedMetadataError."""
    return _position(raw)[0]


def _position(raw: Buffer) -> tuple[Position, int]:
    view = memoryview(raw)
    size = _SIZE.unpack_from(view)[0] if len(view) >= 4 else len(view)
    if 4 + size > len(view):
        raise MalformedMetadataError(f"a compacted entry of {len(view)} bytes ends before its id")
    try:
        return position_of(MessageIdData.FromString(bytes(view[4 : 4 + size]))), 4 + size
    except DecodeError as error:
        raise MalformedMetadataError(f"unreadable id of a compacted entry: {error}") from None


def encode_horizon(position: Position, partition: int) -> bytes:
    """Return the id of the last entry with a message that is not deleted, as in the properties of a compacted ledger.

    Source: MessageIdImpl.toByteArray, by which a partition is left out if there is none, and batch_size is 0."""
    found = MessageIdData(ledgerId=position[0], entryId=position[1], batch_size=0)
    if partition >= 0:
        found.partition = partition
    return found.SerializeToString()
