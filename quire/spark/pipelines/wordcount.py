"""Counts of words by window of time: from topics of text to a topic of counts.

    in     value: text in UTF-8; its time: the event time, or the publish time where there is none
    out    key: the word; event time: the window's end; value: {"start": ..., "end": ..., "word": ..., "count": ...}

A window's counts are written once, when the watermark (the latest time seen, less --watermark) has passed its end; text
that comes later than that is not counted. So the last windows stay open until later text comes. The sink writes at
least once: after a crash the same counts may come twice, equal in every byte, so a reader may keep the last one of each
(start, word).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from quire.spark.errors import SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.pipelines import running
from quire.spark.pipelines.progress import Display, PlainDisplay, make_display

WORD = r"[\p{L}\p{N}]+(['’][\p{L}\p{N}]+)*"
"""Pattern of a word: letters and digits of any script, with apostrophes inside; in lower case."""

TIMES = ("auto", "event", "publish")

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


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="wordcount", description="Count the words of topics by window of time, and write the counts to a topic."
    )
    running.source_arguments(parser)
    parser.add_argument("--to", required=True, metavar="TOPIC", help="topic to write the counts to")
    parser.add_argument(
        "--window", default="1m", type=duration, help="length of a window: 10s, 1m, 1h (default: %(default)s)"
    )
    parser.add_argument(
        "--watermark", default="2m", type=duration, help="maximum delay of a text (default: %(default)s)"
    )
    parser.add_argument(
        "--time", default="auto", choices=TIMES, help="time of a text; auto: event time, else publish time"
    )
    return parser.parse_args(argv)


def duration(text: str) -> str:
    """Parse an interval; return it in Spark's notation. Raises argparse.ArgumentTypeError.

    >>> duration("90s")
    '90 seconds'
    """
    found = running.trigger(text)
    if found == running.AVAILABLE_NOW:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 10s, 1m, 1h")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return the exit code.

    0: it ended as requested; 1: it failed on the way; 2: it could not be started."""
    given = arguments(argv)
    display = make_display(Console())
    started = False
    try:
        checkpoint = running.local_path(given.checkpoint, "--checkpoint")
        options = running.source_options(given, f"wordcount-{checkpoint.name}")
        Options.parse(options, use="stream")
        sink = {"service.url": given.service_url, "topic": given.to}
        Options.parse(sink, use="write")
        conf = CONF | running.pairs(given.conf, "--conf")
        with running.stop_on_signals() as stop:
            display.now("starting Spark")
            session = running.make_session("quire-wordcount", given.master, conf, verbose=given.verbose)
            started = True
            try:
                wordcount(
                    session,
                    options,
                    sink,
                    checkpoint,
                    window=given.window,
                    watermark=given.watermark,
                    time=given.time,
                    trigger=given.trigger,
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
