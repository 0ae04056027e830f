"""Writing of dead letters by a task of Spark."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from quire.spark.options.parse import Options
from quire.spark.sink.attempts import Attempt
from quire.spark.sink.columns import SinkColumns
from quire.spark.sink.task_writer import TaskWriter
from quire.spark.values.decoded import Letters


def letters_to_topic(options: Options) -> Letters:
    """Return the writer of dead letters of a read, at least once: a repeated task writes its letters again."""
    sink = replace(options, use="write", topic=options.decoding.dead_letter_topic)
    columns = SinkColumns(value=0, key=1, properties=2, event_time=3)

    def write(batch: pa.RecordBatch) -> None:
        TaskWriter(sink, columns, Attempt.current()).write(iter([batch]))

    return write
