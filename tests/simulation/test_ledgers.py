"""Many bookies, many clients, all faults: no confirmed entry is lost, no fenced writer continues, and the cluster works
after the faults.

The tests run a slice of `python -m simulation --history ledger --seeds 0..999`; `scripts/test --full` runs all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest

from simulation.common.folder_nemesis import FOLDER_FAULTS
from simulation.common.histogram import Histogram
from simulation.common.sweep import Outcome, run_one, sweep
from simulation.common.tale import Tale
from simulation.ledger.history import CONFIRMED_MIN, FAULTS_MIN, run_ledger_history
from simulation.ledger.swarm import FAULTS
from tests.simulation.histories import JOBS, Histories

SLICE = (4, 7, 9, 10, 11, 14, 18, 19, 20, 22, 28, 30, 32, 35)
"""Quick seeds among the first 40 that have faults of every kind together: 12 seconds of two idle cores."""
TOLD = 7
"""Seed of the slice whose tale is printed."""
FULL = range(1000)
LOSING = (5, 6, 8, 22)
"""Quick seeds of losses: flipped bits, a bookie without a journal of entries, emptied folders and older images."""
LOSING_FULL = range(300)
HOUSEKEEPING = (3,)
"""A quick seed."""
UNMEASURED_MAX = 0.001
"""Share of the recoveries that may close a ledger without its length, as no copy of its last entry was reachable."""


def assert_good(outcomes: Sequence[Outcome]) -> Counter[str]:
    """Check that none failed and each was large enough; print and return the histogram of faults."""
    assert [f"{each.line}\n{each.details}" for each in outcomes if not each.ok] == []
    histogram = Histogram()
    recoveries = unmeasured = 0
    for outcome in outcomes:
        found = re.search(r"(\d+) confirmed in .* (\d+) recoveries \((\d+) without a length\)", outcome.line)
        assert found is not None, outcome.line
        assert int(found[1]) >= CONFIRMED_MIN, outcome.line
        assert sum(count for _, count in outcome.faults) >= FAULTS_MIN, outcome.line
        recoveries += int(found[2])
        unmeasured += int(found[3])
        histogram.add(outcome.faults)
    print(histogram.text())
    assert unmeasured <= recoveries * UNMEASURED_MAX, f"{unmeasured} of {recoveries} recoveries without a length"
    return histogram.counts


def test_no_fault_of_a_cluster_loses_what_it_confirmed(
    histories: Histories, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        counts = assert_good(histories.of("ledger", SLICE))
    assert set(counts) == set(FAULTS), "a slice has faults of every kind"


@pytest.mark.full
def test_a_thousand_seeds_of_the_ledger_history(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        counts = assert_good(list(sweep(["ledger"], FULL, jobs=JOBS)))
    assert min(counts[kind] for kind in FAULTS) >= 50


def test_a_history_recovers_ledgers_and_looks_at_every_copy() -> None:
    summary = run_ledger_history(TOLD)
    assert summary.recoveries > 0
    assert summary.copies > summary.confirmed


def test_telling_the_tale_does_not_change_the_history(histories: Histories) -> None:
    tale = Tale()
    told = run_one("ledger", TOLD, tale=tale)
    assert told.ok, told.line
    assert [told] == histories.of("ledger", [TOLD])
    names = {event.name for event in tale.events}
    assert names >= {
        "Fault",
        "LedgerCreated",
        "EntriesSent",
        "EntriesStored",
        "EntriesConfirmed",
        "LedgerFenced",
        "Healed",
    }


# --- bookies that lose data and copy it back


def test_no_loss_of_one_bookie_loses_what_the_cluster_confirmed(
    histories: Histories, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        counts = assert_good(histories.of("losing", LOSING))
    assert {"lost data", "flipped entry", "kill"} <= set(counts)


@pytest.mark.full
def test_three_hundred_seeds_of_the_losing_history(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        counts = assert_good(list(sweep(["losing"], LOSING_FULL, jobs=JOBS)))
    assert counts["lost data"] >= 50


# --- compactions, several directories and limbo, all in every history


def test_nothing_confirmed_is_lost_while_bookies_compact_and_lose_directories(
    histories: Histories, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        outcomes = histories.of("housekeeping", HOUSEKEEPING)
        counts = assert_good(outcomes)
    assert counts["lost data"] > 0
    assert all(limbos(each) for each in outcomes)


@pytest.mark.full
def test_a_thousand_seeds_of_housekeeping(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        outcomes = list(sweep(["housekeeping"], FULL, jobs=JOBS))
        counts = assert_good(outcomes)
    assert min(counts[kind] for kind in FOLDER_FAULTS) >= 50
    assert sum([limbos(each) > 0 for each in outcomes]) >= 0.9 * len(outcomes)


def limbos(outcome: Outcome) -> int:
    """Return the number of starts of bookies in limbo."""
    found = re.search(r"(\d+) starts in limbo", outcome.line)
    assert found is not None, outcome.line
    return int(found[1])
