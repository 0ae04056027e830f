"""Topics to Parquet by date: exactly once for who reads the manifest, whatever is killed and when.

    OUT/_manifest.jsonl                              which files count (see manifest.py)
    OUT/batch=<number>/dt=<publish date>/part-*.parquet

Each batch of the stream is written into its own folder, which a repetition writes anew; then its files are made durable, then a
line of the manifest names them. So a batch that Spark repeats after a crash is either in the manifest, and left out, or
it is not, and replaced. Read an archive with `quire.spark.pipelines.reader.read_archive`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from quire.client.errors import ClientError
from quire.spark.errors import SourceUnavailableError, SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.pipelines import running
from quire.spark.pipelines.errors import CheckpointError, PipelineError
from quire.spark.pipelines.manifest import (
    DATE_COLUMN,
    ArchivedFile,
    BatchRecord,
    EntryPosition,
    ManifestWriter,
    Span,
    read_manifest,
    sync_file,
    sync_folder,
    writing,
)
from quire.spark.pipelines.progress import Display, PlainDisplay, make_display
from quire.spark.pipelines.start import plan_start, query_of, starting_offsets
from quire.spark.runtime import client_options, runtime
from quire.spark.topics import partition_names

Observe = Callable[[str, int], None]
"""Told where the writing of a batch (its number in the archive) is: "begun", "written", "recorded". Tests kill there."""


def unobserved(point: str, batch: int) -> None:
    """Nobody watches."""


NEEDED = ("__topic", "__partition", "__ledger", "__entry", "__publishTime")
"""Columns that tell where a batch ends, and its rows' dates."""

SESSION_CONF = {
    # Days are UTC's, whatever the machine's zone; times are written so that every reader of Parquet knows them.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A task that writes several days keeps a file open for each, instead of sorting its rows by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}


@dataclass(slots=True)
class Totals:
    """What this run archived."""

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    batches: int = 0

    def add(self, record: BatchRecord) -> None:
        self.rows += record.rows
        self.files += len(record.files)
        self.size_bytes += sum(file.size_bytes for file in record.files)
        self.batches += 1

    def lines(self, seconds: float) -> list[str]:
        """The summary."""
        rate = self.rows / seconds if seconds > 0 else 0.0
        return [
            f"archived {self.rows} rows in {self.files} files, {self.size_bytes} bytes, {self.batches} batches",
            f"in {seconds:.1f} s, {rate:.0f} rows/s",
        ]


@dataclass(slots=True)
class BatchWriter:
    """What the stream calls with each batch."""

    out: Path
    checkpoint: Path
    manifest: ManifestWriter
    base: int
    totals: Totals = field(default_factory=Totals)
    observe: Observe = unobserved

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Write the rows of `frame` as batch `base + batch_id`, once. CheckpointError: the number is another query's."""
        number = self.base + batch_id
        # (Spark writes the checkpoint's metadata before the first batch)
        query = query_of(self.checkpoint)
        if query is None:
            raise CheckpointError(f"the checkpoint in {self.checkpoint} went away while it was used")
        self.observe("begun", number)
        known = self.manifest.manifest.batch(number)
        if known is not None:
            if known.query != query:
                raise CheckpointError(
                    f"batch {number} of {self.out} was written by query {known.query}, and this is {query}"
                )
            return
        folder = self.out / f"batch={number}"
        self._write(frame, folder)
        self.observe("written", number)
        record = record_of(self.out, folder, number, query)
        if record is None:
            if not frame.isEmpty():
                raise PipelineError(
                    f"batch {number} has rows, but no file with rows came to {folder}: nothing is recorded"
                )
            shutil.rmtree(folder, ignore_errors=True)
            return
        for file in record.files:
            sync_file(self.out / file.path)
        for each in sorted({(self.out / file.path).parent for file in record.files}):
            sync_folder(each)
        sync_folder(folder)
        sync_folder(self.out)
        self.manifest.append(record)
        self.totals.add(record)
        self.observe("recorded", number)

    def _write(self, frame: Any, folder: Path) -> None:
        from pyspark.sql import functions

        dated = frame.withColumn(DATE_COLUMN, functions.to_date("__publishTime"))
        writer = dated.write.mode("overwrite").partitionBy(DATE_COLUMN)
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(running.spark_path(folder))


def record_of(out: Path, folder: Path, number: int, query: str) -> BatchRecord | None:
    """What is in a batch's folder: its files, from their footers, and the positions of their rows. None: no rows."""
    import pyarrow.parquet

    files: list[ArchivedFile] = []
    spans: dict[str, Span] = {}
    for path in sorted(folder.rglob("*.parquet")):
        parquet = pyarrow.parquet.ParquetFile(path)
        try:
            rows = parquet.metadata.num_rows
            if rows:
                _widen(spans, parquet.read(columns=["__topic", "__partition", "__ledger", "__entry"]))
                files.append(ArchivedFile(path.relative_to(out).as_posix(), rows, path.stat().st_size))
        finally:
            parquet.close()
    if not files:
        return None
    return BatchRecord(
        batch=number, query=query, rows=sum(file.rows for file in files), files=tuple(files), positions=spans
    )


def _widen(spans: dict[str, Span], table: Any) -> None:
    """Let `spans` cover the rows of `table` too. (Ledger ids grow along a partition's log, and entry ids in a ledger.)"""
    grouped = table.group_by(["__topic", "__partition", "__ledger"]).aggregate([("__entry", "min"), ("__entry", "max")])
    for row in grouped.to_pylist():
        partition = row["__partition"]
        name = row["__topic"] if partition is None else f"{row['__topic']}-partition-{partition}"
        first: EntryPosition = (row["__ledger"], row["__entry_min"])
        last: EntryPosition = (row["__ledger"], row["__entry_max"])
        known = spans.get(name, Span(first, last))
        spans[name] = Span(min(known.first, first), max(known.last, last))


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="archive",
        description="Archive topics as Parquet by publish date, each message once, however often this is killed and started again.",
    )
    running.source_arguments(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder of the archive; one writer at a time")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="the checkpoint is lost: go on with a new one, behind the highest positions in the archive",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, *, observe: Observe = unobserved) -> int:
    """0: all that was to be archived is; 1: it went wrong on the way; 2: it could not be started. `argv`: None for the
    process's own."""
    given = arguments(argv)
    display = make_display(Console())
    started = False
    try:
        out = running.local_path(given.out, "--out")
        checkpoint = running.local_path(given.checkpoint, "--checkpoint")
        # (a name that stays: another one after a restart would hold nothing of what is not read yet)
        source = running.source_options(given, f"archive-{out.name}")
        _check_columns(Options.parse(source, use="stream"))
        _check_start(out, checkpoint, given.resume)
        with running.stop_on_signals() as stop:
            display.now("starting Spark")
            session = running.make_session(
                "quire-archive", given.master, running.pairs(given.conf, "--conf"), verbose=given.verbose
            )
            started = True
            try:
                archive(
                    session,
                    source,
                    out,
                    checkpoint,
                    trigger=given.trigger,
                    resume=given.resume,
                    display=display,
                    stop=stop,
                    observe=observe,
                )
            finally:
                running.end_session(session, stop)
    except (SparkSourceError, OSError) as error:
        display.close()
        print(f"archive: {running.one_line(error)}", file=sys.stderr)
        return 1 if started else 2
    finally:
        display.close()
    return 0


def archive(
    session: Any,
    source: Mapping[str, str],
    out: Path,
    checkpoint: Path,
    *,
    trigger: str = running.AVAILABLE_NOW,
    resume: bool = False,
    display: Display | None = None,
    stop: running.Stop | None = None,
    observe: Observe = unobserved,
) -> Totals:
    """Archive into `out` on a session that is there; what this run added. `source`: options of the source; `trigger`: as from
    `running.trigger`. Returns when the query ends: of its own with availableNow, else with `stop`. PipelineError if it fails."""
    shown = PlainDisplay(Console(quiet=True)) if display is None else display
    options = dict(source)
    checked = Options.parse(options, use="stream")
    _check_columns(checked)
    private = session.newSession()
    for name, value in SESSION_CONF.items():
        private.conf.set(name, value)
    with writing(out) as manifest:
        start = plan_start(manifest.manifest, str(checkpoint), query_of(checkpoint), resume=resume)
        if start.resumed:
            offsets = starting_offsets(start.resumed, partitions_of(checked))
            options = running.without(options, *running.STARTS) | {"startingOffsets": offsets}
            where = ", ".join(f"{name} at {entry}" for name, entry in start.resumed.items())
            shown.line(f"resuming behind batch {start.base - 1}: {where}")
        if start.begin is not None:
            manifest.append(start.begin)
        writer = BatchWriter(out, checkpoint, manifest, start.base, observe=observe)
        begun = time.monotonic()
        try:
            with running.told():
                query = (
                    private.readStream.format("quire")
                    .options(**options)
                    .load()
                    .writeStream.foreachBatch(writer)
                    .queryName("archive")
                    .option("checkpointLocation", running.spark_path(checkpoint))
                    .trigger(**running.trigger_arguments(trigger))
                    .start()
                )
            running.watch(query, shown, stop or running.Stop(), base=start.base)
        finally:
            shown.close()
            for line in writer.totals.lines(time.monotonic() - begun):
                shown.line(line)
    return writer.totals


def _check_start(out: Path, checkpoint: Path, resume: bool) -> None:
    """What `archive` checks again when it holds the lock: told before Spark is started, which takes its time."""
    plan_start(read_manifest(out), str(checkpoint), query_of(checkpoint), resume=resume)


def _check_columns(options: Options) -> None:
    missing = [name for name in NEEDED if name not in options.columns]
    if missing:
        raise PipelineError(f"option columns leaves out {', '.join(missing)}, which an archive needs: name them too")


def partitions_of(options: Options) -> list[str]:
    """Full names of all partitions that there are to read; SourceUnavailableError."""

    async def ask() -> list[str]:
        lease = await runtime().lease(options.service_url, client_options(options))
        try:
            topics: Sequence[str] = options.topics
            if options.topics_pattern is not None:
                topics = options.topics_pattern.topics(await lease.client.topics(options.topics_pattern.namespace))
            return [name for topic in topics for name in partition_names(topic, await lease.client.partitions(topic))]
        finally:
            lease.release()

    try:
        return runtime().call(ask)
    except ClientError as error:
        raise SourceUnavailableError(f"the brokers cannot say which partitions there are: {error}") from error
