"""The sink: rows of a DataFrame, or of a stream's batches, to messages of topics. At least once.

What that means: when Spark calls a batch or a write done, every row of it is durable in its topic. A task that fails
and is tried again, a speculative second attempt, and a batch that is replayed after a crash send their rows once more,
and readers then see those rows twice. Within one attempt of a task the rows of a key keep their order.

An attempt of a task names its producers after itself (`Attempt.producer_name`), and its rows are sent in the order in
which Spark gives them. Exactly once, by sequence ids that a replay repeats, needs from here only another name and a
first sequence id, both of which `Attempt` has the parts for.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from quire.client.errors import NotAllowedError
from quire.client.packing import Packed, pack
from quire.client.routing import HashingScheme
from quire.spark.errors import SinkError
from quire.spark.options.parse import Options
from quire.spark.plain_errors import plain_errors
from quire.spark.runtime import client_options, runtime
from quire.spark.sink.columns import VALUE, Rows, SinkColumns, pieces, shown
from quire.spark.sink.producers import Producers
from quire.spark.sink.routing import Indexes, Router
from quire.spark.trace import Trace

log = logging.getLogger(__name__)

AT_LEAST_ONCE = "the sink writes at least once: a retry sends its rows again"

UNLIMITED = 1 << 30

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
"""Local properties of a streaming task. Spark sets them without documenting them; a test pins them."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task, as Spark describes it."""

    query_id: str
    """Query id of a stream, stable over restarts from the same checkpoint. Empty: a batch write."""
    batch_id: int
    """Batch number of a stream; -1: a batch write."""
    partition: int
    """Partition of the data that is written: the task's number within its stage."""
    attempt_id: int
    """Number that differs for each attempt of each task of one application."""

    @classmethod
    def current(cls) -> Attempt:
        """Return the attempt that this process runs now; empty values outside a task."""
        context = TaskContext.get()
        if context is None:
            return cls("", -1, 0, 0)
        batch = context.getLocalProperty(BATCH_ID)
        query = context.getLocalProperty(QUERY_ID)
        return cls(query or "", int(batch) if batch else -1, context.partitionId(), context.taskAttemptId())

    def producer_name(self) -> str:
        """Return a unique producer name: a hanging attempt must not keep the next one from its topics."""
        job = f"{self.query_id}-{self.batch_id}" if self.query_id else "batch"
        return f"quire-spark-{job}-{self.partition}-{self.attempt_id}-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # (pyspark's classes are not seen by the type checker)
    """Result of one task; its rows are durable. Also of a task without rows."""

    attempt: Attempt
    rows: int = 0
    size_bytes: int = 0
    """Bytes of the values."""
    topics: int = 0


class Door(Protocol):
    """Interface of producers for a writer, blocking: `Producers` on the runtime's loop, or a test's."""

    def partitions(self, topics: Sequence[str]) -> list[int]: ...

    def send(self, runs: Sequence[tuple[str, Sequence[Packed]]]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _Blocking:
    """`Producers` on the runtime's loop, for the thread of a task."""

    def __init__(self, options: Options, name: str) -> None:
        self._call = runtime().call
        self._lease = self._call(runtime().lease, options.service_url, client_options(options))
        self._producers = Producers(self._lease.client, name)

    def partitions(self, topics: Sequence[str]) -> list[int]:
        return self._call(self._producers.partitions, topics)

    def send(self, runs: Sequence[tuple[str, Sequence[Packed]]]) -> None:
        self._call(self._producers.send, runs)

    def flush(self) -> None:
        self._call(self._producers.flush)

    def close(self) -> None:
        self._call(self._close)

    async def _close(self) -> None:
        try:
            await self._producers.close()
        finally:
            self._lease.release()


class TaskWriter:
    """Writer of the rows of one attempt of one task."""

    def __init__(
        self,
        options: Options,
        columns: SinkColumns,
        attempt: Attempt,
        open_door: Callable[[Options, str], Door] = _Blocking,
    ) -> None:
        self._options = options
        self._columns = columns
        self._attempt = attempt
        self._open_door = open_door
        self._router = Router(
            options.topic or None, cast(HashingScheme, options.hashing_scheme), first=attempt.partition
        )
        self._door: Door | None = None
        self._rows = 0
        self._size = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows, and wait until all are durable. A task without rows opens nothing. Raises SinkError."""
        try:
            for batch in batches:
                for piece in pieces(batch):
                    self._write(piece)
            if self._door is not None:
                self._door.flush()
        finally:
            if self._door is not None:
                self._door.close()
        return Written(self._attempt, self._rows, self._size, self._router.count)

    def _write(self, piece: pa.RecordBatch) -> None:
        rows = self._columns.rows(piece)
        topics = self._router.topics(rows)
        if self._door is None:
            self._door = self._open_door(self._options, self._attempt.producer_name())
        unknown = self._router.unknown(topics)
        if unknown:
            for topic, count in zip(unknown, self._door.partitions(unknown), strict=True):
                self._router.tell(topic, count)
        runs = [
            (target, self._pack(rows, indexes, target)) for target, indexes in self._router.route(rows, topics).items()
        ]
        try:
            self._door.send(runs)
        except SinkError as error:
            if isinstance(error.__cause__, NotAllowedError):
                raise SinkError(f"{error}{_largest(rows)}") from error
            raise
        self._rows += len(rows)
        self._size += sum(len(value) for value in rows.values if value is not None)

    def _pack(self, rows: Rows, indexes: Indexes, target: str) -> list[Packed]:
        all_of_them = len(indexes) == len(rows)  # ascending, so they are all, in order
        taken = rows if all_of_them else rows.take(indexes)
        try:
            return self._packed(taken)
        except ValueError as error:
            raise SinkError(self._culprit(taken, target, error)) from error

    def _packed(self, rows: Rows) -> list[Packed]:
        return pack(
            rows.values,
            rows.keys,
            rows.properties,
            rows.event_ms,
            batch=self._options.batching,
            compression=self._options.compression,
            # the broker announces its limit to the producer, which applies it
            message_size_max=UNLIMITED,
        )

    def _culprit(self, rows: Rows, target: str, error: ValueError) -> str:
        """Find the row that cannot be sent, by packing each alone; only a failing task has this cost."""
        for number in range(len(rows)):
            row = rows.take([number])
            try:
                self._packed(row)
            except ValueError as alone:
                size = len(row.values[0] or b"")
                key = f" (key {shown(row.keys[0])})" if row.keys is not None else ""
                return (
                    f"column {VALUE} of {size} bytes, {shown(row.values[0])}{key}, cannot be written to {target}: "
                    f"{alone}"
                )
        return f"rows for {target} cannot be written: {error}"


class QuireWriter(DataSourceArrowWriter):  # type: ignore[misc]  # (pyspark's classes are not seen by the type checker)
    """Batch writer, mode append. Plain data only: Spark pickles it to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        """Check options and columns, so that invalid ones are refused when the write is planned.

        Args:
            options: options of the sink.
            schema: the StructType of the rows.
            overwrite: whether mode overwrite was requested, which is refused.

        Raises:
            OptionError: an option is invalid.
            SinkError: a column cannot be written.
        """
        with plain_errors():
            if overwrite:
                raise SinkError(
                    "mode overwrite would have to delete what the topic has, which this sink never does: use"
                    " .mode('append'), and write to a new topic, or delete the old one first"
                )
            self._options = Options.parse(options, use="write")
            self._columns = SinkColumns.plan(fields_of(schema), self._options.topic or None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, self._columns, iterator)

    def commit(self, messages: Sequence[Written | None]) -> None:
        _committed("a batch write", self._options, messages)

    def abort(self, messages: Sequence[Written | None]) -> None:
        _aborted("a batch write", self._options, messages)


class QuireStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # (as above)
    """Streaming writer, output mode append. Spark makes it twice per batch, and pickles it, so it keeps no state."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        """Check options and columns; see QuireWriter."""
        with plain_errors():
            if overwrite:
                raise SinkError(
                    "output mode complete sends the whole result again with every batch: use "
                    "outputMode('append') with a"
                    " watermark, or foreachBatch with a batch write"
                )
            self._options = Options.parse(options, use="write")
            self._columns = SinkColumns.plan(fields_of(schema), self._options.topic or None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, self._columns, iterator)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _committed(f"batch {batchId}", self._options, messages)

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803
        _aborted(f"batch {batchId}", self._options, messages)


def fields_of(schema: Any) -> list[tuple[str, str]]:
    """Return name and simple type of each column of a StructType."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _largest(rows: Rows) -> str:
    size, at = max((len(value or b""), -at) for at, value in enumerate(rows.values))
    key = f" (key {shown(rows.keys[-at])})" if rows.keys is not None else ""
    return f"; the largest row sent with it has a column {VALUE} of {size} bytes, {shown(rows.values[-at])}{key}"


def _write(options: Options, columns: SinkColumns, batches: Iterator[pa.RecordBatch]) -> Written:
    attempt = Attempt.current()
    with plain_errors():
        written = TaskWriter(options, columns, attempt).write(batches)
    Trace(options.trace).note(
        "written", query=attempt.query_id, batch=attempt.batch_id, task=attempt.partition, rows=written.rows
    )
    return written


def _committed(what: str, options: Options, messages: Sequence[Written | None]) -> None:
    rows = sum(message.rows for message in messages if message is not None)
    size = sum(message.size_bytes for message in messages if message is not None)
    Trace(options.trace).note("sink committed", what=what, rows=rows, tasks=len(messages))
    log.info("%s wrote %d rows, %d bytes of values, in %d tasks; %s", what, rows, size, len(messages), AT_LEAST_ONCE)


def _aborted(what: str, options: Options, messages: Sequence[Written | None]) -> None:
    # the message of a failed task is None; rows it sent before are not counted
    there = [message for message in messages if message is not None]
    rows = sum(message.rows for message in there)
    Trace(options.trace).note("sink aborted", what=what, rows=rows, tasks=len(messages))
    log.warning(
        "%s was aborted: at least %d rows, of %d of its %d tasks, are in their topics and stay there; %s",
        what,
        rows,
        len(there),
        len(messages),
        AT_LEAST_ONCE,
    )
