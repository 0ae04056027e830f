"""Attempt of a task, the names and numbers under which it writes, and its result; checks of its query."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from quire.spark.errors import SinkError

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
"""Local properties of a streaming task. Spark sets them without documenting them; a test pins them."""

ADAPTIVE_STATELESS = "spark.sql.adaptive.streaming.stateless.enabled"
"""Spark's setting, true by default since 4.1, with which the number of tasks of a batch depends on its size."""


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
    adaptive: bool = False
    """True if ADAPTIVE_STATELESS is on."""

    @classmethod
    def current(cls) -> Attempt:
        """Return the attempt that this process runs now; empty values outside a task."""
        context = TaskContext.get()
        if context is None:
            return cls("", -1, 0, 0)
        batch = context.getLocalProperty(BATCH_ID)
        query = context.getLocalProperty(QUERY_ID)
        # a setting that the session does not have is at Spark's default
        adaptive = (context.getLocalProperty(ADAPTIVE_STATELESS) or "true").lower() != "false"
        number = int(batch) if batch else -1
        return cls(query or "", number, context.partitionId(), context.taskAttemptId(), adaptive)

    def producer_name(self) -> str:
        """Return a unique producer name: a hanging attempt must not keep the next one from its topics."""
        job = f"{self.query_id}-{self.batch_id}" if self.query_id else "batch"
        return f"quire-spark-{job}-{self.partition}-{self.attempt_id}-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """TaskIdentity of a task, which its repetitions have in common and other tasks do not."""

    writer: str
    """Name of the query, application or job, with its kind."""
    batch_id: int
    partition: int

    def producer_name(self) -> str:
        """Return the name under which the broker recognizes rows that it has."""
        return f"quire-spark-{self.writer}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # (pyspark's classes are not seen by the type checker)
    """Result of one task; its rows are durable. Also of a task without rows."""

    attempt: Attempt
    rows: int = 0
    size_bytes: int = 0
    """Bytes of the values."""
    topics: int = 0


def check_settings(attempt: Attempt) -> None:
    """Check what Spark says of a streaming task. Raises SinkError."""
    if not attempt.query_id or attempt.batch_id < 0:
        raise SinkError(
            "exactlyOnce needs the ids of query and batch, which this version of Spark does not give to its tasks: use"
            " foreachBatch, and a batch write with the options txnAppId and txnVersion"
        )
    if attempt.adaptive:
        raise SinkError(
            "exactlyOnce needs the same tasks whenever a batch is repeated, and Spark may choose another number: set"
            f" spark.conf.set({ADAPTIVE_STATELESS!r}, 'false') before the query is started"
        )


def pending_since(checkpoint: str) -> int:
    """Return when the last batch of a checkpoint was begun, in ms since 1970; 0: unknown.

    Only a folder of this machine can be looked at; Spark's planner runs next to the driver."""
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return 0
    offsets = os.path.join(unquote(parts.path) if parts.scheme else checkpoint, "offsets")
    try:
        batches = [int(name) for name in os.listdir(offsets) if name.isdigit()]
        return int(os.stat(os.path.join(offsets, str(max(batches)))).st_mtime * 1000) if batches else 0
    except OSError:
        return 0
