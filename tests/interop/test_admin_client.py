"""PulsarAdmin and Pulsar's Java client get from a secured standalone server what they got from Apache Pulsar 4.2.4,
but for the listed differences.

tests/golden/admin-client/README.md has how the answers were recorded. QUIRE_REWRITE_TEXTS=1 writes the present
differences into the list, and keeps the reasons in it; the test fails then.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.interop.admin_client import OUTPUT, call
from tests.interop.secured import Secured
from tests.support.admin_answers import CALLS, FOLDER
from tests.support.datadriven import REWRITE
from tests.support.rest_answers import differences, read, reasons, with_reasons

LISTED = FOLDER / "differences.txt"


def test_calls_are_answered_as_by_the_original(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.served():
        ours = call(secured)
    theirs = read(OUTPUT.read_text())
    assert ours.keys() == theirs.keys(), "calls.txt changed: record the answers again"
    listed = LISTED.read_text()
    found = with_reasons(differences(theirs, ours), reasons(listed))
    if REWRITE in os.environ:
        LISTED.write_text(found)
    assert found == listed


def test_each_difference_has_a_reason() -> None:
    listed = LISTED.read_text()
    assert [name for name in read(listed) if not reasons(listed).get(name)] == []


def test_there_are_enough_calls() -> None:
    named = [line for line in CALLS.read_text().splitlines() if line and not line.startswith("#")]
    assert len([line for line in named if "client." not in line]) >= 150
    assert len([line for line in named if "client." in line]) >= 50
