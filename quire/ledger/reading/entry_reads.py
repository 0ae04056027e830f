"""Reads of entries of one ledger from their write sets. The next replica is asked after an error, a digest mismatch or
a long wait. If every bookie has every entry, one request reads many entries.

Every returned payload was checked against its digest, and is a view of the response that carried it.

Source: BookKeeper's PendingReadOp, BatchedReadOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import trio

from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieUnavailableError, NoSuchEntryError
from quire.ledger.reading.entry_races import BatchRead, SingleReads, ignore_lac
from quire.ledger.reading.read_order import ReadOrder
from quire.ledger.reading.replica_answers import ReadFailures, open_entries
from quire.ledger.reading.speculation import DoubledReads, wait_s
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, read_header
from quire.wire.bookkeeper.v2 import Rc
from quire.world.backoff import Backoff

__all__ = [
    "READ_SIZE_MAX",
    "SINGLE_READS_MAX",
    "SINGLE_READ_GUESS",
    "EntryReads",
    "ignore_lac",
    "open_entries",
    "read_range",
]

READ_SIZE_MAX = v2.FRAME_MAX - 64
"""Largest number of bytes of entries requested at once."""
SINGLE_READS_MAX = 128
"""Largest number of pending single reads of one call."""
SINGLE_READ_GUESS = 4096
"""Assumed bytes per entry before the size of entries is known."""


class EntryReads:
    """Reads the entries of one ledger, given its metadata of the moment."""

    def __init__(self, context: LedgerContext, ledger_id: int, digest: Digest, striping: Striping) -> None:
        config = context.config.reads
        self.context = context
        self.ledger_id = ledger_id
        self.digest = digest
        self.striping = striping
        reordered = context.stats.reordered
        self.order = ReadOrder(striping, context.placement, context.health, config, context.rng, reordered)
        self.doubled = DoubledReads(config.speculative_share)
        self.on_lac: Callable[[int], None] = ignore_lac
        """Called with a last add confirmed, perhaps an old one, that arrived with entries."""
        self.batches = config.batch_reads and not striping.striped
        """True while batch reads are used; False once a bookie did not know them."""

    async def read(
        self, metadata: LedgerMetadata, first: int, last: int, size_max: int, *, size_guess: int
    ) -> list[memoryview]:
        """Return payloads of entries from `first` on: at least one, at most up to `last` (inclusive) and about
        `size_max` bytes.

        `size_guess` is the expected size of an entry in bytes. While bookies are too busy the read is repeated.
        """
        bookies = metadata.fragment_at(first).bookies
        following = [each.first_entry_id for each in metadata.fragments if each.first_entry_id > first]
        last = min(last, following[0] - 1) if following else last
        size_max = max(1, min(size_max, READ_SIZE_MAX))
        guess = max(1, size_guess)
        config = self.context.config
        began = trio.current_time()
        backoff: Backoff | None = None
        while True:
            failures = ReadFailures(self.ledger_id, first)
            payloads: list[memoryview] = []
            if self.batches:
                payloads = await self._read_batch(bookies, first, last - first + 1, size_max, guess, failures)
            if not self.batches:
                count = max(1, min(last - first + 1, size_max // guess, SINGLE_READS_MAX))
                payloads = await SingleReads(self, bookies, first, count, size_max, guess, failures).result()
            took_s = trio.current_time() - began
            if payloads:
                self.context.stats.reads.good.observe(1000 * took_s)
                return payloads
            backoff = backoff or self.context.backoff()
            pause_s = backoff.next()
            if not failures.busy or took_s + pause_s > config.read_timeout_s:
                self.context.stats.reads.bad.observe(1000 * took_s)
                raise failures.error()
            await trio.sleep(pause_s)

    async def _read_batch(
        self, bookies: Sequence[str], first: int, count: int, size_max: int, guess: int, failures: ReadFailures
    ) -> list[memoryview]:
        """Read a batch. In the usual case, in which the first bookie answers well and in time, this needs no race."""
        context = self.context
        health = context.health
        order = self.order.of_entry(bookies, first)
        expected = min(size_max, count * guess)
        race = partial(BatchRead, self, bookies, first, count, size_max, expected, failures)
        bookie_id = bookies[order[0]]
        try:
            connection = context.bookies.connection(bookie_id)
        except BookieUnavailableError:
            return await race().result()
        now = trio.current_time()
        answer = connection.read_batch(self.ledger_id, first, count, size_max)
        deadline = inf
        if answer.outcome is None:
            came = trio.Event()
            answer.notify = came.set
            if len(order) > 1:
                deadline = now + wait_s(context.config.reads, health.expected_s(bookies[order[1]]), expected, 0)
                context.alarms.set(deadline, came, context.start)
            health.asked(bookie_id)
            try:
                await came.wait()
            finally:
                health.answered(bookie_id)
        body = answer.outcome
        if type(body) is v2.BatchResponse and body.rc == Rc.OK:
            entries = body.entries[:count]
            payloads = open_entries(self.digest, self.ledger_id, first, entries)
            if payloads:
                health.took(bookie_id, trio.current_time() - now)
                self.doubled.earn(1)
                if self.on_lac is not ignore_lac:
                    self.on_lac(read_header(entries[len(payloads) - 1]).lac)
                return payloads
        begun = race()
        begun.begun(answer, order, now, deadline)
        return await begun.result()


async def read_range(
    reads: EntryReads, metadata: LedgerMetadata, ledger_id: int, first: int, last: int, size_max: int, length: int
) -> list[memoryview]:
    """Read a range, for readers and writers.

    `last` must be confirmed; `length` is the payload length at about that entry.
    """
    assert first >= 0, f"entry {first}"
    if first > last:
        raise NoSuchEntryError(f"entry {ledger_id}:{first} is past the last confirmed one")
    size_guess = length // (last + 1) + 1 if length else SINGLE_READ_GUESS
    return await reads.read(metadata, first, last, size_max, size_guess=size_guess)
