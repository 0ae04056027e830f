"""The histories find bugs: each of these, planted, is found within a few seeds, under the right name."""

from __future__ import annotations

import pytest

from simulation.bugs import BUGS
from simulation.sweep import sweep

SEEDS = range(200)
EXPECTED = {
    "ack-before-fsync": ("standalone", {"AllAckedEntriesAreReadable", "AnsweredAcksAreDurable", "NoOutOfOrderEntries"}),
    "fence-after-answer": ("fencing", {"NoDivergenceBetweenClientAndMetaData"}),
    "lastMark-before-index-sync": ("standalone", {"AllAckedEntriesAreReadable", "AnsweredAcksAreDurable"}),
    "ack-answered-before-append": ("standalone", {"AnsweredAcksAreDurable"}),
    "delivery-above-LAC": ("standalone", {"NothingAboveLacIsDelivered", "NoOutOfOrderEntries"}),
}


def test_every_bug_is_looked_for() -> None:
    assert set(EXPECTED) == set(BUGS)


@pytest.mark.parametrize("bug", sorted(EXPECTED))
def test_a_planted_bug_is_found(bug: str, capsys: pytest.CaptureFixture[str]) -> None:
    history, names = EXPECTED[bug]
    for outcome in sweep([history], SEEDS, jobs=2, bug=bug):
        if outcome.violation in names:
            with capsys.disabled():
                print(f"{bug} is found by {history} {outcome.line[:150]}")
            return
    pytest.fail(f"{bug} is not found by {len(SEEDS)} seeds of the {history} history")
