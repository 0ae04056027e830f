"""quire/spark/pipelines/start.py"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quire.spark.options.parse import Options
from quire.spark.pipelines.errors import CheckpointError
from quire.spark.pipelines.manifest import BatchRecord, BeginRecord, Manifest, Span
from quire.spark.pipelines.start import plan_start, query_of, starting_offsets
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

HERE, THERE = "/here", "/there"
X = "persistent://public/default/x"


def batch(number: int, query: str) -> BatchRecord:
    return BatchRecord(batch=number, query=query, rows=1, files=(), positions={X: Span((1, number), (1, number))})


FIRST = BeginRecord(checkpoint=HERE, base=0)
SECOND = BeginRecord(checkpoint=THERE, base=2, start={X: "1:2"})
BEGUN = Manifest((FIRST,))
USED = Manifest((FIRST, batch(0, "q"), batch(1, "q")))
RESUMED = Manifest((*USED.records, SECOND))
GOING_ON = Manifest((*RESUMED.records, batch(2, "r")))


ARCHIVES = {"empty": Manifest(), "begun": BEGUN, "used": USED, "resumed": RESUMED, "going-on": GOING_ON}


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "start.txt"))
def test_a_start(dialogue: Dialogue) -> None:
    """`archive used` has two batches of /here, of query q; `resumed` was begun again at /there, and `going-on` has a
    batch of that, of query r. `start there q` has the checkpoint /there of query q."""
    manifest = ARCHIVES[dialogue.command.word()]

    def answer(step: Line) -> str:
        checkpoint, query = f"/{step.word()}", step.word()
        resume = bool(step.words and step.word())
        found = plan_start(manifest, checkpoint, None if query == "-" else query, resume=resume)
        begin = f", begins {found.begin.to_json()}" if found.begin is not None else ""
        behind = f", behind {found.resumed}" if found.resumed else ""
        return f"batch {found.base}{begin}{behind}"

    dialogue.check(answer, CheckpointError)


def test_a_resumed_query_names_every_partition():
    text = starting_offsets({f"{X}-partition-1": "7:42"}, [f"{X}-partition-1", f"{X}-partition-0"])
    assert json.loads(text) == {f"{X}-partition-0": -2, f"{X}-partition-1": "7:42"}
    options = {"topic": "x", "subscription": "s", "startingOffsets": text}
    assert Options.parse(options, use="stream").starting.kind == "places"


def test_the_query_of_a_checkpoint_is_read_from_its_metadata(tmp_path: Path):
    assert query_of(tmp_path / "missing") is None
    assert query_of(tmp_path) is None
    (tmp_path / "metadata").write_text('{"id":"1b2c"}')
    assert query_of(tmp_path) == "1b2c"
    (tmp_path / "metadata").write_text("")
    with pytest.raises(CheckpointError, match="damaged"):
        query_of(tmp_path)
