"""Protobuf's text form (pure), used by BookKeeper for cookies and older ledger metadata."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeVar

from quire.metadata.errors import MalformedMetadataError

if TYPE_CHECKING:
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")


def write(message: Message) -> bytes:
    """Return the text: one field per line, strings quoted; ASCII, as the original writes it."""
    from google.protobuf import text_format  # imported here because it takes 10 ms

    return text_format.MessageToString(message, as_utf8=False).encode("ascii")


def parse(text: bytes, message: M) -> M:
    """Fill `message` from `text` and return it; MalformedMetadataError if it is damaged or not complete."""
    from google.protobuf import text_format

    try:
        with warnings.catch_warnings():
            # Python only warns about an unknown escape in a string; for us it is damage.
            warnings.simplefilter("error", DeprecationWarning)
            text_format.Parse(text.decode(), message)
    except (text_format.ParseError, UnicodeDecodeError, DeprecationWarning) as error:
        raise MalformedMetadataError(f"protobuf text is damaged: {error}") from error
    if not message.IsInitialized():
        raise MalformedMetadataError("protobuf text lacks a field that it must have")
    return message
