"""Half-acknowledged batches as fields of Pulsar's PositionInfo (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from cursors.batch_acks import to_words
from quire.ledger.position import Position
from quire.wire.pulsar.frames import encode_varint


def batch_field(position: Position, unacked: int) -> bytes:
    """Return one element of batchedEntryDeletionIndexInfo of a PositionInfo, to be appended to the other fields."""
    return batch_fields(position.ledger_id, position.entry_id, {0: unacked})


def batch_fields(ledger_id: int, first: int, batches: Mapping[int, int]) -> bytes:
    """As `batch_field`, of several entries by their distance to the first."""
    fields: list[bytes] = []
    start = b"\x08" + encode_varint(ledger_id) + b"\x10"
    for low, unacked in batches.items():
        place = start + encode_varint(first + low)
        if unacked < 128:  # nearly all batches are small, and one of 8000 is encoded in a microsecond
            value = b"\x0a%c%b\x10%c" % (len(place), place, unacked)
        else:
            words = b"".join([b"\x10" + encode_varint(word) for word in to_words(unacked)])
            value = b"\x0a%c%b%b" % (len(place), place, words)
        fields.append(b"\x2a" + encode_varint(len(value)) + value)
    return b"".join(fields)
