"""Conversion of the deliveries of a planned range to record batches. Pure."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

import pyarrow as pa

from quire.client.chunked.chunks import ChunkGap
from quire.client.deliveries import Deliveries
from quire.client.message_id import MessageId
from quire.client.unpacking import Messages, Opener
from quire.spark.errors import DataLossError, SourceUnavailableError
from quire.spark.planning.ranges import LedgerRange, TopicRange
from quire.spark.reading.columns import BYTES_TARGET, ROWS_MAX, Columns
from quire.spark.reading.range_check import RangeCheck, shown
from quire.spark.reading.row_run import RowRun, batch_run

_log = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
"""Maximum stored bytes opened at a time ..."""
OPENED_BYTES = 1 << 20
"""... and target of bytes that result. Entries may be compressed a thousandfold, which is known only after they are
opened. So it begins with one entry, and grows fourfold at a time."""


class RangeRows:
    """Deliveries in, record batches out, against the plan.

    Call `give` when `hungry`, `advance` until it is hungry again; take batches from `ready`; close the `gaps` when
    there are any, and settle the entries in `missing`. Memory: one slice opened, and rows of less than two batches.
    """

    def __init__(self, work: TopicRange, columns: Columns, *, fail_on_data_loss: bool) -> None:
        self._work = work
        self._columns = columns
        self._fail_on_data_loss = fail_on_data_loss
        self._opener = Opener()
        self._check = RangeCheck(work.ranges)
        self._skip_before = work.start_batch_index
        self._slice_bytes = 1
        self._deliveries = Deliveries()
        self._at = 0
        self._messages = Messages()
        self._warned = False
        self.ready: deque[pa.RecordBatch] = deque()
        self.gaps: list[ChunkGap] = []
        """Chunked messages that end in the range and begin before it: feed `opener.look_back`, then `close_gaps`."""
        self.missing: list[LedgerRange] = []
        """Planned entries that were not delivered although later ones were, or none follow: call `settle_missing`."""
        self._missing_why = ""
        self.rows = 0
        """Rows in batches so far."""

    @property
    def opener(self) -> Opener:
        return self._opener

    @property
    def hungry(self) -> bool:
        """Return whether everything given is used up, and the range is not done."""
        return self._at == len(self._deliveries) and not self._check.done and not self.gaps and not self.missing

    @property
    def due(self) -> MessageId:
        """Return the entry that must come next."""
        return MessageId(*self._check.due)

    @property
    def done(self) -> bool:
        """Return whether every row is in `ready`, or was taken from it."""
        return self._check.done and not self.gaps and not self.missing and not self._messages.values

    def give(self, deliveries: Deliveries | RowRun) -> None:
        """Add the next deliveries of the broker, or the next run from bookies."""
        assert self.hungry, "the deliveries before are not used up"
        if isinstance(deliveries, RowRun):
            if self._add_run(deliveries):
                return
            deliveries = deliveries.deliveries()
        self._deliveries = deliveries
        self._at = 0

    def nothing_more(self, why: str) -> None:
        """Note that the broker has none of the remaining entries."""
        self.missing, self._missing_why = self._check.give_up(), why
        self._finish()

    def settle_missing(self, lost: Sequence[LedgerRange]) -> None:
        """Continue behind the entries in `missing`, of which these are lost, and the others are no messages."""
        self.missing = []
        if lost:
            self._lost(lost, self._missing_why)
        self._finish()

    def advance(self) -> None:
        """Open deliveries until a batch is ready, there are gaps, entries are missing, or they are used up."""
        while self._at < len(self._deliveries) and not (self.ready or self.gaps or self.missing or self._check.done):
            self._open_slice()
            if self._messages.size_bytes >= BYTES_TARGET or len(self._messages.values) >= ROWS_MAX:
                self._cut()
        self._finish()

    def close_gaps(self) -> None:
        """Complete the messages of `gaps`; those with missing pieces are data loss."""
        gaps, self.gaps = self.gaps, []
        broken = self._opener.complete(gaps, self._messages)
        if broken:
            gap = broken[0]
            looked = sum(each.entries for each in self._work.earlier)
            self._lose(
                f"{self._work.partition}: the chunked message that ends at {gap.ledger_id}:{gap.entry_id} lacks "
                "the pieces "
                f"{gap.missing_chunk_ids}, which are not among the {looked} entries before the range "
                f"{shown(self._work.ranges)} (option chunkedMessageHold)"
            )
        if self._skip_before:
            self._skip_first_messages()
        self._finish()

    def _open_slice(self) -> None:
        deliveries = self._deliveries
        first = self._at
        stop = first + 1
        size = len(deliveries.entries[first])
        while stop < len(deliveries.entries) and size < self._slice_bytes:
            size += len(deliveries.entries[stop])
            stop += 1
        if self._open_batches(first, stop, size):
            self._at = stop
            return
        accepted = self._check.accept(deliveries.ledger_ids, deliveries.entry_ids, first, stop)
        if accepted > first:
            before = self._messages.size_bytes
            self.gaps = self._opener.open(deliveries, self._messages, first=first, stop=accepted)
            self._measure(size, self._messages.size_bytes - before)
            if self._skip_before and not self.gaps:
                self._skip_first_messages()
        self._at = accepted
        if accepted < stop and not self._check.done:
            self._skip_missing(deliveries.ledger_ids[accepted], deliveries.entry_ids[accepted])

    def _measure(self, size: int, opened: int) -> None:
        """Set the size of the next slice, after one of `size` stored bytes that became `opened`."""
        self._slice_bytes = max(1, min(SLICE_BYTES, 4 * size, OPENED_BYTES * size // max(opened, 1)))

    def _open_batches(self, first: int, stop: int, size: int) -> bool:
        """Convert entries that are batches of usual messages; return False if they have to be opened one by one."""
        deliveries = self._deliveries
        ledger_id, entry_id = deliveries.ledger_ids[first], deliveries.entry_ids[first]
        if self._skip_before or deliveries.ledger_ids[stop - 1] != ledger_id:
            return False
        run = batch_run(ledger_id, entry_id, deliveries.entries[first:stop], self._opener)
        if run is None or deliveries.entry_ids[first:stop] != list(range(entry_id, entry_id + stop - first)):
            return False
        if not self._add_run(run):
            return False
        self._measure(size, len(run.packed))
        return True

    def _add_run(self, run: RowRun) -> bool:
        """Add the rows of a run behind those before; return False if it has to be opened one by one."""
        if self._skip_before:
            return False
        batches = self._columns.batches_of_run(run)
        if batches is None or not self._check.accept_run(run.ledger_id, run.first, run.entries):
            return False
        self._cut()
        self.rows += run.rows
        self.ready.extend(batches)
        return True

    def _skip_missing(self, ledger_id: int, entry_id: int) -> None:
        due = self._check.due
        try:
            self.missing = self._check.skip_to(ledger_id, entry_id)
        except ValueError as error:
            raise SourceUnavailableError(
                f"{self._work.partition}: entries came out of order while {shown(self._work.ranges)} was read: {error}"
            ) from None
        self._missing_why = f"received {ledger_id}:{entry_id} instead of {due[0]}:{due[1]}"

    def _lost(self, missing: Sequence[LedgerRange], why: str) -> None:
        self._lose(
            f"{self._work.partition}: entries {shown(missing)} of the range {shown(self._work.ranges)} are gone ({why})"
        )

    def _lose(self, text: str) -> None:
        """Report data loss: an error, or one warning per range."""
        if self._fail_on_data_loss:
            raise DataLossError(f"{text}; set failOnDataLoss=false to skip them")
        if not self._warned:
            self._warned = True
            _log.warning("%s; skipping them (failOnDataLoss=false)", text)

    def _skip_first_messages(self) -> None:
        """Drop the messages of the first entry that precede the start of the range."""
        wanted, self._skip_before = self._skip_before, 0
        for _ in range(sum(1 for index in self._messages.batch_indexes if max(index, 0) < wanted)):
            self._messages.remove(0)

    def _finish(self) -> None:
        if self._check.done and not self.gaps and not self.missing and self._messages.values:
            self._cut()

    def _cut(self) -> None:
        if self.gaps:
            return  # rows are still to be inserted between existing ones
        self.rows += len(self._messages.values)
        self.ready.extend(self._columns.batches(self._messages))
        self._messages = Messages()
