"""Files of the original's, read by each server: values, older names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dialogues import Dialogue, dialogues
from tests.unit.servers.conf_files import Reader

TESTDATA = Path(__file__).parent / "testdata"


@pytest.mark.parametrize(
    "dialogue",
    [
        *dialogues(TESTDATA / "bookie.txt"),
        *dialogues(TESTDATA / "broker.txt"),
        *dialogues(TESTDATA / "autorecovery.txt"),
        *dialogues(TESTDATA / "shell.txt"),
    ],
)
def test_a_file(dialogue: Dialogue, tmp_path: Path) -> None:
    dialogue.check(Reader(dialogue.command.name, tmp_path).answer)
