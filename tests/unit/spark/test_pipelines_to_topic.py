"""quire/spark/pipelines/to_topic.py, window.py and copy_topic.py without Spark: options, refusals, totals"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.spark.admin import Admin, TopicMissingError
from quire.spark.errors import OptionError, SinkError
from quire.spark.options.parse import Options
from quire.spark.pipelines import copy_topic, running, to_topic, window
from quire.spark.pipelines.errors import PipelineError
from quire.spark.pipelines.progress import BatchProgress
from quire.spark.pipelines.to_topic import RunTotals, check_target, sink_options
from quire.spark.pipelines.window import WINDOWS_MAX, WindowTotals, closed_before, late_rows
from tests.support.refusals import refuses

SOURCE = {
    "service.url": "pulsar://here:6650",
    "ADMIN.url": "http://here:8080",
    "authToken": "secret",
    "tlsTrustCertsFilePath": "/ca.pem",
    "topic": "orders",
    "subscription": "s",
    "trace": "/trace",
}


def sink(*settings: str, exactly_once: bool = True) -> dict[str, str]:
    return sink_options(SOURCE, "counts", settings, exactly_once=exactly_once)


def test_the_sink_has_address_and_credentials_of_the_source_and_its_own_settings():
    assert sink("compression=zstd", "admin.url=http://other:8080") == {
        "service.url": "pulsar://here:6650",
        "admin.url": "http://other:8080",
        "authToken": "secret",
        "tlsTrustCertsFilePath": "/ca.pem",
        "trace": "/trace",
        "compression": "zstd",
        "topic": "counts",
        "exactlyOnce": "true",
    }
    assert sink(exactly_once=False)["exactlyOnce"] == "false"


def test_a_sink_in_another_cluster_gets_no_credentials_of_the_source():
    made = sink("service.url=pulsar://there:6650", "admin.url=http://there:8080")
    assert made == {
        "service.url": "pulsar://there:6650",
        "admin.url": "http://there:8080",
        "trace": "/trace",
        "topic": "counts",
        "exactlyOnce": "true",
    }


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("TOPIC=x", "--sink topic: --to says it"),
        ("exactlyonce=false", "--sink exactlyOnce: see --at-least-once"),
        ("sortRows=true", "--sink sortRows: the pipeline sets it"),
        ("checkpointLocation=/x", "--sink checkpointLocation: the pipeline sets it"),
        ("compression", "--sink compression: it must be name=value"),
    ],
)
def test_what_a_pipeline_decides_is_not_set(setting: str, reason: str):
    refuses(PipelineError, lambda: sink(setting), reason)
    refuses(OptionError, lambda: sink("compresion=zstd"), "compression")


@pytest.mark.parametrize(
    ("source", "to", "refused"),
    [
        ({"topic": "a"}, "persistent://public/default/a", True),
        ({"topics": "b,a-partition-1"}, "a", True),
        ({"topic": "a"}, "a-partition-0", True),
        ({"topicsPattern": "public/default/a.*"}, "ab", True),
        ({"topicsPattern": "public/default/a.*"}, "other/default/ab", False),
        ({"topic": "a"}, "b", False),
    ],
)
def test_a_pipeline_does_not_read_what_it_writes(source: dict[str, str], to: str, refused: bool):
    def check(**more: str) -> None:
        made = Options.parse({"topic": to, **more}, use="write")
        check_target(Options.parse({**source, "subscription": "s"}, use="stream"), made)

    if refused:
        refuses(PipelineError, check, "the pipeline would read what it writes")
    else:
        check()
    check(**{"service.url": "pulsar://elsewhere:6650"})


@pytest.mark.parametrize("name", ["columns", "includeHeaders", "DECODE"])
def test_the_columns_are_chosen_by_the_pipeline(name: str):
    given = {"topic": "a", "subscription": "s", name: "value"}
    refuses(PipelineError, lambda: to_topic.source_options(given, "value"), "the pipeline chooses the columns")


Main = Callable[[list[str]], int]


def deduplicating(answer: bool | Exception) -> Callable[..., bool]:
    def ask(admin: Admin, topic: str) -> bool:
        assert topic == "persistent://public/default/counts"
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


@pytest.mark.parametrize("main", [window.main, copy_topic.main])
def test_a_target_without_deduplication_is_refused_before_spark_is_started(
    main: Main, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(Admin, "deduplication", deduplicating(False))
    monkeypatch.setattr(running, "make_session", pytest.fail)
    assert main(["--checkpoint", "c", "--to", "counts", "--topic", "orders"]) == 2
    assert "exactlyOnce needs deduplication, which is off for persistent://public/default/counts" in (
        capsys.readouterr().err
    )


def test_a_target_that_is_missing_is_left_to_the_sink(monkeypatch: pytest.MonkeyPatch):
    made = Options.parse(sink(), use="write")
    monkeypatch.setattr(Admin, "deduplication", deduplicating(TopicMissingError("missing")))
    to_topic.check_deduplication(made)
    monkeypatch.setattr(Admin, "deduplication", deduplicating(False))
    refuses(SinkError, lambda: to_topic.check_deduplication(made), "which is off")


def test_at_least_once_asks_no_one_and_reads_the_columns_it_needs(monkeypatch: pytest.MonkeyPatch):
    begun: list[tuple[Any, ...]] = []
    monkeypatch.setattr(to_topic, "check_deduplication", pytest.fail)
    monkeypatch.setattr(running, "make_session", lambda *arguments, **_: begun.append(arguments))
    monkeypatch.setattr(running, "end_session", lambda *_: None)
    monkeypatch.setattr(to_topic, "stream_to_topic", lambda *arguments, **_: begun.append(arguments))
    base = ["--checkpoint", "c", "--to", "counts", "--topic", "orders", "--at-least-once", "--conf", "a=b"]
    assert window.main([*base, "--window", "10s", "--watermark", "5m"]) == 0
    assert copy_topic.main([*base, "--keep-partitions"]) == 0
    (name, _, conf), (_, counting, source, written, folder), (_, _, copy_conf), (_, copying, *_) = begun
    assert (name, conf, copy_conf) == ("quire-window", {**window.CONF, "a": "b"}, {"a": "b"})
    assert (source["subscription"], written["exactlyOnce"], folder) == ("window-c", "false", Path("c").absolute())
    assert (counting.columns, counting.sort_rows) == ("__key,value,__eventTime,__publishTime", True)
    assert copying.columns == "__key,value,__eventTime,__properties,__orderingKey,__partition"
    assert not copying.sort_rows


def test_a_window_that_is_no_duration_is_refused(capsys: pytest.CaptureFixture[str]):
    base = ["--checkpoint", "c", "--to", "counts", "--topic", "orders"]
    for wrong in (["--window", "availableNow"], ["--watermark", "soon"]):
        assert window.main([*base, *wrong]) == 2
    assert "not a duration" in capsys.readouterr().err


def report(batch: int, rows: int, bins: list[dict[str, float]] | None = None, timeless: int = 0) -> BatchProgress:
    observed: dict[str, dict[str, Any]] = {"windows": {"bins": bins}, "timeless": {"rows": timeless}}
    return BatchProgress(batch=batch, rows=rows, rows_per_s=100.0, seconds=1.0, lag=0, observed=observed)


def note_watermark(checkpoint: Path, batch: int, watermark_ms: int) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    text = f"v1\n{json.dumps({'batchWatermarkMs': watermark_ms})}\n{{}}"
    (checkpoint / "offsets" / str(batch)).write_text(text)


def test_rows_of_windows_that_the_batch_before_closed_are_late(tmp_path: Path):
    bins = [{"x": 60_000, "y": 3.0}, {"x": 120_000, "y": 4.0}, {"x": 60_000, "y": 1.0}]
    assert [late_rows(bins, closed) for closed in (-1, 59_999, 60_000, 120_000)] == [0, 0, 4, 8]
    assert closed_before(tmp_path, 0) == -1
    note_watermark(tmp_path, 4, 70_000)
    assert (closed_before(tmp_path, 5), closed_before(tmp_path, 4)) == (70_000, None)
    totals = WindowTotals(checkpoint=tmp_path)
    assert totals.take(report(5, 8, bins, 2)) == "batch 5: 8 rows in 1.0 s, 100 rows/s, 0 entries behind, 4 late" + (
        ", 2 without a time"
    )
    note_watermark(tmp_path, 5, 70_000)
    assert "late" not in totals.take(report(6, 5, [{"x": 180_000, "y": 5.0}]))
    assert totals.lines(2.0) == [
        "counted 7 of 13 rows in 2 batches; 4 late, 2 without a time",
        "in 2.0 s, 6 rows/s",
    ]


def test_more_windows_than_are_told_apart_are_about_counted(tmp_path: Path):
    totals = WindowTotals(checkpoint=tmp_path)
    totals.take(report(0, WINDOWS_MAX, [{"x": 60_000.0 * number, "y": 1.0} for number in range(WINDOWS_MAX)]))
    assert totals.lines(0.0)[0] == f"counted about {WINDOWS_MAX} of {WINDOWS_MAX} rows in 1 batches; about 0 late"


def test_late_messages_are_about_counted_if_spark_has_deleted_the_watermark(tmp_path: Path):
    totals = WindowTotals(checkpoint=tmp_path)
    assert "late" not in totals.take(report(7, 5, [{"x": 60_000, "y": 5.0}]))
    assert totals.lines(1.0)[0] == "counted about 5 of 5 rows in 1 batches; about 0 late"


def test_totals_of_a_copy_are_rows_batches_and_the_rate():
    totals = RunTotals()
    totals.take(report(0, 10))
    totals.take(report(1, 5))
    assert totals.lines(3.0) == ["read 15 rows in 2 batches", "in 3.0 s, 5 rows/s"]
