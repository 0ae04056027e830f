"""The list of exceptions is exact: what is not in it must pass, what is in it must not."""

from __future__ import annotations

import pytest

from tools.official_suite.__main__ import EXCEPTIONS
from tools.official_suite.verdict import ExceptionsError, Outcome, Result, exceptions, judge

PASSED = Result(Outcome.PASSED)
FAILED = Result(Outcome.FAILED, "no TLS")


def test_a_suite_is_good_if_all_others_pass() -> None:
    verdict = judge({"a": PASSED, "b": FAILED}, {"b": "needs TLS"})
    assert verdict.good
    assert (verdict.passed, verdict.excepted) == (("a",), {"b": "needs TLS"})


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SKIPPED, Outcome.STALLED])
def test_anything_but_a_pass_is_wrong(outcome: Outcome) -> None:
    verdict = judge({"a": PASSED, "b": Result(outcome, "reason")}, {})
    assert not verdict.good
    assert verdict.wrong == {"b": f"{outcome.value}: reason"}


def test_an_exception_that_passes_is_wrong() -> None:
    verdict = judge({"a": PASSED, "b": PASSED}, {"b": "needs TLS"})
    assert not verdict.good
    assert "listed as an exception" in verdict.wrong["b"]


def test_an_exception_that_no_longer_exists_is_wrong() -> None:
    assert not judge({"a": PASSED}, {"b": "needs TLS"}).good


def test_nothing_passed_is_not_good() -> None:
    assert not judge({}, {}).good


def test_exceptions_of_the_cluster_are_additional() -> None:
    text = '[both]\n"a" = "one"\n[cluster]\n"b" = "two"\n'
    assert exceptions(text, cluster=False) == {"a": "one"}
    assert exceptions(text, cluster=True) == {"a": "one", "b": "two"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[both]\n"a" = ""\n', "needs a reason"),
        ('[both]\n"a" = "one"\n[cluster]\n"a" = "two"\n', "in both tables"),
        ('[standalone]\n"a" = "one"\n', "unknown tables"),
        ("[both\n", "line 1"),
    ],
)
def test_a_list_with_errors_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ExceptionsError, match=problem):
        exceptions(text, cluster=True)


def test_the_list_of_this_project_is_valid() -> None:
    assert exceptions(EXCEPTIONS.read_text(), cluster=True)
