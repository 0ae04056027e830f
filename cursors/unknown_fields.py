"""Fields of a stored value that our schema does not have: a newer Pulsar wrote them, and gets them back."""

from __future__ import annotations

from google.protobuf.message import Message


def unknown_fields(message: Message) -> bytes:
    """Those of the message itself, serialised, to be merged into what is written in its place; b"" for none."""
    rest = type(message)()
    rest.CopyFrom(message)
    for field in message.DESCRIPTOR.fields:
        rest.ClearField(field.name)
    return rest.SerializePartialToString()
