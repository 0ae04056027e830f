"""Text-driven tests whose steps have their answers beside them. Each dialogue is a test, and its comment is the id.

    # A place between two ledgers has the name of the place behind the entry before it.
    log 2:10,3:10,7:9
    canonical 3:0 -> 2:10
    canonical 5:0 -> 5:0

The first line is what is asked, the next ones are the steps. A test takes both from its parameter:

    @pytest.mark.parametrize("dialogue", dialogues(TESTDATA / "logs.txt"))
    def test_places(dialogue: Dialogue) -> None:
        log = log_from(dialogue.command.word())
        dialogue.check(lambda step: str(log.canonical(Place.parse(step.word()))))

Lines have words and `option=value`, as in `datadriven`; behind a name that ends in a colon the rest of the line is one
word. Line ends in an answer are shown as ` | `, and a step without an arrow has an empty answer. QUIRE_REWRITE_TEXTS=1
writes the actual answers into the file, and the test fails.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from difflib import unified_diff
from inspect import isawaitable
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.support.datadriven import REWRITE, Line, MalformedError

Errors = type[Exception] | tuple[type[Exception], ...]


@dataclass
class Dialogue:
    """One command, and its steps with the answers that are expected."""

    path: Path
    index: int
    """Place of the command's line in the file."""
    title: str
    command: Line
    steps: list[tuple[Line, str]] = field(default_factory=list)

    def check(self, answer: Callable[[Line], str], refused: Errors = ()) -> None:
        """Run the steps and compare their answers, or the errors that `refused` them.

        Raises AssertionError with all differences.
        """
        said = []
        for step, _ in self.steps:
            try:
                said.append(answer(step))
            except refused as error:
                said.append(f"{type(error).__name__}: {error}")
        self._compare(said)

    async def acheck(self, answer: Callable[[Line], str | Awaitable[str]], refused: Errors = ()) -> None:
        """Do the same with answers that may be awaited."""
        said = []
        for step, _ in self.steps:
            try:
                found = answer(step)
                said.append(await found if isawaitable(found) else found)
            except refused as error:
                said.append(f"{type(error).__name__}: {error}")
        self._compare(said)

    def _compare(self, said: list[str]) -> None:
        for line in (self.command, *(step for step, _ in self.steps)):
            line.check_used()
        expected = [_shown(step, answer) for step, answer in self.steps]
        actual = [_shown(step, answer) for (step, _), answer in zip(self.steps, said, strict=True)]
        title = f"{self.command.where}, expected"
        differences = "\n".join(unified_diff(expected, actual, title, "actual", n=99, lineterm=""))
        if differences and os.environ.get(REWRITE):
            lines = self.path.read_text().splitlines()
            lines[self.index + 1 : self.index + 1 + len(actual)] = actual
            self.path.write_text("\n".join(lines) + "\n")
        assert not differences, f"{self.title}\n{differences}"


def _shown(step: Line, answer: str) -> str:
    answer = answer.rstrip("\n").replace("\n", " | ")
    return f"{step.text} -> {answer}" if answer else step.text


def dialogues(path: Path) -> list[ParameterSet]:
    """Return the dialogues of a file as parameters of a test, with their comments as ids. Raises MalformedError."""
    found: list[Dialogue] = []
    comment: list[str] = []
    inside = False
    for index, text in enumerate(path.read_text().splitlines()):
        where = f"{path.name}:{index + 1}"
        if not text:
            inside = False
        elif text.startswith("#"):
            if inside:
                raise MalformedError(f"{where}: a comment stands in front of its command: {text}")
            comment.append(text.removeprefix("#").strip())
        elif inside:
            step, _, answer = text.partition(" -> ")
            found[-1].steps.append((_line(where, step), answer))
        else:
            if not comment:
                raise MalformedError(f"{where}: a comment says what is promised: {text}")
            found.append(Dialogue(path, index, " ".join(comment).rstrip("."), _line(where, text)))
            comment, inside = [], True
    empty = [each.command.where for each in found if not each.steps]
    if empty or comment or not found:
        raise MalformedError(f"{', '.join(empty) or f'{path.name}:'}: a dialogue has a command and a step")
    return [pytest.param(each, id=each.title) for each in found]


def _line(where: str, text: str) -> Line:
    name, _, rest = text.partition(" ")
    return Line(where, text, name[:-1], [rest] if rest else [], {}) if name.endswith(":") else Line.of(where, text)
