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
from tests.support.admin_answers import FOLDER
from tests.support.datadriven import REWRITE
from tests.support.rest_answers import differences, read, reasons, with_reasons

LISTED = FOLDER / "differences.txt"


def test_calls_are_answered_as_by_the_original(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    server = secured.quire()
    try:
        server.start()
        ours = call(secured)
    finally:
        server.kill()
    theirs = read(OUTPUT.read_text())
    assert ours.keys() == theirs.keys(), "calls.txt changed: record the answers again"
    listed = LISTED.read_text()
    found = with_reasons(differences(theirs, ours), reasons(listed))
    if REWRITE in os.environ:
        LISTED.write_text(found)
    assert found == listed
    server.check_log()
