"""Common parts of pipelines: options from the command line, a session, a loop that shows progress and ends on a signal,
and errors in one line."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

from quire.spark.checks import require_java, require_packages
from quire.spark.errors import SparkSourceError
from quire.spark.pipelines.errors import PipelineError
from quire.spark.pipelines.progress import BatchProgress, Display, Seen

AVAILABLE_NOW = "availableNow"
STARTS = ("startingOffsets", "startingTimestamp", "startingTime")
"""Options for the start of a query without a checkpoint."""

POLL_S = 0.25
"""Interval at which a running query is looked at."""

_INTERVAL = re.compile(r"\d+(\.\d+)?\s*(ms|s|m|min|h)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}


ServiceUrl = Annotated[str, typer.Option(help="Broker.", envvar="QUIRE_SERVICE_URL")]
AdminUrl = Annotated[
    str | None,
    typer.Option(help="Admin REST.", show_default="port 8080 of the broker's host", envvar="QUIRE_ADMIN_URL"),
]
Topic = Annotated[str | None, typer.Option(help="The topic to read; partitioned or not.")]
Topics = Annotated[str | None, typer.Option(help="Several topics, comma-separated.")]
TopicsPattern = Annotated[
    str | None, typer.Option(help="A namespace and a regular expression: tenant/namespace/orders-.*")
]
Subscription = Annotated[str | None, typer.Option(help="Durable subscription that retains the data until it is read.")]
Checkpoint = Annotated[Path, typer.Option(help="Folder of Spark's checkpoint.", show_default=False)]
Trigger = Annotated[str, typer.Option(help="availableNow, or an interval: 500ms, 10s, 5m.")]
StartingOffsets = Annotated[str | None, typer.Option(help="Start of the first run.", show_default="earliest")]
MaxMessages = Annotated[int | None, typer.Option(metavar="N", help="Approximate maximum rows of one batch.")]
MaxBytes = Annotated[str | None, typer.Option(metavar="SIZE", help="Approximate maximum bytes of one batch: 64m, 1g.")]
MinPartitions = Annotated[int | None, typer.Option(metavar="N", help="Minimum number of tasks of one batch.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Any other option of the source.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Spark's own log, with its tracebacks.")]
Master = Annotated[
    str | None, typer.Option(help="Spark master, if spark-submit does not set it.", show_default="local[*,4]")
]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Spark configuration, if spark-submit does not set it.")
]
SERVICE_URL: Final = "pulsar://127.0.0.1:6650"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFlags:
    """Values of the command line that are about the source: all options are reachable, the usual ones by name."""

    service_url: str = SERVICE_URL
    admin_url: str | None = None
    topic: str | None = None
    topics: str | None = None
    topics_pattern: str | None = None
    subscription: str | None = None
    starting_offsets: str | None = None
    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: str | None = None
    min_partitions: int | None = None
    settings: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Raise typer.BadParameter unless exactly one way to name topics is given."""
        if sum(each is not None for each in (self.topic, self.topics, self.topics_pattern)) != 1:
            raise typer.BadParameter("give one of --topic, --topics and --topics-pattern")


def source_options(given: SourceFlags, subscription: str) -> dict[str, str]:
    """Return the options of the source from the command line; `--set` has precedence. Raises PipelineError."""
    options = {
        "service.url": given.service_url,
        "admin.url": given.admin_url,
        "topic": given.topic,
        "topics": given.topics,
        "topicsPattern": given.topics_pattern,
        "subscription": given.subscription or subscription,
        "startingOffsets": given.starting_offsets,
        "maxMessagesPerTrigger": given.max_messages_per_trigger,
        "maxBytesPerTrigger": given.max_bytes_per_trigger,
        "minPartitions": given.min_partitions,
    }
    found = {name: str(value) for name, value in options.items() if value is not None}
    for name, value in pairs(given.settings, "--set").items():
        found = without(found, name) | {name: value}
        if name.lower() == "hold" and value == "none" and not given.subscription:
            found = without(found, "subscription")
    if not has(found, *STARTS):
        found["startingOffsets"] = "earliest"
    return found


def has(options: Mapping[str, str], *names: str) -> bool:
    """Return whether one of `names` is there, ignoring case."""
    lower = {name.lower() for name in names}
    return any(name.lower() in lower for name in options)


def without(options: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return `options` without `names`, ignoring case."""
    lower = {name.lower() for name in names}
    return {name: value for name, value in options.items() if name.lower() not in lower}


def pairs(given: Sequence[str] | None, what: str) -> dict[str, str]:
    """Parse `name=value` pairs. Raises PipelineError for an invalid one."""
    found = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise PipelineError(f"{what} {each}: it must be name=value")
        found[name.strip()] = value
    return found


def trigger(text: str) -> str:
    """Parse a trigger: `availableNow`, or an interval in Spark's notation. Raises typer.BadParameter.

    >>> trigger("availablenow"), trigger("10s"), trigger("1.5 m")
    ('availableNow', '10 seconds', '1.5 minutes')
    """
    if text.lower() == AVAILABLE_NOW.lower():
        return AVAILABLE_NOW
    text = text.strip()
    if not _INTERVAL.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is neither availableNow nor an interval such as 500ms, 10s, 5m, 1h")
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    return f"{number} {_UNITS[text[len(number) :].strip()]}"


def trigger_arguments(trigger: str) -> dict[str, Any]:
    """Return the arguments of DataStreamWriter.trigger."""
    return {"availableNow": True} if trigger == AVAILABLE_NOW else {"processingTime": trigger}


def local_path(given: Path, what: str) -> Path:
    """Return an absolute path of this machine. Raises PipelineError if it is a URL."""
    text = str(given)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", text)
    if scheme is not None and scheme[1] != "file":
        raise PipelineError(
            f"{what} {text}: must be a folder of this machine, or mounted on it, so that it can be made durable"
        )
    return Path(re.sub(r"^file:/+", "/", text)).absolute()


def spark_path(path: Path) -> str:
    """Return a local path as Spark takes it: a URL without escapes, because a name may contain `=` or a space."""
    return f"file://{path}"


def make_session(app: str, master: str | None, conf: Mapping[str, str], *, verbose: bool = False) -> Any:
    """Return a Spark session; under spark-submit its own. With `verbose` Spark's own log is shown.

    Raises MissingDependencyError: no pyspark, pyarrow or Java, or too old."""
    require_packages()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        require_java()
        # workers of another Python would not find the packages of this one
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    if not submitted:
        builder = builder.master(master or "local[*,4]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        if master is None or master.startswith("local"):
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    elif master is not None:
        builder = builder.master(master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not submitted:
        session.sparkContext.setLogLevel("WARN" if verbose else "FATAL")
    return session


@contextmanager
def told() -> Iterator[None]:
    """Translate Spark's errors, with tracebacks of several processes, to a PipelineError of one line."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise PipelineError(one_line(error)) from error


def end_session(session: Any, stop: Stop) -> None:
    """Stop Spark, if it still runs: a signal to the whole process group ends its JVM as well."""
    try:
        session.stop()
    except Exception:
        if stop.signal is None:
            raise


class Stop:
    """Stop request, set by SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Make SIGTERM and SIGINT request a stop instead of ending the process, while entered. Main thread only."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(
    query: Any, display: Display, stop: Stop, *, line: Callable[[BatchProgress], str] = BatchProgress.line
) -> None:
    """Show a query's progress until it ends, or until a stop is requested, which ends it.

    `line`: returns the line of a batch; called once for each batch with rows. A stop may interrupt a batch, which the
    next run repeats. Raises PipelineError, in one line, if the query fails."""
    seen = Seen()

    def show() -> None:
        for report in seen.new(BatchProgress.parse(each.json) for each in query.recentProgress):
            display.line(line(report))

    try:
        while not query.awaitTermination(POLL_S):
            show()
            display.now(str(query.status.get("message", "running")))
            if stop.signal is not None:
                display.line(f"{stop.signal.name}: stopping")
                query.stop()
                break
        show()
    except Exception as error:
        if stop.signal is not None:
            # the signal may have ended Spark's JVM, and with it the query
            display.line(f"the query ended with {stop.signal.name}")
            return
        raise PipelineError(one_line(error)) from error


def one_line(error: BaseException) -> str:
    """Return the cause of an error in one line.

    Of a text with tracebacks of workers: the last error of this package, else the first one of Python, else the first
    line.

    >>> one_line(ValueError("[STREAM_FAILED] x\\n  File ...\\nquire.spark.errors.SinkError: topic t: full\\n  at x.y"))
    'topic t: full'
    >>> one_line(ValueError("[STREAM_FAILED] failed\\nTraceback:\\n  File ...\\nOSError: disk full\\n  at x.y"))
    'OSError: disk full'
    >>> one_line(ValueError("first\\nsecond"))
    'first'
    """
    if isinstance(error, SparkSourceError):
        return str(error)
    text = str(error)
    ours = re.findall(r"^\s*quire\.[\w.]+Error: (.+)$", text, re.MULTILINE)
    if ours:
        return str(ours[-1]).strip()
    others = re.findall(r"^\w[\w.]*(?:Error|Exception): .+$", text, re.MULTILINE)
    if others:
        return str(others[0]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else repr(error)
