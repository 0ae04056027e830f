"""Common bound of the output of all connections: entries being read for them, and bytes queued to them (pure).

Why this is hard: each connection has a bound of its own (`connection_out_bytes_max`), and a thousand peers that do not
read would reach it a thousand times. A fixed share per connection would waste the memory while most are idle, and one
common pool would let slow peers starve the others. So a connection may queue more only while its own bytes are fewer
than the free ones. N peers that take nothing then settle at limit / (N + 1) each, and that much stays free for those
that read. A connection with an empty queue always gets `SHARE_MIN`, so none starves.

Source: the idea is that of dynamic thresholds in the shared memory of a switch (Choudhury and Hahne, 1998)."""

from __future__ import annotations

from quire.world.outbox import Queued

SHARE_MIN = 64 << 10
"""Bytes that a connection with an empty queue may use when nothing is free."""


class OutputBudget:
    """Output budget of one broker. `limit`: bytes; 0: no bound."""

    __slots__ = ("limit", "queued", "reserved")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.queued = Queued()
        """Bytes in the outboxes of all connections, which keep it up to date."""
        self.reserved = 0
        """Maximum bytes that reads under way may return."""

    def may_queue(self, own: int) -> bool:
        """Return whether a connection that has `own` bytes queued may queue more."""
        return own == 0 or not self.limit or own < self.limit - self.queued.bytes - self.reserved

    def reserve(self, wanted: int) -> int:
        """Return how much of `wanted` bytes a read may return. `release` the same number when it has ended."""
        if self.limit:
            free = self.limit - self.queued.bytes - self.reserved
            wanted = min(wanted, max(SHARE_MIN, free // 2))
        self.reserved += wanted
        return wanted

    def release(self, size: int) -> None:
        """End a read for which `size` bytes were reserved: its entries are now queued, or dropped."""
        self.reserved -= size
