"""Rollover: when to start the next ledger, and when to create it ahead. Pure.

Why this is hard: each append has to be checked against the limits, so the check has to be a comparison of numbers. Age
moves the limits without any append, small ledgers cost metadata while large ones delay trimming, and logs that were
opened together must not roll together.

Source: Pulsar's ManagedLedgerImpl.currentLedgerIsFull."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from managed_ledger.config import MIB, ManagedLedgerConfig

NO_LIMIT = 1 << 62
AHEAD_S = 10.0
"""Seconds before the age limit of a ledger at which the next one is created."""
AHEAD_PART = 10
"""Fraction of a ledger's entries or bytes left at which the next one is created; with fewer entries than that, none
is."""
SPREAD = 0.05
"""Maximum fraction of the greatest age that is added, so that logs opened together do not roll together."""
_KNUTH = 2_654_435_761


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloverLimits:
    """Limits of a ledger.

    It is full at `entries_max` entries or `size_max` bytes, but not before `age_min_s`; and at `age_max_s` if it has
    any entries."""

    entries_max: int
    size_max: int
    age_min_s: float
    age_max_s: float
    entries_near: int = field(init=False)
    size_near: int = field(init=False)
    """From which on a ledger is nearly full."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries_near", self.entries_max - self.entries_max // AHEAD_PART)
        object.__setattr__(self, "size_near", self.size_max - self.size_max // AHEAD_PART)

    @classmethod
    def of(cls, config: ManagedLedgerConfig) -> RolloverLimits:
        return cls(
            entries_max=config.entries_max,
            size_max=config.size_max_mb * MIB,
            age_min_s=config.age_min_minutes * 60.0,
            age_max_s=config.age_max_minutes * 60.0,
        )

    def of_ledger(self, ledger_id: int) -> RolloverLimits:
        """Return the limits of one ledger, whose greatest age is up to SPREAD more, the same at each call.

        >>> limits = RolloverLimits(entries_max=1, size_max=1, age_min_s=0, age_max_s=100)
        >>> [round(limits.of_ledger(ledger_id).age_max_s, 1) for ledger_id in (0, 1, 2, 3)]
        [100.0, 103.1, 101.2, 104.3]
        """
        spread = SPREAD * (ledger_id * _KNUTH % (1 << 32)) / (1 << 32)
        return replace(self, age_max_s=self.age_max_s * (1 + spread))

    def is_full(self, entries: int, size: int, age_s: float) -> bool:
        if entries == 0:
            return False
        filled = entries >= self.entries_max or size >= self.size_max
        return (filled and age_s >= self.age_min_s) or age_s >= self.age_max_s

    def is_nearly_full(self, entries: int, size: int, age_s: float) -> bool:
        """Return whether it will be full soon, so that the next ledger should exist by then."""
        if entries == 0:
            return False
        filling = entries >= self.entries_near or size >= self.size_near
        return (filling and age_s >= self.age_min_s - AHEAD_S) or age_s >= self.age_max_s - AHEAD_S

    def next_check(self, age_s: float) -> float:
        """Return the age from which on age matters again. An append that fills the ledger earlier notices that itself.

        >>> limits = RolloverLimits(entries_max=1, size_max=1, age_min_s=600, age_max_s=7200)
        >>> [limits.next_check(age_s) for age_s in (0, 589, 595, 600, 7195)]
        [590.0, 590.0, 595, 7190.0, 7195]
        """
        if age_s < self.age_min_s:
            return max(age_s, self.age_min_s - AHEAD_S)
        return max(age_s, self.age_max_s - AHEAD_S)
