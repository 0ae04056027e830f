from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from managed_ledger.writing.fill_limits import LedgerMarks
from managed_ledger.writing.rollover import NO_LIMIT
from tests.support.datadriven import Line, check, transcript
from tests.unit.managed_ledger.limits import limits_of

OPENED = 5000.0


def transcribed(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the effect of each step on the fill limits of one log."""
    if command.name != "begin":
        raise command.unknown()
    marks = LedgerMarks(limits_of(command))
    marks.begin(command.number(), OPENED)

    def answer(step: Line) -> str:
        match step.name:
            case "filled":
                return marks.filled(step.number(), step.number()).value
            case "age":
                return marks.at_age(OPENED + step.number(), step.number(), step.number()).value
            case "due":
                return "yes" if marks.is_due(OPENED + step.number()) else "no"
            case "begin":
                marks.begin(step.number(), OPENED)
            case "pass-near":
                marks.pass_near()
            case "lift":
                marks.lift()
            case "rest-until":
                marks.rest_until(OPENED + step.number())
            case _:
                raise step.unknown()
        near, full = (marks.entries_near, marks.size_near), (marks.entries_max, marks.size_max)
        return f"near {', '.join(map(mark, near))}; full {', '.join(map(mark, full))}"

    return transcript(steps, answer)


def mark(limit: int) -> str:
    return "none" if limit == NO_LIMIT else str(limit)


def test_cases() -> None:
    check(Path(__file__).parent / "testdata" / "fill_limits.txt", transcribed)
