"""Units of an entry: what compaction keeps or leaves out one by one (pure).

    message                                    one unit, with the key and the size of its payload
    batch                                      a unit for each of its messages
    batch that is encrypted or unreadable      one unit, always kept
    marker of a server, unreadable entry       one unit, never kept
    chunk                                      one unit; those of a message stay together, see `selection`

A payload of no bytes deletes the key. A unit without a key is dropped, or kept if topicCompactionRetainNullKey says so.
The key is the text as sent, in base64 or not.

Source: Pulsar's PublishingOrderCompactor, RawBatchConverter (isReadableBatch, extractIdsAndKeysAndSize, rebatchMessage)
and AbstractTwoPhaseCompactor.extractKeyAndSize. The original drops an encrypted batch if a later message has the key of
its first message, together with the messages of other keys in it; and of a chunked message it keeps the last chunk.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from crc32c import crc32c
from google.protobuf.message import DecodeError

from quire.client.compression import compress, decompress
from quire.client.errors import CorruptEntryError
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.frames import MAGIC
from quire.wire.pulsar.metadata import metadata_span
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata
from quire.world.doors import Buffer

Key: TypeAlias = str | bytes
"""Protobuf returns bytes for text that is not UTF-8."""
UNPACKED_BYTES_MAX = 64 << 20
"""Bytes of a batch after decompression; a larger one counts as unreadable."""
_SIZE = struct.Struct("!I")
_OUT = SingleMessageMetadata(compacted_out=True, payload_size=0).SerializeToString()
_LEFT_OUT = _SIZE.pack(len(_OUT)) + _OUT
"""A message of a batch that is left out. It keeps its place, because ids of messages have their number in the batch."""


class ChunkPlace(NamedTuple):
    """Place of an entry in a chunked message."""

    message: tuple[Key, Key]
    """Producer and uuid."""
    number: int
    total: int


class MessageUnit(NamedTuple):
    """One unit; see the module."""

    key: Key | None
    size: int
    """Bytes of the payload. Without a key: 0 to drop it, 1 to keep it."""
    chunk: ChunkPlace | None = None


DROPPED = MessageUnit(None, 0)
KEPT = MessageUnit(None, 1)


class _Single(NamedTuple):
    unit: MessageUnit
    start: int
    stop: int
    """Bounds in the uncompressed batch."""


def units_of(entry: Buffer, *, retain_null_key: bool) -> Sequence[MessageUnit]:
    """Return the units of an entry, in order."""
    try:
        metadata, stop = _metadata(entry)
    except MalformedMetadataError:
        return (DROPPED,)
    if metadata.HasField("marker_type"):
        return (DROPPED,)
    if not metadata.HasField("num_messages_in_batch"):
        return (_unit_of_message(metadata, len(entry) - stop, retain_null_key),)
    if metadata.encryption_keys:
        return (KEPT,)
    try:
        return [single.unit for single in _singles(_unpacked(metadata, entry, stop), metadata, retain_null_key)]
    except CorruptEntryError:
        return (KEPT,)


def rewritten(entry: Buffer, kept: Sequence[bool]) -> Buffer | None:
    """Return the entry with the units that are `kept`; None if there is none.

    An entry of which all are kept is returned as it is. Else it is a batch, which keeps its number of messages."""
    if all(kept):
        return entry
    if not any(kept):
        return None
    metadata, stop = _metadata(entry)
    unpacked = _unpacked(metadata, entry, stop)
    parts = [
        unpacked[single.start : single.stop] if is_kept else _LEFT_OUT
        for single, is_kept in zip(_singles(unpacked, metadata, True), kept, strict=True)
    ]
    payload = b"".join(parts)
    metadata.uncompressed_size = len(payload)
    packed = metadata.SerializeToString()
    checked = b"".join((_SIZE.pack(len(packed)), packed, compress(metadata.compression, payload)))
    return MAGIC.to_bytes(2, "big") + _SIZE.pack(crc32c(checked)) + checked


def last_message_in(entry: Buffer) -> int:
    """Return the number in its batch of the last message that was not left out; -1 if the entry is no batch, or cannot
    be read. Source: Pulsar's ServerCnx.calculateTheLastBatchIndexInBatch."""
    try:
        metadata, stop = _metadata(entry)
        if not metadata.HasField("num_messages_in_batch"):
            return -1
        count = metadata.num_messages_in_batch
        if metadata.encryption_keys:
            return count - 1
        singles = _singles(_unpacked(metadata, entry, stop), metadata, True)
    except MalformedMetadataError:
        return -1
    except CorruptEntryError:
        return count - 1
    return max((number for number, single in enumerate(singles) if single.unit is not DROPPED), default=-1)


def _metadata(entry: Buffer) -> tuple[MessageMetadata, int]:
    """Return the metadata and where it ends. Raises MalformedMetadataError."""
    start, stop = metadata_span(entry)
    try:
        return MessageMetadata.FromString(bytes(entry[start:stop])), stop
    except DecodeError as error:
        raise MalformedMetadataError(f"unreadable metadata: {error}") from None


def _unit_of_message(metadata: MessageMetadata, size: int, retain_null_key: bool) -> MessageUnit:
    chunk = None
    if metadata.HasField("uuid") and metadata.num_chunks_from_msg > 1:
        message = (metadata.producer_name, metadata.uuid)
        chunk = ChunkPlace(message, metadata.chunk_id, metadata.num_chunks_from_msg)
    if not metadata.HasField("partition_key"):
        return KEPT if retain_null_key else DROPPED
    if metadata.HasField("uncompressed_size") and (metadata.compression or metadata.encryption_keys):
        size = metadata.uncompressed_size
    return MessageUnit(metadata.partition_key, 0 if metadata.null_value else size, chunk)


def _unpacked(metadata: MessageMetadata, entry: Buffer, stop: int) -> bytes:
    """Return the uncompressed batch. Raises CorruptEntryError."""
    payload = bytes(memoryview(entry)[stop:])
    return decompress(metadata.compression, payload, metadata.uncompressed_size, size_max=UNPACKED_BYTES_MAX)


def _singles(unpacked: bytes, metadata: MessageMetadata, retain_null_key: bool) -> list[_Single]:
    """Return the messages of a batch. Raises CorruptEntryError."""
    found: list[_Single] = []
    start = 0
    without_key = KEPT if retain_null_key else DROPPED
    for number in range(metadata.num_messages_in_batch):
        try:
            at = start + 4 + _SIZE.unpack_from(unpacked, start)[0]
            single = SingleMessageMetadata.FromString(unpacked[start + 4 : at])
        except (struct.error, DecodeError) as error:
            raise CorruptEntryError(f"message {number} of a batch: {error}") from None
        stop = at + single.payload_size
        if at > stop or stop > len(unpacked):
            raise CorruptEntryError(f"message {number} of a batch ends behind it")
        if single.compacted_out:
            unit = DROPPED
        elif not single.HasField("partition_key"):
            unit = without_key
        else:
            unit = MessageUnit(single.partition_key, 0 if single.null_value else single.payload_size)
        found.append(_Single(unit, start, stop))
        start = stop
    if not found:
        raise CorruptEntryError("a batch without messages")
    return found
