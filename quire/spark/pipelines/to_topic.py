"""Common parts of pipelines from topics to a topic: options of the sink, checks before the start, and the run.

Rows are written once by the sink's option exactlyOnce, which needs deduplication of the target. `--at-least-once` goes
without: then a batch that Spark repeats after a crash is written again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from quire.spark.admin import Admin, TopicMissingError
from quire.spark.checks import require_packages
from quire.spark.errors import SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.pipelines import running
from quire.spark.pipelines.errors import PipelineError
from quire.spark.pipelines.progress import BatchProgress, Display, PlainDisplay, make_display
from quire.spark.runtime import credentials_of
from quire.spark.topics import full_name, partitioned_name

SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    # The sink's exactlyOnce needs the same tasks whenever a batch is repeated.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}

CHOSEN = ("columns", "includeHeaders", "decode")
"""Options of the source that a pipeline sets itself."""
OWN = ("topic", "exactlyOnce", "sortRows", "checkpointLocation")
"""Options of the sink that a pipeline sets itself."""
SHARED = ("service.url", "serviceurl", "admin.url", "adminurl", "operationtimeoutms", "trace")
SHARED_PREFIXES = ("auth", "tls")

To = Annotated[str, typer.Option(metavar="TOPIC", help="Topic to write to.", show_default=False)]
SinkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        metavar="OPTION=VALUE",
        help="Any other option of the sink. With service.url it writes to another cluster, and takes neither admin.url"
        " nor credentials from the source.",
    ),
]
AtLeastOnce = Annotated[
    bool,
    typer.Option(
        "--at-least-once",
        help="Write to a topic without deduplication: after a crash, rows of the last batch come twice.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFlags:
    """Values of the command line that every pipeline to a topic has."""

    source: running.SourceFlags
    checkpoint: Path
    to: str
    sink: Sequence[str] | None
    at_least_once: bool
    trigger: str
    verbose: bool
    master: str | None
    conf: Sequence[str] | None


@dataclass(slots=True)
class RunTotals:
    """RunTotals of one run."""

    rows: int = 0
    batches: int = 0

    def take(self, report: BatchProgress) -> str:
        """Add a batch; return its line."""
        self.rows += report.rows
        self.batches += 1
        return report.line()

    def lines(self, seconds: float) -> list[str]:
        """Return the lines of the summary."""
        rate = self.rows / seconds if seconds > 0 else 0.0
        return [f"read {self.rows} rows in {self.batches} batches", f"in {seconds:.1f} s, {rate:.0f} rows/s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Description of one pipeline."""

    name: str
    columns: str
    """Columns of the source, comma-separated."""
    rows: Callable[[Any], Any]
    """Returns the rows for the sink from a stream of the source."""
    totals: RunTotals
    sort_rows: bool = False
    """True if a shuffle comes before the sink, which delivers rows in any order."""


def sink_options(
    source: Mapping[str, str], to: str, settings: Sequence[str] | None, *, exactly_once: bool
) -> dict[str, str]:
    """Return the options of the sink. Raises PipelineError.

    Args:
        source: options of the source, of which the sink takes addresses and credentials, if it has no `service.url`.
        to: topic to write to.
        settings: values of `--sink`.
        exactly_once: write each row once.
    """
    given = running.pairs(settings, "--sink")
    for name in OWN:
        if running.has(given, name):
            hint = {"topic": "--to says it", "exactlyOnce": "see --at-least-once"}.get(name, "the pipeline sets it")
            raise PipelineError(f"--sink {name}: {hint}")
    shared = {
        name: value
        for name, value in source.items()
        if name.lower() in SHARED or name.lower().startswith(SHARED_PREFIXES)
    }
    if running.has(given, "service.url", "serviceUrl"):
        shared = {name: value for name, value in shared.items() if name.lower() == "trace"}
    for name in given:
        shared = running.without(shared, name)
    options = {**shared, **given, "topic": to, "exactlyOnce": str(exactly_once).lower()}
    Options.parse(options, use="write")
    return options


def check_target(source: Options, sink: Options) -> None:
    """Check that a pipeline does not read what it writes. Raises PipelineError."""
    if source.service_url != sink.service_url:
        return
    target = partitioned_name(full_name(sink.topic))
    pattern = source.topics_pattern
    if target in {partitioned_name(topic) for topic in source.topics} or (
        pattern is not None and pattern.matches(target)
    ):
        raise PipelineError(
            f"--to {sink.topic}: the pipeline would read what it writes, without end: name another topic"
        )


def check_deduplication(sink: Options) -> None:
    """Check, before Spark is started, that the brokers deduplicate the target. A missing one is left to the sink, which
    makes and checks it.

    Raises SinkError with the remedy, SparkSourceError."""
    from quire.spark.sink.promise import check_topic

    made = Admin(
        sink.admin_url,
        timeout_s=sink.operation_timeout_ms / 1000,
        tls=sink.tls,
        credentials=credentials_of(sink),
    )
    with closing(made) as admin:
        try:
            check_topic(admin, partitioned_name(full_name(sink.topic)))
        except TopicMissingError:
            return


def source_options(given: Mapping[str, str], columns: str) -> dict[str, str]:
    """Return options of the source with the columns of a pipeline. Raises PipelineError, OptionError."""
    for name in CHOSEN:
        if running.has(given, name):
            raise PipelineError(
                f"--set {name}: the pipeline chooses the columns that it needs, and reads values as bytes"
            )
    options = {**given, "columns": columns}
    Options.parse(options, use="stream")
    return options


def run(name: str, given: TargetFlags, make: Callable[[Path], Pipeline], spark_conf: Mapping[str, str]) -> int:
    """Run a pipeline from its command line; return the exit code.

    0: it ended as requested; 1: it failed on the way; 2: it could not be started.

    Args:
        name: name of the pipeline.
        given: values of the command line.
        make: returns the pipeline for a checkpoint.
        spark_conf: Spark's configuration that `--conf` may replace.
    """
    display = make_display(Console())
    started = False
    try:
        require_packages()
        folder = running.local_path(given.checkpoint, "--checkpoint")
        pipeline = make(folder)
        source = running.source_options(given.source, f"{name}-{folder.name}")
        sink = sink_options(source, given.to, given.sink, exactly_once=not given.at_least_once)
        parsed = Options.parse(sink, use="write")
        check_target(Options.parse(source_options(source, pipeline.columns), use="stream"), parsed)
        if parsed.exactly_once:
            check_deduplication(parsed)
        conf = {**spark_conf, **running.pairs(given.conf, "--conf")}
        with running.stop_on_signals() as stop:
            display.now("starting Spark")
            session = running.make_session(f"quire-{name}", given.master, conf, verbose=given.verbose)
            started = True
            try:
                stream_to_topic(
                    session, pipeline, source, sink, folder, trigger=given.trigger, display=display, stop=stop
                )
            finally:
                running.end_session(session, stop)
    except (SparkSourceError, OSError) as error:
        display.close()
        print(f"{name}: {running.one_line(error)}", file=sys.stderr)
        return 1 if started else 2
    finally:
        display.close()
    return 0


def stream_to_topic(
    session: Any,
    pipeline: Pipeline,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    checkpoint: Path,
    *,
    trigger: str = running.AVAILABLE_NOW,
    display: Display | None = None,
    stop: running.Stop | None = None,
) -> None:
    """Run a pipeline with an existing session, until the query ends.

    Takes options of source and sink, and a value of `running.trigger`. Raises PipelineError if the query fails."""
    shown = PlainDisplay(Console(quiet=True)) if display is None else display
    options = source_options(source, pipeline.columns)
    written = dict(sink)
    target = Options.parse(written, use="write")
    check_target(Options.parse(options, use="stream"), target)
    if pipeline.sort_rows and target.exactly_once:
        written["sortRows"] = "true"
    private = session.newSession()
    for name, value in SESSION_CONF.items():
        private.conf.set(name, value)
    begun = time.monotonic()
    try:
        with running.told():
            query = (
                pipeline.rows(private.readStream.format("quire").options(**options).load())
                .writeStream.format("quire")
                .options(**written)
                .outputMode("append")
                .queryName(pipeline.name)
                .option("checkpointLocation", running.spark_path(checkpoint))
                .trigger(**running.trigger_arguments(trigger))
                .start()
            )
        running.watch(query, shown, stop or running.Stop(), line=pipeline.totals.take)
    finally:
        shown.close()
        for line in pipeline.totals.lines(time.monotonic() - begun):
            shown.line(line)
