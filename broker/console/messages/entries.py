"""The messages of one stored entry, as rows for the message viewer. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from broker.errors import BrokerError
from quire.client.batches import Properties, key_of, properties_of, split
from quire.client.compression import decompress
from quire.client.errors import CorruptEntryError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import broker_metadata, metadata_span, read_metadata

UNPACKED_BYTES_MAX: Final = 64 << 20
"""Maximum bytes of an entry after decompression."""
BATCH_MAX: Final = 10_000
"""Messages of a batch that are taken apart; a larger one is shown as one message."""
LARGE_BYTES: Final = 64 << 10
"""Entries above this, before or after decompression, are taken apart in a worker."""
LARGE_BATCH: Final = 500
"""Batches of more messages are taken apart in a worker, too."""
_ACCESS_SHOWN: Final = 200


class EntryMessage(NamedTuple):
    """One message."""

    position: Position
    batch_index: int
    """-1: it is in no batch."""
    value: bytes | None
    key: bytes | None
    event_ms: int
    properties: Properties


class UnpackedEntry(NamedTuple):
    """An entry and its messages."""

    metadata: pb.MessageMetadata
    messages: list[EntryMessage]
    facts: dict[str, Any]
    """Facts about the entry that are the same for its messages, as JSON."""
    problem: str
    """Reason why its payload cannot be read; "" if it can."""


class UnreadableEntryError(BrokerError):
    """An entry without readable metadata. Permanent."""


def unpack(position: Position, entry: bytes) -> UnpackedEntry:
    """Take an entry apart. Decompression of a large one takes long: run it in a worker. Raises UnreadableEntryError."""
    try:
        metadata = read_metadata(entry)
        _, start = metadata_span(entry)
        added = broker_metadata(entry)
    except PulsarWireError as error:
        raise UnreadableEntryError(f"{position} has unreadable metadata: {error}") from error
    data, problem = entry[start:], ""
    facts = _facts(metadata, len(entry))
    if added is not None:
        facts |= {"brokerMs": added.broker_timestamp, "index": added.index if added.HasField("index") else None}
    one = [_single(position, metadata, data)]
    if metadata.encryption_keys:
        return UnpackedEntry(metadata, one, facts, "encrypted: only its consumers can read it")
    try:
        if metadata.compression != pb.NONE:
            data = decompress(metadata.compression, data, metadata.uncompressed_size, size_max=UNPACKED_BYTES_MAX)
            one = [_single(position, metadata, data)]
        if metadata.HasField("num_messages_in_batch") and not metadata.HasField("num_chunks_from_msg"):
            if metadata.num_messages_in_batch > BATCH_MAX:
                return UnpackedEntry(metadata, one, facts, f"a batch of more than {BATCH_MAX} messages")
            return UnpackedEntry(metadata, list(_batch(position, metadata, data)), facts, problem)
    except CorruptEntryError as error:
        problem = str(error)
    return UnpackedEntry(metadata, one, facts, problem)


def is_large(entry: bytes) -> bool:
    """Return whether `unpack` may take longer than a step of the event loop has."""
    if len(entry) > LARGE_BYTES:
        return True
    try:
        metadata = read_metadata(entry)
    except PulsarWireError:
        return False
    return metadata.uncompressed_size > LARGE_BYTES or metadata.num_messages_in_batch > LARGE_BATCH


def _single(position: Position, metadata: pb.MessageMetadata, data: bytes) -> EntryMessage:
    value = None if metadata.null_value else data
    return EntryMessage(position, -1, value, key_of(metadata), metadata.event_time, properties_of(metadata))


def _batch(position: Position, metadata: pb.MessageMetadata, data: bytes) -> Iterator[EntryMessage]:
    values, keys, events, properties = list[bytes | None](), list[bytes | None](), list[int](), list[Properties]()
    count = metadata.num_messages_in_batch
    left_out = set(split(data, count, values, keys, events, properties))
    indexes = (index for index in range(count) if index not in left_out)
    for index, value, key, event_ms, pairs in zip(indexes, values, keys, events, properties, strict=True):
        yield EntryMessage(position, index, value, key, event_ms, pairs)


def _facts(metadata: pb.MessageMetadata, size: int) -> dict[str, Any]:
    has = metadata.HasField
    found: dict[str, Any] = {
        "publishMs": metadata.publish_time,
        "producer": metadata.producer_name[:_ACCESS_SHOWN],
        "sequenceId": metadata.sequence_id,
        "entryBytes": size,
        "compression": pb.CompressionType.Name(metadata.compression),
        "encrypted": bool(metadata.encryption_keys),
        "batch": metadata.num_messages_in_batch if has("num_messages_in_batch") else None,
    }
    if has("deliver_at_time"):
        found["deliverAtMs"] = metadata.deliver_at_time
    if has("ordering_key"):
        found["orderingKey"] = b64encode(metadata.ordering_key).decode()
    if has("num_chunks_from_msg"):
        found["chunk"] = {"number": metadata.chunk_id, "of": metadata.num_chunks_from_msg}
    if has("marker_type"):
        found["marker"] = metadata.marker_type
    if has("txnid_most_bits"):
        found["transaction"] = f"({metadata.txnid_most_bits},{metadata.txnid_least_bits})"
    if has("replicated_from"):
        found["replicatedFrom"] = metadata.replicated_from[:_ACCESS_SHOWN]
    return found
