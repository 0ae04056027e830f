"""quire.service.programs.command_line, and that every program uses it"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import pytest
import typer

from quire.service.programs.command_line import USAGE_ERROR, ending, help_of, one_of, run_app, run_command
from tools.chaos.__main__ import main as chaos
from tools.demo.__main__ import main as demo
from tools.local_cluster.__main__ import main as cluster
from tools.monitoring.quiet import main as quiet_alerts
from tools.official_suite.__main__ import main as official_suite
from tools.profiling import main as profile

ROOT = Path(__file__).resolve().parents[4]
PARSERS = {"argparse", "getopt", "optparse", "click"}
ALLOWED: dict[str, str] = {}
"""Files that may import another parser of command lines, with the reason. `quire shell` has the forms of the original's
arguments, and reads them without a parser (quire/cli/shell/arguments.py)."""
READ_THEMSELVES = {
    "bench/__main__.py": "its first argument is the module that gets the others",
    "quire/cli/daemon/__main__.py": "the words of the original's script, of which the rest go to the server",
    "quire/service/programs/command_line.py": "it gives them to typer",
    "scripts/lowest.py": "two files, given by scripts/environment",
    "scripts/original_keys.py": "a folder, given by a person once for each version of the originals",
    "tests/support/forking.py": "it sets them for a forked server",
    "tests/support/recoverer.py": "a process of a test",
}
"""Files that read the arguments of the process, with the reason."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield the files that may read a command line, by their text: to parse all takes seconds."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name != "out" and path.name[0] != "."]
    words = [each.encode() for each in (*PARSERS, "argv")]
    for file in sorted(file for folder in folders for file in folder.rglob("*.py")):
        text = file.read_bytes()
        if any(word in text for word in words):
            yield str(file.relative_to(ROOT)), ast.parse(text)


def is_program(name: str) -> bool:
    """Return whether a file is for people to run. Tests start processes of their own."""
    return not name.startswith("tests/") or name.startswith("tests/support/")


def imported(tree: ast.Module) -> set[str]:
    """Return the packages that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def reads_arguments(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.argv" for node in ast.walk(tree))


def test_command_lines_are_read_by_typer_everywhere() -> None:
    others, themselves = set[str](), set[str]()
    for name, tree in sources():
        if imported(tree) & PARSERS:
            others.add(name)
        if is_program(name) and reads_arguments(tree):
            themselves.add(name)
    assert others == set(ALLOWED)
    assert themselves == set(READ_THEMSELVES)


@pytest.mark.parametrize("text", ["import argparse", "from argparse import ArgumentParser", "def f():\n import getopt"])
def test_another_parser_would_be_found(text: str) -> None:
    assert imported(ast.parse(text)) & PARSERS


@pytest.mark.parametrize("main", [chaos, demo, cluster, quiet_alerts, official_suite, profile])
def test_every_program_has_help_and_ends_with_2_if_it_is_not_understood(
    main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--help"]) == 0
    assert "Usage: scripts/" in capsys.readouterr().out
    assert main(["--no-such-option"]) == USAGE_ERROR
    assert "No such option: --no-such-option" in capsys.readouterr().err


def counted(
    name: str,
    at_most: Annotated[int, typer.Option(help="Most.")] = 3,
    words: Annotated[list[str] | None, typer.Option("--word")] = None,
) -> int:
    """Return an exit code."""
    one_of("--at-most", at_most, (3, 4))
    if name == "stop":
        raise KeyboardInterrupt
    print(name, at_most, words)
    return at_most


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [
        ("a", 3, "a 3 None"),
        ("a --at-most 4 --word x --word=y", 4, "a 4 ['x', 'y']"),
        ("--help", 0, "Usage: scripts/example [OPTIONS]"),
        ("a --at-most x", USAGE_ERROR, ""),
        ("a --at-most 5", USAGE_ERROR, ""),
        ("", USAGE_ERROR, ""),
        ("a b", USAGE_ERROR, ""),
        ("stop", 130, ""),
    ],
)
def test_a_function_is_a_command(words: str, code: int, out: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(counted, words.split(), name="scripts/example", text="Count.") == code
    said = capsys.readouterr()
    assert out in said.out
    assert bool(said.err) == (code == USAGE_ERROR)


def test_what_a_command_raises_is_raised() -> None:
    def failing() -> int:
        raise LookupError("x")

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(ending(failing))
    with pytest.raises(LookupError):
        run_app(app, [], name="x")


def test_examples_in_a_docstring_keep_their_lines() -> None:
    assert help_of("Do\nit.\n\n    a [b]\n    c\n") == "Do it.\n\n\b\n    a \\[b]\n    c"
