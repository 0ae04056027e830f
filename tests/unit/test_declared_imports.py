"""Each package that a shipped file imports is declared in pyproject.toml: a package that only another one requires may
vanish with it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
EXTRAS_OF = {
    "quire/offload": "spark",
    "quire/spark": "spark",
    "pyspark_quire": "spark",
    "quire/__init__.py": "sql",
    "quire/tables": "sql",
    "quire/cli/sql": "sql",
    "quire/client/tracing": "otel",
    "quire/servers/tracing.py": "otel",
}
"""Folders whose files may import what an extra brings, beside what a plain install does."""
DISTRIBUTIONS = packages_distributions()


def test_every_package_that_a_shipped_file_imports_is_declared() -> None:
    undeclared = {
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, line in imports_of(path)
        if name not in PACKAGES and not is_declared(name, declared_for(path.relative_to(ROOT)))
    }
    assert undeclared == set()


def test_every_declared_package_is_imported() -> None:
    imported = {name for package in PACKAGES for path in (ROOT / package).rglob("*.py") for name, _ in imports_of(path)}
    provided = {normal(each) for name in imported for each in DISTRIBUTIONS.get(name, [])}
    # (ZooKeeper's jars are files of pyspark.)
    assert names(PYPROJECT["project"]["dependencies"]) - provided == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import h11", ["h11"]),
        ("def f():\n    from h11._state import X", ["h11"]),
        ("if TYPE_CHECKING:\n    import pyarrow.lib as p, trio", ["pyarrow", "trio"]),
        ("from . import a\nfrom .b import c", []),
        ("import os, typing", []),
        ('importlib.import_module("cramjam")', ["cramjam"]),
    ],
)
def test_an_import_is_found_wherever_it_stands(text: str, found: list[str]) -> None:
    assert [name for name, _ in imports(text)] == found


def test_an_undeclared_package_is_found() -> None:
    assert not is_declared("h11", {"trio"})
    assert not is_declared("no_such_package_anywhere", {"trio"})
    assert is_declared("google", {"protobuf"})


@cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    """Return the imports of a file, which is parsed once."""
    return list(imports(path.read_text()))


def imports(text: str) -> Iterator[tuple[str, int]]:
    """Yield the top-level names that a file imports, by statement or by `import_module`, with the line.

    Python's own modules are left out.
    """
    for node in ast.walk(ast.parse(text)):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules = [node.module]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute | ast.Name)
            and (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id) == "import_module"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            modules = [str(node.args[0].value)]
        if isinstance(node, ast.stmt | ast.expr):
            for name in (module.partition(".")[0] for module in modules):
                if name not in sys.stdlib_module_names:
                    yield name, node.lineno


def is_declared(name: str, declared: set[str]) -> bool:
    return any(normal(each) in declared for each in DISTRIBUTIONS.get(name, []))


def declared_for(path: Path) -> set[str]:
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = list(PYPROJECT["project"]["dependencies"])
    for folder, extra in EXTRAS_OF.items():
        if path.is_relative_to(folder):
            wanted += extras[extra]
    return names(wanted)


def names(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[\s<>=!~\[;]", each, maxsplit=1)[0]) for each in requirements}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
