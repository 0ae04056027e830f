"""Pages with commands: fenced blocks, and the output that each has by the page. Pure.

    ```sh             a command of a shell; its exit code is 0
    ```sh fails       its exit code is not 0
    ```sh until       it is repeated until it prints what the page says
    ```sh terminal    it goes on running in a terminal of its own, from when it prints what the page says
    ```text           directly after a command: what it prints
    <!-- Ctrl-C -->   what runs in the last terminal is interrupted, as the text beside it says
    ```python         with a first line `# name.py`: that file is written

A line of the output has to be in the real output, in the same order; other lines may be between. `...` stands for any
text, and one blank for any number of them. Other fenced blocks (conf, sql) are not commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MODES = ("", "fails", "until", "terminal")
INTERRUPT = "interrupt"
FILE = "file"
ELLIPSIS = "..."
_FENCE = re.compile(r"^\s*```(.*)$")
_FILE_NAME = re.compile(r"# (\w+\.py)")
_HEADING = re.compile(r"^#+ +(.*)$")


class PageError(AssertionError):
    """A page that cannot be read: its line, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page."""

    line: int
    section: str
    """Heading above it."""
    mode: str
    text: str
    output: tuple[str, ...]
    """Lines that it prints by the page."""
    path: str = ""
    """Name of the file that is written instead of a command."""


def parse(text: str) -> list[Command]:
    """Return the commands of a page, in order. Raises PageError."""
    found: list[Command] = []
    section, fence, begun = "", "", 0
    body: list[str] | None = None
    between = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _FENCE.match(line)) is not None:
            if body is None:
                fence, begun, body = match[1].strip(), number, []
                continue
            language, _, mode = fence.partition(" ")
            if language == "sh":
                if mode not in MODES:
                    raise PageError(f"line {begun}: {mode!r} is none of {', '.join(MODES[1:])}")
                found.append(Command(begun, section, mode, "\n".join(body), ()))
                between = ""
            elif language == "python" and body and (name := _FILE_NAME.fullmatch(body[0])) is not None:
                found.append(Command(begun, section, FILE, "\n".join(body) + "\n", (), name[1]))
                between = fence  # it prints nothing
            elif language == "text":
                if not found or between or found[-1].output:
                    raise PageError(f"line {begun}: an output without a command above it")
                last = found[-1]
                found[-1] = Command(last.line, last.section, last.mode, last.text, tuple(filter(str.strip, body)))
            elif not language:
                raise PageError(f"line {begun}: a block without a language")
            body = None
        elif body is not None:
            body.append(line)
        elif line.strip() == "<!-- Ctrl-C -->":
            found.append(Command(number, section, INTERRUPT, "", ()))
        elif (match := _HEADING.match(line)) is not None:
            section, between = match[1], line
        else:
            between += line.strip()
    if body is not None:
        raise PageError(f"line {begun}: a block without an end")
    for each in found:
        if each.mode in ("until", "terminal") and not each.output:
            raise PageError(f"line {each.line}: `{each.mode}` needs the output that is waited for")
    return found


def substituted(text: str, values: Mapping[str, object]) -> str:
    """Return the text with all names replaced, longer ones first."""
    if not values:
        return text
    names = sorted(values, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, names)), lambda match: str(values[match[0]]), text)


def missing(wanted: Iterable[str], output: str) -> str | None:
    """Return the first line that is not in the output where it should be; None: all are."""
    lines = iter(output.splitlines())
    for line in wanted:
        pattern = re.compile(_pattern(line))
        if not any(pattern.fullmatch(" ".join(each.split())) for each in lines):
            return line
    return None


def _pattern(line: str) -> str:
    return ".*".join(map(re.escape, " ".join(line.split()).split(ELLIPSIS)))


def read(path: Path) -> list[Command]:
    """Return the commands of a file. Raises PageError, which names it."""
    try:
        return parse(path.read_text())
    except PageError as error:
        raise PageError(f"{path}: {error}") from None
