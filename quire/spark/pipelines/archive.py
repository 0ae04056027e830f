"""Archive of topics in Parquet files by date: exactly once for readers of the manifest, after any crash.

    OUT/_manifest.jsonl                              which files count (see manifest.py)
    OUT/batch=<number>/dt=<publish date>/part-*.parquet

Each batch of the stream is written into its own folder, which a repetition writes anew; then its files are made
durable, then a line of the manifest names them. So a batch that Spark repeats after a crash is either in the manifest,
and left out, or it is not, and replaced. Read an archive with `quire.spark.pipelines.reader.read_archive`.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from quire.client.errors import ClientError
from quire.service.programs.command_line import command_app, run_app
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
"""Called with the stage of a batch (its number in the archive): "begun", "written", "recorded". Tests kill there."""


def unobserved(point: str, batch: int) -> None:
    """Default observer: does nothing."""


NEEDED = ("__topic", "__partition", "__ledger", "__entry", "__publishTime")
"""Columns for the end of a batch, and for its rows' dates."""

SESSION_CONF = {
    # Days are in UTC, whatever the machine's zone; times are written so that every reader of Parquet understands them.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A task that writes several days keeps a file open for each, instead of sorting its rows by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}


@dataclass(slots=True)
class Totals:
    """Totals of this run."""

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
        """Return the lines of the summary."""
        rate = self.rows / seconds if seconds > 0 else 0.0
        return [
            f"archived {self.rows} rows in {self.files} files, {self.size_bytes} bytes, {self.batches} batches",
            f"in {seconds:.1f} s, {rate:.0f} rows/s",
        ]


@dataclass(slots=True)
class BatchWriter:
    """Writer of each batch of the stream."""

    out: Path
    checkpoint: Path
    manifest: ManifestWriter
    base: int
    totals: Totals = field(default_factory=Totals)
    observe: Observe = unobserved

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Write the rows of `frame` as batch `base + batch_id`, once. Raises CheckpointError: the number is another
        query's."""
        number = self.base + batch_id
        # Spark writes the checkpoint's metadata before the first batch
        query = query_of(self.checkpoint)
        if query is None:
            raise CheckpointError(f"the checkpoint in {self.checkpoint} was removed while in use")
        self.observe("begun", number)
        known = self.manifest.manifest.batch(number)
        if known is not None:
            if known.query != query:
                raise CheckpointError(
                    f"batch {number} of {self.out} was written by query {known.query}, but this is query {query}"
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
    """Return the record of a batch's folder: its files, from their footers, and the positions of their rows. None: no
    rows."""
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
    """Extend `spans` to the rows of `table`. Ledger ids ascend along a partition's log, and entry ids in a ledger."""
    grouped = table.group_by(["__topic", "__partition", "__ledger"]).aggregate([("__entry", "min"), ("__entry", "max")])
    for row in grouped.to_pylist():
        partition = row["__partition"]
        name = row["__topic"] if partition is None else f"{row['__topic']}-partition-{partition}"
        first: EntryPosition = (row["__ledger"], row["__entry_min"])
        last: EntryPosition = (row["__ledger"], row["__entry_max"])
        known = spans.get(name, Span(first, last))
        spans[name] = Span(min(known.first, first), max(known.last, last))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFlags:
    """Values of the command line."""

    source: running.SourceFlags
    checkpoint: Path
    out: Path
    resume: bool
    trigger: str
    verbose: bool
    master: str | None
    conf: Sequence[str] | None


def command(run: Callable[[ArchiveFlags], int]) -> Callable[..., int]:
    """Return the command, which runs with the values of the command line and returns the exit code."""

    def archive(
        checkpoint: running.Checkpoint,
        out: Annotated[Path, typer.Option(help="Folder of the archive; one writer at a time.", show_default=False)],
        resume: Annotated[
            bool,
            typer.Option(
                "--resume",
                help="Continue with a new checkpoint after the highest positions in the archive, if the old one is "
                "lost.",
            ),
        ] = False,
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
        return run(
            ArchiveFlags(
                source=source,
                checkpoint=checkpoint,
                out=out,
                resume=resume,
                trigger=running.trigger(trigger),
                verbose=verbose,
                master=master,
                conf=conf,
            )
        )

    return archive


def main(argv: Sequence[str] | None = None, *, observe: Observe = unobserved) -> int:
    """Run the pipeline; return the exit code.

    0: everything was archived; 1: it failed on the way; 2: it could not be started. `argv`: None for the process's
    own."""
    return run_app(program(observe=observe), argv, name="archive")


def program(*, observe: Observe = unobserved) -> typer.Typer:
    """Return the pipeline as a program: that of scripts/pipelines and of `quire pipeline`."""
    return command_app(
        command(partial(_run, observe=observe)),
        "Archive topics as Parquet by publish date, each message once, even after crashes and restarts.",
    )


def _run(given: ArchiveFlags, *, observe: Observe) -> int:
    display = make_display(Console())
    started = False
    try:
        out = running.local_path(given.out, "--out")
        checkpoint = running.local_path(given.checkpoint, "--checkpoint")
        # a fixed name: another one after a restart would not retain the unread data
        source = running.source_options(given.source, f"archive-{out.name}")
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
    """Archive topics with an existing session.

    Args:
        session: the Spark session.
        source: options of the source.
        out: folder of the archive.
        checkpoint: folder of the query's checkpoint.
        trigger: a value of `running.trigger`.
        resume: continue with a new checkpoint behind the highest positions in the archive.
        display: shows progress; None: nothing is shown.
        stop: ends the query when set; with availableNow it ends by itself.
        observe: called at each stage of a batch.

    Returns:
        The totals of this run.

    Raises:
        PipelineError: the query failed or could not start.
    """
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
            running.watch(query, shown, stop or running.Stop(), line=lambda batch: batch.line(start.base))
        finally:
            shown.close()
            for line in writer.totals.lines(time.monotonic() - begun):
                shown.line(line)
    return writer.totals


def _check_start(out: Path, checkpoint: Path, resume: bool) -> None:
    """Check, before Spark is started, what `archive` checks again when it holds the lock."""
    plan_start(read_manifest(out), str(checkpoint), query_of(checkpoint), resume=resume)


def _check_columns(options: Options) -> None:
    missing = [name for name in NEEDED if name not in options.columns]
    if missing:
        raise PipelineError(f"option columns lacks {', '.join(missing)}, which an archive needs: add them")


def partitions_of(options: Options) -> list[str]:
    """Return the full names of all existing partitions to read. Raises SourceUnavailableError."""

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
        raise SourceUnavailableError(f"the brokers cannot list the partitions: {error}") from error
