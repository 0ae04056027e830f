"""Whole clusters, all faults: nothing confirmed is lost, no replaced owner continues, and the cluster repairs itself.

The tests run a slice of `python -m simulation --history cluster --seeds 0..499`; `scripts/test --full` runs all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest

from simulation.cluster.history import CONFIRMED_MIN, FAULTS_MIN
from simulation.cluster.swarm import FAULTS
from simulation.common.histogram import Histogram
from simulation.common.sweep import Outcome, run_one, sweep
from simulation.common.tale import Tale
from tests.simulation.histories import JOBS, Histories

TOLD = 1
"""Seed whose tale is printed."""
LOST_BOOKIE = 1
"""A seed that loses a bookie permanently."""
SLICE = (0, TOLD, 9, 10, 11)
"""Seeds among the first 13 that have faults of every kind together, and replaced members: 9 seconds of a core."""
FULL = range(500)


def counted(outcome: Outcome) -> dict[str, int]:
    """Return the counts in the line of an outcome, by name."""
    line = re.sub(r"\(.*?\)", "", outcome.line)
    return {name: int(count) for count, name in re.findall(r"(\d+) ([a-z][a-z ]+)", line)}


def assert_good(outcomes: Sequence[Outcome]) -> Counter[str]:
    """Check that none failed and each was large enough; print the histogram of faults and return the sums."""
    assert [f"{each.line}\n{each.details}" for each in outcomes if not each.ok] == []
    histogram = Histogram()
    sums: Counter[str] = Counter()
    for outcome in outcomes:
        counts = counted(outcome)
        assert counts["confirmed"] >= CONFIRMED_MIN, outcome.line
        assert counts["takeovers"] >= 1, outcome.line
        assert sum(count for _, count in outcome.faults) >= FAULTS_MIN, outcome.line
        sums.update(counts)
        histogram.add(outcome.faults)
    print(histogram.text())
    return sums + histogram.counts


def test_no_fault_of_a_whole_cluster_loses_what_it_confirmed(
    histories: Histories, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        sums = assert_good(histories.of("cluster", SLICE))
    assert {kind for kind in FAULTS if not sums[kind]} == set(), "a slice has faults of every kind"
    for what in ("redirects", "recoveries", "members replaced", "copies compared"):
        assert sums[what] > len(SLICE), what


@pytest.mark.full
def test_five_hundred_seeds_of_the_cluster_history(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sums = assert_good(list(sweep(["cluster"], FULL, jobs=JOBS)))
    assert min(sums[kind] for kind in FAULTS) >= 50


def test_a_cluster_loses_a_bookie_for_good_and_has_all_copies_again(histories: Histories) -> None:
    (outcome,) = histories.of("cluster", [LOST_BOOKIE])
    assert dict(outcome.faults)["lost bookie"] > 0, "take another seed"
    counts = counted(outcome)
    assert counts["members replaced"] > 0
    assert counts["copies compared"] > counts["confirmed"]


def test_telling_the_tale_does_not_change_the_history(histories: Histories) -> None:
    tale = Tale()
    told = run_one("cluster", TOLD, tale=tale)
    assert told.ok, told.line
    assert [told] == histories.of("cluster", [TOLD])
    names = {event.name for event in tale.events}
    assert names >= {
        "Fault",
        "BrokerReady",
        "TopicLoading",
        "BundleOwned",
        "ListStored",
        "LedgerCreated",
        "EntriesConfirmed",
        "Healed",
        "Reached",
    }
