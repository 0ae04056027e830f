"""Entries with any metadata, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from quire.wire.pulsar.frames import MAGIC
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata


def entry_with(payload: bytes, *, like: MessageMetadata | None = None, **fields: Any) -> bytes:
    """Return an entry whose metadata have these fields beside the required ones."""
    metadata = like or MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_700_000_000_000, **fields)
    packed = metadata.SerializeToString()
    checked = len(packed).to_bytes(4, "big") + packed + payload
    return MAGIC.to_bytes(2, "big") + crc32c(checked).to_bytes(4, "big") + checked


def batch_of(messages: Sequence[tuple[SingleMessageMetadata, bytes]]) -> bytes:
    """Return the entry of an uncompressed batch."""
    payload = b""
    for single, value in messages:
        single.payload_size = len(value)
        packed = single.SerializeToString()
        payload += len(packed).to_bytes(4, "big") + packed + value
    return entry_with(payload, num_messages_in_batch=len(messages))
