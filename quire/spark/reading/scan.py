"""Reading of one planned range: entries of one partition, as a broker delivers them or bookies have them, to record
batches.

RangeScan, on the process's loop, asks bookies for the ledgers that the plan names, and a broker for all others and from
there on; `read_range` is what Spark's blocking worker calls. Opening happens on
the loop too: while it works nothing else in the process wants to run, and the worker's thread, which waits for a whole
batch at a time, hands the one before to Spark meanwhile.

The same range read twice gives the same rows in the same order: entries do not change, and what is cut where depends on
the entries only up to batch boundaries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import trio

from quire.client.client import Reader
from quire.client.deliveries import Deliveries
from quire.client.errors import ClientError
from quire.client.message_id import MessageId
from quire.spark.errors import SourceUnavailableError
from quire.spark.options.parse import Options
from quire.spark.reading.columns import Columns
from quire.spark.reading.range_check import RangeCheck, steps_back
from quire.spark.reading.range_rows import RangeRows
from quire.spark.reading.row_run import RowRun
from quire.spark.runtime import ClientLease, client_options, runtime

if TYPE_CHECKING:
    from quire.spark.planning.logs import LedgerRange
    from quire.spark.planning.tasks import TopicRange
    from quire.spark.reading.bookie_entries import BookieEntries

_log = logging.getLogger(__name__)

STALL_S = 1.0
"""Time to wait for entries before asking the broker for the end of the topic."""
WINDOW_MIN = 1000
WINDOW_MAX = 10_000
"""Maximum messages sent ahead to a reader, which is also the maximum sent in vain behind the end of a range."""


class RangeScan:
    """Reader of one range. Runs on the loop; close it, also after an error."""

    def __init__(self, work: TopicRange, options: Options, columns: Columns) -> None:
        self._work = work
        self._options = options
        self.rows = RangeRows(work, columns, fail_on_data_loss=options.fail_on_data_loss)
        self._lease: ClientLease | None = None
        self._reader: Reader | None = None
        self._bookies = _from_bookies(work, options) if work.stored else None

    async def next(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end of the range.

        Raises DataLossError, SourceUnavailableError, ClientError."""
        rows = self.rows
        while not rows.ready:
            if rows.done:
                return None
            if rows.gaps:
                await self._look_back()
            elif rows.missing:
                rows.settle_missing(await self._lost(rows.missing))
            elif rows.hungry:
                deliveries = await self._receive()
                if deliveries is not None:
                    rows.give(deliveries)
            rows.advance()
            # Let the connection work during a long run of opening.
            await trio.lowlevel.checkpoint()
        return rows.ready.popleft()

    async def close(self) -> None:
        """Close the readers. Idempotent."""
        bookies, self._bookies = self._bookies, None
        if bookies is not None:
            bookies.close()
        reader, self._reader = self._reader, None
        lease, self._lease = self._lease, None
        try:
            if reader is not None:
                await reader.close()
        finally:
            if lease is not None:
                lease.release()

    async def _lost(self, missing: Sequence[LedgerRange]) -> Sequence[LedgerRange]:
        from quire.spark.reading.passed_over import PassedOver

        return await PassedOver(self._work.partition, self._options).lost(missing, self._bookies)

    async def _open(self, start: MessageId, window: int) -> Reader:
        if self._lease is None:
            self._lease = await runtime().lease(self._options.service_url, client_options(self._options))
        return await self._lease.client.reader(self._work.partition, start, window=window)

    async def _receive(self) -> Deliveries | RowRun | None:
        """Receive more of the range; None if there is none, which was noted as lost."""
        if self._reader is None:
            if (found := await self._from_bookies(self._work.ranges, self.rows.due)) is not None:
                return found
            window = min(max(self._work.entries * 4, WINDOW_MIN), WINDOW_MAX)
            self._reader = await self._open(self.rows.due, window)
        found, last = await self._wait(self._reader, self.rows.due)
        if found is None:
            self.rows.nothing_more(f"the topic ends at {last}")
        return found

    async def _from_bookies(self, ranges: Sequence[LedgerRange], due: MessageId) -> Deliveries | RowRun | None:
        """Return entries of `ranges` from `due` on; None if the broker has to be asked for them."""
        if self._bookies is None:
            return None
        last = next(
            part.last for part in ranges if part.ledger_id == due.ledger_id and part.first <= due.entry_id <= part.last
        )
        return await self._bookies.receive(due, last)

    async def _wait(self, reader: Reader, due: MessageId) -> tuple[Deliveries | None, MessageId]:
        """Return the next entries; none, and the topic's last entry, if the expected one is behind that."""
        deadline = trio.current_time() + self._options.poll_timeout_ms / 1000
        while True:
            with trio.move_on_after(STALL_S):
                return await reader.receive(), due
            last = await reader.last_message_id()
            if (last.ledger_id, last.entry_id) < (due.ledger_id, due.entry_id):
                return None, last
            if trio.current_time() >= deadline:
                raise SourceUnavailableError(
                    f"{self._work.partition}: {due} was not received within {self._options.poll_timeout_ms} ms, "
                    "although the "
                    f"topic has entries up to {last} (option pollTimeoutMs)"
                )

    async def _look_back(self) -> None:
        """Fetch the earlier pieces of chunked messages, as far back as the plan allows."""
        for step in steps_back(self._work.earlier):
            if not await self._step_back(step):
                break
        self.rows.close_gaps()

    async def _step_back(self, step: Sequence[LedgerRange]) -> bool:
        """Give the opener these entries, as far as they exist; return whether it needs more."""
        check = RangeCheck(step)
        wants_more = True
        reader: Reader | None = None
        try:
            while not check.done:
                due = MessageId(*check.due)
                found = None if reader is not None else await self._from_bookies(step, due)
                if isinstance(found, RowRun):
                    found = found.deliveries()
                if found is None:
                    reader = reader or await self._open(due, WINDOW_MIN)
                    found, _ = await self._wait(reader, due)
                if found is None:
                    break
                accepted = check.accept(found.ledger_ids, found.entry_ids, 0, len(found))
                seen = Deliveries(found.ledger_ids[:accepted], found.entry_ids[:accepted], found.entries[:accepted])
                wants_more = bool(self.rows.opener.look_back(seen))
                if accepted < len(found) and not check.done:
                    break  # trimmed meanwhile, and everything before it too
        finally:
            if reader is not None:
                await reader.close()
        return wants_more


def _from_bookies(work: TopicRange, options: Options) -> BookieEntries:
    # Imported here, because a task that reads through a broker has no client of bookies.
    from quire.spark.reading.bookie_entries import BookieEntries

    return BookieEntries(work, options)


def read_range(
    work: TopicRange, options: Options, columns: Columns, feed: Iterator[Deliveries] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, lazily; blocking.

    With `feed` the entries come from there, without any connection. Raises DataLossError, SourceUnavailableError;
    ClientError for entries that cannot be opened."""
    if feed is not None:
        yield from _read_feed(work, options, columns, feed)
        return
    loop = runtime()
    scan = RangeScan(work, options, columns)
    try:
        while (batch := loop.call(scan.next)) is not None:
            yield batch
    finally:
        try:
            loop.call(scan.close)
        except ClientError as error:  # all rows are read, or an error is being raised
            _log.info("reader of %s not closed cleanly: %s", work.partition, error)


def _read_feed(
    work: TopicRange, options: Options, columns: Columns, feed: Iterator[Deliveries]
) -> Iterator[pa.RecordBatch]:
    rows = RangeRows(work, columns, fail_on_data_loss=options.fail_on_data_loss)
    while not rows.done or rows.ready:
        while rows.ready:
            yield rows.ready.popleft()
        if rows.gaps:
            rows.close_gaps()
        elif rows.missing:
            rows.settle_missing(rows.missing)
        elif rows.hungry:
            found = next(feed, None)
            if found is None:
                rows.nothing_more("the feed ended")
            else:
                rows.give(found)
        rows.advance()
