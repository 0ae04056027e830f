"""Docstrings begin with a verb or a noun, and those of the public API list arguments: CONTRIBUTING.md, "Prose"."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire.ledger
from tests.support.sources import statements

REPOSITORY = Path(__file__).resolve().parents[2]
ROOMS = (
    "autorecovery",
    "bench",
    "bookie",
    "broker",
    "cursors",
    "managed_ledger",
    "pyspark_quire",
    "quire",
    "scripts",
    "simulation",
    "tests",
    "tools",
)
REFUSED = frozenset(
    ("Of", "Who", "Whom", "Whose", "Until", "Those", "What", "Which", "Whether", "If", "That", "How", "Where")
)

_MAY_BEGIN_SO = re.compile(rf"""["'][\\\s]*(?:{"|".join(REFUSED)})\b""")
"""A quote and one of these words: every docstring that begins with one has it in its source."""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring: of modules, classes and functions, and below constants and attributes."""
    for statement in statements(ast.parse(source)):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            text = statement.value.value
            if isinstance(text, str):
                yield statement.lineno, text.strip()


def refused(source: str) -> list[tuple[int, str]]:
    if _MAY_BEGIN_SO.search(source) is None:
        return []  # not worth parsing
    return [(line, text) for line, text in docstrings(source) if re.split(r"\W", text, maxsplit=1)[0] in REFUSED]


@pytest.mark.parametrize("room", ROOMS)
def test_no_docstring_begins_with_a_relative_word(room: str) -> None:
    files = [each for each in sorted((REPOSITORY / room).rglob("*.py")) if not each.name.endswith("_pb2.py")]
    assert files
    found = [
        f"{file.relative_to(REPOSITORY)}:{line}: {text.splitlines()[0]}"
        for file in files
        for line, text in refused(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_every_kind_of_docstring_is_read() -> None:
    source = '''"""Of a module."""
LIMIT = 1
"""Those of a constant."""
class Room:
    """Which room."""
    size: int
    """Until it is full."""
    async def enter(self) -> None:
        """Whether it is open."""
        self.door = 1
        """What is open."""
        if self.door:
            text = """Of no docstring."""
'''
    assert [line for line, _ in refused(source)] == [1, 3, 5, 7, 9, 11]
    for one in (
        "'Of a room.'",
        'r"""Who enters."""',
        '"""\n    Whose room."""',
        '"""\\\nWhich room."""',
        "''' What '''",
    ):
        assert len(refused(f"x = 1\n{one}\n")) == 1, one
    assert refused('"""Office hours."""\nx = 1\n"""Whole numbers."""\n') == []


def public_calls(package: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and function of every public call of the names that the package exports."""
    for name in package.__all__:
        exported = getattr(package, name)
        if inspect.isfunction(exported):
            yield name, exported
        elif inspect.isclass(exported):
            for method, function in inspect.getmembers(exported, inspect.isfunction):
                if not method.startswith("_"):
                    yield f"{name}.{method}", function


def unlisted(function: Any) -> list[str]:
    """Return the parameters, and "Returns" for a result, that the docstring does not list."""
    signature = inspect.signature(function)
    text = inspect.getdoc(function) or ""
    missing = [each for each in signature.parameters if each != "self" and f"    {each}: " not in text]
    if signature.return_annotation not in ("None", None) and "Returns:\n" not in text:
        missing.append("Returns")
    return missing


def test_public_calls_of_the_ledger_api_list_their_arguments_and_results() -> None:
    calls = dict(public_calls(quire.ledger))
    assert {"open_client", "LedgerClient.create", "LedgerWriter.append", "LedgerReader.tail"} <= calls.keys()
    assert {name: missing for name, call in calls.items() if (missing := unlisted(call))} == {}


def test_a_call_that_lists_nothing_is_found() -> None:
    def call(first: int, last: int) -> int:
        """Return the sum.

        Args:
            first: One of them.
        """
        return first + last

    assert unlisted(call) == ["last", "Returns"]
