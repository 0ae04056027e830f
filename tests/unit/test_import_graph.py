"""The graph of imports: no circle of files, no folder with more files than a reader can take in, and no endless file.

A circle cannot be understood, tested or replaced in parts. Every import counts, also one under TYPE_CHECKING or within
a function: readers follow it too, not only the interpreter.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import TypeAlias

from tests.support.sources import statements

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "broker",
    "bookie",
    "managed_ledger",
    "cursors",
    "autorecovery",
    "quire",
    "pyspark_quire",
    "simulation",
    "tools",
    "bench",
)
FLAT_MAX = 24
"""Files of one folder, apart from `__init__.py` and what protobuf generates."""
LINES_MAX = 450
"""Lines of one file; nearly all have fewer than 300. Files of tests are lists, and have no limit."""
Graph: TypeAlias = dict[str, set[str]]
"""By module, the modules of the tree that it imports."""


def modules(root: Path, rooms: tuple[str, ...]) -> dict[str, Path]:
    """Return every module of the rooms, by dotted name; a package has the name of its folder."""
    paths = [path for room in rooms for path in sorted((root / room).rglob("*.py")) if "_pb2" not in path.name]
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def import_graph(root: Path, rooms: tuple[str, ...]) -> Graph:
    known = modules(root, rooms)
    graph: Graph = {}
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        named = [target for node in statements(ast.parse(path.read_text())) for target in _named(node, package)]
        graph[name] = {_module(target, known) for target in named} - {name, ""}
    return graph


def _named(node: ast.stmt, package: str) -> list[str]:
    """Return the full names in an import statement; they may be names within a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
    source = ".".join([*above, *([node.module] if node.module else [])])
    return [f"{source}.{alias.name}" for alias in node.names]


def _module(name: str, known: dict[str, Path]) -> str:
    """Return the module that has `name`, or is it; empty if it is not of the tree."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of modules of which each leads to all others of its group."""
    left = {name: set(targets) for name, targets in graph.items()}
    while ends := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in ends:
            del left[name]
    back: Graph = {name: {other for other in left if name in left[other]} for name in left}
    found: list[list[str]] = []
    while left:
        start = min(left)
        circle = sorted(_reached(left, start) & _reached(back, start))
        found += [circle] if circle else []
        for name in circle or [start]:
            del left[name]
    return found


def _reached(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    heads = [start]
    while heads:
        new = (graph.get(heads.pop(), set()) & graph.keys()) - reached
        reached |= new
        heads += new
    return reached


def arrows(circle: list[str], graph: Graph) -> str:
    return "\n".join(f"  {name} -> {target}" for name in circle for target in sorted(graph[name] & set(circle)))


def test_no_files_import_each_other_in_a_circle():
    graph = import_graph(ROOT, ROOMS)
    found = circles(graph)
    assert not found, "files import each other in a circle:\n" + "\n\n".join(arrows(each, graph) for each in found)


def test_no_folder_has_more_flat_files_than_the_limit():
    flat = Counter(path.parent.relative_to(ROOT) for path in modules(ROOT, ROOMS).values() if path.stem != "__init__")
    crowded = {str(folder): count for folder, count in flat.items() if count > FLAT_MAX}
    assert not crowded, f"folders with more than {FLAT_MAX} files; give some of them a folder of their own: {crowded}"


def long_files(root: Path, rooms: tuple[str, ...]) -> tuple[int, dict[str, int]]:
    """Return how many files have a limit, and the lines of those above it."""
    limited = {name: path for name, path in modules(root, rooms).items() if not _is_test(name)}
    lines = {name: path.read_text().count("\n") for name, path in limited.items()}
    return len(lines), {name: count for name, count in lines.items() if count > LINES_MAX}


def test_no_file_but_those_of_tests_has_more_lines_than_the_limit():
    limited, long = long_files(ROOT, (*ROOMS, "tests"))
    assert limited > 700
    assert not long, f"files with more than {LINES_MAX} lines; cut them along their ideas: {long}"


def test_a_kit_of_tests_above_the_limit_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for name, count in (("rig", LINES_MAX + 1), ("kit", LINES_MAX), ("test_a", 2 * LINES_MAX)):
        (tmp_path / f"tests/{name}.py").write_text("x = 1\n" * count)
    assert long_files(tmp_path, ("tests",)) == (2, {"tests.rig": LINES_MAX + 1})


def planted(folder: Path, **files: str) -> Graph:
    """Return the graph of a package `room` with these files."""
    (folder / "room").mkdir()
    for name, text in {"__init__": "", **files}.items():
        (folder / "room" / f"{name}.py").write_text(text)
    return import_graph(folder, ("room",))


def test_a_planted_circle_is_found_and_shown_with_its_arrows(tmp_path):
    graph = planted(
        tmp_path,
        one="from room.two import two\nfrom room import leaf",
        two="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import three\n",
        three="def later():\n    import room.one\n",
        leaf="import os",
        above="from room import one",
    )
    (circle,) = circles(graph)
    assert arrows(circle, graph).split("\n") == [
        "  room.one -> room.two",
        "  room.three -> room.one",
        "  room.two -> room.three",
    ]


def test_two_planted_circles_are_told_apart(tmp_path):
    graph = planted(
        tmp_path, a="import room.b", b="import room.a\nimport room.c", c="from .d import x", d="from .c import y"
    )
    assert circles(graph) == [["room.a", "room.b"], ["room.c", "room.d"]]


def test_files_that_only_share_others_are_no_circle(tmp_path):
    graph = planted(
        tmp_path, top="from room import left, right", left="from room import base", right="import room.base", base=""
    )
    assert circles(graph) == []


def imports_of_tests(root: Path) -> list[str]:
    graph = import_graph(root, ("tests",))
    imported = {name: sorted(each for each in targets if _is_test(each)) for name, targets in graph.items()}
    return [f"{name} imports {each}" for name, targets in sorted(imported.items()) for each in targets]


def _is_test(module: str) -> bool:
    return module.rpartition(".")[2].startswith("test_")


def test_what_tests_share_is_in_a_module_that_is_no_test() -> None:
    assert imports_of_tests(ROOT) == []


def test_a_test_that_imports_another_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("from tests.test_b import shared\nfrom tests.rig import other\n")
    (tmp_path / "tests/test_b.py").write_text("shared = 1\n")
    (tmp_path / "tests/rig.py").write_text("def late():\n    import tests.test_b\n")
    assert imports_of_tests(tmp_path) == ["tests.rig imports tests.test_b", "tests.test_a imports tests.test_b"]
