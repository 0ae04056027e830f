"""Errors of offloaded ledgers."""

from __future__ import annotations

from typing import ClassVar


class OffloadError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class OffloadedLedgerError(OffloadError):
    """A file is missing, damaged, or not the one of this ledger. Permanent: offload the ledger again."""


class OffloadInUseError(OffloadError):
    """Another process offloads this topic to the same folder. Passing, when that one ends."""

    passing = True
