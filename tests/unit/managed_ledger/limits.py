"""Limits of ledgers as text-driven tests write them."""

from __future__ import annotations

from managed_ledger.writing.rollover import RolloverLimits
from tests.support.datadriven import Line


def limits_of(command: Line) -> RolloverLimits:
    """Return the limits in the command's options."""
    least, greatest = Line.of(command.where, f"age {command.option('age')}").span()
    return RolloverLimits(
        entries_max=command.option_number("entries"),
        size_max=command.option_number("size"),
        age_min_s=least,
        age_max_s=greatest,
    )
