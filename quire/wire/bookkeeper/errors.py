"""Errors in bytes of the bookie protocol."""

from __future__ import annotations

from typing import ClassVar


class BookkeeperWireError(Exception):
    """Root of all errors of this package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class MalformedError(BookkeeperWireError):
    """The bytes are not a message of this protocol. Final: close the connection."""


class DigestMismatchError(BookkeeperWireError):
    """An entry is damaged, or is another one. Final for this copy: try another bookie, and never deliver it."""
