from __future__ import annotations

from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.writing.rollover import RolloverLimits

LIMITS = RolloverLimits(entries_max=10, size_max=1000, age_min_s=60, age_max_s=600)


def test_a_ledger_is_full_by_entries_or_by_size_once_it_is_old_enough() -> None:
    assert LIMITS.is_full(10, 0, 60)
    assert LIMITS.is_full(1, 1000, 60)
    assert not LIMITS.is_full(9, 999, 599)
    assert not LIMITS.is_full(10_000, 10**9, 59)


def test_a_ledger_is_full_by_age_if_it_has_entries() -> None:
    assert LIMITS.is_full(1, 1, 600)
    assert not LIMITS.is_full(0, 0, 10**6)


def test_the_defaults_are_the_originals() -> None:
    assert RolloverLimits.of(ManagedLedgerConfig()) == RolloverLimits(
        entries_max=50_000, size_max=2048 << 20, age_min_s=600, age_max_s=240 * 60
    )


def test_a_ledger_is_nearly_full_in_its_last_tenth_or_its_last_seconds() -> None:
    assert LIMITS.is_nearly_full(9, 0, 60)
    assert LIMITS.is_nearly_full(1, 900, 50)
    assert not LIMITS.is_nearly_full(8, 899, 60)
    assert not LIMITS.is_nearly_full(9, 0, 49)
    assert LIMITS.is_nearly_full(1, 1, 590)
    assert not LIMITS.is_nearly_full(1, 1, 589)
    assert not LIMITS.is_nearly_full(0, 0, 600)


def test_the_greatest_age_of_a_ledger_is_spread_over_a_twentieth() -> None:
    ages = [LIMITS.of_ledger(ledger_id).age_max_s for ledger_id in range(1000)]
    assert 600 <= min(ages) < 601
    assert 629 < max(ages) < 630
    assert len(set(ages)) == 1000
    assert LIMITS.of_ledger(77) == LIMITS.of_ledger(77)
