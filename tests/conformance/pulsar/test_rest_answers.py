"""The admin REST of a standalone server answers as Apache Pulsar 4.2.4's broker did, but for the listed differences.

tests/golden/rest/README.md has how the answers were recorded. QUIRE_REWRITE_TEXTS=1 writes the present differences into
the list, and keeps the reasons in it; the test fails then.
"""

from __future__ import annotations

from pathlib import Path

import httpx2

from tests.support import web
from tests.support.rest_answers import FOLDER, check, record, without_reason
from tests.support.server import standalone

LISTED = FOLDER / "differences.txt"


def test_calls_are_answered_as_by_the_original(tmp_path: Path) -> None:
    with standalone(tmp_path, {"clusterName": "test", "forceDeleteNamespaceAllowed": "true"}) as server:

        def ask(method: str, path: str, **options: object) -> httpx2.Response:
            return web.request(method, f"{server.web}{path}", timeout=60, **options)

        ours = record(ask, server.web.removeprefix("http://"), server.url)
    check(ours, FOLDER / "pulsar-4.2.4.txt", LISTED)


def test_each_difference_has_a_reason() -> None:
    assert without_reason(LISTED) == []
