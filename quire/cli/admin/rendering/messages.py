"""Messages of an entry that the admin REST answers (pure).

An entry is one message, or a batch: its payload is then, for each message, the size of a SingleMessageMetadata in four
bytes, this metadata, and the payload. The broker answers it decompressed. Source: Pulsar's TopicsImpl
(getIndividualMsgsFromBatch).
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any, Final

from quire.cli.admin.verbs import Message

BATCH_HEADER: Final = "x-pulsar-num-batch-message"


@dataclass(frozen=True, slots=True)
class OneMessage:
    """One message of an entry."""

    payload: bytes
    key: str = ""
    properties: dict[str, str] = field(default_factory=dict)


def messages_of(entry: Message) -> list[OneMessage]:
    """Return the messages of an entry. One whose batch cannot be read is one message."""
    if BATCH_HEADER not in entry.headers:
        return [OneMessage(entry.payload)]
    from google.protobuf.message import DecodeError

    from quire.wire.pulsar.PulsarApi_pb2 import SingleMessageMetadata

    found: list[OneMessage] = []
    left = entry.payload
    while left:
        size = int.from_bytes(left[:4], "big")
        try:
            metadata = SingleMessageMetadata.FromString(left[4 : 4 + size])
        except DecodeError:
            return [OneMessage(entry.payload)]
        end = 4 + size + metadata.payload_size
        if end > len(left):
            return [OneMessage(entry.payload)]
        properties = {str(each.key): str(each.value) for each in metadata.properties}
        found.append(OneMessage(left[4 + size : end], str(metadata.partition_key), properties))
        left = left[end:]
    return found


def json_of(entry: Message) -> dict[str, Any]:
    """Return what --json prints of an entry: the headers by their names, and each message with its payload in
    base64."""
    return {
        "headers": dict(entry.headers),
        "messages": [
            {"payload": b64encode(each.payload).decode(), "key": each.key or None, "properties": each.properties}
            for each in messages_of(entry)
        ],
    }
