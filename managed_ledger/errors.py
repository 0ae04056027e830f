"""What can go wrong with a managed ledger. Each class says final or passing, and what to do.

Calls about one cursor also let `cursors.errors.CursorError` through.
"""

from __future__ import annotations

from typing import ClassVar


class ManagedLedgerError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""


class ManagedLedgerFencedError(ManagedLedgerError):
    """Another broker has taken the log over. Final: close the topic; clients look it up again."""


class ManagedLedgerClosedError(ManagedLedgerError):
    """The log was closed here. Final for the handle: open it again."""


class ManagedLedgerTerminatedError(ManagedLedgerError):
    """The log takes no more entries, by an operator's wish. Final."""


class ManagedLedgerUnavailableError(ManagedLedgerError):
    """Bookies or metadata cannot be reached. Passing: try again. Entries that were reported failed so may still appear."""

    passing = True


class ManagedLedgerReadError(ManagedLedgerError):
    """Entries cannot be read from the bookies now. Passing unless the cause says otherwise (`__cause__`)."""

    passing = True


class EntryTooLargeError(ManagedLedgerError):
    """An entry of the run would not fit a frame of the bookie protocol. Final for the run; nothing of it was written."""


class NoSuchManagedLedgerError(ManagedLedgerError):
    """There is no log of that name, and it was not to be made. Final."""


class NoSuchCursorError(ManagedLedgerError):
    """There is no cursor of that name. Final."""


class ManagedLedgerDamagedError(ManagedLedgerError):
    """The stored ledger list is not what it should be. Final: a human must look."""


class LedgerIdOrderError(ManagedLedgerError):
    """A new ledger got an id below one in the list, so that its entries would come before older ones. Final: all brokers of
    a cluster must take ids from the same sequence."""
