"""Conversion of clients' message ids to positions in a managed ledger (pure)."""

from __future__ import annotations

from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb

_SIGN = 1 << 63
_RANGE = 1 << 64


def position_of(message_id: pb.MessageIdData) -> Position:
    """Return the position of the entry that a message id names. -1 travels as 2^64-1 in the unsigned fields.

    >>> position_of(pb.MessageIdData(ledgerId=7, entryId=2**64 - 1))
    Position(ledger_id=7, entry_id=-1)
    """
    ledger_id, entry_id = message_id.ledgerId, message_id.entryId
    return Position(
        ledger_id - _RANGE if ledger_id >= _SIGN else ledger_id, entry_id - _RANGE if entry_id >= _SIGN else entry_id
    )
