"""Closed ledgers of topics to Parquet files, one a ledger, which rebuild every entry byte for byte.

`offloading` has the steps, `quire.offload` the files. No Spark session is needed: one process copies what the owners of
the topics send. Bookies keep their ledgers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quire.offload.errors import OffloadError
from quire.service.programs.command_line import command_app, run_app
from quire.spark.admin import Admin
from quire.spark.checks import PYARROW_MIN, require_package
from quire.spark.errors import SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.pipelines import running
from quire.spark.pipelines.progress import make_display
from quire.spark.runtime import credentials_of
from quire.spark.topics import partition_names

if TYPE_CHECKING:
    from quire.spark.pipelines.offloading import Observe, OffloadTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadFlags:
    """Values of the command line."""

    source: running.SourceFlags
    out: Path
    min_age_s: float
    remove_trimmed: bool
    release: bool


def command(run: Callable[[OffloadFlags], int]) -> Callable[..., int]:
    """Return the command, which runs with the values of the command line and returns the exit code."""

    def offload(
        out: Annotated[
            Path, typer.Option(help="Folder of the files, with a folder for each topic.", show_default=False)
        ],
        service_url: running.ServiceUrl = running.SERVICE_URL,
        admin_url: running.AdminUrl = None,
        topic: running.Topic = None,
        topics: running.Topics = None,
        min_age: Annotated[float, typer.Option(min=0, help="Seconds since a ledger was closed.")] = 0,
        remove_trimmed: Annotated[
            bool,
            typer.Option("--remove-trimmed", help="Remove the files of ledgers that the topic has no more."),
        ] = False,
        release: Annotated[
            bool,
            typer.Option(
                "--release", help="Offload nothing; all ledgers count as not offloaded, their files are removed."
            ),
        ] = False,
        settings: running.Settings = None,
    ) -> int:
        source = running.SourceFlags(
            service_url=service_url, admin_url=admin_url, topic=topic, topics=topics, settings=settings
        )
        return run(
            OffloadFlags(source=source, out=out, min_age_s=min_age, remove_trimmed=remove_trimmed, release=release)
        )

    return offload


def main(argv: Sequence[str] | None = None, *, observe: Observe | None = None) -> int:
    """Run the pipeline; return the exit code.

    0: everything due is offloaded; 1: it failed on the way, or a ledger has a problem; 2: it could not be started.
    `argv`: None for the process's own."""
    return run_app(program(observe=observe), argv, name="offload")


def program(*, observe: Observe | None = None) -> typer.Typer:
    """Return the pipeline as a program: that of scripts/pipelines and of `quire pipeline`."""
    return command_app(
        command(partial(_run, observe=observe)),
        "Write the closed ledgers of topics to Parquet files that rebuild every entry byte for byte.",
    )


def _run(given: OffloadFlags, *, observe: Observe | None) -> int:
    display = make_display(Console())
    started = False
    try:
        require_package("pyarrow", PYARROW_MIN)
        from quire.spark.pipelines.offloading import OffloadTotals, TopicOffload, unobserved

        out = running.local_path(given.out, "--out")
        source = running.without(running.source_options(given.source, ""), "subscription", *running.STARTS)
        options = Options.parse(source, use="batch")
        if options.topics_pattern is not None:
            raise typer.BadParameter("topicsPattern cannot be set here: name the topics")
        begun, totals = time.monotonic(), OffloadTotals()
        admin = Admin(
            options.admin_url,
            timeout_s=options.operation_timeout_ms / 1000,
            tls=options.tls,
            credentials=credentials_of(options),
        )
        try:
            with running.stop_on_signals() as stop:
                started = True
                for name in (
                    part for topic in options.topics for part in partition_names(topic, admin.partitions(topic))
                ):
                    job = TopicOffload(
                        admin,
                        name,
                        out,
                        min_age_s=given.min_age_s,
                        remove_trimmed=given.remove_trimmed,
                        observe=observe or unobserved,
                        show=display.line,
                        is_stopped=lambda: stop.signal is not None,
                    )
                    totals.add(job.release() if given.release else job.run())
                    if stop.signal is not None:
                        break
        finally:
            admin.close()
        for line in summary(totals, time.monotonic() - begun):
            display.line(line)
        for problem in totals.problems:
            print(f"offload: {problem}", file=sys.stderr)
        return 1 if totals.problems else 0
    except (SparkSourceError, OffloadError, OSError) as error:
        print(f"offload: {running.one_line(error)}", file=sys.stderr)
        return 1 if started else 2
    finally:
        display.close()


def summary(totals: OffloadTotals, seconds: float) -> list[str]:
    """Return the lines at the end of a run."""
    rate = totals.entries / seconds if seconds > 0 else 0.0
    return [
        f"offloaded {totals.ledgers} ledgers, {totals.entries} entries, {totals.file_bytes} bytes",
        f"in {seconds:.1f} s, {rate:.0f} entries/s; {totals.known} offloaded before, {totals.removed} files removed",
    ]
