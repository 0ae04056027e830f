"""What can go wrong in auto recovery. Each class says final or passing, and what to do."""

from __future__ import annotations

from typing import ClassVar


class AutoRecoveryError(Exception):
    """Root: catching it catches every failure of the package that is not one of metadata, ledgers or bookies."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""


class IncompatibleUnderreplicationError(AutoRecoveryError):
    """The marks of under-replicated ledgers are laid out in a way this program does not know. Final: use the program that
    wrote them."""


class ListOfEntriesError(AutoRecoveryError):
    """A bookie did not say which entries it has. Passing: others may know; ask again with the next check."""

    passing = True


class StillBadError(AutoRecoveryError):
    """Copies of a ledger are bad after it was repaired. Passing: bookies come and go; try again later."""

    passing = True


class CheckStuckError(AutoRecoveryError):
    """A check of all ledgers came no further. Passing: it is made again later."""

    passing = True
