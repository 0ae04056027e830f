"""tools.demo.archive, with a few lines of Python in the place of Spark, and an archive made by hand."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import httpx2
import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.console import Console

from quire.spark.pipelines.manifest import ArchivedFile, BatchRecord, writing
from tests.support.refusals import refuses
from tools.demo import pipeline
from tools.demo.archive import HOLD, Archived, SparkArchive, make_archive
from tools.demo.files import Line
from tools.demo.messaging import TOPIC
from tools.demo.report import PlainProgress
from tools.demo.server import DemoError

SUMMARY = "print('archived 3 rows in 1 files, 10 bytes, 1 batches'); print('in 0.5 s, 6 rows/s', flush=True)"


class Web:
    url = "pulsar://127.0.0.1:1"
    web = "http://127.0.0.1:2"


class Scripted(SparkArchive):
    script = SUMMARY

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.script]


@pytest.fixture
def archive(tmp_path: Path) -> Scripted:
    return Scripted(Web(), tmp_path)


def progress() -> tuple[PlainProgress, io.StringIO]:
    out = io.StringIO()
    return PlainProgress(Console(file=out, width=200)), out


def make_rows(folder: Path, *batches: list[tuple[str, int, bytes, int]]) -> None:
    """Write each batch as a file of (key, line, value, entry)."""
    with writing(folder) as manifest:
        for number, rows in enumerate(batches):
            path = folder / f"batch={number}" / "dt=2026-01-31" / "part-0.parquet"
            path.parent.mkdir(parents=True)
            columns = {
                "__key": pa.array([key.encode() for key, _, _, _ in rows]),
                "__properties": pa.array(
                    [[("line", str(line))] for _, line, _, _ in rows], pa.map_(pa.string(), pa.string())
                ),
                "value": pa.array([value for _, _, value, _ in rows]),
                "__ledger": pa.array([7 for _ in rows], pa.int64()),
                "__entry": pa.array([entry for _, _, _, entry in rows], pa.int64()),
                "__batch": pa.array([None for _ in rows], pa.int32()),
            }
            pyarrow.parquet.write_table(pa.table(columns), path)
            file = ArchivedFile(path.relative_to(folder).as_posix(), len(rows), path.stat().st_size)
            manifest.append(BatchRecord(batch=number, query="q", rows=len(rows), files=(file,), positions={}))


def test_lines_come_in_the_order_of_the_topic_whatever_the_order_of_the_files(archive: Scripted) -> None:
    make_rows(archive.out, [("k", 2, b"2\n", 5), ("k", 1, b"1\n", 3)], [("k", 1, b"1\n", 4), ("caf%E9", 0, b"", 9)])
    assert list(archive.lines()) == [
        Line("k", 1, b"1\n"),
        Line("k", 1, b"1\n"),
        Line("k", 2, b"2\n"),
        Line("caf%E9", 0, b""),
    ]


def test_a_run_tells_rows_files_and_the_rate(archive: Scripted) -> None:
    make_rows(archive.out, [("k", 1, b"1\n", 0)], [("k", 2, b"2\n", 1), ("k", 3, b"3\n", 2)])
    shown, out = progress()
    assert archive.run(shown) == Archived(rows=3, files=2, rows_per_s=6)
    assert "archived 3 rows in 1 files" in out.getvalue()


def test_an_archive_that_fails_is_told_with_the_end_of_its_log(archive: Scripted) -> None:
    archive.script = "import sys; print('no such topic', file=sys.stderr); sys.exit(2)"
    refuses(DemoError, lambda: archive.run(progress()[0]), r"(?s)the archive ended with 2.*no such topic")


def test_an_archive_without_a_summary_is_a_failure(archive: Scripted) -> None:
    archive.script = "print('nothing')"
    refuses(DemoError, lambda: archive.run(progress()[0]), "printed no summary")


def test_an_archive_that_never_ends_is_given_up(archive: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "RUN_S", 0.3)
    archive.script = "import signal; signal.pause()"
    refuses(DemoError, lambda: archive.run(progress()[0]), "the archive ended with -9")


def test_the_hold_is_made_at_the_first_entry(tmp_path: Path) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(204)

    SparkArchive(Web(), tmp_path, httpx2.MockTransport(answer)).hold()
    assert [request.method for request in asked] == ["PUT"]
    assert asked[0].url.path == f"/admin/v2/{TOPIC.replace('://', '/')}/subscription/{HOLD}"
    assert json.loads(asked[0].content) == {"ledgerId": -1, "entryId": -1}


def test_a_hold_that_is_refused_stops_the_demo(tmp_path: Path) -> None:
    refusing = httpx2.MockTransport(lambda _: httpx2.Response(409, text="it exists"))
    refuses(DemoError, lambda: SparkArchive(Web(), tmp_path, refusing).hold(), "refused: 409 it exists")

    def fail(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("nobody there")

    with pytest.raises(DemoError, match="could not be made: ConnectError"):
        SparkArchive(Web(), tmp_path, httpx2.MockTransport(fail)).hold()


def test_the_command_names_topic_hold_and_folders(tmp_path: Path) -> None:
    command = SparkArchive(Web(), tmp_path).command()
    assert command[1].endswith("scripts/pipelines/archive.py")
    assert Path(command[1]).is_file()
    for option, value in (
        ("--service-url", Web.url),
        ("--admin-url", Web.web),
        ("--topic", TOPIC),
        ("--subscription", HOLD),
        ("--trigger", "availableNow"),
        ("--out", tmp_path / "archive"),
    ):
        assert command[command.index(option) + 1] == str(value)


def test_without_java_the_stage_is_left_out_with_a_plain_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    shown, out = progress()
    assert make_archive(Web(), tmp_path, shown, wanted=True) is None
    assert out.getvalue().startswith("archive skipped: Spark needs Java, which was not found")


def test_the_stage_can_be_left_out_by_option(tmp_path: Path) -> None:
    shown, out = progress()
    assert make_archive(Web(), tmp_path, shown, wanted=False) is None
    assert out.getvalue() == "archive skipped: --no-spark\n"


def test_with_java_there_is_a_last_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    shown, out = progress()
    assert isinstance(make_archive(Web(), tmp_path, shown, wanted=True), SparkArchive)
    assert out.getvalue() == ""
