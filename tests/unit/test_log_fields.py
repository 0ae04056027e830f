"""Fields of log lines have one name each on every floor, so that the lines of one event can be joined."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("autorecovery", "bookie", "broker", "cursors", "managed_ledger", "quire")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}

OTHER_NAMES = {
    "error": "reason",
    "why": "reason",
    "cause": "reason",
    "words": "reason",
    "ledger_id": "ledger",
    "peer": "connection",
    "client": "connection",
    "log": "managed_ledger or entry_log",
    "log_name": "managed_ledger",
}
"""Fields that lines do not have, and what they have instead."""

BOUND = {
    "broker/connections/connection.py": ("Connection", {"self.log"}),
    "broker/topics/topic.py": ("Topic", {"self.log"}),
    "broker/dispatch/subscription.py": ("Subscription", {"self.log"}),
    "managed_ledger/writing/appends.py": ("Appends", {"self._log"}),
    "managed_ledger/managed_ledger.py": ("ManagedLedger", {"topic_log(log, self.name)"}),
    "managed_ledger/log_cursors.py": ("LogCursors", {"topic_log(log, self._name)"}),
    "managed_ledger/trimmer.py": ("Trimmer", {"topic_log(log, self._log.name)"}),
    "managed_ledger/writing/switching.py": ("Switching", {"self._log"}),
    "managed_ledger/writing/predecessor.py": ("Predecessor", {"topic_log(log, stored.name)"}),
    "managed_ledger/writing/ledger_ahead.py": ("LedgerAhead", {"topic_log(log, self._name)"}),
    "cursors/cursor_store.py": ("CursorStore", {"self._log"}),
    "cursors/cursor_node.py": ("StoredNode", {"self.log"}),
}
"""Classes of which every line is about one connection, topic or cursor, and the loggers that have it bound."""

WITH_FIELD = {
    "broker/connections/acks.py": "connection",
    "bookie/sessions/session.py": "connection",
    "quire/ledger/recovery/recovery.py": "ledger",
    "quire/ledger/writing/ensemble_changes.py": "ledger",
    "quire/ledger/writing/explicit_lac.py": "ledger",
    "quire/ledger/writing/unacked_notes.py": "ledger",
    "autorecovery/copying/ledger_repair.py": "ledger",
    "autorecovery/copying/replicator.py": "ledger",
    "broker/topics/loaded_topics.py": "topic",
}
"""Files of which every line has this field: it is an argument, or the logger has it bound."""


def log_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that write a line with fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            logger = ast.unparse(node.func.value)
            if logger == "log" or logger.endswith((".log", "._log")) or logger.startswith("topic_log("):
                yield node


@cache
def calls_of(path: Path) -> list[ast.Call]:
    """Return the lines that a file writes; one without a name that ends in `log` writes none and is not parsed."""
    text = path.read_text()
    return list(log_calls(ast.parse(text))) if re.search(r"log\b", text) else []


def product() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def fields(call: ast.Call) -> set[str]:
    return {keyword.arg for keyword in call.keywords if keyword.arg}


def test_each_field_has_one_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {field}= is called {OTHER_NAMES[field]}="
        for path in product()
        for call in calls_of(path)
        for field in sorted(fields(call) & OTHER_NAMES.keys())
    ]
    assert found == []


def test_the_search_finds_the_lines_of_the_product() -> None:
    assert sum(len(calls_of(path)) for path in product()) > 180


@pytest.mark.parametrize("file", BOUND)
def test_lines_of_a_connection_a_topic_or_a_cursor_are_written_by_a_logger_that_has_it_bound(file: str) -> None:
    name, loggers = BOUND[file]
    [owner] = [
        node
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    calls = [call for call in log_calls(owner) if isinstance(call.func, ast.Attribute)]
    assert calls, f"{name} writes no line: take it off the list"
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        assert ast.unparse(call.func.value) in loggers, f"{file}:{call.lineno}"


@pytest.mark.parametrize("file", WITH_FIELD)
def test_lines_about_one_thing_name_it(file: str) -> None:
    field = WITH_FIELD[file]
    calls = list(log_calls(ast.parse((ROOT / file).read_text())))
    assert calls, f"{file} writes no line: take it off the list"
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        bound = ast.unparse(call.func.value) == f"{field}.log"
        assert bound or field in fields(call), f"{file}:{call.lineno}: {ast.unparse(call)}"
