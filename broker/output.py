"""How much output all connections may have waiting, together: entries that were read for them, and bytes queued to them (pure).

Each connection has a bound of its own (`connection_out_bytes_max`), and a thousand peers that do not read would reach it a
thousand times. So a connection may queue more only while what it has is less than what is free. N peers that take nothing
then settle at limit / (N + 1) each, and that much stays free for those that read. One with nothing queued is always given
`SHARE_MIN`, so none starves whatever the others hold.
Source: the idea is that of dynamic thresholds in the shared memory of a switch (Choudhury and Hahne, 1998).
"""

from __future__ import annotations

from quire.world.outbox import Queued

SHARE_MIN = 64 << 10
"""Bytes that a connection with nothing queued may have, though nothing is free."""


class OutputBudget:
    """Of one broker. `limit`: bytes; 0: no bound."""

    __slots__ = ("_limit", "queued", "reserved")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.queued = Queued()
        """What the outboxes of all connections hold; they keep it up to date."""
        self.reserved = 0
        """Bytes of reads under way, at most."""

    def may_queue(self, own: int) -> bool:
        """Return whether a connection that has `own` bytes queued may queue more."""
        return own == 0 or not self._limit or own < self._limit - self.queued.bytes - self.reserved

    def reserve(self, wanted: int) -> int:
        """How much of `wanted` bytes a read may bring; `release` as many when it has ended."""
        if self._limit:
            free = self._limit - self.queued.bytes - self.reserved
            wanted = min(wanted, max(SHARE_MIN, free // 2))
        self.reserved += wanted
        return wanted

    def release(self, size: int) -> None:
        """A read for which `size` bytes were reserved has ended: what it brought is queued now, or dropped."""
        self.reserved -= size
