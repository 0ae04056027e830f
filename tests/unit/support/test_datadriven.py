from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.datadriven import REWRITE, Line, MalformedError, check, transcript
from tests.support.refusals import refuses

ROOT = Path(__file__).parents[3]
GOOD = """\
# Two numbers.
sum of=2
add 1
add 2..3
----
add 1: 1
add 2..3: 6

sum of=1
----
nothing
"""


def run(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the sums of numbers."""
    if command.name != "sum":
        raise command.unknown()
    assert command.option_number("of") == max(len(steps), 1)
    total = 0

    def add(step: Line) -> str:
        nonlocal total
        first, last = step.span()
        if first < 0:
            raise ArithmeticError("below zero")
        total += sum(range(first, last + 1))
        return str(total)

    return transcript(steps, add, ArithmeticError) or ["nothing"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(REWRITE, raising=False)
    path = tmp_path / "sums.txt"
    path.write_text(GOOD)
    return path


def test_cases_with_the_expected_output_pass(file: Path) -> None:
    check(file, run)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add 1: 1", "add 1: 2"),
        ("add 2..3: 6\n", ""),
        ("add 2..3: 6\n", "add 2..3: 6\nadd 2..3: 6\n"),
        ("nothing", "nothing "),
    ],
)
def test_each_line_of_each_output_is_compared(file: Path, old: str, new: str) -> None:
    file.write_text(GOOD.replace(old, new))
    refuses(AssertionError, lambda: check(file, run), r"sums\.txt, expected")


def test_all_differences_are_reported_together(file: Path) -> None:
    file.write_text(GOOD.replace("add 1: 1", "add 1: 2").replace("nothing", "something"))
    with pytest.raises(AssertionError) as raised:
        check(file, run)
    assert {"-add 1: 2", "+add 1: 1", "-something", "+nothing"} <= set(str(raised.value).splitlines())


def test_a_refused_step_is_an_answer(file: Path) -> None:
    file.write_text("sum of=1\nadd -4\n----\nadd -4: ArithmeticError: below zero\n")
    check(file, run)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no cases"),
        ("# A comment.\n", "no cases"),
        ("sum of=1\n", "no ----"),
        ("sum of=1\n\n----\nnothing\n", "no ----"),
        ("----\nnothing\n", "without a command"),
        ("sum of=1\n----\n", "no output is expected"),
        ("sum of=1\n----\n\nnothing\n", "no ----"),
        ("sum of=1\n----\nnothing\n----\nnothing\n", "a second ----"),
        (GOOD + "\n# The end.\n", "a comment at the end"),
        ("sum of=1 more\n----\nnothing\n", "more is not used"),
        ("sum of=1 more=2\n----\nnothing\n", "more is not used"),
        ("sum of=1\nadd 1 2\n----\nadd 1 2: 2\n", "2 is not used"),
        ("sum of=1 of=1\n----\nnothing\n", "comes once"),
        ("sum of=\n----\nnothing\n", "has a value"),
        ("of=1\n----\nnothing\n", "a name comes first"),
        ("sum\n----\nnothing\n", "of= is missing"),
        ("sum of=1\nadd\n----\nadd: 0\n", "a word is missing"),
        ("sum of=1\nadd one\n----\nadd: 0\n", "one is no number"),
        ("product of=1\n----\nnothing\n", "unknown: product"),
    ],
)
def test_a_malformed_file_is_an_error_that_names_the_line(file: Path, text: str, error: str) -> None:
    file.write_text(text)
    with pytest.raises(MalformedError, match=error) as raised:
        check(file, run)
    assert str(raised.value).startswith("sums.txt:")


@pytest.mark.parametrize("output", [[], [""], ["one", " "], ["----"], ["one\n\ntwo"]])
def test_output_that_a_file_cannot_hold_is_an_error(file: Path, output: list[str]) -> None:
    with pytest.raises(MalformedError, match="the runner's output"):
        check(file, lambda command, steps: [*output, *run(command, steps)][: len(output)])


def test_a_rewritten_file_fails_once_and_then_passes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(GOOD.replace("add 1: 1\nadd 2..3: 6\n", "").replace("nothing", "something"))
    monkeypatch.setenv(REWRITE, "1")
    refuses(AssertionError, lambda: check(file, run), "rewritten, run again")
    assert file.read_text() == GOOD
    check(file, run)
    assert file.read_text() == GOOD
    monkeypatch.delenv(REWRITE)
    check(file, run)


def test_each_file_of_cases_or_stories_is_read_by_a_test_beside_it() -> None:
    files = sorted((ROOT / "tests").rglob("testdata/*.txt"))
    assert files
    for file in files:
        readers = [each.read_text() for each in file.parents[1].glob("test_*.py")]
        assert any(
            (
                f'"{file.name}"' in text
                and any(call in text for call in ("check(", "stories_of(", "dialogues(", "read_text("))
            )
            or 'told(Path(__file__).parent / "testdata")' in text
            for text in readers
        ), file
