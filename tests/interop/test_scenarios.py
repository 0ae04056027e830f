"""The tester's scenarios with Quire's bookies, over hierarchical metadata."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.java import run_tester
from tests.support.bookies import BookieCluster, cluster

FIVE_WIDE = {"quorum-5-3-2-v2", "quorum-5-3-2-v3"}


def outcomes(printed: str) -> tuple[int, set[str]]:
    """Return the number of scenarios that passed and the names of those skipped; none may have failed."""
    passed = re.findall(r"^ok (\S+)", printed, re.MULTILINE)
    skipped = re.findall(r"^skip (\S+)", printed, re.MULTILINE)
    assert re.search(rf"^{len(passed)} passed, 0 failed, {len(skipped)} skipped, ", printed, re.MULTILINE), printed
    return len(passed), set(skipped)


def break_one(bookies: BookieCluster) -> str:
    """Return a shell command that kills a bookie."""
    process = bookies.bookies[0].process
    assert process is not None
    return f"kill -9 {process.pid}"


def test_three_bookies_pass_all_but_those_that_need_five_or_a_bookie_to_be_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as bookies:
        assert outcomes(run_tester(bookies.uri)) == (47, {*FIVE_WIDE, "ensemble-change"})


def test_three_bookies_one_of_them_killed_pass_all_but_those_that_need_five(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as bookies:
        assert outcomes(run_tester(bookies.uri, "--break", break_one(bookies))) == (48, FIVE_WIDE)
        bookies.bookies[0].kill()
        bookies.bookies[0].start()


def test_five_bookies_one_of_them_killed_pass_all(tmp_path: Path) -> None:
    with cluster(tmp_path, 5) as bookies:
        assert outcomes(run_tester(bookies.uri, "--break", break_one(bookies))) == (50, set())


@pytest.mark.parametrize("name", ["recovery-of-abandoned-ledger-v3", "ensemble-change"])
def test_a_scenario_that_fails_is_told(name: str) -> None:
    printed = f"ok delete-v2  [0.1 s]\nFAIL {name} why  [1.0 s]\n1 passed, 1 failed, 0 skipped, 3 bookies, 1 s\n"
    with pytest.raises(AssertionError):
        outcomes(printed)
