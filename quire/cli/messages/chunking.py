"""Chunked messages: a message above the broker's limit as several entries (pure). See quire.client.chunked.cutting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quire.client.chunked.cutting import chunked
from quire.client.packing import Packed, pack

_UNLIMITED = 1 << 40


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
    return chunked(whole, message_size_max, uuid)
