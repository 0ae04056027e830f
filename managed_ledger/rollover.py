"""When to start the next ledger. Pure. Source: Pulsar's ManagedLedgerImpl.currentLedgerIsFull."""

from __future__ import annotations

from dataclasses import dataclass

from managed_ledger.config import MIB, ManagedLedgerConfig

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloverLimits:
    """A ledger is full at `entries_max` entries or `size_max` bytes, but not before `age_min_s`; and at `age_max_s`
    if it has entries at all."""

    entries_max: int
    size_max: int
    age_min_s: float
    age_max_s: float

    @classmethod
    def of(cls, config: ManagedLedgerConfig) -> RolloverLimits:
        return cls(
            entries_max=config.entries_max,
            size_max=config.size_max_mb * MIB,
            age_min_s=config.age_min_minutes * 60.0,
            age_max_s=config.age_max_minutes * 60.0,
        )

    def is_full(self, entries: int, size: int, age_s: float) -> bool:
        if entries == 0:
            return False
        filled = entries >= self.entries_max or size >= self.size_max
        return (filled and age_s >= self.age_min_s) or age_s >= self.age_max_s

    def room(self, entries: int, age_s: float) -> int:
        """How many more entries the ledger takes; NO_LIMIT while it is too young to be full."""
        return max(0, self.entries_max - entries) if age_s >= self.age_min_s else NO_LIMIT
