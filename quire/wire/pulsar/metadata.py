"""Metadata of a stored entry, read without unpacking its messages.

    [0x0e02(2) size(4) BrokerEntryMetadata]  [0x0e01(2) crc32c(4)]  metadataSize(4) MessageMetadata  payload

Entries written here always have the middle part and never the first; entries written by Pulsar may differ.
Checksums are not verified here: that was done when the entry was received.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from crc32c import crc32c
from google.protobuf.message import DecodeError

from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.frames import BROKER_ENTRY_MAGIC, MAGIC
from quire.wire.pulsar.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

Buffer: TypeAlias = bytes | bytearray | memoryview

_HEAD = Struct("!HII")
_MAGIC = Struct("!H")
_SIZE = Struct("!I")
_parse = MessageMetadata.FromString
# The tag of num_messages_in_batch. Metadata without this byte cannot have the field, and most metadata lacks it.
_find_count_tag = re.compile(b"\x58").search
_find_uuid_tag = re.compile(b"\xd2\x01").search
_find_deliver_at_tag = re.compile(b"\x98\x01").search


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Fields of an entry's metadata used by features; None for an absent field. Times in ms."""

    producer_name: str
    sequence_id: int
    highest_sequence_id: int | None
    publish_time: int
    event_time: int | None
    count: int
    """Messages in the entry, at least 1."""
    batched: bool
    """True if the payload is a batch, maybe of one message."""
    partition_key: bytes | None
    """Partition key, decoded if it was sent as base64."""
    ordering_key: bytes | None
    deliver_at: int | None
    marker_type: int | None
    uuid: str | None
    """Id of the chunked message that this entry is a part of."""
    chunk_id: int | None
    chunks: int | None
    transaction: tuple[int, int] | None
    """Most and least significant bits of the transaction's id."""
    null_value: bool


def metadata_span(entry: Buffer) -> tuple[int, int]:
    """Return where the MessageMetadata of an entry starts and stops; MalformedMetadataError if the sizes do not fit."""
    size = len(entry)
    if size >= 10:  # the usual entry, without a loop
        magic, _, metadata_size = _HEAD.unpack_from(entry)
        if magic == MAGIC and metadata_size <= size - 10:
            return 10, 10 + metadata_size
    at = 0
    if size >= 2 and _MAGIC.unpack_from(entry)[0] == BROKER_ENTRY_MAGIC:
        at = 6 + (_SIZE.unpack_from(entry, 2)[0] if size >= 6 else size)
    if size - at >= 2 and _MAGIC.unpack_from(entry, at)[0] == MAGIC:
        at += 6
    if size - at < 4:
        raise MalformedMetadataError(f"an entry of {size} bytes ends before its metadata")
    metadata_size = _SIZE.unpack_from(entry, at)[0]
    at += 4
    if metadata_size > size - at:
        raise MalformedMetadataError(f"metadata of {metadata_size} bytes in an entry of {size}")
    return at, at + metadata_size


def read_metadata(entry: Buffer) -> MessageMetadata:
    """Return the metadata of an entry as parsed by protobuf; MalformedMetadataError. Required fields may be missing."""
    start, stop = metadata_span(entry)
    try:
        metadata: MessageMetadata = _parse(bytes(entry[start:stop]))
    except DecodeError as error:
        raise MalformedMetadataError(f"unreadable metadata: {error}") from None
    return metadata


def broker_metadata(entry: Buffer) -> BrokerEntryMetadata | None:
    """Return what a broker has put in front of the entry; None: nothing. MalformedMetadataError."""
    if len(entry) < 6 or _MAGIC.unpack_from(entry)[0] != BROKER_ENTRY_MAGIC:
        return None
    size = _SIZE.unpack_from(entry, 2)[0]
    try:
        found: BrokerEntryMetadata = BrokerEntryMetadata.FromString(bytes(entry[6 : 6 + size]))
    except DecodeError as error:
        raise MalformedMetadataError(f"unreadable metadata of a broker: {error}") from None
    return found


def entry_time(entry: Buffer) -> int | None:
    """Return the time of an entry, in ms since 1970: the broker's, if it has added one, else the publish time; None if
    there is neither. MalformedMetadataError. Source: Pulsar's Commands.getEntryTimestamp."""
    metadata = read_metadata(entry)
    added = broker_metadata(entry)
    if added is not None and added.HasField("broker_timestamp"):
        return added.broker_timestamp
    return metadata.publish_time if metadata.HasField("publish_time") else None


def batch_count(entry: Buffer) -> int:
    """Return the number of messages in the entry according to its metadata: at least 1. MalformedMetadataError.

    The producer sets it; the payload is not unpacked to verify it.
    """
    if len(entry) >= 10:
        magic, _, size = _HEAD.unpack_from(entry)
        if magic == MAGIC and 10 + size <= len(entry) and not _find_count_tag(entry, 10, 10 + size):
            return 1
    count: int = read_metadata(entry).num_messages_in_batch
    return count if count > 0 else 1


def batch_counts(entries: Iterable[Buffer]) -> list[int]:
    """Return `batch_count` of each entry; an entry whose metadata cannot be read counts as one message."""
    counts: list[int] = []
    append = counts.append
    unpack = _HEAD.unpack_from
    for entry in entries:
        size = len(entry)
        if size >= 10:
            magic, _, metadata_size = unpack(entry)
            stop = 10 + metadata_size
            if magic == MAGIC and stop <= size and not _find_count_tag(entry, 10, stop):
                append(1)
                continue
        try:
            append(batch_count(entry))
        except MalformedMetadataError:
            append(1)
    return counts


def chunk_of(entry: Buffer) -> tuple[str, int, int] | None:
    """Return (uuid, chunk id, chunks) of an entry that is a part of a chunked message; None for others.

    MalformedMetadataError.
    """
    start, stop = metadata_span(entry)
    if not _find_uuid_tag(entry, start, stop):
        return None
    metadata = read_metadata(entry)
    if not metadata.HasField("uuid"):
        return None
    return _text(metadata.uuid), metadata.chunk_id, metadata.num_chunks_from_msg


def deliver_at(entry: Buffer) -> int | None:
    """Return the time in ms at which an entry is to be delivered; None for one without. MalformedMetadataError."""
    start, stop = metadata_span(entry)
    if not _find_deliver_at_tag(entry, start, stop):
        return None
    metadata = read_metadata(entry)
    time_ms: int = metadata.deliver_at_time
    return time_ms if metadata.HasField("deliver_at_time") else None


def delay_of(entry: Buffer) -> int:
    """Return the ms between an entry's publish time and its deliver_at_time; 0 without. MalformedMetadataError."""
    metadata = read_metadata(entry)
    if not metadata.HasField("deliver_at_time"):
        return 0
    delay: int = metadata.deliver_at_time - metadata.publish_time
    return delay


def peek(entry: Buffer) -> Peek:
    """Return the fields used by features; MalformedMetadataError."""
    metadata = read_metadata(entry)
    has = metadata.HasField
    transaction = None
    if has("txnid_most_bits") or has("txnid_least_bits"):
        transaction = (metadata.txnid_most_bits, metadata.txnid_least_bits)
    return Peek(
        producer_name=_text(metadata.producer_name),
        sequence_id=metadata.sequence_id,
        highest_sequence_id=metadata.highest_sequence_id if has("highest_sequence_id") else None,
        publish_time=metadata.publish_time,
        event_time=metadata.event_time if has("event_time") else None,
        count=max(metadata.num_messages_in_batch, 1),
        batched=has("num_messages_in_batch"),
        partition_key=_partition_key(metadata) if has("partition_key") else None,
        ordering_key=metadata.ordering_key if has("ordering_key") else None,
        deliver_at=metadata.deliver_at_time if has("deliver_at_time") else None,
        marker_type=metadata.marker_type if has("marker_type") else None,
        uuid=_text(metadata.uuid) if has("uuid") else None,
        chunk_id=metadata.chunk_id if has("chunk_id") else None,
        chunks=metadata.num_chunks_from_msg if has("num_chunks_from_msg") else None,
        transaction=transaction,
        null_value=metadata.null_value,
    )


def sticky_key(entry: Buffer) -> bytes:
    """Return the key used by Key_Shared: the ordering key, else the partition key, else a key of the message's own.

    Of a batch, the first message's keys are in the metadata. MalformedMetadataError. Source: Pulsar 4.0 (in earlier
    releases all messages without a key shared one).
    """
    metadata = read_metadata(entry)
    key: bytes = metadata.ordering_key
    if key or metadata.HasField("ordering_key"):
        return key
    if metadata.partition_key or metadata.HasField("partition_key"):
        return _partition_key(metadata)
    return b"%b-%d" % (_text(metadata.producer_name).encode(), metadata.sequence_id)


def _partition_key(metadata: MessageMetadata) -> bytes:
    """Return the key as bytes; a key marked as base64 that is not valid base64 is used as it is."""
    text: str | bytes = metadata.partition_key
    key = text.encode() if isinstance(text, str) else text
    if metadata.partition_key_b64_encoded:
        try:
            return b64decode(key, validate=True)
        except Base64Error:
            return key
    return key


def _text(value: str | bytes) -> str:
    """Return text as str; protobuf returns bytes for text that is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def encode_entry(payload: bytes, *, producer_name: str, sequence_id: int = 0, publish_time_ms: int = 0) -> bytes:
    """Return an entry as a client sends it: magic, crc32c, metadata size, metadata, payload.

    For messages that servers publish.
    """
    metadata = MessageMetadata(producer_name=producer_name, sequence_id=sequence_id, publish_time=publish_time_ms)
    packed = metadata.SerializeToString()
    checked = len(packed).to_bytes(4, "big") + packed + payload
    return MAGIC.to_bytes(2, "big") + crc32c(checked).to_bytes(4, "big") + checked


def encode_marker(marker_type: int, producer_name: str, transaction: tuple[int, int], publish_time_ms: int) -> bytes:
    """Return the entry by which a broker ends a transaction (most and least significant bits of its id) in a topic."""
    metadata = MessageMetadata(
        producer_name=producer_name,
        sequence_id=(1 << 64) - 1,
        publish_time=publish_time_ms,
        marker_type=marker_type,
        txnid_most_bits=transaction[0],
        txnid_least_bits=transaction[1],
    )
    packed = metadata.SerializeToString()
    checked = len(packed).to_bytes(4, "big") + packed
    return MAGIC.to_bytes(2, "big") + crc32c(checked).to_bytes(4, "big") + checked


def naming_transaction(entry: memoryview, transaction: tuple[int, int]) -> memoryview:
    """Return an entry whose metadata names a transaction (most and least significant bits of its id): the same one if
    it names any, or cannot be read."""
    start, stop = metadata_span(entry)
    try:
        if peek(entry).transaction is not None:
            return entry
    except MalformedMetadataError:
        return entry
    most, least = transaction
    added = MessageMetadata(txnid_most_bits=most, txnid_least_bits=least).SerializePartialToString()
    checked = b"".join((_SIZE.pack(stop - start + len(added)), entry[start:stop], added, entry[stop:]))
    return memoryview(_MAGIC.pack(MAGIC) + _SIZE.pack(crc32c(checked)) + checked)
