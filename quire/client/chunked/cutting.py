"""Cutting of messages that are larger than brokers accept into pieces, each an entry. Pure.

chunks.py puts them together.

The pieces have the metadata of the message, and say which they are; the whole is compressed before it is cut:

    26 uuid | 27 num_chunks_from_msg | 28 total_chunk_msg_size | 29 chunk_id

Source: ProducerImpl.java of Pulsar's client (serializeAndSendMessage). Each piece has a sequence id of its own here,
which consumers do not look at.
"""

from __future__ import annotations

from quire.client.packing import ENVELOPE_MAX, Packed
from quire.wire.pulsar.frames import encode_varint

_OWN_MAX = 40
"""Bytes of the fields of a piece, besides the uuid."""


def chunked(message: Packed, message_size_max: int, uuid: str) -> list[Packed]:
    """Return the pieces of a message; the message itself if it is small enough.

    Args:
        message: a message that is in no batch.
        message_size_max: maximum bytes of metadata and payload that the broker accepts.
        uuid: name of the message, unique for its producer.

    Returns:
        The pieces, in the order in which they are to be sent.

    Raises:
        ValueError: it is a batch, or its metadata leave no room for the payload.
    """
    if message.size + ENVELOPE_MAX <= message_size_max:
        return [message]
    total = len(message.payload)
    step = message_size_max - ENVELOPE_MAX - len(message.fields) - len(uuid) - _OWN_MAX
    if message.count != 1:
        raise ValueError(f"a batch of {message.size} bytes is above the limit of {message_size_max} bytes")
    if step < 1:
        raise ValueError(f"key and properties of {len(message.fields)} bytes leave no room in {message_size_max} bytes")
    starts = range(0, total, step)
    name = uuid.encode()
    common = b"%b\xd2\x01%b%b\xd8\x01%b\xe0\x01%b\xe8\x01" % (
        message.fields, encode_varint(len(name)), name, encode_varint(len(starts)), encode_varint(total)
    )  # fmt: skip
    pieces = []
    for number, start in enumerate(starts):
        fields, payload = common + encode_varint(number), message.payload[start : start + step]
        pieces.append(Packed(1, len(fields) + len(payload), fields, payload))
    return pieces
