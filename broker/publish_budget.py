"""Payload bytes of all topics that are not confirmed yet, and the bound at which publishers are not read."""

from __future__ import annotations

import trio


class PublishBudget:
    """Bytes on their way to the bookies, of one broker. `limit`: bytes."""

    __slots__ = ("_waiting", "bytes", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Connections that publish are not read while more is taken; they are read on at half of it."""
        self.bytes = 0
        """Taken and not given back."""
        self._waiting: dict[trio.Event, None] = {}
        """Set, and forgotten, when the budget is low again."""

    def take(self, size: int) -> None:
        """Count a run of entries that is handed to a managed ledger."""
        self.bytes += size

    def give(self, size: int) -> None:
        """Count a run as confirmed, or failed."""
        self.bytes -= size
        if self._waiting and self.is_low:
            for event in self._waiting:
                event.set()
            self._waiting.clear()

    @property
    def is_low(self) -> bool:
        """Whether connections that stopped reading may read on."""
        return self.bytes <= self.limit // 2

    def tell(self, event: trio.Event) -> None:
        """Set `event` when connections that stopped reading may read on."""
        self._waiting[event] = None

    def forget(self, event: trio.Event) -> None:
        """Set `event` no more."""
        self._waiting.pop(event, None)
