"""One word per thing: a class name of the product stands for one thing, unless it is listed here with a reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("autorecovery", "bookie", "broker", "cursors", "managed_ledger", "quire")
GLOSSARY = ROOT / "docs" / "glossary.md"

VERSIONS = {"AuthRequest", "ReadRequest", "Unsupported"}
"""One message in versions 2 and 3 of the bookie protocol, always written v2.X or v3.X outside of its codec."""
ENDS = {"Consumer", "Producer", "Subscription", "Transaction"}
"""A client's object and its counterpart at the broker."""
ERRORS = {
    "BookieError",
    "ConsumerBusyError",
    "DigestMismatchError",
    "EntryTooLargeError",
    "MalformedMetadataError",
    "MetadataUnavailableError",
    "NotAllowedError",
    "NotEmptyError",
    "TopicNotFoundError",
}
"""Each floor has a root of its errors. A failure that a floor passes on keeps its name below that root."""
MEANINGS = {"Cluster", "Connection"}
"""Different things, each with a row in the glossary."""
SHARED = VERSIONS | ENDS | ERRORS | MEANINGS


def product_files() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")) if not path.stem.endswith("_pb2")]


def files_by_class(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return files, from the root of the tree, by the public classes that they define at their top."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in files:
        for name in _classes_of(path):
            found[name].append(path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name)
    return found


@cache
def _classes_of(path: Path) -> list[str]:
    """Return the public classes that a file defines at its top."""
    body = ast.parse(path.read_text()).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def twice(files: Iterable[Path]) -> dict[str, list[str]]:
    return {name: places for name, places in files_by_class(files).items() if len(places) > 1}


def test_a_class_name_is_defined_in_one_file_or_listed_with_a_reason() -> None:
    shared = twice(product_files())
    assert {name: places for name, places in shared.items() if name not in SHARED} == {}
    assert SHARED - set(shared) == set(), "listed, but defined once"


def test_a_second_class_of_a_name_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text("class Run:\n    pass\n\n\nclass _Run:\n    pass\n")
    found = {name: places for name, places in twice([*product_files(), planted]).items() if name not in SHARED}
    assert found == {"Run": ["quire/wire/bookkeeper/run.py", "planted.py"]}


def test_names_with_several_meanings_and_all_runs_are_in_the_glossary() -> None:
    rows = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("|")]
    for name, places in files_by_class(product_files()).items():
        if name in MEANINGS or name.endswith("Run"):
            for place in places:
                folder = place.rpartition("/")[0]
                said = [row for row in rows if f"`{place}`" in row or f"`{folder}/`" in row]
                assert said, f"{name} of {place} is not in {GLOSSARY.name}"
                assert name not in MEANINGS or any(name.lower() in row.lower() for row in said)
                assert not name.endswith("Run") or any(f"`{name}`" in row for row in said)
