from __future__ import annotations

import itertools

import pytest

from quire.ledger.recovery.rules import FenceCoverage, RecoveryRead, Verdict
from quire.ledger.striping import Striping


def all_quorums(size_max: int) -> list[tuple[int, int, int]]:
    sizes = range(1, size_max + 1)
    return [(size, write, ack) for size in sizes for write in range(1, size + 1) for ack in range(1, write + 1)]


@pytest.mark.parametrize("quorum", all_quorums(5))
def test_coverage_means_exactly_that_no_entry_can_reach_its_ack_quorum_any_more(quorum: tuple[int, int, int]) -> None:
    size, write, ack = quorum
    striping = Striping(size, write)
    for known in itertools.product([False, True], repeat=size):
        coverage = FenceCoverage(striping, ack)
        for index in itertools.compress(range(size), known):
            coverage.answered(index)
        can_still_be_confirmed = any(
            sum(not known[index] for index in striping.write_set(entry_id)) >= ack for entry_id in range(size)
        )
        assert coverage.covered is not can_still_be_confirmed


@pytest.mark.parametrize(("write", "ack"), [(write, ack) for write in range(1, 6) for ack in range(1, write + 1)])
def test_an_entry_is_absent_only_when_too_few_bookies_are_left_for_an_ack_quorum(write: int, ack: int) -> None:
    for denials in range(write + 1):
        reading = RecoveryRead(write, ack)
        for _ in range(denials):
            reading.denied()
        assert (reading.verdict is Verdict.ABSENT) == (write - denials < ack)
        reading.found()
        assert reading.verdict is Verdict.PRESENT, "one copy is enough, whoever denies it"
