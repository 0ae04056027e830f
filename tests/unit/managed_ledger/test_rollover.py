from __future__ import annotations

from dataclasses import replace

from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.rollover import NO_LIMIT, RolloverLimits

LIMITS = RolloverLimits(entries_max=10, size_max=1000, age_min_s=60, age_max_s=600)


def test_a_ledger_is_full_by_entries_or_by_size_once_it_is_old_enough() -> None:
    assert LIMITS.is_full(10, 0, 60)
    assert LIMITS.is_full(1, 1000, 60)
    assert not LIMITS.is_full(9, 999, 599)
    assert not LIMITS.is_full(10_000, 10**9, 59)


def test_a_ledger_is_full_by_age_if_it_has_entries() -> None:
    assert LIMITS.is_full(1, 1, 600)
    assert not LIMITS.is_full(0, 0, 10**6)


def test_a_young_ledger_takes_any_number_of_entries() -> None:
    assert LIMITS.room(10_000, 59) == NO_LIMIT
    assert LIMITS.room(7, 60) == 3
    assert LIMITS.room(12, 60) == 0
    assert replace(LIMITS, age_min_s=0).room(0, 0) == 10


def test_the_defaults_are_the_originals() -> None:
    assert RolloverLimits.of(ManagedLedgerConfig()) == RolloverLimits(
        entries_max=50_000, size_max=2048 << 20, age_min_s=600, age_max_s=240 * 60
    )
