"""A day in the life of a few bookies: nothing acknowledged is lost, nothing deleted comes back, disks do not fill up.

The tests run a slice of `python -m simulation --history day --seeds 0..199`; `scripts/test --full` runs all of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from simulation.common.checkers import ViolationError
from simulation.common.sweep import Outcome, sweep
from simulation.day.room import DiskUse, check_deleted, check_use
from simulation.day.swarm import FAULTS, FLIPPED
from tests.simulation.histories import JOBS, Histories

SLICE = (3,)
"""A quick seed, with scrubs and flipped entries: 7 seconds of a core."""
FULL = range(200)
USE = DiskUse(bookie_id="b0", logs=(("0.log", 7_000), ("1.log", 7_000)), living=10_000, again=0, others=500)


def assert_good(outcomes: Sequence[Outcome]) -> set[str]:
    """Check that none failed and each was large enough; return the kinds of faults."""
    assert [f"{each.line}\n{each.details}" for each in outcomes if not each.ok] == []
    for each in outcomes:
        found = re.search(r"(\d+) deleted, .* (\d+) logs compacted in .* ([0-9.]+) virtual h", each.line)
        assert found is not None, each.line
        assert int(found[1]) > 0, each.line
        assert int(found[2]) > 0, each.line
        assert float(found[3]) >= 24, each.line
    return {kind for each in outcomes for kind, _ in each.faults}


def test_a_day_loses_nothing_brings_nothing_back_and_does_not_fill_the_disks(histories: Histories) -> None:
    assert_good(histories.of("day", SLICE))


@pytest.mark.full
def test_two_hundred_days() -> None:
    assert assert_good(list(sweep(["day"], FULL, jobs=JOBS))) == {*FAULTS, FLIPPED}


def test_the_bound_of_a_disk_counts_living_entries_and_named_constants() -> None:
    check_use(USE, log_size=100, open_logs=0, others_max=500)
    with pytest.raises(ViolationError, match=r"DiskUseIsBounded.*entry logs"):
        check_use(replace(USE, living=9_000), log_size=100, open_logs=0, others_max=500)
    with pytest.raises(ViolationError, match=r"DiskUseIsBounded.*beside entry logs"):
        check_use(USE, log_size=100, open_logs=0, others_max=499)


def test_a_deleted_ledger_that_is_held_is_a_violation() -> None:
    check_deleted("b0", {1, 2}, [3])
    with pytest.raises(ViolationError, match="NothingDeletedComesBack"):
        check_deleted("b0", {1, 3}, [3])
