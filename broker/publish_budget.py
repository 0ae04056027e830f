"""Payload bytes of all topics that are not confirmed yet, and the bound at which connections that publish are not read (pure)."""

from __future__ import annotations


class PublishBudget:
    """Bytes on their way to the bookies, of one broker. `limit`: bytes."""

    __slots__ = ("bytes", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Connections that publish are not read while more is taken; they are read on at half of it."""
        self.bytes = 0
        """Taken and not given back."""

    def take(self, size: int) -> None:
        """Count a run of entries that is handed to a managed ledger."""
        self.bytes += size

    def give(self, size: int) -> None:
        """Count a run as confirmed, or failed."""
        self.bytes -= size

    @property
    def is_low(self) -> bool:
        """Whether connections that stopped reading may read on."""
        return self.bytes <= self.limit // 2
