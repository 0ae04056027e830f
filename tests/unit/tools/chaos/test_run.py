"""Conditions of a successful chaos run."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tools.chaos.checker import Verdict
from tools.chaos.run import Outcome


def outcome(**changes: Any) -> Outcome:
    made = Outcome(seed=1, seconds=60.0, load_s=60.0, breaks=(1, 1), copies={"good": True})
    made.verdict = Verdict(sent=150_000, receipts=150_000, delivered=150_000)
    made.faults = [cast(Any, None)] * 8
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": Verdict(receipts=150_000, counts={"lost": 3})}, "3 lost"),
        ({"verdict": Verdict(receipts=100_000)}, "1667 messages/s had a receipt"),
        ({"faults": []}, "0 faults were injected"),
        ({"copies": {"good": False}}, "copies are missing or bad"),
        ({"copies": {}}, "copies are missing or bad"),
        ({"breaks": (0, 4)}, "nothing was at risk"),
        ({"breaks": (4, 0)}, "nothing was at risk"),
    ],
)
def test_a_run_that_is_bad_or_proves_nothing_fails(changes, said):
    assert outcome().failures(faults_min=6, rate_min=2000) == []
    (failure,) = outcome(**changes).failures(faults_min=6, rate_min=2000)
    assert said in failure
