"""Errors of managed ledgers. Each class says whether it is permanent or passing, and how to handle it.

Calls about one cursor also let `cursors.errors.CursorError` through.
"""

from __future__ import annotations

from typing import ClassVar


class ManagedLedgerError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class ManagedLedgerFencedError(ManagedLedgerError):
    """Another broker has taken over the log. Permanent: close the topic; clients look it up again."""


class ManagedLedgerClosedError(ManagedLedgerError):
    """The log was closed here. Permanent for this object: open it again."""


class ManagedLedgerTerminatedError(ManagedLedgerError):
    """The log was terminated by an operator and accepts no more entries. Permanent."""


class ManagedLedgerUnavailableError(ManagedLedgerError):
    """Bookies or metadata are unreachable. Passing: retry. Entries that were reported failed may still appear."""

    passing = True


class ManagedLedgerReadError(ManagedLedgerError):
    """Entries cannot be read from the bookies now. Passing unless the cause says otherwise (`__cause__`)."""

    passing = True


class OffloadRefusedError(ManagedLedgerError):
    """A step of an offloading does not fit the stored state of its ledger. Permanent: read the list again."""


class ObjectError(ManagedLedgerError):
    """The object of an offloaded ledger is missing, damaged, or not readable by this broker. Passing: it may be
    restored, or its storage be away."""

    passing = True


class EntryTooLargeError(ManagedLedgerError):
    """An entry of the run would not fit a frame of the bookie protocol. Permanent for the run, none of which was
    written."""


class NoSuchManagedLedgerError(ManagedLedgerError):
    """There is no log of that name, and it was not to be created. Permanent."""


class NoSuchCursorError(ManagedLedgerError):
    """There is no cursor of that name. Permanent."""


class ManagedLedgerDamagedError(ManagedLedgerError):
    """The stored ledger list is invalid. Permanent: an operator must look."""


class LedgerIdOrderError(ManagedLedgerError):
    """A new ledger has an id below one in the list, so its entries would precede older ones.

    Permanent: all brokers of a cluster must take ids from the same sequence."""
