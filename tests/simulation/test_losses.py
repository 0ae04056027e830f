"""Bookies that lose data and copy it back: nothing confirmed is lost, nothing is denied, and limbo ends.

The tests run a slice of `python -m simulation --history losing --seeds 0..999`; `scripts/test --full` runs 300.
"""

from __future__ import annotations

import pytest

from simulation.common.sweep import sweep
from tests.simulation.histories import JOBS, Histories
from tests.simulation.test_ledgers import assert_good

SLICE = (5, 6, 8, 22)
"""Quick seeds: flipped bits, a bookie without a journal of entries, emptied folders and older images."""
FULL = range(300)


def test_no_loss_of_one_bookie_loses_what_the_cluster_confirmed(
    histories: Histories, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        counts = assert_good(histories.of("losing", SLICE))
    assert {"lost data", "flipped entry", "kill"} <= set(counts)


@pytest.mark.full
def test_three_hundred_seeds_of_the_losing_history(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        counts = assert_good(list(sweep(["losing"], FULL, jobs=JOBS)))
    assert counts["lost data"] >= 50
