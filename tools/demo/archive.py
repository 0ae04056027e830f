"""The demo's archive: its topic in Parquet files, made by `scripts/pipelines/archive`, and back to a tree.

The archive comes when every line has been consumed, and nothing is retained: what it reads is there because a
subscription of its own, made before the first line was published, holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx2

from quire.spark.checks import require_java, require_packages
from quire.spark.errors import MissingDependencyError
from tools.demo.files import Line
from tools.demo.messaging import TOPIC
from tools.demo.pipeline import WebServer, hold, must_have_ended, run_pipeline, script
from tools.demo.run import Progress

HOLD = "demo-archive"
"""Name of the archive's subscription."""
COLUMNS = ("__key", "__properties", "value")
POSITION = ("__ledger", "__entry", "__batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """One run of the archive."""

    rows: int
    files: int
    rows_per_s: int
    """Seconds without the start of Spark."""


class Archiving(Protocol):
    def hold(self) -> None:
        """Retain messages published from now on, until they are archived."""

    def run(self, progress: Progress) -> Archived:
        """Archive the topic in its present state."""

    def lines(self) -> Iterator[Line]:
        """Return the archived lines, in the order of the topic, with repetitions."""


class SparkArchive:
    """Archive made by `scripts/pipelines/archive` as a process, with this Python; its files in `folder`."""

    def __init__(self, server: WebServer, folder: Path, transport: httpx2.BaseTransport | None = None) -> None:
        self.server = server
        self.folder = folder
        self.out = folder / "archive"
        self._transport = transport

    def command(self) -> list[str]:
        command = [*script("archive.py", self.server), "--topic", TOPIC, "--subscription", HOLD]
        command += ["--trigger", "availableNow"]
        command += ["--out", str(self.out), "--checkpoint", str(self.folder / "checkpoint")]
        return [*command, "--conf", f"spark.local.dir={self.folder / 'spark'}"]

    def hold(self) -> None:
        """Create the subscription at the first entry, with the admin REST, which creates the topic too."""
        hold(self.server, TOPIC, HOLD, "the archive's subscription", self._transport)

    def run(self, progress: Progress) -> Archived:
        """Run the archive. Raises DemoError: it failed, or took too long."""
        progress.note("archiving, with Spark")
        code, rate = run_pipeline("archive", self.command(), self.folder, progress)
        rows_per_s = must_have_ended("archive", self.folder, code, rate)
        from quire.spark.pipelines.reader import read_archive

        found = read_archive(self.out)
        return Archived(rows=found.rows, files=len(found.files), rows_per_s=rows_per_s)

    def lines(self) -> Iterator[Line]:
        from quire.spark.pipelines.reader import read_archive

        table = read_archive(self.out).dataset().to_table(columns=[*COLUMNS, *POSITION])
        table = table.sort_by([(name, "ascending") for name in POSITION])
        for batch in table.select(list(COLUMNS)).to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                yield Line(row["__key"].decode(), int(dict(row["__properties"])["line"]), row["value"])


def make_archive(server: WebServer, folder: Path, progress: Progress, *, wanted: bool) -> SparkArchive | None:
    """Run the last stage; None, and a printed reason, if it is disabled or Spark cannot run here."""
    if not wanted:
        progress.note("archive skipped: --no-spark")
        return None
    try:
        require_packages()
        require_java()
    except MissingDependencyError as error:
        progress.note(f"archive skipped: {error}")
        return None
    return SparkArchive(server, folder)
