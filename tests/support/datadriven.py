"""Text-driven tests: cases of a pure core as a text file, in the manner of cockroachdb/datadriven.

    # A comment belongs to the case that follows.
    command word other-word option=value
    step word option=value
    ----
    expected output

A case is a command, any number of steps, one a line, a line `----` and the expected output, which ends at an empty line
or at the end of the file. A runner gets the command and the steps and returns the lines of the output; every word and
option has to be used. All cases of a file run, and all differences are reported together.

With QUIRE_REWRITE_TEXTS=1 the expected output is replaced by the actual one, and a test that changed its file fails, so
that the difference is looked at and no run passes without a comparison.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path

REWRITE = "QUIRE_REWRITE_TEXTS"
SEPARATOR = "----"


class MalformedError(Exception):
    """A file of cases that cannot be read, or a case that its runner does not understand."""


@dataclass
class Line:
    """A command or step: its name, words and options. A runner takes each of them once."""

    where: str
    text: str
    name: str
    words: list[str]
    options: dict[str, str]

    @classmethod
    def of(cls, where: str, text: str) -> Line:
        name, *rest = text.split()
        pairs = [each.partition("=") for each in rest if "=" in each]
        options = {key: value for key, _, value in pairs}
        if "=" in name or len(options) < len(pairs) or not all(key and value for key, _, value in pairs):
            raise MalformedError(f"{where}: a name comes first, and each option has a value and comes once: {text}")
        return cls(where, text, name, [each for each in rest if "=" not in each], options)

    def word(self) -> str:
        """Take the next word."""
        if not self.words:
            raise MalformedError(f"{self.where}: a word is missing: {self.text}")
        return self.words.pop(0)

    def number(self) -> int:
        """Take the next word, a number."""
        return self._number(self.word())

    def span(self) -> tuple[int, int]:
        """Take the next word, `first..last`, or one number for both."""
        first, dots, last = self.word().partition("..")
        return self._number(first), self._number(last if dots else first)

    def option(self, name: str, default: str | None = None) -> str:
        """Take an option."""
        value = self.options.pop(name, default)
        if value is None:
            raise MalformedError(f"{self.where}: {name}= is missing: {self.text}")
        return value

    def option_number(self, name: str, default: int | None = None) -> int:
        """Take an option that is a number."""
        return self._number(self.option(name, None if default is None else str(default)))

    def unknown(self) -> MalformedError:
        """Return the error for a name that the runner does not know."""
        return MalformedError(f"{self.where}: unknown: {self.text}")

    def check_used(self) -> None:
        """Raise MalformedError if a word or option was not taken."""
        rest = [*self.words, *self.options]
        if rest:
            raise MalformedError(f"{self.where}: {', '.join(rest)} is not used: {self.text}")

    def _number(self, word: str) -> int:
        try:
            return int(word)
        except ValueError:
            raise MalformedError(f"{self.where}: {word} is no number: {self.text}") from None


Runner = Callable[[Line, Sequence[Line]], Sequence[str]]


@dataclass
class Case:
    """One case: the lines before its separator as they stand, and what is expected."""

    head: list[str]
    lines: list[Line] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)


def read(path: Path) -> list[Case]:
    """Read the cases of a file; MalformedError if it has none or one of them has no output."""
    cases: list[Case] = []
    head: list[str] = []
    lines: list[Line] = []
    expects = False
    for number, text in enumerate([*path.read_text().splitlines(), ""], 1):
        where = f"{path.name}:{number}"
        if expects:
            if text == SEPARATOR:
                raise MalformedError(f"{where}: a second {SEPARATOR} in one case")
            expects = bool(text)
            cases[-1].expected += [text] if text else []
        elif text == SEPARATOR:
            if not lines:
                raise MalformedError(f"{where}: {SEPARATOR} without a command")
            cases.append(Case(head, lines))
            head, lines, expects = [], [], True
        elif not text and not lines:
            head.append(text)
        elif not text:
            raise MalformedError(f"{where}: the command {lines[0].text} has no {SEPARATOR}")
        else:
            head.append(text)
            if not text.startswith("#"):
                lines.append(Line.of(where, text))
    if any(each.startswith("#") for each in head) and cases:
        raise MalformedError(f"{path.name}: a comment at the end belongs to no case")
    if not cases:
        raise MalformedError(f"{path.name}: no cases")
    return cases


def check(path: Path, run: Runner) -> None:
    """Run all cases of a file and compare their output; AssertionError with all differences."""
    rewrite = bool(os.environ.get(REWRITE))
    cases = read(path)
    missing = [case.lines[0] for case in cases if not case.expected]
    if missing and not rewrite:
        raise MalformedError(f"{missing[0].where}: no output is expected: {missing[0].text}")
    expected = [line for case in cases for line in [*case.head, SEPARATOR, *case.expected, ""]]
    actual = [line for case in cases for line in [*case.head, SEPARATOR, *_output(case, run), ""]]
    if rewrite:
        path.write_text("\n".join(actual[:-1]) + "\n")
    differences = "\n".join(unified_diff(expected, actual, f"{path.name}, expected", "actual", n=8, lineterm=""))
    assert not differences, f"{'rewritten, run again: ' if rewrite else ''}{path}\n{differences}"


def _output(case: Case, run: Runner) -> list[str]:
    command, *steps = case.lines
    output = list(run(command, steps))
    for line in case.lines:
        line.check_used()
    if not output or not all(line.splitlines() == [line.rstrip()] and line != SEPARATOR for line in output):
        raise MalformedError(f"{command.where}: the runner's output has an empty line, or none: {output}")
    return output


def transcript(
    steps: Sequence[Line],
    answer: Callable[[Line], str],
    refused: type[Exception] | tuple[type[Exception], ...] = AssertionError,
) -> list[str]:
    """Return each step with its answer, or with the error that refused it."""
    output = []
    for step in steps:
        try:
            answered = answer(step)
        except refused as error:
            answered = f"{type(error).__name__}: {error}"
        output.append(f"{step.text}: {answered}")
    return output
