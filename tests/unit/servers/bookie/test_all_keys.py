"""Every key of the original's bookies has a verdict, and every obeyed one a test that shows what it changes.

The names are made from the original's jars: tests/golden/configuration/README.md.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from quire.servers.bookie.config import BOOKIE
from quire.service.original_keys import is_original_key
from tests.support import bookie_keys
from tests.support.bookie_keys import ROOT, effects, original_keys, page, verdict


def test_the_list_has_what_the_two_classes_of_4_17_declare() -> None:
    found = [key for key in original_keys() if "4.17.3" in key.versions]
    counts = {name: sum(key.declared_in == name for key in found) for name in {key.declared_in for key in found}}
    assert counts["ServerConfiguration"] + counts["AbstractConfiguration"] == 213
    assert len({key.name for key in original_keys()}) == len(original_keys())


def test_every_key_has_a_verdict_with_a_reason() -> None:
    without = [key.name for key in original_keys() if not (found := verdict(key.name)) or not found.why]
    assert without == []
    assert verdict("nosuchkey") is None


def test_every_key_of_the_list_is_known_to_the_reader_of_files() -> None:
    assert [key.name for key in original_keys() if not is_original_key(key.name)] == []


def test_the_page_is_made_of_the_verdicts() -> None:
    assert bookie_keys.PAGE.read_text() == page(), "stale: run python -m tests.support.bookie_keys --write"


def test_every_obeyed_key_names_a_test_of_its_effect() -> None:
    fields = frozenset(BOOKIE.keys())
    obeyed = {key.name for key in original_keys() if key.name in fields}
    named = effects()
    assert sorted(obeyed - set(named)) == []
    assert [name for name in named if name not in fields] == [], "no longer obeyed"


@pytest.mark.parametrize("path", sorted({test.partition("::")[0] for test in effects().values()}))
def test_the_tests_that_are_named_exist(path: str) -> None:
    names = functions(ROOT / path)
    assert [
        test for test in effects().values() if test.startswith(f"{path}::") and test.split("::")[1] not in names
    ] == []


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
