"""States of the writing side of a log, and what is answered in those that take no entries. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from managed_ledger.entry_cache import EntryCache
from managed_ledger.errors import (
    ManagedLedgerClosedError,
    ManagedLedgerError,
    ManagedLedgerFencedError,
    ManagedLedgerTerminatedError,
)


class State(Enum):
    OPEN = "open"
    SWITCHING = "switching"
    IDLE = "idle"
    FENCED = "fenced"
    TERMINATED = "terminated"
    CLOSING = "closing"
    CLOSED = "closed"


class AppendListener(Protocol):
    """Receiver of the events of the write path: its log. The methods must not raise."""

    @property
    def cache(self) -> EntryCache:
        """Cache for the readers of what is appended."""

    def on_appended(self) -> None:
        """Note that new entries can be read."""

    def on_switched(self) -> None:
        """Note that a ledger was closed and another one opened."""

    def on_taken_over(self) -> None: ...

    def on_unneeded(self, ledger_id: int) -> None:
        """Note that a ledger, which the list names for deletion, will not be used."""


def refusal(state: State, name: str) -> ManagedLedgerError:
    """Return the error of an append to the log `name` in a state that takes none."""
    if state is State.FENCED:
        return ManagedLedgerFencedError(f"{name} was taken over")
    if state is State.TERMINATED:
        return ManagedLedgerTerminatedError(f"{name} is terminated")
    return ManagedLedgerClosedError(f"{name} is closed")
