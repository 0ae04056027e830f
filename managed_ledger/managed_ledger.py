"""One endless log: append, read, positions, cursors, trimming, close. Opened by `factory`.

What holds, beside what `appends`, `stored_list`, `trimmer` and the cursors promise:
- ReadersSeeOnlyConfirmed: no read goes above `last_confirmed`, nor above the entries that a closed ledger has in the
  list.
- A ledger is deleted only behind every durable cursor's durable position, and as `trimmer` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import trio

from cursors.cursor import Cursor
from cursors.errors import CursorClosedError, CursorFencedError
from cursors.services import CursorServices as CursorServices
from cursors.topic_log import topic_log
from managed_ledger.entry_cache import EntryCache
from managed_ledger.entry_run import EntryRun
from managed_ledger.errors import (
    ManagedLedgerFencedError,
    ManagedLedgerReadError,
    ManagedLedgerUnavailableError,
    ObjectError,
)
from managed_ledger.indexed_log import IndexedLog
from managed_ledger.ledger_list import LedgerList
from managed_ledger.log_cursors import NO_CURSORS, Initial, LogCursors
from managed_ledger.reading import LogReads
from managed_ledger.services import LogOwner, Services
from managed_ledger.stored_list import StoredList
from managed_ledger.tiers import ClosedLedgers
from managed_ledger.trimmer import Trimmer
from managed_ledger.trimming import Retention
from managed_ledger.writing.appends import Appends
from managed_ledger.writing.pending import AppendSink, PendingAppend
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError
from quire.service.log import get_logger
from quire.world.doors import Buffer

__all__ = ["AppendSink", "EntryRun", "ManagedLedger"]

log = get_logger(__name__)


class ManagedLedger(IndexedLog):
    """One endless log; see the module. Everything not `async` answers from memory, at once."""

    __slots__ = (
        "_appends",
        "_cache",
        "_closed",
        "_log_cursors",
        "_reads",
        "_services",
        "_trimmer",
        "_waiters",
        "name",
        "on_fenced",
        "owner",
        "retention",
    )

    def __init__(self, services: Services, stored: StoredList) -> None:
        self.name = stored.name
        """tenant/namespace/persistent/<escaped topic>"""
        self._log_cursors: LogCursors | None = None
        """Set from the first cursor on."""
        self.on_fenced: Callable[[], None] = _nothing
        """Set by a user; called once, when another broker has taken over the log, or after `abandon`."""
        self.owner: LogOwner | None = None
        """Told of the same: of thousands of logs, a bound method for each would be kept."""
        self.retention: Retention | None = None
        """Replaces the value of the log's configuration; None: that applies."""
        self._cache: EntryCache | None = None
        """Set from the first reader of the tail on."""
        self._services = services
        super().__init__(stored)
        self._reads: LogReads | None = None
        """Set from the first read at a ledger on."""
        self._waiters: tuple[Callable[[], None], ...] = ()
        self._appends = Appends(services, stored, self._index, self)
        self._trimmer: Trimmer | None = None
        """Set from the first cursor on, or while ledgers are trimmed in the background."""
        self._closed: trio.Event | None = None

    @property
    def closed(self) -> trio.Event:
        """Set when `close` is done."""
        if self._closed is None:
            self._closed = trio.Event()
        return self._closed

    def append(self, payloads: Sequence[Buffer], sink: AppendSink) -> None:
        """Append a run of at least one entry; its sink gets the outcome, later unless the log takes no entries."""
        appends = self._appends
        if appends.state is State.OPEN:
            appends.push(PendingAppend(sink, payloads))
        else:
            appends.append_later(payloads, sink)

    # Facts

    @property
    def state(self) -> State:
        return self._appends.state

    @property
    def pending_bytes(self) -> int:
        """Return the bytes appended and not confirmed."""
        writer = self._appends.writer
        return self._appends.pending.queued_bytes + (0 if writer is None else writer.pending_bytes)

    async def update_properties(self, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """As `update_list`, with the properties."""
        await self.update_list(lambda value: value.with_properties(change))

    async def update_list(self, change: Callable[[LedgerList], LedgerList]) -> None:
        """Store what `change` makes of the list; durable on return. `change` may raise, and then nothing is stored.
        Raises ManagedLedgerFencedError, ManagedLedgerUnavailableError (it may be stored all the same)."""
        self._appends.check_usable()
        try:
            await self._stored.update(change)
        except ManagedLedgerFencedError as error:
            self._appends.fence(str(error))
            raise
        except MetadataError as error:
            raise ManagedLedgerUnavailableError(f"{self.name}: not stored: {error}") from error

    @property
    def cache(self) -> EntryCache:
        """Return the cache of recent entries, made at the first use."""
        if self._cache is None:
            self._cache = EntryCache(self._services.budget)
        return self._cache

    @property
    def cache_hits(self) -> int:
        """Return the entries that the cache has served."""
        return 0 if self._cache is None else self._cache.hits

    @property
    def cache_misses(self) -> int:
        """Return the reads that found nothing in the cache."""
        return 0 if self._cache is None else self._cache.misses

    @property
    def size(self) -> int:
        """Return the bytes of payload in the log, including pending ones of the current ledger."""
        writer = self._appends.writer
        current = 0 if writer is None or self._index.current_id != writer.ledger_id else writer.length
        return current + sum(info.size for info in self._stored.value.ledgers)

    @property
    def entries_added(self) -> int:
        """Return the number of entries confirmed since the log was opened."""
        return self._appends.entries_added

    @property
    def ledger_reads(self) -> tuple[int, int]:
        """Return the numbers of reads at the bookies since the log was opened, and of the entries that they gave."""
        return (0, 0) if self._reads is None else (self._reads.reads, self._reads.entries)

    # Reading

    def add_waiter(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each pass that confirmed entries, until `remove_waiter`. A second add has no effect."""
        if callback not in self._waiters:
            self._waiters += (callback,)

    def remove_waiter(self, callback: Callable[[], None]) -> None:
        self._waiters = tuple([each for each in self._waiters if each != callback])

    def on_appended(self) -> None:
        """Handle the event of `appends`, as do `on_switched`, `on_taken_over` and `on_unneeded`."""
        for waiter in self._waiters:
            waiter()

    def read_cached(
        self, position: Position, count_max: int, size_max: int, *, replay: bool = False
    ) -> EntryRun | None:
        """Return cached entries from `position` on, at least one; None if that one is not cached.

        `replay`: the entry was delivered before, so this is not the read that the cache expects of an active cursor."""
        return self.cache.get(position[0], position[1], count_max, size_max, counted=not replay)

    async def read(self, position: Position, count_max: int, size_max: int, *, replay: bool = False) -> EntryRun:
        """Read entries from `position` on, or from the next place that has one.

        Returns entries of one ledger: at least one, at most `count_max` and about `size_max` bytes; without payloads if
        nothing is confirmed there yet. Raises ManagedLedgerReadError, ManagedLedgerFencedError,
        ManagedLedgerClosedError."""
        self._appends.check_usable()
        start = self._index.readable(position)
        if start is None:
            await trio.lowlevel.checkpoint()
            return EntryRun(position[0], position[1], [])
        cached = self.read_cached(start, count_max, size_max, replay=replay)
        if cached is not None:
            await trio.lowlevel.checkpoint()
            return cached
        ledger_id, first = start
        end = self._index.last_entry_of(ledger_id)
        assert end is not None, f"{start} is readable and of no ledger"
        last = min(first + count_max - 1, end)
        writer = self._appends.writer
        source = writer if writer is not None and writer.ledger_id == ledger_id else None
        try:
            if self._reads is None:
                services = self._services
                self._reads = LogReads(ClosedLedgers(services.ledgers, services.objects, self._stored))
            found, was_read = await self._reads.read(source, ledger_id, first, last, size_max)
        except (LedgerError, MetadataError, ObjectError) as error:
            raise ManagedLedgerReadError(f"{self.name}: {start} cannot be read: {error}") from error
        payloads = cast("list[Buffer]", found)
        if was_read:
            cursors = self._log_cursors
            others = (0 if cursors is None else cursors.active_before(start)) - (0 if replay else 1)
            if others > 0 and self._index.last_entry_of(ledger_id) is not None:
                self.cache.add(ledger_id, first, payloads, others, trio.current_time())
        return EntryRun(ledger_id, first, payloads)

    # Cursors: see `log_cursors`

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """Return the durable cursors, by subscription name."""
        return NO_CURSORS if self._log_cursors is None else self._log_cursors.durable

    @property
    def reader_cursors(self) -> Mapping[str, Cursor]:
        return NO_CURSORS if self._log_cursors is None else self._log_cursors.readers

    def cursor_fenced(self) -> Callable[[], None]:
        """Return the function to be called when another broker has a cursor; for `opening`."""
        return self._made_cursors().cursor_fenced

    @property
    def cursor_services(self) -> CursorServices:
        """Return the services of cursors; for `opening`."""
        return self._made_cursors().services

    async def open_cursor(
        self, name: str, *, initial: Initial = "latest", properties: Sequence[tuple[str, str]] = ()
    ) -> Cursor:
        """See `LogCursors.open`."""
        return await self._made_cursors().open(name, initial, properties)

    def adopt(self, cursor: Cursor) -> None:
        """See `LogCursors.adopt`."""
        self._made_cursors().adopt(cursor)

    def new_reader_cursor(self, position: Position, name: str = "") -> Cursor:
        """See `LogCursors.new_reader`."""
        return self._made_cursors().new_reader(position, name)

    def drop_reader_cursor(self, cursor: Cursor) -> None:
        """See `LogCursors.drop_reader`."""
        self._made_cursors().drop_reader(cursor)

    async def delete_cursor(self, name: str, *, also: Sequence[int] = ()) -> None:
        """See `LogCursors.delete`."""
        await self._made_cursors().delete(name, also)

    def _made_cursors(self) -> LogCursors:
        cursors = self._log_cursors
        if cursors is None:
            shared, stored = self._services.cursors, self._stored
            self._trimmer = trimmer = self._made_trimmer()
            cursors = LogCursors(self.name, self._index, shared, stored.config, stored, self._appends, trimmer)
            self._log_cursors = cursors
        return cursors

    # Trimming: see `trimmer`

    def _made_trimmer(self) -> Trimmer:
        """Return the trimmer, or one for a single use: logs without cursors hardly need one."""
        trimmer = self._trimmer
        if trimmer is None:
            trimmer = Trimmer(self, self._services, self._stored, self._index, self._appends)
        return trimmer

    def on_switched(self) -> None:
        self._trimming(Trimmer.switched)

    def on_unneeded(self, ledger_id: int) -> None:
        self._made_trimmer().delete_unneeded(ledger_id)

    def _trimming(self, begin: Callable[[Trimmer], None]) -> None:
        """Begin something that may go on in the background, where only one trim may be under way."""
        self._trimmer = trimmer = self._made_trimmer()
        begin(trimmer)
        if self._log_cursors is None and not trimmer.is_busy:
            self._trimmer = None

    def slowest(self) -> Position | None:
        """Return the position behind which no durable cursor needs anything; None without durable cursors."""
        return None if self._log_cursors is None else self._log_cursors.slowest()

    def effective_retention(self) -> Retention:
        return self.retention or Retention.of(self._stored.config())

    def want_trim(self) -> None:
        """Trim soon, in the background."""
        self._trimming(Trimmer.want)

    def trim_needs(self) -> int:
        """Return how many new ledgers a trim would create, so that the last one of an unwritten log can be deleted too;
        -1: none can."""
        if not self._stored.value.ledgers:
            return -1
        trimmer = self._made_trimmer()
        return 1 if trimmer.takes_a_ledger() else 0 if trimmer.useless() else -1

    def make_room(self) -> bool:
        """Leave the open ledger of a consumed log, so that it is trimmed too, because a disk is full; return whether
        that has begun."""
        slowest = self.slowest()
        return (slowest is None or slowest >= self.last_confirmed) and self._appends.leave_consumed()

    async def trim(self) -> int:
        """Delete the ledgers that are no longer needed; return how many. Raises ManagedLedgerFencedError,
        ManagedLedgerUnavailableError (incomplete; a later trim or open completes it)."""
        return await self._made_trimmer().trim()

    async def truncate(self) -> int:
        """As `trim`, whatever the retention says."""
        await self._appends.settled()  # a trim that left the last ledger may be under way
        return await self._made_trimmer().trim(Retention())

    async def delete_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Delete ledgers that the stored list names for deletion, as far as possible now."""
        await self._made_trimmer().delete(ledger_ids)

    async def delete_objects(self) -> bool:
        """See `Trimmer.delete_objects`."""
        return await self._made_trimmer().delete_objects()

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Forget ledgers removed from the list: nothing may point into them."""
        self.forget_readers(ledger_ids)
        if self._cache is not None:
            for ledger_id in ledger_ids:
                self._cache.forget_ledger(ledger_id)
        cursors = self._log_cursors
        if cursors is not None:
            if self._services.no_room():
                # Their entries lie among those of the log: a partly used entry log is deleted only with them.
                cursors.leave_ledgers()
            cursors.trimmed_to(self.first_position())

    def forget_readers(self, ledger_ids: Sequence[int]) -> None:
        """Open these ledgers anew for the next read."""
        if self._reads is not None:
            for ledger_id in ledger_ids:
                self._reads.forget(ledger_id)

    # Life

    @property
    def is_usable(self) -> bool:
        return self._appends.is_usable

    @property
    def appends(self) -> Appends:
        return self._appends  # for `opening`, as the index

    def check_age(self, now: float) -> None:
        """Roll the current ledger if it has reached its age (trio's time)."""
        if self._appends.state is State.OPEN:  # of thousands of logs, most have no open ledger
            self._appends.check_age(now)

    def rest(self) -> None:
        """Give back memory that only writing needs, of ledgers that nothing is being written to."""
        for part in (self._appends, self._log_cursors):
            if part is not None:
                part.rest()

    def roll(self) -> None:
        """Switch to a new ledger soon, if the current one has entries."""
        self._appends.roll()

    async def terminate(self) -> None:
        """See `Appends.terminate`."""
        await self._appends.terminate()

    def abandon(self) -> None:
        """Stop at once because another broker is known to have the log.

        Accepts nothing more, fails unconfirmed appends (ManagedLedgerFencedError), and writes nothing more to metadata
        or bookies, not even on `close`. The next open reads the log again. A missing log is no error."""
        self._appends.fence("its ownership was lost")

    def on_taken_over(self) -> None:
        if self._log_cursors is not None:
            self._log_cursors.stop(CursorFencedError(f"{self.name} was taken over"))
        if self._cache is not None:
            self._cache.clear()
        self._services.on_gone(self)
        self.on_fenced()
        if self.owner is not None:
            self.owner.fenced()

    def close_at_once(self) -> bool:
        """Do as `close` in this step, if nothing is to be stored or waited for: not written to since it was opened, and
        what its cursors acknowledged is stored. Return False otherwise; nothing has changed then."""
        cursors = self._log_cursors
        if not self._appends.closes_at_once or not (cursors is None or cursors.close_at_once):
            return False
        self._appends.close_at_once()
        if cursors is not None:
            cursors.stop(CursorClosedError(f"{self.name} is closed"))
        self._released()
        return True

    async def close(self) -> None:
        """Store the known state, cursors first, and release everything. Raises nothing that recovery can handle."""
        if self._appends.state is State.FENCED:
            self.closed.set()  # nothing is left to do or to wait for
        if self._appends.state in (State.CLOSING, State.CLOSED, State.FENCED):
            return
        try:
            try:
                await self._appends.close()
            except (LedgerError, MetadataError) as error:
                topic_log(log, self.name).warning("ledger not closed; the next open recovers it", reason=str(error))
            unneeded, cursors = self._appends.unneeded(), self._log_cursors
            if self.cursors or unneeded is not None:
                async with trio.open_nursery() as nursery:
                    if cursors is not None:
                        cursors.close(nursery)
                    if unneeded is not None:
                        nursery.start_soon(self.delete_ledgers, [unneeded], name=f"unneeded ledger of {self.name}")
        finally:
            self._released()

    def _released(self) -> None:
        if self._cache is not None:
            self._cache.clear()
        self.closed.set()
        self._services.on_gone(self)


def _nothing() -> None:
    pass
