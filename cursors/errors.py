"""What can go wrong with a cursor. Each class says final or passing, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from quire.ledger.position import Position


class CursorError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""


class InvalidAckError(CursorError):
    """Positions that this log never had, or does not have yet, or what `reason` says. Final; they had no effect (the others
    of the same call did)."""

    def __init__(self, positions: Sequence[Position], reason: str = "not in this log") -> None:
        shown = ", ".join(str(position) for position in positions[:5])
        super().__init__(f"cannot be acknowledged, {reason}: {shown}{', ...' if len(positions) > 5 else ''}")
        self.positions = tuple(positions)
        self.reason = reason


class TooManyAcksError(InvalidAckError):
    """More acknowledged ranges or parts of batches above the mark-delete position than can be stored. Passing: possible again
    when what holds the mark-delete position back is acknowledged; until then these messages are delivered again."""

    passing = True


class CursorFencedError(CursorError):
    """Another broker has taken the cursor over. Final: close the topic and look it up again."""


class CursorPersistError(CursorError):
    """The position could not be made durable in time. Passing: it stays in memory and is tried again with the next one;
    an acknowledgement that was waiting for it is not durable."""

    passing = True


class CursorRecoveryError(CursorError):
    """The stored position could not be read, though it is there. Passing: open again when the bookies are back. A cursor
    never falls back to an older position instead."""

    passing = True


class CursorTooLargeError(CursorError):
    """The acknowledged ranges do not fit one entry. Final until the oldest entries are acknowledged or skipped."""


class CursorClosedError(CursorError):
    """The cursor was closed or deleted. Final for the handle."""


class CursorDamagedError(CursorError):
    """A stored value is not what it should be. Final: a human must look."""


class InvalidCursorNameError(CursorError):
    """No node can have this name. Final."""
