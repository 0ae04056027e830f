"""Who is kept away for having failed too often. Pure.

Source: BookKeeper's BookieWatcherImpl, DefaultPerChannelBookieClientPool.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Protocol


class FaultCounts(Protocol):
    """Who counts failures. `quire.ledger.bookies.health.BookieHealth` is one."""

    def take_errors(self) -> Mapping[str, int]:
        """Errors and timeouts per bookie since the last call."""


class NoFaults:
    """Nobody counts."""

    def take_errors(self) -> Mapping[str, int]:
        return {}


class Quarantine:
    """Who is kept away until when, in trio's seconds."""

    def __init__(self, quarantine_s: float) -> None:
        self._quarantine_s = quarantine_s
        self._until: dict[str, float] = {}
        self._next = inf

    def put(self, bookie_id: str, now: float) -> bool:
        """Whether it was not there before; who was is not kept longer for it."""
        if bookie_id in self._until:
            return False
        self._until[bookie_id] = now + self._quarantine_s
        self._next = min(self._next, now + self._quarantine_s)
        return True

    def release(self, now: float) -> list[str]:
        """Those whose time is over, who are not kept any more."""
        if now < self._next:
            return []
        over = [bookie_id for bookie_id, until in self._until.items() if until <= now]
        for bookie_id in over:
            del self._until[bookie_id]
        self._next = min(self._until.values(), default=inf)
        return over

    def ids(self) -> frozenset[str]:
        return frozenset(self._until)
