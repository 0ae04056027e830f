"""PulsarAdmin and Pulsar's Java client get from a secured standalone server what they got from Apache Pulsar 4.2.4,
but for the listed differences.

tests/golden/admin-client/README.md has how the answers were recorded. QUIRE_REWRITE_TEXTS=1 writes the present
differences into the list, and keeps the reasons in it; the test fails then.
"""

from __future__ import annotations

from pathlib import Path

from tests.interop.admin_client import OUTPUT, call
from tests.interop.secured import Secured
from tests.support.admin_answers import CALLS, FOLDER
from tests.support.rest_answers import check, without_reason

LISTED = FOLDER / "differences.txt"


def test_calls_are_answered_as_by_the_original(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.served():
        ours = call(secured)
    check(ours, OUTPUT, LISTED)


def test_each_difference_has_a_reason() -> None:
    assert without_reason(LISTED) == []


def test_there_are_enough_calls() -> None:
    named = [line for line in CALLS.read_text().splitlines() if line and not line.startswith("#")]
    assert len([line for line in named if "client." not in line]) >= 150
    assert len([line for line in named if "client." in line]) >= 50
