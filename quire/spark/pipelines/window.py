"""Counts of messages by key and window of time: from topics to a topic of counts, each count once, also after crashes.

    in     key; its time: the event time, or the publish time where there is none
    out    key: the same, or none; event time: the window's end
           value: {"start": ..., "end": ..., "count": messages, "bytes": of their values}

A window's counts are written once, when the watermark (the latest time seen, less --watermark) has passed its end. A
message that comes later than that is not counted in its window. It is counted as late instead, and the progress says
how many there were. The last windows stay open until later messages come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from quire.service.programs.command_line import command_app, run_app
from quire.spark.pipelines import running
from quire.spark.pipelines.progress import BatchProgress, Display
from quire.spark.pipelines.to_topic import (
    AtLeastOnce,
    Pipeline,
    RunTotals,
    SinkSettings,
    TargetFlags,
    To,
    run,
    stream_to_topic,
)

COLUMNS = ("__key", "value", "__eventTime", "__publishTime")
Times = Literal["auto", "event", "publish"]

CONF = {
    # One counting task per core, not the 200 that are usual for large data. A checkpoint keeps its number.
    "spark.sql.shuffle.partitions": "4",
    # Open windows of many keys are not kept in the memory of the JVM.
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
}

WINDOWS_MAX = 1000
"""Maximum windows of one batch whose messages are told apart to count the late ones."""
BINS, TIMELESS = "windows", "timeless"
"""Names of what is observed of each batch."""


@dataclass(slots=True)
class WindowTotals(RunTotals):
    """RunTotals of one run, with the messages that are in no window.

    Spark's own metric of late rows, numRowsDroppedByWatermark, counts rows behind a partial aggregation: of several
    late messages of a key and a window it may count one. So the number of messages of each window is observed in each
    batch (BINS), and those of windows that were closed before it are the late ones."""

    checkpoint: Path = field(default=Path())
    late: int = 0
    timeless: int = 0
    exact: bool = True
    """False if a batch had more windows than are told apart, or its watermark is unknown."""

    def take(self, report: BatchProgress) -> str:
        line = RunTotals.take(self, report)
        bins = report.observed.get(BINS, {}).get("bins") or []
        closed = closed_before(self.checkpoint, report.batch)
        late = 0 if closed is None else late_rows(bins, closed)
        timeless = int(report.observed.get(TIMELESS, {}).get("rows") or 0)
        self.late += late
        self.timeless += timeless
        self.exact = self.exact and closed is not None and len(bins) < WINDOWS_MAX
        if late:
            line += f", {late} late"
        return line + (f", {timeless} without a time" if timeless else "")

    def lines(self, seconds: float) -> list[str]:
        about = "" if self.exact else "about "
        counted = self.rows - self.late - self.timeless
        first = f"counted {about}{counted} of {self.rows} rows in {self.batches} batches; {about}{self.late} late"
        if self.timeless:
            first += f", {self.timeless} without a time"
        return [first, RunTotals.lines(self, seconds)[-1]]


def late_rows(bins: Sequence[Mapping[str, Any]], closed_ms: int) -> int:
    """Return the rows of windows that end at or before `closed_ms`.

    >>> late_rows([{"x": 60_000, "y": 2.0}, {"x": 120_000, "y": 5.0}], 119_999)
    2
    """
    return sum(round(each["y"]) for each in bins if each["x"] <= closed_ms)


def closed_before(checkpoint: Path, batch: int) -> int | None:
    """Return the watermark of the batch before, in ms since 1970, up to which all windows were closed; -1: the batch is
    the first one; None: Spark has deleted it.

    Source: Spark drops late rows by the watermark of the batch before (IncrementalExecution,
    eventTimeWatermarkForLateEvents), and keeps it in the second line of `offsets/N` of a checkpoint."""
    if batch == 0:
        return -1
    path = checkpoint / "offsets" / str(batch - 1)
    try:
        return int(json.loads(path.read_text(encoding="utf-8").splitlines()[1])["batchWatermarkMs"])
    except FileNotFoundError:
        return None


def counts(stream: Any, *, window: str, watermark: str, time: str = "auto") -> Any:
    """Return the rows for the sink (`__key`, `value`, `__eventTime`) from a stream of the source.

    Args:
        stream: the rows of the source.
        window: length of a window in Spark's notation: `1 minute`.
        watermark: maximum delay of a message, in the same notation.
        time: time of a message; auto: the event time, else the publish time.
    """
    from pyspark.sql import functions as f

    at = {
        "event": f.col("__eventTime"),
        "publish": f.col("__publishTime"),
        "auto": f.coalesce(f.col("__eventTime"), f.col("__publishTime")),
    }[time]
    size = f.coalesce(f.octet_length("value"), f.lit(0))
    timed = stream.select("__key", at.alias("at"), size.alias("size"))
    timed = timed.observe(TIMELESS, f.count_if(f.col("at").isNull()).alias("rows"))
    windowed = timed.withWatermark("at", watermark).select("__key", "size", f.window("at", window).alias("window"))
    ends = f.histogram_numeric(f.unix_millis("window.end"), f.lit(WINDOWS_MAX))
    windowed = windowed.observe(BINS, ends.alias("bins"))
    counted = windowed.groupBy("window", "__key").agg(f.count(f.lit(1)).alias("count"), f.sum("size").alias("bytes"))
    value = f.struct(
        f.col("window.start").alias("start"), f.col("window.end").alias("end"), f.col("count"), f.col("bytes")
    )
    return counted.select("__key", f.to_json(value).alias("value"), f.col("window.end").alias("__eventTime"))


def duration(text: str) -> str:
    """Parse an interval; return it in Spark's notation. Raises typer.BadParameter.

    >>> duration("90s")
    '90 seconds'
    """
    found = running.trigger(text)
    if found == running.AVAILABLE_NOW:
        raise typer.BadParameter(f"{text!r} is not a duration such as 10s, 1m, 1h")
    return found


def pipeline(checkpoint: Path, *, window: str, watermark: str, time: str = "auto") -> Pipeline:
    """Return the pipeline; for the arguments see `counts`."""

    def rows(stream: Any) -> Any:
        return counts(stream, window=window, watermark=watermark, time=time)

    totals = WindowTotals(checkpoint=checkpoint)
    return Pipeline(name="window", columns=",".join(COLUMNS), rows=rows, totals=totals, sort_rows=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return the exit code.

    0: it ended as requested; 1: it failed on the way; 2: it could not be started."""
    return run_app(program(), argv, name="window")


def program() -> typer.Typer:
    """Return the pipeline as a program: that of scripts/pipelines and of `quire pipeline`."""
    return command_app(command, "Count messages by key and window of event time, and write each count to a topic once.")


def command(
    checkpoint: running.Checkpoint,
    to: To,
    window: Annotated[str, typer.Option(help="Length of a window: 10s, 1m, 1h.")] = "1m",
    watermark: Annotated[str, typer.Option(help="Maximum delay of a message.")] = "2m",
    time: Annotated[Times, typer.Option(help="Time of a message; auto: event time, else publish time.")] = "auto",
    at_least_once: AtLeastOnce = False,
    service_url: running.ServiceUrl = running.SERVICE_URL,
    admin_url: running.AdminUrl = None,
    topic: running.Topic = None,
    topics: running.Topics = None,
    topics_pattern: running.TopicsPattern = None,
    subscription: running.Subscription = None,
    trigger: running.Trigger = running.AVAILABLE_NOW,
    starting_offsets: running.StartingOffsets = None,
    max_messages_per_trigger: running.MaxMessages = None,
    max_bytes_per_trigger: running.MaxBytes = None,
    min_partitions: running.MinPartitions = None,
    settings: running.Settings = None,
    sink: SinkSettings = None,
    verbose: running.Verbose = False,
    master: running.Master = None,
    conf: running.Conf = None,
) -> int:
    source = running.SourceFlags(
        service_url=service_url,
        admin_url=admin_url,
        topic=topic,
        topics=topics,
        topics_pattern=topics_pattern,
        subscription=subscription,
        starting_offsets=starting_offsets,
        max_messages_per_trigger=max_messages_per_trigger,
        max_bytes_per_trigger=max_bytes_per_trigger,
        min_partitions=min_partitions,
        settings=settings,
    )
    given = TargetFlags(
        source=source,
        checkpoint=checkpoint,
        to=to,
        sink=sink,
        at_least_once=at_least_once,
        trigger=running.trigger(trigger),
        verbose=verbose,
        master=master,
        conf=conf,
    )
    make = partial(pipeline, window=duration(window), watermark=duration(watermark), time=time)
    return run("window", given, make, CONF)


def count_windows(
    session: Any,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    checkpoint: Path,
    *,
    window: str,
    watermark: str,
    time: str = "auto",
    trigger: str = running.AVAILABLE_NOW,
    display: Display | None = None,
    stop: running.Stop | None = None,
) -> WindowTotals:
    """Count with an existing session, until the query ends; return the totals of this run.

    Takes options of source and sink (with `exactlyOnce`); the other arguments are those of `counts` and
    `running.trigger`. Raises PipelineError if the query fails."""
    made = pipeline(checkpoint, window=window, watermark=watermark, time=time)
    stream_to_topic(session, made, source, sink, checkpoint, trigger=trigger, display=display, stop=stop)
    assert isinstance(made.totals, WindowTotals)
    return made.totals
