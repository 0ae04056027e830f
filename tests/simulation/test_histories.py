"""Whole servers on seeded worlds: nothing confirmed is lost, whatever happens to the machine.

A slice of what `python -m simulation --seeds 0..199` runs; `scripts/test --full` runs all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from simulation.common.sweep import Outcome, Work, run_all, sweep

SLICE = range(8)
FENCING_SLICE = range(12)
REUSE_SLICE = range(12)
JOBS = 2


def once_bad() -> Iterator[Work]:
    for line in (Path(__file__).parent / "seeds.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            history, seed, _ = line.split(maxsplit=2)
            yield Work(history, int(seed))


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    return [f"{each.history} {each.line}" for each in outcomes if not each.ok]


def assert_big_enough(outcomes: Sequence[Outcome]) -> None:
    for each in outcomes:
        found = re.search(
            r"(\d+) confirmed, (\d+) crashes \((\d+) dropped unsynced writes\), (\d+) recoveries", each.line
        )
        assert found is not None, each.line
        confirmed, crashes, dropped, recoveries = map(int, found.groups())
        assert confirmed >= 300, each.line
        assert crashes >= 3, each.line
        assert dropped >= 1, each.line
        assert recoveries >= 1, each.line


def test_no_crash_of_a_standalone_server_loses_what_it_confirmed() -> None:
    outcomes = list(sweep(["standalone"], SLICE, jobs=JOBS))
    assert failures(outcomes) == []
    assert_big_enough(outcomes)


def test_no_crash_of_a_bookie_lets_a_fenced_writer_go_on() -> None:
    outcomes = list(sweep(["fencing"], FENCING_SLICE, jobs=JOBS))
    assert failures(outcomes) == []
    assert sum("0 crashes" not in each.line for each in outcomes) == len(outcomes)


def test_no_crash_loses_or_mixes_a_ledger_whose_id_is_used_again() -> None:
    outcomes = list(sweep(["reuse"], REUSE_SLICE, jobs=JOBS))
    assert failures(outcomes) == []


def test_seeds_that_were_bad_once_are_good() -> None:
    assert failures(list(run_all(list(once_bad()), jobs=JOBS))) == []


@pytest.mark.full
def test_two_hundred_seeds_of_each_history() -> None:
    outcomes = list(sweep(["standalone", "fencing", "reuse"], range(200), jobs=JOBS))
    assert failures(outcomes) == []
    assert_big_enough([each for each in outcomes if each.history == "standalone"])
