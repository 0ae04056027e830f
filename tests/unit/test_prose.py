"""Docstrings begin with a verb or a noun, not with a relative word or a preposition: CONTRIBUTING.md, "Prose"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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
REFUSED = frozenset({"Of", "Who", "Whom", "Whose", "Until", "Those", "What", "Which"})


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring: of modules, classes and functions, and below constants and attributes."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    yield statement.lineno, text.strip()


def refused(source: str) -> list[tuple[int, str]]:
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
        """Who enters."""
        self.door = 1
        """What is open."""
        if self.door:
            text = """Of no docstring."""
'''
    assert [line for line, _ in refused(source)] == [1, 3, 5, 7, 9, 11]
    assert refused('"""Office hours."""\nx = 1\n"""Whole numbers."""\n') == []
