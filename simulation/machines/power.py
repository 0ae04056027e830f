"""Power: the check of every simulated door before it does anything.

A crash is one instant. Tasks unwind after it, and their `finally` blocks may still try to write, send or wait: with the
power gone each attempt raises `PowerCut`, so nothing that happens after the instant is visible.
"""

from __future__ import annotations

from collections.abc import Callable


class PowerCut(BaseException):
    """The host is dead. Not an `Exception`, so that no handler of the server can continue after it."""


class Power:
    """Power of one incarnation of a host; it goes off once and never comes back."""

    __slots__ = ("_blow", "fuse", "on", "sync_fuse")

    def __init__(self, blow: Callable[[], None] = lambda: None) -> None:
        self._blow = blow
        self.on = True
        self.fuse = -1
        """Changes (writes, syncs, renames, batches) still allowed before the host crashes; -1: no limit."""
        self.sync_fuse = -1
        """Syncs of files still allowed; the host crashes at the next one, with its writes done; -1: no limit."""

    def check(self) -> None:
        """Raise PowerCut if the host is dead. For operations that only read."""
        if not self.on:
            raise PowerCut

    def spend(self) -> None:
        """Raise PowerCut if the host is dead, or dies of this operation. Call before a change to a disk or a map."""
        if not self.on:
            raise PowerCut
        if self.fuse == 0:  # stays 0, so that later operations in the job's `finally` fail too
            self._blow()
            raise PowerCut
        if self.fuse > 0:
            self.fuse -= 1

    def spend_sync(self) -> None:
        """Call `spend` for the sync of a file."""
        if self.on and self.sync_fuse == 0:
            self.fuse = 0
        self.spend()
        if self.sync_fuse > 0:
            self.sync_fuse -= 1
