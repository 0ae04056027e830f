from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import trio

from tests.support.datadriven import REWRITE, Line, MalformedError
from tests.support.dialogues import Dialogue, dialogues
from tests.support.refusals import refuses

GOOD = """\
# Numbers are added
# up.
sum from=3
add 1 -> 4
add 2 -> 6
add -9 -> ArithmeticError: below zero

# Text is said line by line.
say
line: a = b  c -> a = b  c | again
quiet
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(REWRITE, raising=False)
    (tmp_path / "sums.txt").write_text(GOOD)
    return tmp_path / "sums.txt"


def held(file: Path) -> list[Dialogue]:
    found = []
    for parameter in dialogues(file):
        (dialogue,) = parameter.values
        assert isinstance(dialogue, Dialogue)
        assert parameter.id == dialogue.title
        found.append(dialogue)
    return found


def answering(dialogue: Dialogue) -> Callable[[Line], str]:
    total = dialogue.command.option_number("from", 0)

    def answer(step: Line) -> str:
        nonlocal total
        if step.name == "line":
            return f"{step.word()}\nagain\n"
        if step.name == "quiet":
            return ""
        if (number := step.number()) < 0:
            raise ArithmeticError("below zero")
        total += number
        return str(total)

    return answer


def run(dialogue: Dialogue) -> None:
    dialogue.check(answering(dialogue), ArithmeticError)


def test_answers_are_compared_and_the_comment_is_the_id(file: Path) -> None:
    assert [each.title for each in held(file)] == ["Numbers are added up", "Text is said line by line"]
    for each in held(file):
        run(each)


async def test_answers_may_be_awaited(file: Path) -> None:
    for each in held(file):
        answer = answering(each)

        async def later(step: Line, answer: Callable[[Line], str] = answer) -> str:
            await trio.sleep(1)
            return answer(step)

        await each.acheck(later, ArithmeticError)


@pytest.mark.parametrize(
    ("wrong", "old", "new"),
    [
        (0, "-> 4", "-> 5"),
        (0, "add 2 -> 6\n", "add 2\n"),
        (1, " | again", ""),
        (1, "quiet", "quiet -> no"),
    ],
)
def test_a_wrong_answer_fails_and_is_written_if_asked(
    file: Path, monkeypatch: pytest.MonkeyPatch, wrong: int, old: str, new: str
) -> None:
    file.write_text(GOOD.replace(old, new))
    monkeypatch.setenv(REWRITE, "1")
    for number, each in enumerate(held(file)):
        with pytest.raises(AssertionError, match=r"sums\.txt:") if number == wrong else nullcontext():
            run(each)
    assert file.read_text() == GOOD


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "sums.txt:: a dialogue has a command"),
        ("# Alone.\n", "a dialogue has a command"),
        ("# One.\nsum\n", "sums.txt:2: a dialogue has a command and a step"),
        ("sum\nadd 1 -> 1\n", "sums.txt:1: a comment says what is promised: sum"),
        ("# One.\nsum\n# Two.\nadd 1 -> 1\n", "sums.txt:3: a comment stands in front of its command"),
        ("# One.\nsum\nadd 1 -> 1\n\n# Two.\n", "a dialogue has a command"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(file: Path, text: str, error: str) -> None:
    file.write_text(text)
    refuses(MalformedError, lambda: dialogues(file), error)


def test_a_word_that_is_not_used_is_an_error(file: Path) -> None:
    file.write_text("# One.\nsum\nadd 1 2 -> 1\n")
    refuses(MalformedError, lambda: run(held(file)[0]), "2 is not used")
