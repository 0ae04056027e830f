"""Trace context of a message: the property `traceparent` in the metadata of its entry. Pure.

    MessageMetadata.properties (field 4), a KeyValue: "traceparent" -> version "-" trace id "-" span id "-" flags

It is found by its bytes, so that nothing is parsed for a message that has none. A batch has the properties of its
messages in its payload, which is not looked into: those of a batch are not found.
Source: W3C Trace Context, level 1, section 3.2.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.metadata import Buffer, metadata_span

PROPERTY = "traceparent"
_KEY_VALUE = re.compile(rb"\x0a\x0btraceparent\x12\x37([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})")
_SAMPLED = 1
_INVALID_VERSION = "ff"


class TraceParent(NamedTuple):
    """Position in a trace."""

    trace_id: int
    """128 bits, not 0."""
    span_id: int
    """64 bits, not 0."""
    sampled: bool


def parse_traceparent(text: str) -> TraceParent | None:
    """Return the context that a valid traceparent has; None for an invalid one.

    >>> parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").sampled
    True
    >>> parse_traceparent("00-00000000000000000000000000000000-b7ad6b7169203331-01") is None
    True
    """
    parts = text.split("-")
    if len(parts) != 4 or parts[0] == _INVALID_VERSION:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    except ValueError:
        return None
    if not trace_id or not span_id:
        return None
    return TraceParent(trace_id, span_id, bool(flags & _SAMPLED))


def trace_parent(entry: Buffer) -> TraceParent | None:
    """Return the trace context of an entry; None: it has none, or an invalid one, or cannot be read."""
    try:
        start, stop = metadata_span(entry)
    except MalformedMetadataError:
        return None
    found = _KEY_VALUE.search(entry, start, stop)
    return None if found is None else parse_traceparent(found.group(1).decode())
