"""Key of an entry, and the number of its messages that are wanted (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import sticky_key
from quire.world.doors import Buffer

WORD_MASK = (1 << 64) - 1


def wanted_messages(ack_set: Sequence[int]) -> int:
    """Return how many messages of a batch its bitmap (signed words) still asks for, at least 1."""
    return max(1, sum((word & WORD_MASK).bit_count() for word in ack_set))


def key_of(payload: Buffer) -> bytes:
    """Return the key of an entry for Key_Shared. An entry with unreadable metadata has none."""
    try:
        return sticky_key(payload)
    except PulsarWireError:
        return b""
