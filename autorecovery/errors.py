"""Errors of auto recovery. Each class says whether a retry can help, and what to do."""

from __future__ import annotations

from typing import ClassVar


class AutoRecoveryError(Exception):
    """Root of all errors of this package, except those of metadata, ledgers and bookies."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class IncompatibleUnderreplicationError(AutoRecoveryError):
    """The layout of the marks of under-replicated ledgers is unknown to this program.

    Final: use the program that wrote them.
    """


class ListOfEntriesError(AutoRecoveryError):
    """A bookie did not list its entries. Passing: use other members; ask again with the next check."""

    passing = True


class StillBadError(AutoRecoveryError):
    """Copies of a ledger are bad after it was repaired. Passing: bookies come and go; try again later."""

    passing = True


class CheckStuckError(AutoRecoveryError):
    """A check of all ledgers made no progress. Passing: it is repeated later."""

    passing = True


class NoAuditorError(AutoRecoveryError):
    """Auto recovery is disabled, or no auditor is running. Final: enable it, or start one."""


class RemovalRefusedError(AutoRecoveryError):
    """A bookie may not be removed now. Final: the message has the reason and the remedy."""
