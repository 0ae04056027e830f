"""Fields of a stored value that our schema does not have: a newer Pulsar wrote them, and gets them back."""

from __future__ import annotations

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet


def unknown_fields(message: Message) -> bytes:
    """Return the unknown fields of the message itself, serialised, to be merged into its replacement; b"" for none."""
    if not len(UnknownFieldSet(message)):  # the usual case, asked for each log and ledger when a broker starts
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for field in message.DESCRIPTOR.fields:
        rest.ClearField(field.name)
    return rest.SerializePartialToString()
