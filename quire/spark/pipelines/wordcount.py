"""Counts of words by window of time: from topics of text to a topic of counts.

    in     value: text in UTF-8; its time: the event time, or the publish time where there is none
    out    key: the word; event time: the window's end; value: {"start": ..., "end": ..., "word": ..., "count": ...}

A window's counts are written once, when the watermark (the latest time seen, less --watermark) has passed its end; text
that comes later than that is not counted. So the last windows stay open until later text comes. The sink writes at
least once: after a crash the same counts may come twice, equal in every byte, so a reader may keep the last one of each
(start, word).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from quire.service.programs.command_line import command_app, run_app
from quire.spark.errors import SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.pipelines import running
from quire.spark.pipelines.progress import Display, PlainDisplay, make_display

WORD = r"[\p{L}\p{N}]+(['’][\p{L}\p{N}]+)*"
"""Pattern of a word: letters and digits of any script, with apostrophes inside; in lower case."""

Times = Literal["auto", "event", "publish"]

SESSION_CONF = {"spark.sql.session.timeZone": "UTC"}
CONF = {
    # One counting task per core, not the 200 that are usual for large data.
    "spark.sql.shuffle.partitions": "4",
}


def counts(stream: Any, *, window: str, watermark: str, time: str = "auto") -> Any:
    """Return the rows for the sink (`__key`, `value`, `__eventTime`) from a stream of the source.

    Args:
        stream: the rows of the source.
        window: length of a window in Spark's notation: `1 minute`.
        watermark: maximum delay of a text, in the same notation.
        time: time of a text; auto: the event time, else the publish time.
    """
    from pyspark.sql import functions as f

    at = {
        "event": f.col("__eventTime"),
        "publish": f.col("__publishTime"),
        "auto": f.coalesce(f.col("__eventTime"), f.col("__publishTime")),
    }[time]
    text = f.decode(f.col("value"), "utf-8")
    words = stream.select(at.alias("at"), f.explode(f.regexp_extract_all(f.lower(text), f.lit(WORD), 0)).alias("word"))
    counted = words.withWatermark("at", watermark).groupBy(f.window("at", window), "word").count()
    value = f.struct(
        f.col("window.start").alias("start"), f.col("window.end").alias("end"), f.col("word"), f.col("count")
    )
    return counted.select(
        f.col("word").alias("__key"), f.to_json(value).alias("value"), f.col("window.end").alias("__eventTime")
    )


def duration(text: str) -> str:
    """Parse an interval; return it in Spark's notation. Raises typer.BadParameter.

    >>> duration("90s")
    '90 seconds'
    """
    found = running.trigger(text)
    if found == running.AVAILABLE_NOW:
        raise typer.BadParameter(f"{text!r} is not a duration such as 10s, 1m, 1h")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return the exit code.

    0: it ended as requested; 1: it failed on the way; 2: it could not be started."""
    return run_app(program(), argv, name="wordcount")


def program() -> typer.Typer:
    """Return the pipeline as a program: that of scripts/pipelines and of `quire pipeline`."""
    return command_app(command, "Count the words of topics by window of time, and write the counts to a topic.")


def command(
    checkpoint: running.Checkpoint,
    to: Annotated[str, typer.Option(metavar="TOPIC", help="Topic to write the counts to.", show_default=False)],
    window: Annotated[str, typer.Option(help="Length of a window: 10s, 1m, 1h.")] = "1m",
    watermark: Annotated[str, typer.Option(help="Maximum delay of a text.")] = "2m",
    time: Annotated[Times, typer.Option(help="Time of a text; auto: event time, else publish time.")] = "auto",
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
    window, watermark, trigger = duration(window), duration(watermark), running.trigger(trigger)
    display = make_display(Console())
    started = False
    try:
        folder = running.local_path(checkpoint, "--checkpoint")
        options = running.source_options(source, f"wordcount-{folder.name}")
        Options.parse(options, use="stream")
        sink = {"service.url": service_url, "topic": to}
        Options.parse(sink, use="write")
        spark_conf = CONF | running.pairs(conf, "--conf")
        with running.stop_on_signals() as stop:
            display.now("starting Spark")
            session = running.make_session("quire-wordcount", master, spark_conf, verbose=verbose)
            started = True
            try:
                wordcount(
                    session,
                    options,
                    sink,
                    folder,
                    window=window,
                    watermark=watermark,
                    time=time,
                    trigger=trigger,
                    display=display,
                    stop=stop,
                )
            finally:
                running.end_session(session, stop)
    except (SparkSourceError, OSError) as error:
        display.close()
        print(f"wordcount: {running.one_line(error)}", file=sys.stderr)
        return 1 if started else 2
    finally:
        display.close()
    return 0


def wordcount(
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
) -> None:
    """Count with an existing session, until the query ends.

    Takes options of source and sink; the other arguments are those of `counts` and `running.trigger`. Raises
    PipelineError if the query fails."""
    private = session.newSession()
    for name, value in SESSION_CONF.items():
        private.conf.set(name, value)
    with running.told():
        stream = private.readStream.format("quire").options(**source).load()
        query = (
            counts(stream, window=window, watermark=watermark, time=time)
            .writeStream.format("quire")
            .options(**sink)
            .outputMode("append")
            .queryName("wordcount")
            .option("checkpointLocation", running.spark_path(checkpoint))
            .trigger(**running.trigger_arguments(trigger))
            .start()
        )
    shown = PlainDisplay(Console(quiet=True)) if display is None else display
    running.watch(query, shown, stop or running.Stop())
