"""Chunked messages: a message above the broker's limit as several entries (pure). See quire.client.chunked.chunks.

Each piece has the key, properties and times of the message, and the fields 26 to 29 of MessageMetadata: uuid, number of
pieces, bytes of the whole, number of this piece. The whole is compressed before it is cut.
Source: ProducerImpl.serializeAndSendMessage of Pulsar's Java client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quire.client.packing import Packed, pack
from quire.wire.pulsar.frames import encode_varint

_UNLIMITED = 1 << 40
_HEAD_MAX = 512
"""Bytes kept free in each piece for names, times and the fields of the piece."""


def pack_chunks(
    value: bytes | None,
    key: bytes | None,
    properties: Sequence[tuple[str, str]],
    event_ms: int,
    *,
    compression: str,
    message_size_max: int,
    uuid: str,
) -> list[Packed]:
    """Return the entries of one message; one that fits is not cut. `uuid` must not repeat for a producer.

    Raises ValueError if the properties and the key alone are above the limit."""
    options: dict[str, Any] = {"batch": False, "compression": compression, "message_size_max": _UNLIMITED}
    [whole] = pack([value], [key], [properties], [event_ms], **options)
    room = message_size_max - len(whole.fields) - _HEAD_MAX
    if len(whole.payload) <= room:
        return [whole]
    if room < 1:
        raise ValueError(f"key and properties of {len(whole.fields)} bytes leave no room in {message_size_max} bytes")
    count = -(-len(whole.payload) // room)
    name = uuid.encode()
    common = b"\xd2\x01%b%b\xd8\x01%b\xe0\x01%b" % (
        encode_varint(len(name)), name, encode_varint(count), encode_varint(len(whole.payload))
    )  # fmt: skip
    pieces: list[Packed] = []
    for number in range(count):
        payload = whole.payload[number * room : (number + 1) * room]
        fields = whole.fields + common + b"\xe8\x01" + encode_varint(number)
        pieces.append(replace(whole, fields=fields, payload=payload, size=len(fields) + len(payload)))
    return pieces
