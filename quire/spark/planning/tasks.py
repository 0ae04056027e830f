"""Tasks of a read, and the splitting of large ones. Pure.

Why this is hard: a split must cover every entry exactly once and in order, over ledgers of very different sizes, and
must be the same whenever it is made. The message offset at the start and the look-back for chunked messages belong to
single pieces."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.spark.planning.logs import LedgerRange

if TYPE_CHECKING:
    from quire.spark.planning.stored import StoredLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    """Entries that one task reads of one partition: all of them, in this order, and nothing else."""

    partition: str
    """Full name of the partition's topic, or of a topic without partitions."""
    ranges: tuple[LedgerRange, ...]
    start_batch_index: int = 0
    """Number of messages of the very first entry to leave out, from its start."""
    earlier: tuple[LedgerRange, ...] = ()
    """Entries right before, in order, which may have earlier pieces of chunked messages."""
    stored: tuple[StoredLedger, ...] = ()
    """Ledgers whose entries are read from their bookies; those of all others come from the broker."""

    @property
    def entries(self) -> int:
        return sum(part.entries for part in self.ranges)


def split(
    tasks: Sequence[TopicRange], tasks_min: int | None, *, entries_max: int | None = None, earlier_max: int = 0
) -> list[TopicRange]:
    """Split into at least `tasks_min` tasks, if there are that many entries, of at most `entries_max` entries each: the
    largest are cut into even pieces; order is kept."""
    pieces = [-(-task.entries // entries_max) if entries_max else 1 for task in tasks]
    largest = [(-task.entries // pieces[number], number) for number, task in enumerate(tasks)]
    heapq.heapify(largest)
    for _ in range((tasks_min or 0) - sum(pieces)):
        if not largest or -largest[0][0] <= 1:
            break
        number = largest[0][1]
        pieces[number] += 1
        heapq.heapreplace(largest, (-tasks[number].entries // pieces[number], number))
    return [part for task, count in zip(tasks, pieces, strict=True) for part in _cut(task, count, earlier_max)]


def _cut(task: TopicRange, count: int, earlier_max: int) -> list[TopicRange]:
    if count == 1:
        return [task]
    parts = []
    for number in range(count):
        start, stop = (task.entries * edge // count for edge in (number, number + 1))
        parts.append(
            TopicRange(
                partition=task.partition,
                ranges=_slice(task.ranges, start, stop),
                start_batch_index=0 if number else task.start_batch_index,
                earlier=_last((*task.earlier, *_slice(task.ranges, 0, start)), earlier_max) if number else task.earlier,
            )
        )
    return parts


def _slice(parts: Sequence[LedgerRange], start: int, stop: int) -> tuple[LedgerRange, ...]:
    """Return entries number `start` to `stop` (exclusive) of these."""
    found, before = [], 0
    for part in parts:
        first, last = max(start - before, 0), min(stop - before, part.entries) - 1
        if first <= last:
            found.append(LedgerRange(part.ledger_id, part.first + first, part.first + last))
        before += part.entries
    return tuple(found)


def _last(parts: Sequence[LedgerRange], entries: int) -> tuple[LedgerRange, ...]:
    total = sum(part.entries for part in parts)
    return _joined(_slice(parts, max(total - entries, 0), total))


def _joined(parts: Sequence[LedgerRange]) -> tuple[LedgerRange, ...]:
    """Return the ranges with adjacent ones joined."""
    found: list[LedgerRange] = []
    for part in parts:
        if found and found[-1].ledger_id == part.ledger_id and found[-1].last + 1 == part.first:
            found[-1] = found[-1]._replace(last=part.last)
        else:
            found.append(part)
    return tuple(found)
