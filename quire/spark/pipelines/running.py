"""Common parts of pipelines: options from the command line, a session, a loop that shows progress and ends on a signal,
and errors in one line."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

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


def source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the source: all options are reachable, the usual ones by name."""
    parser.add_argument("--service-url", default="pulsar://127.0.0.1:6650", help="broker (default: %(default)s)")
    parser.add_argument("--admin-url", help="admin REST (default: port 8080 of the broker's host)")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", help="the topic to read; partitioned or not")
    which.add_argument("--topics", help="several topics, comma-separated")
    which.add_argument("--topics-pattern", help="a namespace and a regular expression: tenant/namespace/orders-.*")
    parser.add_argument("--subscription", help="durable subscription that retains the data until it is read")
    parser.add_argument("--checkpoint", required=True, type=Path, help="folder of Spark's checkpoint")
    parser.add_argument(
        "--trigger",
        default=AVAILABLE_NOW,
        type=trigger,
        help="availableNow, or an interval: 500ms, 10s, 5m (default: %(default)s)",
    )
    parser.add_argument("--starting-offsets", help="start of the first run (default: earliest)")
    parser.add_argument(
        "--max-messages-per-trigger", type=int, metavar="N", help="approximate maximum rows of one batch"
    )
    parser.add_argument(
        "--max-bytes-per-trigger", metavar="SIZE", help="approximate maximum bytes of one batch: 64m, 1g"
    )
    parser.add_argument("--min-partitions", type=int, metavar="N", help="minimum number of tasks of one batch")
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", help="any other option of the source"
    )
    parser.add_argument("--verbose", action="store_true", help="show Spark's own log, with its tracebacks")
    parser.add_argument("--master", help="Spark master, if spark-submit does not set it (default: local[*,4])")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Spark configuration, if spark-submit does not set it",
    )


def source_options(given: argparse.Namespace, subscription: str) -> dict[str, str]:
    """Return the options of the source from the arguments; `--set` has precedence. Raises PipelineError."""
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
    for name, value in pairs(given.set, "--set").items():
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


def pairs(given: Sequence[str], what: str) -> dict[str, str]:
    """Parse `name=value` pairs. Raises PipelineError for an invalid one."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise PipelineError(f"{what} {each}: it must be name=value")
        found[name.strip()] = value
    return found


def trigger(text: str) -> str:
    """Parse a trigger: `availableNow`, or an interval in Spark's notation. Raises argparse.ArgumentTypeError.

    >>> trigger("availablenow"), trigger("10s"), trigger("1.5 m")
    ('availableNow', '10 seconds', '1.5 minutes')
    """
    if text.lower() == AVAILABLE_NOW.lower():
        return AVAILABLE_NOW
    text = text.strip()
    if not _INTERVAL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither availableNow nor an interval such as 500ms, 10s, 5m, 1h")
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


def watch(query: Any, display: Display, stop: Stop, *, base: int = 0) -> None:
    """Show a query's progress until it ends, or until a stop is requested, which ends it.

    A stop may interrupt a batch, which the next run repeats. Raises PipelineError, in one line, if the query fails."""
    seen = Seen()

    def show() -> None:
        for report in seen.new(BatchProgress.parse(each.json) for each in query.recentProgress):
            display.line(report.line(base))

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
