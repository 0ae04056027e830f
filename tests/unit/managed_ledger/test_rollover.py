from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.writing.rollover import RolloverLimits
from tests.support.datadriven import Line, check, transcript
from tests.unit.managed_ledger.limits import limits_of

LIMITS = RolloverLimits(entries_max=10, size_max=1000, age_min_s=60, age_max_s=600)


def transcribed(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the state of one ledger at some entries, bytes and age, and the age of the next look."""
    if command.name != "ledger":
        raise command.unknown()
    limits = limits_of(command).of_ledger(command.option_number("id", 0))

    def answer(step: Line) -> str:
        if step.name != "at":
            raise step.unknown()
        entries, size, age_s = step.number(), step.number(), step.number()
        full, near = limits.is_full(entries, size, age_s), limits.is_nearly_full(entries, size, age_s)
        assert near or not full, "a full ledger is nearly full too"
        state = "full" if full else "nearly full" if near else "room"
        return f"{state}, next look at {limits.next_check(age_s):.1f} s"

    return transcript(steps, answer, ())


def test_cases() -> None:
    check(Path(__file__).parent / "testdata" / "rollover.txt", transcribed)


def test_the_defaults_are_the_originals() -> None:
    assert RolloverLimits.of(ManagedLedgerConfig()) == RolloverLimits(
        entries_max=50_000, size_max=2048 << 20, age_min_s=600, age_max_s=240 * 60
    )


def test_the_greatest_age_of_a_ledger_is_spread_over_a_twentieth() -> None:
    ages = [LIMITS.of_ledger(ledger_id).age_max_s for ledger_id in range(1000)]
    assert 600 <= min(ages) < 601
    assert 629 < max(ages) < 630
    assert len(set(ages)) == 1000
    assert LIMITS.of_ledger(77) == LIMITS.of_ledger(77)
