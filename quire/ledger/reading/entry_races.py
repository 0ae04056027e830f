"""Two ways to read entries of a ledger, as races between the bookies that have them.

    BatchRead       many entries with one request, if every bookie has every entry
    SingleReads     one request per entry, all at once, each to its first replica

Source: BookKeeper's PendingReadOp, BatchedReadOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from quire.ledger.bookies.pool import Answer, Body, BookieConnection
from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieUnavailableError
from quire.ledger.reading.racing import Ask, Race
from quire.ledger.reading.read_order import ReadOrder
from quire.ledger.reading.replica_answers import ReadFailures, open_entries
from quire.ledger.reading.speculation import DoubledReads, wait_s
from quire.service.log import get_logger
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, read_header
from quire.wire.bookkeeper.v2 import Rc

log = get_logger(__name__)


def ignore_lac(lac: int) -> None:
    """Default callback for LACs: does nothing."""


class LedgerReads(Protocol):
    """The part of a ledger's reads that a race uses."""

    batches: bool
    """True while batch reads are tried; a race sets it to False when a bookie does not know them."""
    on_lac: Callable[[int], None]
    """Called with the LAC that an answer carries, unless it is `ignore_lac`."""

    @property
    def context(self) -> LedgerContext: ...

    @property
    def ledger_id(self) -> int: ...

    @property
    def digest(self) -> Digest: ...

    @property
    def order(self) -> ReadOrder: ...

    @property
    def doubled(self) -> DoubledReads: ...


class _EntryRace(Race):
    """Common part of both ways to read."""

    def __init__(
        self,
        reads: LedgerReads,
        bookies: Sequence[str],
        items: Sequence[int],
        size_max: int,
        expected: int,
        failures: ReadFailures,
    ) -> None:
        super().__init__(reads.context, bookies, items)
        self._reads = reads
        self._first = items[0]
        self._size_max = size_max
        self._expected = expected
        """Estimated bytes that one bookie will send."""
        self._failures = failures
        """Failures of the first entry; those of the others are not needed."""
        self._damaged: set[str] = set()
        self._rotations: dict[int, list[int]] = {}
        reads.doubled.earn(len(items))

    def order(self, item: int) -> list[int]:
        rotation = item % len(self._bookies)
        order = self._rotations.get(rotation)
        if order is None:
            order = self._rotations[rotation] = self._reads.order.of_entry(self._bookies, item)[::-1]
        return order.copy()

    def failed(self, item: int, bookie_id: str, error: BookieUnavailableError) -> None:
        if item == self._first:
            self._failures.failed(bookie_id, error)

    def wait_s(self, next_bookie: str, doubled: int) -> float:
        return wait_s(self._context.config.reads, self._context.health.expected_s(next_bookie), self._expected, doubled)

    def may_double(self, count: int) -> bool:
        return self._reads.doubled.spend(count)

    def _refused(self, item: int, bookie_id: str, rc: int) -> None:
        if item == self._first:
            self._failures.refused(bookie_id, rc)

    def _opened(self, item: int, ask: Ask, entries: Sequence[memoryview]) -> list[memoryview]:
        """Return the payloads of the entries from `item` on; none, with a log line, if the first is damaged."""
        payloads = open_entries(self._reads.digest, self._reads.ledger_id, item, entries)
        if not payloads:
            self._context.stats.digest_mismatches += 1
            if ask.bookie_id not in self._damaged:
                self._damaged.add(ask.bookie_id)
                ledger_id = self._reads.ledger_id
                log.warning("entry is damaged", ledger=ledger_id, entry_id=item, bookie=ask.bookie_id)
            if item == self._first:
                self._failures.damaged(ask.bookie_id)
        return payloads


class BatchRead(_EntryRace):
    """Read of many entries with one request. The race's only item stands for all of them."""

    def __init__(
        self,
        reads: LedgerReads,
        bookies: Sequence[str],
        first: int,
        count: int,
        size_max: int,
        expected: int,
        failures: ReadFailures,
    ) -> None:
        super().__init__(reads, bookies, (first,), size_max, expected, failures)
        self._count = count
        self._payloads: list[memoryview] = []

    async def result(self) -> list[memoryview]:
        """Return payloads from the first entry on; none if it was not found, or batches are not known."""
        await self.run()
        return self._payloads

    def send(self, connection: BookieConnection, items: list[int]) -> list[Answer]:
        return [connection.read_batch(self._reads.ledger_id, self._first, self._count, self._size_max)]

    def take(self, item: int, ask: Ask, body: Body) -> bool:
        if not isinstance(body, v2.BatchResponse) or body.rc in (Rc.BAD_REQUEST, Rc.BAD_VERSION):
            self._reads.batches = False  # A bookie of an older version: read entries one by one from now on.
            return True
        if body.rc != Rc.OK:
            self._refused(item, ask.bookie_id, body.rc)
            return False
        entries = body.entries[: self._count]
        self._payloads = self._opened(item, ask, entries)
        if not self._payloads:
            return False
        if self._reads.on_lac is not ignore_lac:
            self._reads.on_lac(read_header(entries[len(self._payloads) - 1]).lac)
        if ask.again:
            self._reads.order.prefer(ask.index)
        return True

    def done(self) -> bool:
        return False


class SingleReads(_EntryRace):
    """Read of entries one by one: all are requested at once, each from its first replica."""

    def __init__(
        self,
        reads: LedgerReads,
        bookies: Sequence[str],
        first: int,
        count: int,
        size_max: int,
        size_guess: int,
        failures: ReadFailures,
    ) -> None:
        super().__init__(reads, bookies, range(first, first + count), size_max, size_guess * count, failures)
        self._found: dict[int, memoryview] = {}
        self._payloads: list[memoryview] = []
        self._size = 0
        self._full = False

    async def result(self) -> list[memoryview]:
        """Return payloads from the first entry on, up to one that was not found; none if that is the first."""
        await self.run()
        self.done()
        return self._payloads

    def send(self, connection: BookieConnection, items: list[int]) -> list[Answer]:
        return connection.read(self._reads.ledger_id, items)

    def take(self, item: int, ask: Ask, body: Body) -> bool:
        if not isinstance(body, v2.ReadResponse) or body.rc != Rc.OK:
            self._refused(item, ask.bookie_id, body.rc)
            return False
        payloads = self._opened(item, ask, (body.entry,))
        if not payloads:
            return False
        self._found[item] = payloads[0]
        if self._reads.on_lac is not ignore_lac:
            self._reads.on_lac(read_header(body.entry).lac if body.max_lac is None else body.max_lac)
        if ask.again:
            self._reads.order.prefer(ask.index)
        return True

    def done(self) -> bool:
        """Move found entries to the payloads.

        Return whether there is enough, or the next entry was denied by all its bookies.
        """
        payloads = self._payloads
        while not self._full:
            item = self._first + len(payloads)
            payload = self._found.pop(item, None)
            if payload is None:
                return self.given_up(item)
            self._size += len(payload)
            if payloads and self._size > self._size_max:
                self._full = True
            else:
                payloads.append(payload)
        return True
