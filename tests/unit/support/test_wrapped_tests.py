"""An async test is an `async def`, which tests/support/async_tests.py runs: no test hands a body to a runner."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
_NESTED = re.compile(r"^[ \t]+async\s+def\b", re.MULTILINE)
"""The beginning of an async function below another one, or of a method; it stands on a line of its own."""


def nested(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield all nodes below a function, but for those in classes."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.ClassDef):
            yield node
            todo += ast.iter_child_nodes(node)


def wrapped(source: str) -> list[str]:
    """Return the names of tests that are not async and hold an async function."""
    if _NESTED.search(source) is None:
        return []  # not worth parsing
    return [
        function.name
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
        if any(isinstance(each, ast.AsyncFunctionDef) for each in nested(function))
    ]


def test_no_test_hands_an_async_body_to_a_runner() -> None:
    files = {each.relative_to(TESTS): wrapped(each.read_text()) for each in TESTS.rglob("*.py")}
    assert len(files) > 300
    left = {path.as_posix(): names for path, names in files.items() if names}
    assert left == {}, "write `async def test_*`, and helpers at the module's level: see tests/support/async_tests.py"


BODY = "    async def story(store):\n        await store.get('/a')\n"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (f"def test_a(tell):\n{BODY}    tell(story)\n", ["test_a"]),
        (
            f"class TestStore:\n    def test_a(self):\n{BODY.replace('    ', '        ')}        run(story)\n",
            ["test_a"],
        ),
        (
            f"def test_a():\n    for seed in range(9):\n{BODY.replace('    ', '        ')}        run(seed, story)\n",
            ["test_a"],
        ),
        (f"async def test_a(store):\n{BODY}    await story(store)\n", []),
        (f"def helper():\n{BODY}    return story\n", []),
        ("def test_a():\n    class Away:\n        async def open(self):\n            pass\n    Away().shell()\n", []),
    ],
)
def test_what_counts_as_wrapped(source: str, names: list[str]) -> None:
    assert wrapped(source) == names
