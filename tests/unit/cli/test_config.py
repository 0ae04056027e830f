"""`quire config explain KEY`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from quire.cli.main import app
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues


def explained(step: Line) -> str:
    done = CliRunner().invoke(app, ["config", "explain", step.word()])
    return (f"exit {done.exit_code}\n" if done.exit_code else "") + done.stdout + done.stderr


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "config.txt"))
def test_explain(dialogue: Dialogue) -> None:
    dialogue.check(explained)
