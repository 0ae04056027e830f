"""LedgerReader: reads a ledger, closed or still being written.

    closed     up to its last entry
    open       up to the last add confirmed as far as it is known: from when it was opened, from `read_last_confirmed`,
               from what comes along with entries, and from waiting (`wait_for_next`, `tail`)

A read that fails looks at the metadata again: the writer, or a repair, may have put other bookies in the place of those
that failed.

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
from quire.ledger.reading.tailing import LacAndEntry, LongPoll, MetadataWatch
from quire.ledger.striping import Striping
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.wire.bookkeeper.entry import Digest
from quire.world.backoff import Backoff

__all__ = ["EntryReads", "LacAndEntry", "LedgerReader", "open_entries", "read_range"]

POLL_PAUSE_MAX_S = 1.0
"""Between long polls that bookies answer at once without news, e.g. as they do not know the ledger yet."""


class LedgerReader:
    """Made by `LedgerClient.open`. An open ledger that was waited for is watched until it is closed, or `close`."""

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
        metadata = stored.value
        striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        self._reads = EntryReads(context, ledger_id, digest, striping)
        self._watch: MetadataWatch | None = None
        self._polls: dict[LongPoll, None] = {}
        self._changed = trio.Event()
        self._given_up = False
        if not self.closed:
            self._reads.on_lac = self._learn

    @property
    def metadata(self) -> LedgerMetadata:
        """As it was last read."""
        return self._stored.value

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed: nothing more can come."""
        return self._stored.value.state is LedgerState.CLOSED

    # --- entries

    async def read(self, first: int, last: int, *, size_max: int | None = None) -> list[memoryview]:
        """Payloads of entries `first` to `last`, inclusive: all of them, of which none may be past the last one.

        With `size_max`: at least one of them, at most up to the last one and about `size_max` bytes; fewer than asked for is
        usual, read on from there. NoSuchEntryError for entries past the last one, and for those that all their bookies
        deny; DigestMismatchError; LedgerReadError; LedgerUnauthorizedError; IncorrectParameterError.
        """
        if size_max is not None:
            return await self._read(first, min(last, self.last_entry_id), size_max)
        if last > self.last_entry_id:
            text = f"entry {self.ledger_id}:{last} is past the last confirmed one, {self.last_entry_id}"
            raise NoSuchEntryError(text)
        return await self._read_all(first, last)

    async def batch_read(self, first: int, count_max: int, size_max: int = READ_SIZE_MAX) -> list[memoryview]:
        """Payloads from `first` on: at least one, at most `count_max` and about `size_max` bytes. As `read` otherwise."""
        if count_max < 1:
            raise IncorrectParameterError(f"a batch of {count_max} entries")
        return await self._read(first, min(first + count_max - 1, self.last_entry_id), size_max)

    async def read_unconfirmed(self, first: int, last: int, *, size_max: int | None = None) -> list[memoryview]:
        """As `read`, without a look at what is confirmed: entries of an open ledger that its writer may yet give up. Of a
        closed ledger there is nothing past its end."""
        if not self.closed:
            return await self._read_all(first, last) if size_max is None else await self._read(first, last, size_max)
        return await self.read(first, last, size_max=size_max)

    # --- the last add confirmed

    async def read_last_confirmed(self) -> int:
        """Ask the bookies for the last add confirmed: everything that was confirmed when we asked, or nearly (a bookie learns
        of a confirmation with the next entry, or an explicit LAC). Returns `last_entry_id`.

        LedgerReadError if too few bookies answer; LedgerUnauthorizedError; MetadataError.
        """
        return await self._ask(None)

    async def try_read_last_confirmed(self) -> int:
        """The same, but what a single bookie knows is good enough. LedgerReadError if none answers."""
        return await self._ask(self.last_entry_id)

    async def wait_for_next(self, entry_id: int | None = None, *, timeout_s: float = inf) -> LacAndEntry:
        """Wait until entry `entry_id` is confirmed (the next one, if it is not given), the ledger is closed, or the time is
        over. While no bookie answers it waits on.

        NoSuchLedgerError if the ledger is deleted; LedgerClosedError after `close`; ClientClosedError; MetadataError if it
        cannot be watched any more.
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
        """Every entry from `first` on, with its id, in order, as they are confirmed, until the ledger is closed.

        `size_max`: bytes that are read ahead. Raises what `read` and `wait_for_next` raise; go on from the entry after the
        last one that came.
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
        """Do not watch the ledger any more; who waits gets LedgerClosedError. Safe twice."""
        self._given_up = True
        if self._watch is not None:
            self._watch.close()
        self._stir()

    # --- inside

    async def _read(self, first: int, last: int, size_max: int) -> list[memoryview]:
        """Some of the entries, `first` at least; once more for each change of the metadata."""
        if first < 0:
            raise IncorrectParameterError(f"entry {first}")
        while True:
            known = self.last_entry_id
            length = self.length if known >= 0 else 0
            if last > known:  # What is not confirmed is not in the length.
                length = last * (length // (known + 1)) if length else SINGLE_READ_GUESS * last
            try:
                return await read_range(self._reads, self.metadata, self.ledger_id, first, last, size_max, length)
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
        """Read the metadata; whether entries lie elsewhere than we thought."""
        before = self.metadata.fragments
        try:
            stored = await self._context.ledgers.read(self.ledger_id)
        except MetadataError:
            return False  # What went wrong at the bookies tells more.
        if stored is not None:
            self._adopt(stored)
        return self.metadata.fragments != before

    async def _ask(self, more_than: int | None) -> int:
        if not self.closed and (self._watch is None or self._watch.error is not None):
            stored = await self._context.ledgers.read(self.ledger_id)
            if stored is not None:
                self._adopt(stored)
        if not self.closed:
            found = await ask_last_confirmed(
                self._context, self.ledger_id, self.metadata, self._digest, more_than=more_than
            )
            if not self.closed:
                self.length = max(self.length, found.length)
            self._learn(found.lac)
        return self.last_entry_id

    async def _poll(self, entry_id: int, time_s: float) -> memoryview | None:
        """One long poll, which a change of the metadata ends early; the entry, if it came."""
        bookies = self.metadata.fragments[-1].bookies
        poll = LongPoll(self._reads, bookies, entry_id - 1, min(time_s, self._context.config.reads.long_poll_s))
        self._polls[poll] = None
        try:
            await poll.run()
        finally:
            del self._polls[poll]
        self._learn(poll.lac)
        return poll.entry

    def _follow(self) -> None:
        """See to it that the metadata is watched."""
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
        """What is stored, if it is newer than what we have: a server of the store may be behind."""
        if stored.version <= self._stored.version:
            return
        self._stored = stored
        metadata = stored.value
        if self.closed:
            self._reads.on_lac = ignore_lac
            self.last_entry_id = metadata.last_entry_id
            self.length = metadata.length
        else:
            # A writer begins a fragment after its last confirmed entry.
            self.last_entry_id = max(self.last_entry_id, metadata.fragments[-1].first_entry_id - 1)
        self._stir()

    def _learn(self, lac: int) -> None:
        if lac > self.last_entry_id and not self.closed:
            self.last_entry_id = lac
            self._stir()

    def _stir(self) -> None:
        """Wake who waits, to look again."""
        self._changed.set()
        self._changed = trio.Event()
        for poll in self._polls:  # (in the order in which they began: a simulation repeats it)
            poll.stop()
