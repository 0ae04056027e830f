"""Each planted bug is caught by the test that it names: the tests can fail, and for the right reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mutants import ROOT, Mutant, StaleMutantError, copy_of, planted, read, run

MUTANTS = read(Path(__file__).parent)
CHEAP = ("shared-gives-all-to-the-first", "acks-one-short-of-the-quorum")
"""Mutants of every run, so that planting them is tested; the others are for --full."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of(ROOT, tmp_path_factory.mktemp("mutants"))


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(each, id=each.name, marks=() if each.name in CHEAP else pytest.mark.full) for each in MUTANTS],
)
def test_it_is_caught(mutant: Mutant, copy: Path) -> None:
    with planted(mutant, copy):
        found = run(copy, mutant.test)
    assert found.code is not None, f"{mutant.test} did not end:\n{found.output}"
    assert not found.passed(), f"{mutant.test} passes although {mutant.bug}"
    assert found.failed(mutant.test), f"{mutant.test} did not run:\n{found.output}"


def test_without_a_bug_the_cheap_tests_pass_in_the_copy(copy: Path) -> None:
    found = run(copy, *(each.test for each in MUTANTS if each.name in CHEAP))
    assert found.passed(), found.output


@pytest.mark.full
def test_without_a_bug_all_named_tests_pass_in_the_copy(copy: Path) -> None:
    found = run(copy, *sorted({each.test for each in MUTANTS}), seconds=900)
    assert found.passed(), found.output


def test_no_mutant_is_stale() -> None:
    stale: list[str] = []
    for mutant in MUTANTS:
        try:
            file, text = mutant.place(ROOT)
        except StaleMutantError as error:
            stale.append(str(error))
        else:
            compile(text, str(file), "exec")
            assert text != file.read_text(), f"{mutant.name} changes nothing"
    assert not stale, "\n".join(stale)


def test_there_are_enough_and_each_bug_once() -> None:
    names = [each.name for each in MUTANTS]
    assert len(names) >= 40
    assert len(set(names)) == len(names)
    assert {*CHEAP} <= {*names}


def test_a_text_that_is_there_twice_or_not_at_all_is_stale(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("a = 1\n")
    (tmp_path / "two.py").write_text("a = 1\nb = 1\nb = 1\n")

    def mutant(old: str, within: str = ".") -> Mutant:
        return Mutant(name="x", bug="x", within=within, old=old, new="c = 2", test="x")

    for stale in (mutant("a = 1"), mutant("b = 1"), mutant("c = 1"), mutant("a = 1", "three.py")):
        with pytest.raises(StaleMutantError):
            stale.place(tmp_path)
    file, text = mutant("a = 1", "one.py").place(tmp_path)
    assert (file.name, text) == ("one.py", "c = 2\n")


def test_afterwards_the_text_is_as_before(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("a = 1\n")
    mutant = Mutant(name="x", bug="x", within=".", old="a = 1", new="a = 2", test="x")
    with planted(mutant, tmp_path):
        assert file.read_text() == "a = 2\n"
    assert file.read_text() == "a = 1\n"
