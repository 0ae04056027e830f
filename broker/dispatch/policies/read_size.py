"""How many entries to read for so many permits (pure).

Permits count messages, reads count entries. What is read and cannot be given has to be read again; so it is better to read too
little, and then some more.
"""

from __future__ import annotations

FIRST_READ = 20
"""Entries read while nothing is known of how many messages they have."""


class ReadSize:
    """For one subscription: goes by the messages per entry of what it was given lately."""

    __slots__ = ("_messages_per_entry",)

    def __init__(self) -> None:
        self._messages_per_entry = 0.0

    def seen(self, entries: int, messages: int) -> None:
        """So many entries were read, with so many messages that are still wanted."""
        average = messages / entries
        known = self._messages_per_entry
        self._messages_per_entry = average if not known else (known + average) / 2

    def entries(self, permits: int, most: int) -> int:
        """Entries to read for `permits`, at least 1: one batch may take more than all permits."""
        known = self._messages_per_entry
        if not known:
            return min(permits, FIRST_READ, most)
        return max(1, min(int(permits / known), most))
