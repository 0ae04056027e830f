"""Number of repetitions of tests in which each one is another chance to find a mistake, and not another promise."""

from __future__ import annotations

import hypothesis

FULL = "full"
"""The Hypothesis profile of `scripts/test --full`, which tests/conftest.py loads."""


def effort(*, quick: int, full: int) -> int:
    """Return `full` under `scripts/test --full`, and `quick` otherwise."""
    return full if hypothesis.settings.get_current_profile_name() == FULL else quick
