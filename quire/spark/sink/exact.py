"""Writing of one attempt of one task so that all attempts together write each row once.

All attempts use one producer name, and give each row the same sequence id; the broker drops what it has. `sequences`
has the rules, and `promise` what topics and settings must fulfil. While one attempt runs, the broker refuses its name
to a second, speculative one, which waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from quire.spark.admin import Admin
from quire.spark.errors import SinkError
from quire.spark.options.parse import Options
from quire.spark.runtime import credentials_of
from quire.spark.sink.attempts import Attempt, TaskIdentity, Written
from quire.spark.sink.columns import Rows, SinkColumns
from quire.spark.sink.input_end import input_ended
from quire.spark.sink.promise import Promise
from quire.spark.sink.routing import Indexes
from quire.spark.sink.sequences import TargetSequence
from quire.spark.sink.sorting import sorted_rows
from quire.spark.sink.task_writer import Blocking, Door, TaskWriter
from quire.spark.topics import partitioned_name
from quire.spark.values.encoding import Encoding


class Checks(Protocol):
    """Checks of topics; `Promise`, or a test's."""

    def check(self, topic: str) -> None: ...

    def close(self) -> None: ...


def promise_of(options: Options, pending_ms: int) -> Promise:
    """Return the checks of a task, with a client of its own."""
    admin = Admin(
        options.admin_url,
        timeout_s=options.operation_timeout_ms / 1000,
        tls=options.tls,
        credentials=credentials_of(options),
    )
    return Promise(admin, pending_ms)


class ExactTaskWriter(TaskWriter):
    """Writer whose repetition writes nothing again."""

    def __init__(
        self,
        options: Options,
        columns: SinkColumns,
        attempt: Attempt,
        identity: TaskIdentity,
        checks: Checks,
        open_door: Callable[[Options, str], Door] = Blocking,
        ended: Callable[[], bool | None] = input_ended,
        encoding: Encoding | None = None,
    ) -> None:
        """`ended`: returns whether the rows have ended as they should."""
        super().__init__(options, columns, attempt, open_door, encoding)
        self._identity = identity
        self._checks = checks
        self._ended = ended
        self._sequences: dict[str, TargetSequence] = {}
        """One per target that the task writes to."""
        self._checked: set[str] = set()

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole = self._whole(batches)
        return super()._pieces(
            sorted_rows(whole, self._columns, encode=self._encode) if self._options.sort_rows else whole
        )

    def _whole(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows. Raises SinkError behind the last one if Spark has not sent all."""
        yield from batches
        ended = self._ended()
        if ended is False:
            raise SinkError("the rows ended early, because what comes before the sink failed")
        if ended is None and self._options.sort_rows:
            raise SinkError("sortRows needs all rows of a task, and this version of Spark does not show if it has them")

    _in_order = True

    def _name(self) -> str:
        return self._identity.producer_name()

    def _send(self, door: Door, rows: Rows, routed: Mapping[str, Indexes]) -> None:
        for target, indexes in routed.items():
            sequence = self._sequences.get(target)
            if sequence is None:
                sequence = self._sequences[target] = TargetSequence(target, self._identity.batch_id)
            chosen = rows.take(indexes)
            last_id = door.last_id(target)  # opens a producer, which makes a missing topic
            self._check(target)
            cut = sequence.begin(chosen, last_id)
            entries = self._packed_for(chosen.take(range(cut)), target) if cut else []
            if cut < len(chosen):
                entries += self._packed_for(chosen.take(range(cut, len(chosen))), target)
            door.send([(target, sequence.numbered(entries))])

    def _check(self, target: str) -> None:
        """Check the topic of a target, once and before its first row."""
        topic = partitioned_name(target)
        if topic not in self._checked:
            self._checks.check(topic)
            self._checked.add(topic)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        try:
            return super().write(batches)
        finally:
            self._checks.close()

    def _finish(self) -> None:
        super()._finish()
        for sequence in self._sequences.values():
            sequence.finish()
