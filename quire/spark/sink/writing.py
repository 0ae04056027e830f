"""The sink: rows of a DataFrame, or of a stream's batches, to messages of topics.

When Spark calls a batch or a write done, every row of it is durable in its topic. At least once is the rule: a task
that fails and is tried again, a speculative second attempt, and a batch that is replayed after a crash send their rows
once more, and readers then see those rows twice. With the option exactlyOnce the brokers drop the repetitions.

Only the tasks need a client, so only they import it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from quire.spark.collector import settle
from quire.spark.errors import OptionError, SinkError
from quire.spark.options.parse import VERSION_MAX, Options
from quire.spark.plain_errors import plain_errors
from quire.spark.sink.attempts import Attempt, TaskIdentity, Written, check_settings, pending_since
from quire.spark.sink.columns import SinkColumns
from quire.spark.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

    from quire.spark.sink.task_writer import TaskWriter
    from quire.spark.values.encoding import Encoding

log = logging.getLogger(__name__)

AT_LEAST_ONCE = "the sink writes at least once: a retry sends its rows again"
EXACTLY_ONCE = "the sink writes exactly once: of a retry, brokers drop the rows that they have"


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
            self._columns, self._encoding = _planned(self._options, schema)
            application = self._options.application
            # made once for all attempts of all tasks, which get copies
            self._writer = f"application-{application}" if application else f"job-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        attempt = Attempt.current()
        if not self._options.exactly_once:
            return _write(
                _task(self._options, self._columns, self._encoding, attempt), self._options, attempt, iterator
            )
        identity = TaskIdentity(self._writer, self._options.version, attempt.partition)
        return _write_exactly(self._options, self._columns, self._encoding, attempt, identity, 0, iterator)

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
            if self._options.application:
                raise OptionError(
                    "txnAppId", self._options.application, "it is for batch writes: a stream has its query's id"
                )
            self._columns, self._encoding = _planned(self._options, schema)
            by_name = {name.lower(): value for name, value in options.items()}
            self._pending_ms = pending_since(by_name.get("checkpointlocation", "")) if self._options.exactly_once else 0
        settle()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        attempt = Attempt.current()
        if not self._options.exactly_once:
            return _write(
                _task(self._options, self._columns, self._encoding, attempt), self._options, attempt, iterator
            )
        with plain_errors():
            check_settings(attempt)
        if attempt.batch_id > VERSION_MAX:
            raise SinkError(f"exactlyOnce numbers batches up to {VERSION_MAX}: begin with a new checkpoint")
        identity = TaskIdentity(f"query-{attempt.query_id}", attempt.batch_id, attempt.partition)
        return _write_exactly(
            self._options, self._columns, self._encoding, attempt, identity, self._pending_ms, iterator
        )

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _committed(f"batch {batchId}", self._options, messages)

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803
        _aborted(f"batch {batchId}", self._options, messages)


def fields_of(schema: Any) -> list[tuple[str, str]]:
    """Return name and simple type of each column of a StructType."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _planned(options: Options, schema: Any) -> tuple[SinkColumns, Encoding | None]:
    """Return the columns of a StructType, and how `value` is encoded. Raises SinkError."""
    encoded = options.encode != "none"
    columns = SinkColumns.plan(fields_of(schema), options.topic or None, encoded=encoded)
    if not encoded:
        return columns, None
    from quire.spark.values.encoding import Encoding

    encoding = Encoding.plan(options.encode, schema.fields[columns.value].dataType, options.record_name, options.pairs)
    if encoding.separated and columns.key >= 0:
        raise SinkError(
            "column __key: with keyValueEncoding=separated the key of a pair is that of the message: drop this column,"
            " or set keyValueEncoding=inline"
        )
    return columns, encoding


def _task(options: Options, columns: SinkColumns, encoding: Encoding | None, attempt: Attempt) -> TaskWriter:
    from quire.spark.sink.task_writer import TaskWriter

    return TaskWriter(options, columns, attempt, encoding=encoding)


def _write_exactly(
    options: Options,
    columns: SinkColumns,
    encoding: Encoding | None,
    attempt: Attempt,
    identity: TaskIdentity,
    pending_ms: int,
    batches: Iterator[pa.RecordBatch],
) -> Written:
    from quire.spark.sink.exact import ExactTaskWriter, promise_of

    checks = promise_of(options, pending_ms)
    writer = ExactTaskWriter(options, columns, attempt, identity, checks, encoding=encoding)
    return _write(writer, options, attempt, batches)


def _write(writer: TaskWriter, options: Options, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Written:
    trace = Trace(options.trace)
    trace.note("writing", query=attempt.query_id, batch=attempt.batch_id, task=attempt.partition)
    with plain_errors():
        written = writer.write(batches)
    trace.note("written", query=attempt.query_id, batch=attempt.batch_id, task=attempt.partition, rows=written.rows)
    settle()
    return written


def _committed(what: str, options: Options, messages: Sequence[Written | None]) -> None:
    rows = sum(message.rows for message in messages if message is not None)
    size = sum(message.size_bytes for message in messages if message is not None)
    Trace(options.trace).note("sink committed", what=what, rows=rows, tasks=len(messages))
    log.info(
        "%s wrote %d rows, %d bytes of values, in %d tasks; %s", what, rows, size, len(messages), _guarantee(options)
    )


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
        _guarantee(options),
    )


def _guarantee(options: Options) -> str:
    return EXACTLY_ONCE if options.exactly_once else AT_LEAST_ONCE
