"""Number of entries to read for a number of permits (pure).

Why this is hard: permits count messages, reads count entries, and the number of messages in an entry is known only
after it is read. Entries that are read and cannot be delivered have to be read again. So it is better to read too
little, and then some more."""

from __future__ import annotations

FIRST_READ = 20
"""Entries read while their messages per entry are unknown."""
GAP_BYTES_MAX = 32 * 1024
"""Bytes between two entries that wait, about, up to which one read of both is cheaper than a read of each."""


class ReadSize:
    """Read size of one subscription, based on the messages per entry of its recent deliveries."""

    __slots__ = ("_messages_per_entry", "gap_max")

    def __init__(self) -> None:
        self._messages_per_entry = 0.0
        self.gap_max = 0
        """Entries between two that wait, up to which both are read at once."""

    def seen(self, entries: int, messages: int) -> None:
        """Record that so many entries were read, with so many messages that are still wanted."""
        average = messages / entries
        known = self._messages_per_entry
        self._messages_per_entry = average if not known else (known + average) / 2

    def sized(self, entries: int, size: int) -> None:
        """Record that so many entries were read, of `size` bytes together."""
        self.gap_max = GAP_BYTES_MAX * entries // max(1, size)

    def entries(self, permits: int, most: int) -> int:
        """Return the entries to read for `permits`, at least 1: one batch may take more than all permits."""
        known = self._messages_per_entry
        if not known:
            return min(permits, FIRST_READ, most)
        return max(1, min(int(permits / known), most))
