"""Redelivery counts: the times each entry of a subscription was delivered again (pure).

The counts are stored with the acknowledgements of the cursor, so that a dead-letter policy goes on counting after a
restart, an unload, or the leave of the last consumer. Pulsar has them in memory only (InMemoryRedeliveryTracker) and
loses them each time (PersistentDispatcherMultipleConsumers.clearComponentsAfterRemovedAllConsumers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from quire.ledger.position import Position

COUNTS_MAX: Final = 1_000_000
"""Maximum number of counts; the oldest are dropped first (the client then sees a first delivery)."""
STORED_MAX: Final = 5_000
"""Maximum number of stored counts: those of the entries that were delivered again for the first time last."""
LOOKED_AT_MAX: Final = STORED_MAX
"""Maximum number of the oldest counts, and of the newest ones, looked at to drop acknowledged ones."""


class RedeliveryCounts:
    """Counts of one subscription, by position."""

    __slots__ = ("_changed", "values")

    def __init__(self) -> None:
        self.values: dict[Position, int] = {}
        """Above 0. Read it, and change it by the methods only."""
        self._changed: dict[Position, None] = {}
        """Counts that went up since `take_changed`."""

    def increment(self, position: Position) -> None:
        """Count one more delivery of an entry."""
        values = self.values
        values[position] = values.get(position, 0) + 1
        self._changed[position] = None
        if len(values) > COUNTS_MAX:
            self.forget(next(iter(values)))

    def forget(self, position: Position) -> None:
        """Drop the count of an entry, which is acknowledged."""
        if self.values.pop(position, None) is not None:
            self._changed.pop(position, None)

    def forget_some(self, is_over: Callable[[Position], bool]) -> None:
        """Drop the counts of entries for which `is_over`, among the `LOOKED_AT_MAX` oldest and as many of the newest
        ones: all of 200,000 took 50 to 150 ms. Counts that stay too long only take memory."""
        values = self.values
        looked_at = [*islice(values, LOOKED_AT_MAX)]
        if len(values) > LOOKED_AT_MAX:
            looked_at += islice(reversed(values), LOOKED_AT_MAX)
        for position in looked_at:
            if is_over(position):
                self.forget(position)

    def clear(self) -> None:
        """Drop all counts."""
        self.values.clear()
        self._changed.clear()

    def take_changed(self) -> list[Position]:
        """Return the entries whose counts went up since the last call, at most STORED_MAX."""
        taken = _last(self._changed)
        self._changed.clear()
        return taken

    def to_store(self) -> list[Position]:
        """Return the entries whose counts are stored."""
        return _last(self.values)

    def flat(self, positions: Iterable[Position]) -> list[int]:
        """Return ledger id, entry id and count of each, one behind the other."""
        return [number for position in positions for number in (*position, self.values[position])]


def _last(positions: dict[Position, int] | dict[Position, None]) -> list[Position]:
    """Return the last STORED_MAX keys, in their order."""
    return [*islice(reversed(positions), STORED_MAX)][::-1]
