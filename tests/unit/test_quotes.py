"""Tests of contracts quote the docstrings of the contract: each quote is there, so none is left behind by a change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOORS = "quire/world/doors.py"
CONTRACTS = {
    "test_doors_disk": DOORS,
    "test_doors_key_value": DOORS,
    "test_doors_network": DOORS,
    "test_doors_offload": DOORS,
    "test_metadata_stores": "quire/metadata/store.py",
}
"""File of each contract, by the file that tests it."""


def words(text: str) -> str:
    """Return a text with single spaces, in lower case: a quote may begin or end within a sentence."""
    return " ".join(text.split()).lower()


def quotes(source: str) -> Iterator[str]:
    """Yield what the docstrings of test functions quote."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from re.findall(r'"([^"]+)"', ast.get_docstring(node) or "")


def strange(tests: str, contract: str) -> list[str]:
    """Return the quotes in `tests` that `contract` does not have."""
    held = words(contract)
    return [quote for quote in quotes(tests) if words(quote).rstrip(".") not in held]


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_quote_of_a_contract_is_in_it(name: str) -> None:
    tests = (REPOSITORY / f"tests/conformance/{name}.py").read_text(encoding="utf-8")
    contract = (REPOSITORY / CONTRACTS[name]).read_text(encoding="utf-8")
    assert len(list(quotes(tests))) >= 5
    assert strange(tests, contract) == []


def test_a_quote_that_the_contract_has_no_longer_is_found() -> None:
    tests = 'def test_close():\n    """"Close at once;  safe\n    twice." "Never blocks." """\n'
    contract = 'def close():\n    """Close at once; safe twice. Blocks."""\n'
    assert strange(tests, contract) == ["Never blocks."]
