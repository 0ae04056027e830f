"""Index of a topic that holds snapshots: where the last message of each key is (pure).

The values stay in the log, so that memory is bounded by the number of topics with transactions, not by what was
aborted on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.topics.schemas.schema import version_number
from broker.transactions.buffer_state import SnapshotError
from quire.client.deliveries import Deliveries
from quire.client.errors import CorruptEntryError, EncryptedEntryError
from quire.client.unpacking import Messages, Opener
from quire.ledger.position import EARLIEST, Position
from quire.wire.pulsar.metadata import read_metadata

VALUE_BYTES_MAX: Final = 64 << 20


class Value(NamedTuple):
    """Value of one message."""

    version: int
    """Version of its schema; -1: it names none."""
    data: bytes
    properties: list[tuple[str, str]]


class SnapshotTable:
    """Places of the last messages up to `read_to`, by key."""

    def __init__(self) -> None:
        self.places: dict[str, Position] = {}
        self.read_to = EARLIEST

    def learn(self, position: Position, entry: bytes) -> None:
        """Note an entry, which is behind all others. Raises SnapshotError: what it says is not known."""
        keys, values, _ = _opened(entry)
        for key, value in zip(keys, values, strict=True):
            if key is None:
                continue
            if value:
                self.places[key.decode(errors="replace")] = position
            else:
                self.places.pop(key.decode(errors="replace"), None)
        self.read_to = max(self.read_to, position)


def value_in(entry: bytes, key: str | None) -> Value | None:
    """Return the last value of a key in an entry, or the last value; None: there is none. Raises SnapshotError."""
    keys, values, properties = _opened(entry)
    for row in range(len(keys) - 1, -1, -1):
        value, found = values[row], keys[row]
        if value and (key is None or (found is not None and found.decode(errors="replace") == key)):
            return Value(version_number(read_metadata(entry).schema_version), bytes(value), [*properties[row]])
    return None


def _opened(entry: bytes) -> tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[Sequence[tuple[str, str]]]]:
    found = Messages()
    try:
        Opener(uncompressed_max=VALUE_BYTES_MAX).open(Deliveries([0], [0], [entry]), found)
    except (CorruptEntryError, EncryptedEntryError) as error:
        raise SnapshotError(f"a message with a snapshot of transactions cannot be read: {error}") from error
    return found.keys, found.values, found.properties
