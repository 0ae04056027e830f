"""The table of what runs with Apache Pulsar names every file of tests/spark, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.spark import peer

FOLDER = Path(peer.__file__).parent


def test_every_file_runs_with_either_server_or_has_a_reason() -> None:
    found = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("test_*.py")}
    assert found == {*peer.FILES, *peer.OTHER_FILES}
    assert not {*peer.FILES} & {*peer.OTHER_FILES}
    assert {*peer.PULSAR_ALONE} <= {*peer.FILES}


def test_every_test_that_is_left_out_exists() -> None:
    names = re.findall(r"(?m)^def (test_\w+)", "".join((FOLDER / name).read_text() for name in peer.FILES))
    assert {*peer.NOT_ON_PULSAR} <= {*names}
