"""tools.demo.copying, with a few lines of Python in the place of Spark"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from rich.console import Console

from tests.support.refusals import refuses
from tools.demo.copying import COPY, HOLD, KILLS_MAX, Copied, SparkCopy, copy_differences
from tools.demo.files import Line
from tools.demo.messaging import TOPIC
from tools.demo.report import PlainProgress
from tools.demo.server import DemoError

BEGIN = """
import json, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
def mark(kind, batch):
    (folder / "copy-checkpoint" / kind).mkdir(parents=True, exist_ok=True)
    (folder / "copy-checkpoint" / kind / str(batch)).touch()
def note(event, batch):
    with open(folder / "copy-trace.jsonl", "a") as file:
        file.write(json.dumps({"event": event, "pid": 1, "batch": batch}) + chr(10))
begun = (folder / "copy-checkpoint").exists()
mark("offsets", 0); note("writing", 0); mark("commits", 0)
"""
END = "print('read 3 rows in 1 batches'); print('in 0.5 s, 6 rows/s', flush=True)\n"
MET = "if not begun: mark('offsets', 1); note('writing', 1); signal.pause()\nmark('commits', 1)\n"
"""A batch that is killed while it writes, and committed by the next run."""
QUIET = "mark('offsets', 1); mark('commits', 1); note('writing', 99); signal.pause()\n"
"""A kill that comes when nothing is open."""


class Web:
    url = "pulsar://127.0.0.1:1"
    web = "http://127.0.0.1:2"


class Scripted(SparkCopy):
    script = BEGIN + MET + END
    runs = 0

    def command(self, messages: int) -> list[str]:
        self.runs += 1
        return [sys.executable, "-c", self.script, str(self.folder)]

    def lines(self) -> Iterator[Line]:
        yield from [Line("k", number, b"x") for number in (1, 2, 3)]


@pytest.fixture
def asked() -> list[httpx2.Request]:
    return []


@pytest.fixture
def copy(tmp_path: Path, asked: list[httpx2.Request]) -> Scripted:
    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(204)

    return Scripted(Web(), tmp_path, httpx2.MockTransport(answer))


def progress() -> tuple[PlainProgress, io.StringIO]:
    out = io.StringIO()
    return PlainProgress(Console(file=out, width=200)), out


def test_a_copy_is_killed_while_it_writes_and_ended_by_a_second_run(copy: Scripted) -> None:
    shown, out = progress()
    assert copy.run(3, shown) == Copied(rows=3, batch=1, rows_per_s=6)
    assert copy.runs == 2
    assert "killed in the middle of batch 1, which is repeated now" in out.getvalue()


def test_a_kill_at_a_quiet_moment_does_not_count(copy: Scripted) -> None:
    copy.script = BEGIN + QUIET
    shown, out = progress()
    refuses(DemoError, lambda: copy.run(3, shown), "never killed in the middle of a batch")
    assert out.getvalue().count("killed at a quiet moment") == copy.runs == KILLS_MAX


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (END, "never killed in the middle of a batch"),
        ("import sys; print('no such topic', file=sys.stderr); sys.exit(2)", r"(?s)the copy ended with 2.*no such"),
        (BEGIN + MET.replace("mark('commits', 1)", "pass") + END, "the copy ended, and batch 1 is not committed"),
        (BEGIN + MET + "sys.exit(1)", "the copy ended with 1"),
    ],
)
def test_a_copy_that_is_not_what_was_promised_is_a_failure(copy: Scripted, script: str, said: str) -> None:
    copy.script = script
    refuses(DemoError, lambda: copy.run(3, progress()[0]), said)


def test_topics_are_held_and_the_copy_has_deduplication(copy: Scripted, asked: list[httpx2.Request]) -> None:
    copy.hold()
    copy.run(3, progress()[0])
    prefix = "/admin/v2/"
    assert [(each.method, each.url.path.removeprefix(prefix)) for each in asked] == [
        ("PUT", f"{TOPIC.replace('://', '/')}/subscription/{HOLD}"),
        ("PUT", "namespaces/public/demo-copies"),
        ("POST", "namespaces/public/demo-copies/deduplication"),
        ("PUT", f"{COPY.replace('://', '/')}/subscription/{HOLD}"),
    ]
    assert json.loads(asked[2].content) is True


def test_the_command_names_topics_hold_and_folders(tmp_path: Path) -> None:
    command = SparkCopy(Web(), tmp_path).command(1000)
    assert command[1].endswith("scripts/pipelines/copy_topic.py")
    assert Path(command[1]).is_file()
    for option, value in (
        ("--service-url", Web.url),
        ("--admin-url", Web.web),
        ("--topic", TOPIC),
        ("--to", COPY),
        ("--subscription", HOLD),
        ("--checkpoint", tmp_path / "copy-checkpoint"),
        ("--max-messages-per-trigger", 250),
    ):
        assert command[command.index(option) + 1] == str(value)
    assert "--at-least-once" not in command


def test_a_copy_is_compared_message_for_message() -> None:
    lines = [Line("a", 1, b"1"), Line("b", 1, b"x"), Line("a", 2, b"2"), Line("a", 2, b"2")]
    others = [lines[1], lines[0], lines[2], lines[3]]
    assert copy_differences(lines, others) == [], "keys may come in another order, and repetitions are messages too"
    assert copy_differences(lines, lines[:-1]) == ["a: 1 lines are missing in the copy, 0 too many"]
    assert copy_differences(lines, [*lines, lines[1]]) == ["b: 0 lines are missing in the copy, 1 too many"]
    assert copy_differences(lines, [lines[2], *lines[:2], lines[3]]) == [
        "a: the lines of the copy are in another order"
    ]
    assert copy_differences([], [Line("c", 1, b"")]) == ["c: 0 lines are missing in the copy, 1 too many"]
