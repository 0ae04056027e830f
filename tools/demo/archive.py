"""The demo's last stage: its topic in Parquet files, made by `scripts/pipelines/archive`, and back to a tree.

The archive comes last, when every line has been consumed, and nothing is retained: what it reads is there because a
subscription of its own, made before the first line was published, holds it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx2

from quire.spark.checks import require_java, require_packages
from quire.spark.errors import MissingDependencyError
from tools.demo.files import Line
from tools.demo.messaging import TOPIC
from tools.demo.run import Progress
from tools.demo.server import DemoError

HOLD = "demo-archive"
"""Name of the archive's subscription."""
RUN_S = 300.0
"""Deadline of an archive, in seconds."""
HTTP_S = 30.0
COLUMNS = ("__key", "__properties", "value")
POSITION = ("__ledger", "__entry", "__batch")

_SUMMARY = re.compile(r"in ([\d.]+) s, (\d+) rows/s")


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


class WebServer(Protocol):
    """Parts of a server that the archive uses."""

    @property
    def url(self) -> str: ...

    @property
    def web(self) -> str: ...


class SparkArchive:
    """Archive made by `scripts/pipelines/archive` as a process, with this Python; its files in `folder`."""

    def __init__(self, server: WebServer, folder: Path, transport: httpx2.BaseTransport | None = None) -> None:
        self.server = server
        self.folder = folder
        self.out = folder / "archive"
        self.log_path = folder / "archive.log"
        self._transport = transport

    def command(self) -> list[str]:
        script = Path(__file__).resolve().parents[2] / "scripts" / "pipelines" / "archive.py"
        command = [sys.executable, str(script), "--service-url", self.server.url, "--admin-url", self.server.web]
        command += ["--topic", TOPIC, "--subscription", HOLD, "--trigger", "availableNow"]
        command += ["--out", str(self.out), "--checkpoint", str(self.folder / "checkpoint")]
        return [*command, "--conf", f"spark.local.dir={self.folder / 'spark'}"]

    def hold(self) -> None:
        """Create the subscription at the first entry, with the admin REST, which creates the topic too."""
        url = f"{self.server.web}/admin/v2/{TOPIC.replace('://', '/')}/subscription/{HOLD}"
        try:
            with httpx2.Client(transport=self._transport, timeout=HTTP_S, follow_redirects=True) as client:
                answer = client.put(url, json={"ledgerId": -1, "entryId": -1})
        except httpx2.HTTPError as error:
            raise DemoError(f"the archive's subscription could not be made: {error!r}") from error
        if answer.status_code != 204:
            raise DemoError(f"the archive's subscription was refused: {answer.status_code} {answer.text}")

    def run(self, progress: Progress) -> Archived:
        """Run the archive. Raises DemoError: it failed, or took longer than RUN_S."""
        progress.note("archiving, with Spark")
        with open(self.log_path, "ab") as log:
            process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # so that Spark's JVM goes with it
            )
        late = threading.Timer(RUN_S, _kill_group, (process.pid,))
        late.start()
        rate: re.Match[str] | None = None
        try:
            assert process.stdout is not None
            for line in process.stdout:
                progress.note(f"  {line.rstrip()}")
                rate = _SUMMARY.search(line) or rate
            code = process.wait()
        finally:
            late.cancel()
            _kill_group(process.pid)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if code != 0:
            raise DemoError(f"the archive ended with {code}{self._log_tail()}")
        if rate is None:
            raise DemoError(f"the archive printed no summary{self._log_tail()}")
        from quire.spark.pipelines.reader import read_archive

        found = read_archive(self.out)
        return Archived(rows=found.rows, files=len(found.files), rows_per_s=int(rate[2]))

    def lines(self) -> Iterator[Line]:
        from quire.spark.pipelines.reader import read_archive

        table = read_archive(self.out).dataset().to_table(columns=[*COLUMNS, *POSITION])
        table = table.sort_by([(name, "ascending") for name in POSITION])
        for batch in table.select(list(COLUMNS)).to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                yield Line(row["__key"].decode(), int(dict(row["__properties"])["line"]), row["value"])

    def _log_tail(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()[-15:]
        return "".join(f"\n    {line}" for line in lines)


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


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass
