"""Individual acknowledgements of a subscription on its cursor."""

from __future__ import annotations

from cursors.cursor import Cursor
from cursors.errors import InvalidAckError
from quire.ledger.position import Position


def ack_each(cursor: Cursor, whole: list[Position], parts: list[tuple[Position, tuple[int, ...]]]) -> None:
    """Acknowledge single positions: whole entries, and parts of batches with the ack set of each.

    Raises InvalidAckError for positions that were never confirmed or are not of this topic; they have no effect,
    the others have."""
    invalid: list[InvalidAckError] = []
    if whole:
        try:
            cursor.ack_individual(whole)
        except InvalidAckError as error:
            invalid.append(error.with_traceback(None))  # which has this frame
    for position, ack_set in parts:
        try:
            cursor.ack_batch(position, ack_set)
        except InvalidAckError as error:
            invalid.append(error.with_traceback(None))  # which has this frame
    if invalid:
        raise InvalidAckError([each for error in invalid for each in error.positions], invalid[0].reason)
