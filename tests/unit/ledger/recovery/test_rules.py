from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from quire.ledger.recovery.rules import FenceCoverage, RecoveryRead, Verdict
from quire.ledger.striping import Striping
from tests.support.datadriven import Line, check, transcript


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


def concluded(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the smallest sufficient sets of bookies, or the verdict after each answer."""
    match command.name:
        case "fence":
            size, ack = command.option_number("ensemble"), command.option_number("ack")
            striping = Striping(size, command.option_number("write"))
            enough: list[frozenset[int]] = []
            for chosen in itertools.chain.from_iterable(
                itertools.combinations(range(size), n) for n in range(size + 1)
            ):
                coverage = FenceCoverage(striping, ack)
                for index in chosen:
                    coverage.answered(index)
                if coverage.covered and not any(each <= set(chosen) for each in enough):
                    enough.append(frozenset(chosen))
            return ["covered by " + ", ".join("+".join(map(str, sorted(each))) for each in enough)]
        case "read":
            reading = RecoveryRead(command.option_number("write"), command.option_number("ack"))
            answers = {"found": reading.found, "denied": reading.denied}

            def answer(step: Line) -> str:
                if step.name not in answers:
                    raise step.unknown()
                answers[step.name]()
                return reading.verdict.value

            return transcript(steps, answer)
    raise command.unknown()


def test_cases() -> None:
    check(Path(__file__).parent / "testdata" / "rules.txt", concluded)
