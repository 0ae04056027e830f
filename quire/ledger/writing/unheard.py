"""Callbacks of an appender without an owner: what it reports has no effect."""

from __future__ import annotations

from quire.ledger.errors import BookieError, LedgerError


def ignore_confirmed(first: int, last: int) -> None:
    """Nobody wants to know."""


def ignore_failed(error: LedgerError) -> None:
    """Nobody wants to know."""


def ignore_bookies_failed() -> None:
    """Default callback for failed bookies: a failed bookie stays failed."""


def excuse_nobody(index: int, error: BookieError) -> bool:
    """Default for `excuses`: every failed bookie must be replaced."""
    return False
