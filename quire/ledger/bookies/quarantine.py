"""Bookies quarantined after repeated failures. Pure.

Source: BookKeeper's BookieWatcherImpl, DefaultPerChannelBookieClientPool.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Protocol


class FaultCounts(Protocol):
    """Source of failure counts. `quire.ledger.bookies.health.BookieHealth` implements this."""

    def take_errors(self) -> Mapping[str, int]:
        """Return errors and timeouts per bookie since the last call."""


class NoFaults:
    """Failure counts that are always empty."""

    def take_errors(self) -> Mapping[str, int]:
        return {}


class Quarantine:
    """Quarantined bookies with the end of their quarantine, in trio's seconds."""

    def __init__(self, quarantine_s: float) -> None:
        self._quarantine_s = quarantine_s
        self._until: dict[str, float] = {}
        self._next = inf

    def put(self, bookie_id: str, now: float) -> bool:
        """Quarantine a bookie; return whether it was not quarantined before. An existing quarantine is not extended."""
        if bookie_id in self._until:
            return False
        self._until[bookie_id] = now + self._quarantine_s
        self._next = min(self._next, now + self._quarantine_s)
        return True

    def release(self, now: float) -> list[str]:
        """Remove and return the bookies whose quarantine is over."""
        if now < self._next:
            return []
        over = [bookie_id for bookie_id, until in self._until.items() if until <= now]
        for bookie_id in over:
            del self._until[bookie_id]
        self._next = min(self._until.values(), default=inf)
        return over

    def ids(self) -> frozenset[str]:
        return frozenset(self._until)
