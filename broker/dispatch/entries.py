"""Key of an entry."""

from __future__ import annotations

from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import sticky_key
from quire.world.doors import Buffer


def key_of(payload: Buffer) -> bytes:
    """Return the key of an entry for Key_Shared. An entry with unreadable metadata has none."""
    try:
        return sticky_key(payload)
    except PulsarWireError:
        return b""
