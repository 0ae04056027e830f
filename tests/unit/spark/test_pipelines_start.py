"""quire/spark/pipelines/start.py"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quire.spark.options.parse import Options
from quire.spark.pipelines.errors import CheckpointError
from quire.spark.pipelines.manifest import BatchRecord, BeginRecord, Manifest, Span
from quire.spark.pipelines.start import Continuation, plan_start, query_of, starting_offsets

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


def test_a_new_archive_begins_with_a_new_checkpoint():
    assert plan_start(Manifest(), HERE, None, resume=False) == Continuation(0, FIRST)
    assert plan_start(Manifest(), HERE, None, resume=True) == Continuation(0, FIRST)


def test_an_archive_goes_on_with_its_own_checkpoint_and_its_own_numbers():
    assert plan_start(BEGUN, HERE, "q", resume=False) == Continuation(0)
    assert plan_start(USED, HERE, "q", resume=False) == Continuation(0)
    assert plan_start(GOING_ON, THERE, "r", resume=False) == Continuation(2)
    assert plan_start(RESUMED, THERE, "r", resume=False) == Continuation(2), "killed before its first batch"


def test_a_checkpoint_that_was_moved_is_known_by_its_query():
    assert plan_start(USED, THERE, "q", resume=False) == Continuation(0)


def test_resume_may_stay_on_the_command_line_when_there_is_nothing_to_resume():
    assert plan_start(USED, HERE, "q", resume=True) == Continuation(0)


def test_a_start_that_never_archived_anything_leaves_no_trace():
    assert plan_start(BEGUN, THERE, None, resume=False) == Continuation(0, BeginRecord(checkpoint=THERE, base=0))


def test_a_lost_checkpoint_is_refused_with_the_remedy():
    with pytest.raises(CheckpointError, match=r"archived a second time.*--resume"):
        plan_start(USED, HERE, None, resume=False)


def test_resuming_goes_on_behind_the_highest_positions_with_numbers_of_its_own():
    expected = Continuation(2, SECOND, {X: "1:2"})
    assert plan_start(USED, THERE, None, resume=True) == expected
    assert plan_start(RESUMED, THERE, None, resume=True) == expected, "killed before its checkpoint was there"


@pytest.mark.parametrize(
    ("manifest", "checkpoint", "query"),
    [(USED, THERE, "z"), (USED, HERE, "z"), (GOING_ON, HERE, "q"), (RESUMED, HERE, "q"), (BEGUN, THERE, "z")],
)
@pytest.mark.parametrize("resume", [False, True])
def test_two_checkpoints_for_one_archive_are_refused_with_the_remedy(manifest, checkpoint, query, resume):
    with pytest.raises(CheckpointError, match=r"two checkpoints .*--checkpoint .*another --out"):
        plan_start(manifest, checkpoint, query, resume=resume)


def test_a_used_checkpoint_with_an_empty_archive_is_refused():
    with pytest.raises(CheckpointError, match=r"the archive is empty: .* would be missing"):
        plan_start(Manifest(), HERE, "q", resume=False)


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
