"""Errors of cursors. Each class says whether it is permanent or passing, and how to handle it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from quire.ledger.position import Position


class CursorError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class InvalidAckError(CursorError):
    """Positions that this log never had, or does not have yet, or cannot be acknowledged because of `reason`.

    Permanent. They had no effect (the others of the same call did)."""

    def __init__(self, positions: Sequence[Position], reason: str = "not in this log") -> None:
        shown = ", ".join(str(position) for position in positions[:5])
        super().__init__(f"cannot be acknowledged, {reason}: {shown}{', ...' if len(positions) > 5 else ''}")
        self.positions = tuple(positions)
        self.reason = reason


class TooManyAcksError(InvalidAckError):
    """More acknowledged ranges or partial batches above the mark-delete position than can be stored.

    Passing: possible again when the entry behind the mark-delete position is acknowledged. Until then these messages
    are delivered again."""

    passing = True


class CursorFencedError(CursorError):
    """Another broker has taken over the cursor. Permanent: close the topic and look it up again."""


class CursorPersistError(CursorError):
    """The position could not be made durable in time.

    Passing: it stays in memory and is stored with the next one. An acknowledgement that waited for it is not
    durable."""

    passing = True


class CursorRecoveryError(CursorError):
    """The stored position exists but could not be read.

    Passing: open again when the bookies are back. A cursor never falls back to an older position instead."""

    passing = True


class CursorTooLargeError(CursorError):
    """The acknowledged ranges do not fit one entry. Permanent until the oldest entries are acknowledged or skipped."""


class CursorClosedError(CursorError):
    """The cursor was closed or deleted. Permanent for this object."""


class CursorDamagedError(CursorError):
    """A stored value is invalid. Permanent: an operator must look."""


class InvalidCursorNameError(CursorError):
    """No node can have this name. Permanent."""
