"""quire/spark/pipelines/running.py, and the command lines of the pipelines"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import typer

from quire.service.programs.command_line import run_command
from quire.spark.errors import MissingDependencyError, SinkError
from quire.spark.options.parse import Options
from quire.spark.pipelines import archive, running, wordcount
from quire.spark.pipelines.errors import PipelineError
from quire.spark.pipelines.manifest import BatchRecord, BeginRecord, writing
from tests.support.refusals import refuses

BASE = ["--checkpoint", "c", "--out", "o"]


def options(*arguments: str) -> dict[str, str]:
    found: list[archive.ArchiveFlags] = []

    def run(given: archive.ArchiveFlags) -> int:
        found.append(given)
        return 0

    assert run_command(archive.command(run), [*BASE, *arguments], name="archive", text="") == 0
    return running.source_options(found[0].source, "archive-o")


def test_the_arguments_become_options_that_the_source_takes():
    made = options("--topic", "t", "--max-messages-per-trigger", "100", "--max-bytes-per-trigger", "64m")
    assert made == {
        "service.url": "pulsar://127.0.0.1:6650",
        "topic": "t",
        "subscription": "archive-o",
        "startingOffsets": "earliest",
        "maxMessagesPerTrigger": "100",
        "maxBytesPerTrigger": "64m",
    }
    parsed = Options.parse(made, use="stream")
    assert (parsed.messages_max, parsed.bytes_max, parsed.subscription) == (100, 64 << 20, "archive-o")


def test_set_reaches_every_option_and_has_the_last_word():
    made = options("--topics", "a,b", "--set", "SUBSCRIPTION=mine", "--set", "failOnDataLoss=false")
    assert made["SUBSCRIPTION"] == "mine"
    assert "subscription" not in made
    assert not Options.parse(made, use="stream").fail_on_data_loss


def test_no_hold_needs_no_subscription():
    assert Options.parse(options("--topic", "t", "--set", "hold=none"), use="stream").subscription == ""


def test_a_start_by_time_takes_the_place_of_earliest():
    made = options("--topics-pattern", "t.*", "--set", "startingTimestamp=5")
    assert Options.parse(made, use="stream").starting.timestamp_ms == 5


@pytest.mark.parametrize("arguments", [[], ["--topic", "a", "--topics", "b"]])
def test_exactly_one_way_to_name_topics_is_asked_for(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert archive.main([*BASE, *arguments]) == 2
    assert "--topic" in capsys.readouterr().err


def test_a_pair_without_equals_is_refused_by_name():
    refuses(PipelineError, lambda: running.pairs(["hold"], "--set"), "--set hold: it must be name=value")


@pytest.mark.parametrize("text", ["", "10", "s", "10 days", "-1s", "now"])
def test_what_is_no_trigger_is_refused(text: str):
    refuses(typer.BadParameter, lambda: running.trigger(text), "neither availableNow nor an interval")


@pytest.mark.parametrize(
    ("text", "spark"),
    [("500ms", "500 milliseconds"), ("10s", "10 seconds"), ("5 min", "5 minutes"), ("1.5h", "1.5 hours")],
)
def test_an_interval_is_told_in_sparks_words(text: str, spark: str):
    assert running.trigger(text) == spark
    assert running.trigger_arguments(spark) == {"processingTime": spark}
    assert running.trigger_arguments(running.trigger("AvailableNow")) == {"availableNow": True}


def test_a_window_is_a_length_of_time():
    assert wordcount.duration("1m") == "1 minutes"
    refuses(typer.BadParameter, lambda: wordcount.duration("availableNow"), "not a duration")


def test_folders_of_other_machines_are_refused_and_names_are_not_escaped():
    with pytest.raises(PipelineError, match=r"--out s3:/+bucket/x: must be a folder of this machine"):
        running.local_path(Path("s3://bucket/x"), "--out")
    assert running.local_path(Path("file:///a b"), "--out") == Path("/a b")
    assert running.spark_path(Path("/a b/batch=1")) == "file:///a b/batch=1"


class Query:
    """A query that runs until it is stopped, or fails."""

    def __init__(self, failure: Exception | None = None, rounds: int = 3) -> None:
        self.failure = failure
        self.rounds = rounds
        self.stopped = False
        self.status: dict[str, Any] = {"message": "working"}

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802 - Spark's name
        class Report:
            json = json.dumps({"batchId": 0, "numInputRows": 5, "sources": []})

        return [Report()]

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        self.rounds -= 1
        if self.failure is not None and self.rounds <= 0:
            raise self.failure
        return self.rounds <= 0

    def stop(self) -> None:
        self.stopped = True


class Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def now(self, text: str) -> None:
        pass

    def line(self, text: str) -> None:
        self.lines.append(text)

    def close(self) -> None:
        pass


def test_progress_is_shown_until_the_query_ends():
    display = Lines()
    running.watch(Query(), display, running.Stop(), line=lambda batch: batch.line(7))
    assert display.lines == ["batch 7: 5 rows in 0.0 s, 0 rows/s"]


def test_sigterm_stops_the_query_and_ends_well():
    query, display = Query(rounds=1000), Lines()
    before = signal.getsignal(signal.SIGTERM)
    with running.stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        running.watch(query, display, stop)
    assert query.stopped
    assert display.lines[-1] == "SIGTERM: stopping"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_query_that_fails_is_one_line():
    text = "[STREAM_FAILED] x\n  File y\nquire.spark.errors.DataLossError: topic t: entries 1:0 to 1:9 are gone\n\tat z"
    with pytest.raises(PipelineError, match=r"^topic t: entries 1:0 to 1:9 are gone$"):
        running.watch(Query(ValueError(text)), Lines(), running.Stop())


def test_a_spark_that_died_of_the_same_signal_is_a_good_end():
    stop, display = running.Stop(), Lines()
    stop(signal.SIGTERM, None)
    query = Query(ConnectionRefusedError("gone"), rounds=1)
    running.watch(query, display, stop)
    assert display.lines[-1] == "the query ended with SIGTERM"

    class Gone:
        def stop(self) -> None:
            raise ConnectionRefusedError("gone")

    running.end_session(Gone(), stop)
    refuses(ConnectionRefusedError, lambda: running.end_session(Gone(), running.Stop()))


def test_our_errors_are_told_as_they_are():
    assert running.one_line(SinkError("no")) == "no"
    assert running.one_line(ValueError("")) == "ValueError('')"


def run_archive(tmp_path: Path, *arguments: str) -> int:
    return archive.main(["--out", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "c"), *arguments])


def test_a_wrong_option_ends_the_pipeline_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run_archive(tmp_path, "--topic", "t", "--set", "toppic=x") == 2
    assert run_archive(tmp_path, "--topic", "t", "--set", "columns=value,__topic") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("archive: option 'toppic'")
    assert second.startswith("archive: option columns lacks __partition, __ledger")
    given = ["--to", "a/b", "--topic", "t", "--checkpoint", str(tmp_path / "c")]
    assert wordcount.main(given) == 2
    assert capsys.readouterr().err.startswith("wordcount: option 'topic' is 'a/b'")


def test_a_lost_checkpoint_ends_the_pipeline_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with writing(tmp_path / "out") as manifest:
        manifest.append(BeginRecord(checkpoint="/c", base=0))
        manifest.append(BatchRecord(batch=0, query="q", rows=0, files=(), positions={}))
    assert run_archive(tmp_path, "--topic", "t") == 2
    assert "--resume goes on" in capsys.readouterr().err


@pytest.mark.parametrize("main", [archive.main, wordcount.main])
def test_a_missing_java_is_one_line(main, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    where = ["--to", "u"] if main is wordcount.main else ["--out", str(tmp_path / "out")]
    assert main(["--topic", "t", "--checkpoint", str(tmp_path / "c"), *where]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "Spark needs Java, but JAVA_HOME is" in told


@pytest.mark.parametrize("main", [archive.main, wordcount.main])
def test_a_missing_pyarrow_is_one_line(main, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    def missing() -> None:
        raise MissingDependencyError("quire needs pyarrow")

    monkeypatch.setattr(running, "require_packages", missing)
    where = ["--to", "u"] if main is wordcount.main else ["--out", str(tmp_path / "out")]
    assert main(["--topic", "t", "--checkpoint", str(tmp_path / "c"), *where]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(": quire needs pyarrow")
