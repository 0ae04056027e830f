"""Budget of unconfirmed payload bytes over all topics; publishers are not read while it is used up."""

from __future__ import annotations

from typing import Protocol

import trio


class Budget(Protocol):
    """Counts bytes while they are stored, and wakes those that wait until fewer are."""

    def take(self, size: int) -> None:
        """Count a run of entries that is handed to a managed ledger."""

    def give(self, size: int) -> None:
        """Return the bytes of a run that was confirmed, or failed."""

    def tell(self, event: trio.Event) -> None:
        """Set `event` when stopped connections may read on."""

    def forget(self, event: trio.Event) -> None:
        """Remove `event`."""


class PublishBudget:
    """Bytes on their way to the bookies, of one broker. `limit`: bytes."""

    __slots__ = ("_waiting", "bytes", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Connections that publish are not read while more is taken; they resume at half of it."""
        self.bytes = 0
        """Bytes taken and not returned."""
        self._waiting: dict[trio.Event, None] = {}
        """Events set, and removed, when the budget is low again."""

    def at_most(self, limit: int) -> None:
        """Bound the bytes by another limit."""
        self.limit = limit
        self.give(0)

    def take(self, size: int) -> None:
        """Count a run of entries that is handed to a managed ledger."""
        self.bytes += size

    def give(self, size: int) -> None:
        """Return the bytes of a run that was confirmed, or failed."""
        self.bytes -= size
        if self._waiting and self.is_low:
            for event in self._waiting:
                event.set()
            self._waiting.clear()

    @property
    def is_low(self) -> bool:
        """Return whether stopped connections may read on."""
        return self.bytes <= self.limit // 2

    def tell(self, event: trio.Event) -> None:
        """Set `event` when stopped connections may read on."""
        self._waiting[event] = None

    def forget(self, event: trio.Event) -> None:
        """Remove `event`."""
        self._waiting.pop(event, None)
