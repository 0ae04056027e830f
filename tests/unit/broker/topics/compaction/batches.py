"""Batches of messages with keys, as entries."""

from __future__ import annotations

from collections.abc import Sequence

from quire.client.compression import KINDS, compress, decompress
from quire.wire.pulsar.metadata import metadata_span, read_metadata
from quire.wire.pulsar.PulsarApi_pb2 import SingleMessageMetadata
from tests.support.pulsar_frames import entry

Message = tuple[str | None, bytes]


def batch(messages: Sequence[Message], kind: str = "none", **metadata: object) -> bytes:
    payload = b""
    for key, value in messages:
        single = SingleMessageMetadata(partition_key=key, payload_size=len(value))
        packed = single.SerializeToString()
        payload += len(packed).to_bytes(4, "big") + packed + value
    return entry(
        compress(KINDS[kind], payload),
        num_messages_in_batch=len(messages),
        uncompressed_size=len(payload),
        compression=KINDS[kind],
        **metadata,
    )


def messages_in(data: bytes) -> list[Message | None]:
    """Return the messages of a batch; None for one that was left out."""
    metadata = read_metadata(data)
    rest = bytes(data[metadata_span(data)[1] :])
    payload = decompress(metadata.compression, rest, metadata.uncompressed_size, size_max=1 << 20)
    found: list[Message | None] = []
    for _ in range(metadata.num_messages_in_batch):
        size = int.from_bytes(payload[:4], "big")
        single = SingleMessageMetadata.FromString(payload[4 : 4 + size])
        end = 4 + size + single.payload_size
        key = single.partition_key if single.HasField("partition_key") else None
        found.append(None if single.compacted_out else (key, payload[4 + size : end]))
        payload = payload[end:]
    assert not payload
    return found
