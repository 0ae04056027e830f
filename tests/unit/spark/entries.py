"""Entries as producers write them."""

from __future__ import annotations

from crc32c import crc32c

from quire.client.packing import pack
from quire.wire.pulsar.frames import MAGIC
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata


def plain(value: bytes, sequence_id: int = 0) -> bytes:
    """Return the entry of one message."""
    (packed,) = pack([value], batch=False)
    return packed.encode("producer", sequence_id, 1_700_000_000_000)


def chunk(value: bytes, number: int, count: int, *, uuid: str = "producer-1", total: int = 100) -> bytes:
    """Return the entry of one piece of a chunked message."""
    metadata = MessageMetadata(producer_name="producer", sequence_id=1, publish_time=1_700_000_000_000, uuid=uuid)
    metadata.chunk_id = number
    metadata.num_chunks_from_msg = count
    metadata.total_chunk_msg_size = total
    packed = metadata.SerializeToString()
    checked = len(packed).to_bytes(4, "big") + packed + value
    return MAGIC.to_bytes(2, "big") + crc32c(checked).to_bytes(4, "big") + checked
