"""Sequence ids of an exactly-once sink. Pure.

    batch (28 bits)   position of the row (25 bits)   check of all rows so far (10 bits)

A broker with deduplication drops every send at or below the highest id that it has of the producer's name. So a
repeated task is harmless if each of its rows gets the id that it had before. That is hard because Spark promises
neither the order of the rows behind a shuffle, nor that a repeated batch is cut into the same tasks, and a row with the
id of another one would be dropped: lost. Therefore:

- A position counts the rows of one task for one target, in their order. Arrow's batches, the batching and the
  compression make no difference to it. Nor does the end of the rows: when what comes before the sink fails, Spark ends
  them early without saying so, and what was written is the beginning of the whole.
- An entry that would lie across the end of what the broker has is cut there (`begin` returns where), as the broker
  judges a batch by its first id.
- The id of the last row of an entry has a check of all rows up to it. If the rows of a repetition are others, the check
  of the row at which the broker's ids end is wrong (but for one case of 1024), and the task fails instead.
- A batch below the one that the broker has is refused: the checkpoint is older than the topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crc32c import crc32c

from quire.client.deduplicated.sequenced import Numbered
from quire.client.packing import Packed
from quire.spark.errors import SinkError
from quire.spark.sink.columns import Rows

BATCH_BITS, POSITION_BITS, CHECK_BITS = 28, 25, 10
"""63 bits together: the ids are positive for a broker."""

BATCH_MAX = (1 << BATCH_BITS) - 1
ROWS_MAX = 1 << POSITION_BITS
"""Maximum rows of one task for one target."""
_CHECK_MASK = (1 << CHECK_BITS) - 1


def lowest_id(batch_id: int, position: int) -> int:
    """Return the smallest id of the row at a position, the one at which an entry begins."""
    return (batch_id << POSITION_BITS | position) << CHECK_BITS


def split_id(sequence_id: int) -> tuple[int, int, int]:
    """Return batch, position and check of an id.

    >>> split_id(lowest_id(5, 7) | 1023)
    (5, 7, 1023)
    """
    row = sequence_id >> CHECK_BITS
    return row >> POSITION_BITS, row & (ROWS_MAX - 1), sequence_id & _CHECK_MASK


class TargetSequence:
    """Ids of the rows that one task writes to one target."""

    def __init__(self, target: str, batch_id: int) -> None:
        self._target = target
        self._batch_id = batch_id
        self._next = 0
        """Position of the next row."""
        self._check = 0
        """Checksum of all rows before it."""
        self._checks: list[int] = []
        """Checksums up to each of the rows that `begin` was given."""
        self._stored = -1
        """Last position of this batch that the broker had when the producer was opened."""

    def begin(self, rows: Rows, last_id: int) -> int:
        """Take the next rows.

        Args:
            rows: the rows, in the order in which they are sent.
            last_id: highest id that the broker has of the producer's name; -1: none.

        Returns:
            Index before which an entry has to end; 0: anywhere.

        Raises:
            SinkError: the broker has other rows under these ids, or a later batch; or there are too many rows.
        """
        if self._next + len(rows) > ROWS_MAX:
            raise SinkError(
                f"a task has more than {ROWS_MAX} rows for {self._target}, which exactlyOnce cannot number: use smaller"
                " batches, or repartition the rows into more tasks"
            )
        self._checks = list(_rolling(rows, self._check))
        if last_id < 0:
            return 0
        batch_id, position, check = split_id(last_id)
        if batch_id > self._batch_id:
            raise SinkError(
                f"{self._target} has rows of batch {batch_id} of this writer, and this is batch {self._batch_id}: the"
                " checkpoint (or txnVersion) is older than what was written, and the broker would drop rows that are"
                " new. Begin with a new checkpoint (or txnAppId), at offsets behind the rows that are written"
            )
        if batch_id < self._batch_id:
            return 0
        self._stored = max(self._stored, position)
        cut = position + 1 - self._next
        if not 0 < cut <= len(rows):
            return 0
        if self._checks[cut - 1] & _CHECK_MASK != check:
            raise self._others(position)
        return cut

    def numbered(self, entries: Sequence[Packed]) -> list[Numbered]:
        """Return the entries of the rows that `begin` was given, with their ids."""
        numbered: list[Numbered] = []
        begin = self._next
        first = done = 0
        for entry in entries:
            done = first + entry.count
            numbered.append(
                Numbered(
                    entry.count,
                    entry.size,
                    entry.fields,
                    entry.payload,
                    lowest_id(self._batch_id, begin + first),
                    lowest_id(self._batch_id, begin + done - 1) | self._checks[done - 1] & _CHECK_MASK,
                )
            )
            first = done
        assert done == len(self._checks), "entries of other rows"
        self._next = begin + done
        if self._checks:
            self._check = self._checks[-1]
        self._checks = []
        return numbered

    def finish(self) -> None:
        """Check that the task had all rows that the broker has of it. Raises SinkError."""
        if self._stored >= self._next:
            raise self._others(self._next)

    def _others(self, position: int) -> SinkError:
        return SinkError(
            f"{self._target} has other rows of batch {self._batch_id} than this repetition of it, up to row {position}"
            " of this task: their order, the number of tasks or of partitions is another one. This task has written"
            " none of them. Behind a shuffle, set sortRows=true and keep the number of shuffle partitions;"
            " to write this batch at least once instead, start the query once with exactlyOnce=false"
        )


def _rolling(rows: Rows, check: int) -> Iterator[int]:
    """Yield the checksum of all rows up to each of these, where `check` is the one before them."""
    for at, value in enumerate(rows.values):
        key = rows.keys[at] if rows.keys is not None else None
        pairs = sorted(rows.properties[at]) if rows.properties is not None else []
        event = rows.event_ms[at] if rows.event_ms is not None else 0
        sizes = (-1 if value is None else len(value), -1 if key is None else len(key))
        facts: tuple[object, ...] = (sizes, pairs, event)
        if (more := rows.more_of(at)) != (None, 0):
            facts = (*facts, more)
        check = crc32c(repr(facts).encode(), check)
        check = crc32c(key or b"", crc32c(value or b"", check))
        yield check
