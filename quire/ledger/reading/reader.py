"""LedgerReader: reads a ledger, closed or still being written.

    closed     up to its last entry
    open       up to the last add confirmed as far as known: from opening, from `read_last_confirmed`, from answers that
               carry entries, and from waiting (`wait_for_next`, `tail`)

A failed read reads the metadata again: the writer, or a repair, may have replaced the failed bookies.

Source: BookKeeper's LedgerHandle, ReadOnlyLedgerHandle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf

import trio

from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    ClientClosedError,
    IncorrectParameterError,
    LedgerClosedError,
    LedgerReadError,
    NoSuchEntryError,
)
from quire.ledger.reading.entry_reads import (
    READ_SIZE_MAX,
    SINGLE_READ_GUESS,
    EntryReads,
    ignore_lac,
    open_entries,
    read_range,
)
from quire.ledger.reading.last_confirmed import LastConfirmed, ask_last_confirmed
from quire.ledger.reading.tailing import LacAndEntry, LongPollRace, MetadataWatch
from quire.ledger.striping import Striping
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.wire.bookkeeper.entry import Digest
from quire.world.backoff import Backoff

__all__ = ["EntryReads", "LacAndEntry", "LedgerReader", "open_entries", "read_range"]

POLL_PAUSE_MAX_S = 1.0
"""Longest pause in seconds between long polls that bookies answer at once without news, e.g. before they know the
ledger.
"""


class LedgerReader:
    """Reader of one ledger, created by `LedgerClient.open`.

    If an open ledger was waited for, its metadata is watched until it is closed, or until `close`.
    """

    def __init__(
        self,
        context: LedgerContext,
        ledger_id: int,
        stored: Versioned[LedgerMetadata],
        digest: Digest,
        end: LastConfirmed,
    ) -> None:
        self.ledger_id = ledger_id
        self.last_entry_id = end.lac
        """Last entry that may be read, -1 for none; it grows, and is final if the ledger is closed."""
        self.length = end.length
        """Payload bytes up to about that entry; exact if the ledger is closed."""
        self._context = context
        self._stored = stored
        self._digest = digest
        self._entry_reads: EntryReads | None = None
        self._watch: MetadataWatch | None = None
        self._polls: dict[LongPollRace, None] = {}
        self._changed = trio.Event()
        self._given_up = False

    @property
    def metadata(self) -> LedgerMetadata:
        """Metadata as last read."""
        return self._stored.value

    @property
    def _reads(self) -> EntryReads:
        """Made by the first read: thousands of ledgers are opened for their end alone."""
        reads = self._entry_reads
        if reads is None:
            metadata = self._stored.value
            striping = Striping(metadata.ensemble_size, metadata.write_quorum)
            reads = self._entry_reads = EntryReads(self._context, self.ledger_id, self._digest, striping)
            if not self.closed:
                reads.on_lac = self._learn
        return reads

    @property
    def closed(self) -> bool:
        """True if the ledger is closed, so that no more entries follow."""
        return self._stored.value.state is LedgerState.CLOSED

    # --- entries

    async def read(self, first: int, last: int, *, size_max: int | None = None) -> list[memoryview]:
        """Read payloads of the entries `first` to `last`.

        Without `size_max` all of them are returned, and `last` must be confirmed. With `size_max` fewer entries are
        usual; continue reading after them.

        Args:
            first: First entry id.
            last: Last entry id, inclusive.
            size_max: Return at least one entry, and about this many bytes at most; None for no limit.

        Returns:
            Views of the payloads, in order.

        Raises:
            NoSuchEntryError: An entry is past the last confirmed one, or all its bookies deny it.
            DigestMismatchError: No copy could be read, and at least one was damaged.
            LedgerReadError: No copy of an entry could be read; a retry may help.
            LedgerUnauthorizedError: A bookie refuses the password.
            IncorrectParameterError: `first` is negative.
        """
        if size_max is not None:
            return await self._read(first, min(last, self.last_entry_id), size_max)
        if last > self.last_entry_id:
            text = f"entry {self.ledger_id}:{last} is past the last confirmed one, {self.last_entry_id}"
            raise NoSuchEntryError(text)
        return await self._read_all(first, last)

    async def batch_read(self, first: int, count_max: int, size_max: int = READ_SIZE_MAX) -> list[memoryview]:
        """Read a batch of payloads from `first` on.

        Args:
            first: First entry id.
            count_max: Return at most this many entries, at least 1.
            size_max: Return at least one entry, and about this many bytes at most.

        Returns:
            Views of the payloads, in order.

        Raises:
            IncorrectParameterError: `count_max` is less than 1.
            LedgerError: As `read`.
        """
        if count_max < 1:
            raise IncorrectParameterError(f"a batch of {count_max} entries")
        return await self._read(first, min(first + count_max - 1, self.last_entry_id), size_max)

    async def read_unconfirmed(self, first: int, last: int, *, size_max: int | None = None) -> list[memoryview]:
        """Read entries whether they are confirmed or not. Their writer may still abandon unconfirmed entries.

        For a closed ledger this is `read`.

        Args:
            first: First entry id.
            last: Last entry id, inclusive.
            size_max: As for `read`.

        Returns:
            Views of the payloads, in order.

        Raises:
            LedgerError: As `read`.
        """
        if not self.closed:
            return await self._read_all(first, last) if size_max is None else await self._read(first, last, size_max)
        return await self.read(first, last, size_max=size_max)

    # --- the last add confirmed

    async def read_last_confirmed(self) -> int:
        """Ask the bookies for the last add confirmed.

        The answer includes every entry confirmed before the call, or nearly: a bookie learns of a confirmation with the
        next entry, or with an explicit LAC.

        Returns:
            The new `last_entry_id`.

        Raises:
            LedgerReadError: Too few bookies answer.
            LedgerUnauthorizedError: A bookie refuses the password.
            MetadataError: The metadata service failed.
        """
        return await self._ask(None)

    async def try_read_last_confirmed(self) -> int:
        """As `read_last_confirmed`, but the answer of a single bookie is enough.

        Returns:
            The new `last_entry_id`.

        Raises:
            LedgerReadError: No bookie answers.
            MetadataError: The metadata service failed.
        """
        return await self._ask(self.last_entry_id)

    async def wait_for_next(self, entry_id: int | None = None, *, timeout_s: float = inf) -> LacAndEntry:
        """Wait until an entry is confirmed, the ledger is closed, or the time is over.

        Continues while no bookie answers.

        Args:
            entry_id: Entry to wait for; None for the one after `last_entry_id`.
            timeout_s: Longest wait in seconds.

        Returns:
            The last entry that may be read, with the payload of `entry_id` if a bookie sent it along.

        Raises:
            NoSuchLedgerError: The ledger is deleted.
            LedgerClosedError: The reader was closed.
            ClientClosedError: The client was closed.
            MetadataError: The metadata cannot be watched any more.
        """
        entry_id = self.last_entry_id + 1 if entry_id is None else entry_id
        deadline = trio.current_time() + timeout_s
        entry: memoryview | None = None
        with trio.move_on_at(deadline):
            backoff = Backoff(self._context.config.retry_pause_s, POLL_PAUSE_MAX_S, self._context.rng)
            pause_s = backoff.next()
            while self.last_entry_id < entry_id and not self.closed:
                self._follow()
                changed = self._changed
                began = trio.current_time()
                entry = await self._poll(entry_id, deadline - began)
                if self.last_entry_id >= entry_id or trio.current_time() > began + pause_s:
                    backoff.reset()
                else:
                    with trio.move_on_after(pause_s):
                        await changed.wait()
                pause_s = backoff.next()
        return LacAndEntry(self.last_entry_id, entry if self.last_entry_id >= entry_id else None)

    async def tail(self, first: int = 0, *, size_max: int = 1 << 20) -> AsyncIterator[tuple[int, memoryview]]:
        """Iterate over all entries from `first` on as they are confirmed, until the ledger is closed.

        After an error, continue from the entry after the last one received.

        Args:
            first: First entry id.
            size_max: Bytes to read ahead.

        Returns:
            An iterator over (entry id, payload), in order.

        Raises:
            LedgerError: As `read` and `wait_for_next`.
            MetadataError: As `wait_for_next`.
        """
        entry_id = first
        while True:
            payloads: list[memoryview] = []
            if entry_id <= self.last_entry_id:
                payloads = await self._read(entry_id, self.last_entry_id, size_max)
            elif self.closed:
                return
            else:
                entry = (await self.wait_for_next(entry_id)).entry
                if entry is not None:
                    payloads.append(entry)
            for payload in payloads:
                yield entry_id, payload
                entry_id += 1

    def close(self) -> None:
        """Stop watching the ledger; waiting calls raise LedgerClosedError. May be called twice."""
        self._given_up = True
        if self._watch is not None:
            self._watch.close()
        self._stir()

    # --- internals

    async def _read(self, first: int, last: int, size_max: int) -> list[memoryview]:
        """Read some of the entries, at least `first`; retry after each change of the metadata."""
        if first < 0:
            raise IncorrectParameterError(f"entry {first}")
        while True:
            known = self.last_entry_id
            length = self.length if known >= 0 else 0
            if last > known:  # Unconfirmed entries are not in the length.
                length = last * (length // (known + 1)) if length else SINGLE_READ_GUESS * last
            try:
                reads = self._entry_reads or self._reads
                return await read_range(reads, self.metadata, self.ledger_id, first, last, size_max, length)
            except LedgerReadError:
                if first > last or not await self._look_again():
                    raise

    async def _read_all(self, first: int, last: int) -> list[memoryview]:
        if first > last:
            raise IncorrectParameterError(f"entries {first} to {last}")
        payloads: list[memoryview] = []
        while len(payloads) <= last - first:
            payloads += await self._read(first + len(payloads), last, READ_SIZE_MAX)
        return payloads

    async def _look_again(self) -> bool:
        """Read the metadata; return whether entries are on other bookies than assumed."""
        before = self.metadata.fragments
        try:
            stored = await self._context.ledgers.read(self.ledger_id)
        except MetadataError:
            return False  # The errors of the bookies say more.
        if stored is not None:
            self._adopt(stored)
        return self.metadata.fragments != before

    async def _ask(self, more_than: int | None) -> int:
        if not self.closed and (self._watch is None or self._watch.error is not None):
            stored = await self._context.ledgers.read(self.ledger_id)
            if stored is not None:
                self._adopt(stored)
        if not self.closed:
            with self._context.stats.lac_reads.timed():
                found = await ask_last_confirmed(
                    self._context, self.ledger_id, self.metadata, self._digest, more_than=more_than
                )
            if not self.closed:
                self.length = max(self.length, found.length)
            self._learn(found.lac)
        return self.last_entry_id

    async def _poll(self, entry_id: int, time_s: float) -> memoryview | None:
        """Make one long poll, which a change of the metadata ends early; return the entry, if it arrived."""
        bookies = self.metadata.fragments[-1].bookies
        poll = LongPollRace(self._reads, bookies, entry_id - 1, min(time_s, self._context.config.reads.long_poll_s))
        self._polls[poll] = None
        try:
            with self._context.stats.long_polls.timed():
                await poll.run()
        finally:
            del self._polls[poll]
        self._learn(poll.lac)
        return poll.entry

    def _follow(self) -> None:
        """Start watching the metadata unless it is watched already."""
        if self._given_up:
            raise LedgerClosedError(f"the reader of ledger {self.ledger_id} is closed")
        if self._context.bookies.closed:
            raise ClientClosedError("the ledger client is closed")
        if self._watch is None:
            self._watch = MetadataWatch(self._context, self.ledger_id, self._adopt)
            self._watch.on_error = self._stir
            self._watch.start()
        elif self._watch.error is not None:
            error, self._watch = self._watch.error, None
            raise error

    def _adopt(self, stored: Versioned[LedgerMetadata]) -> None:
        """Take stored metadata if it is newer than ours: a server of the store may lag."""
        if stored.version <= self._stored.version:
            return
        self._stored = stored
        metadata = stored.value
        if self.closed:
            if self._entry_reads is not None:
                self._entry_reads.on_lac = ignore_lac
            self.last_entry_id = metadata.last_entry_id
            self.length = metadata.length
        else:
            # A writer begins a fragment after its last confirmed entry.
            self.last_entry_id = max(self.last_entry_id, metadata.fragments[-1].first_entry_id - 1)
        self._stir()

    def _learn(self, lac: int) -> None:
        if lac > self.last_entry_id:
            self._context.stats.lacs_new += 1
        else:
            self._context.stats.lacs_known += 1
        if lac > self.last_entry_id and not self.closed:
            self.last_entry_id = lac
            self._stir()

    def _stir(self) -> None:
        """Wake all waiting calls, to check again."""
        self._changed.set()
        self._changed = trio.Event()
        for poll in self._polls:  # (in the order in which they began: a simulation repeats it)
            poll.stop()
