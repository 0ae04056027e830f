"""The admin REST of a standalone server answers as Apache Pulsar 4.2.4's broker did, but for the listed differences.

tests/golden/rest/README.md has how the answers were recorded. QUIRE_REWRITE_TEXTS=1 writes the present differences into
the list, and keeps the reasons in it; the test fails then.
"""

from __future__ import annotations

import os
from pathlib import Path

import httpx2

from tests.support import web
from tests.support.datadriven import REWRITE
from tests.support.rest_answers import FOLDER, differences, read, reasons, record, with_reasons
from tests.support.server import standalone

LISTED = FOLDER / "differences.txt"


def test_calls_are_answered_as_by_the_original(tmp_path: Path) -> None:
    with standalone(tmp_path, {"clusterName": "test"}) as server:

        def ask(method: str, path: str, **options: object) -> httpx2.Response:
            return web.request(method, f"{server.web}{path}", timeout=60, **options)

        ours = record(ask, server.web.removeprefix("http://"), server.url)
    theirs = read((FOLDER / "pulsar-4.2.4.txt").read_text())
    assert ours.keys() == theirs.keys(), "calls.txt changed: record the answers again"
    listed = LISTED.read_text()
    found = with_reasons(differences(theirs, ours), reasons(listed))
    if REWRITE in os.environ:
        LISTED.write_text(found)
    assert found == listed


def test_each_difference_has_a_reason() -> None:
    listed = LISTED.read_text()
    assert [name for name in read(listed) if not reasons(listed).get(name)] == []
