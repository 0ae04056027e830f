"""Readers that Spark makes of the source, and what they give it: partitions in the process that plans, rows in the
workers.

Spark pickles a reader from one process into others, and each of them uses a part of it. So each call imports what it
needs: a process that plans no Arrow, and a worker no planner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from quire.spark.collector import settle
from quire.spark.errors import SparkSourceError
from quire.spark.limits import Limits
from quire.spark.offsets import Offsets
from quire.spark.options.parse import Options
from quire.spark.plain_errors import hide_traceback, plain_errors
from quire.spark.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

    from quire.spark.planning.planner import Planner
    from quire.spark.planning.tasks import TopicRange
    from quire.spark.values.decoded import Decoding


class RangePartition(InputPartition):  # type: ignore[misc]  # (pyspark's classes are not seen by the type checker)
    """Input partition of one task."""

    def __init__(self, work: TopicRange) -> None:
        self.work = work


class _Reading:
    """Common part of both readers in a worker. Pickles: options, names and schemas only."""

    def __init__(self, options: Options, names: tuple[str, ...], decoding: Decoding | None = None) -> None:
        self._options = options
        self._names = names
        self._decoding = decoding
        self._trace = Trace(options.trace)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, as record batches; none for the empty partition that Spark makes when there
        is none."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return self._read(partition.work)

    def _read(self, work: TopicRange) -> Iterator[pa.RecordBatch]:
        batch_id = _batch_id()
        self._trace.note("read", partition=work.partition, ranges=work.ranges, batch=batch_id)
        rows = 0
        with plain_errors():
            for batch in self._batches(work):
                rows += batch.num_rows
                yield batch
        self._trace.note("read-done", partition=work.partition, ranges=work.ranges, batch=batch_id, rows=rows)
        settle()

    def _batches(self, work: TopicRange) -> Iterator[pa.RecordBatch]:
        from quire.spark.reading.columns import Columns
        from quire.spark.reading.scan import read_range

        decoding = self._decoding
        if decoding is None:
            yield from read_range(work, self._options, Columns(self._names, work.partition))
            return
        from quire.spark.values.decoded import DecodedBatches
        from quire.spark.values.letters import letters_to_topic
        from quire.spark.values.registry import Registry

        with closing(Registry(self._options)) as registry:
            decoder = DecodedBatches(decoding, work.partition, registry, letters_to_topic(self._options))
            for raw in read_range(work, self._options, Columns(decoding.raw_names, work.partition)):
                yield decoder.batch(raw)
        self._trace.note("decoded", partition=work.partition, undecodable=decoder.undecodable)


class QuireReader(_Reading, DataSourceReader):  # type: ignore[misc]
    """Batch reader of the log as it is when the ranges are planned, which is once for each DataFrame."""

    def partitions(self) -> list[RangePartition]:
        with plain_errors():
            from quire.spark.planning.planner import Planner

            planner = Planner(self._options, trace=self._trace)
            try:
                return [RangePartition(work) for work in planner.batch()]
            finally:
                planner.close()


class QuireStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Stream reader. Offsets go in and out as Spark stores them, in the one canonical form."""

    def __init__(self, options: Options, names: tuple[str, ...], decoding: Decoding | None = None) -> None:
        super().__init__(options, names, decoding)
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, object]:
        # A worker reads and does not plan, so no connection is pickled.
        return {**self.__dict__, "_planner": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the read limit. Spark has limits of one kind; with both, rows are limited by Spark, and bytes by the
        planner."""
        limits = self._options.limits
        self._trace.note("getDefaultReadLimit")
        if limits.messages_max is not None:
            return ReadMaxRows(limits.messages_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.messages_min is not None:
            return ReadMinRows(limits.messages_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with plain_errors():
            target = self._plan().prepare_available_now()
        self._trace.note("prepareForTriggerAvailableNow", target=target.to_json_dict())

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        with plain_errors():
            start = self._plan().initial().to_json_dict()
        self._trace.note("initialOffset", start=start)
        return start

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        with plain_errors():
            limits = Limits.of(limit, self._options.limits)
            found = self._plan().latest(Offsets.from_json(start), limits).to_json_dict()
        self._trace.note("latestOffset", start=start, limit=repr(limit), end=found)
        return found

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802
        with plain_errors():
            return self._plan().report()

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[RangePartition]:
        with plain_errors():
            works = self._plan().plan(Offsets.from_json(start), Offsets.from_json(end))
        self._trace.note("partitions", start=start, end=end, tasks=len(works))
        return [RangePartition(work) for work in works]

    def commit(self, end: Mapping[str, object]) -> None:
        with plain_errors():
            self._plan().commit(Offsets.from_json(end))
        self._trace.note("commit", end=end)

    def stop(self) -> None:
        """Do nothing; see the module."""
        self._trace.note("stop")

    def _plan(self) -> Planner:
        if self._planner is None:
            from quire.spark.planning.planner import Planner

            self._planner = Planner(self._options, trace=self._trace)
        return self._planner


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reader of an invalid stream: every call raises its error. Source:
    pyspark.sql.streaming.python_streaming_source_runner.main."""

    def __init__(self, error: SparkSourceError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._refusal()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        raise self._refusal()

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        raise self._refusal()

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        raise self._refusal()

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[RangePartition]:
        raise self._refusal()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._refusal()

    def _refusal(self) -> SparkSourceError:
        hide_traceback()
        return self._error


def _batch_id() -> int | None:
    """Return the number of the micro-batch that this task belongs to; None outside a stream.

    Not in Spark's contract: a test pins it."""
    context = TaskContext.get()
    found = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return None if found is None else int(found)
