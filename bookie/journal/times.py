"""Times and sizes of the journal's groups, recorded once per pass of its thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bookie.journal.group_writer import GroupResult, Item
from quire.service.measuring.summaries import SIZE_BOUNDS, Times
from quire.wire.bookkeeper.run import Run


class JournalBatch(NamedTuple):
    """Items given to the journal's thread together."""

    arrived_at: float
    """Time of the event loop at which the pass began that brought them."""
    items: list[Item]


class JournalTimes:
    """Distributions in milliseconds, entries and bytes; `_failed`: of what could not be written."""

    __slots__ = ("adds", "adds_failed", "group_bytes", "group_entries", "syncs", "syncs_failed", "written_bytes")

    def __init__(self) -> None:
        self.adds, self.adds_failed = Times(), Times()
        """Times of entries from their arrival until they are in the journal."""
        self.syncs, self.syncs_failed = Times(), Times()
        """Times of a write with its sync."""
        self.group_entries, self.group_bytes = Times(SIZE_BOUNDS), Times(SIZE_BOUNDS)
        self.written_bytes = 0

    def passed(self, batches: Sequence[JournalBatch], results: Sequence[GroupResult], now: float) -> None:
        """Note the groups that the thread has written, and how long their entries took."""
        failed = False
        for result in results:
            if result.error is not None:
                failed = True
                self.syncs_failed.observe(1000 * result.took_s)
                continue
            self.syncs.observe(1000 * result.took_s)
            self.group_bytes.observe(result.size)
            self.written_bytes += result.size
        adds, entries = self.adds_failed if failed else self.adds, 0
        for arrived_at, items in batches:
            count = 0
            for item in items:
                if isinstance(item.record, Run):
                    count += item.record.count
            entries += count
            adds.observe(1000 * (now - arrived_at), count)
        self.group_entries.observe(entries / (len(results) or 1), len(results))
