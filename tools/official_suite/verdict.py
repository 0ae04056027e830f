"""Compare the outcomes of tests with the list of exceptions. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

BOTH, CLUSTER = "both", "cluster"


class Outcome(Enum):
    """Outcome of one test. The value is shown in the report."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    STALLED = "did not end"


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of one test, and the last line of its error or the reason of its skip."""

    outcome: Outcome
    text: str = ""


class ExceptionsError(ValueError):
    """The list of exceptions is not valid."""


def exceptions(text: str, *, cluster: bool) -> dict[str, str]:
    """Return the reasons by test id from the text of the TOML file. Raises ExceptionsError."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ExceptionsError(str(error)) from None
    if unknown := tables.keys() - {BOTH, CLUSTER}:
        raise ExceptionsError(f"unknown tables: {', '.join(sorted(unknown))}")
    found: dict[str, str] = {}
    for name in (BOTH, CLUSTER) if cluster else (BOTH,):
        for test, reason in tables.get(name, {}).items():
            if not isinstance(reason, str) or not reason.strip():
                raise ExceptionsError(f"{test}: an exception needs a reason")
            if test in found:
                raise ExceptionsError(f"{test}: is in both tables")
            found[test] = reason
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Tests by kind. The suite is passed if `wrong` is empty and anything passed."""

    passed: tuple[str, ...]
    excepted: Mapping[str, str]
    """Tests that did not pass and need not, with the reason."""
    wrong: Mapping[str, str]
    """Tests that contradict the list, with what is wrong."""

    @property
    def good(self) -> bool:
        return bool(self.passed) and not self.wrong


def judge(results: Mapping[str, Result], expected: Mapping[str, str]) -> Verdict:
    passed: list[str] = []
    excepted: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for test, result in results.items():
        if result.outcome is Outcome.PASSED:
            if test in expected:
                wrong[test] = f"passes, but is listed as an exception: {expected[test]}"
            else:
                passed.append(test)
        elif test in expected:
            excepted[test] = expected[test]
        else:
            wrong[test] = f"{result.outcome.value}: {result.text}"
    for test in expected.keys() - results.keys():
        wrong[test] = "is listed as an exception, but the suite has no such test"
    return Verdict(passed=tuple(passed), excepted=excepted, wrong=wrong)
