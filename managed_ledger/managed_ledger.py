"""One endless log: append, read, positions, cursors, trimming, close. Opened by `factory`.

What holds, beside what `appends`, `stored_list`, `trimmer` and the cursors promise:
- ReadersSeeOnlyConfirmed: no read goes above `last_confirmed`, nor above the entries that a closed ledger has in the
  list.
- A ledger is deleted only behind every durable cursor's durable position, and as `trimmer` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final, Literal, Protocol, cast

import trio

from cursors.cursor import Cursor
from cursors.doors import Ledgers
from cursors.errors import CursorClosedError, CursorError, CursorFencedError
from cursors.opening import create_cursor, memory_cursor, recover_cursor
from cursors.services import Services as CursorServices
from cursors.topic_log import topic_log
from managed_ledger.config import LogConfigSource, ManagedLedgerConfig
from managed_ledger.entry_cache import CacheBudget, EntryCache
from managed_ledger.entry_run import EntryRun
from managed_ledger.errors import (
    ManagedLedgerFencedError,
    ManagedLedgerReadError,
    ManagedLedgerUnavailableError,
    NoSuchCursorError,
)
from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.log_index import LogIndex
from managed_ledger.reading import LedgerReads
from managed_ledger.session import MetadataSession
from managed_ledger.slowest import Slowest
from managed_ledger.stored_list import StoredList, log_path
from managed_ledger.trimmer import Trimmer
from managed_ledger.trimming import Retention
from managed_ledger.writing.appends import Appends
from managed_ledger.writing.pending import AppendSink, PendingAppend
from managed_ledger.writing.rollover import RolloverLimits
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerError
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.metadata.errors import MetadataError, NodeExistsError
from quire.metadata.store import MetadataStore, Op
from quire.service.gate import Gate
from quire.service.log import Logger, get_logger
from quire.service.rare_lock import RareLock
from quire.world.doors import Buffer, World

__all__ = ["AppendSink", "EntryRun", "ManagedLedger", "Services"]

log = get_logger(__name__)

_NO_CURSORS: Final[Mapping[str, Cursor]] = MappingProxyType({})


class _Closed(Protocol):
    def __call__(self, closed: ManagedLedger, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Shared services of the logs of a broker."""

    world: World
    metadata: MetadataStore
    ledgers: Ledgers
    nursery: trio.Nursery
    config: ManagedLedgerConfig
    budget: CacheBudget
    cursors: CursorServices
    recoveries: Gate
    """Limits cursors recovered concurrently, over all logs."""
    on_gone: _Closed
    """Called when the log is fenced or closed, so that a new open reads it again."""
    no_room: Callable[[], str] = str
    """Returns the certain reason why bookies accept no entries of logs; "" otherwise."""
    limits: RolloverLimits = field(init=False)
    """Custom metadata of every log."""
    metadata_is_up: Callable[[], bool] = field(init=False)
    """Whether the metadata service is reachable, as far as known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", RolloverLimits.of(self.config))
        object.__setattr__(self, "metadata_is_up", MetadataSession(self.metadata).is_up)


class ManagedLedger:
    """One endless log; see the module. Everything not `async` answers from memory, at once."""

    __slots__ = (
        "_appends",
        "_closed",
        "_config",
        "_cursor_services",
        "_index",
        "_making",
        "_readers_made",
        "_reads",
        "_services",
        "_slowest",
        "_stored",
        "_trimmer",
        "_waiters",
        "cache",
        "cursors",
        "name",
        "on_fenced",
        "reader_cursors",
        "retention",
    )

    def __init__(self, services: Services, name: str, stored: StoredList, config: LogConfigSource) -> None:
        self.name = name
        """tenant/namespace/persistent/<escaped topic>"""
        self.cursors: Mapping[str, Cursor] = _NO_CURSORS
        """The durable cursors, by subscription name."""
        self._slowest: Slowest[Cursor] | None = None
        """Set from the first durable cursor on."""
        self.reader_cursors: Mapping[str, Cursor] = _NO_CURSORS
        self.on_fenced: Callable[[], None] = _nothing
        """Set by the owner; called once, when another broker has taken over the log, or after `abandon`."""
        self.retention: Retention | None = None
        """Replaces the value of the log's configuration; None: that applies."""
        self.cache = EntryCache(services.budget)
        self._services = services
        self._config = config
        self._cursor_services: CursorServices | None = None
        """Set from the first durable cursor on."""
        self._stored = stored
        self._index = LogIndex()
        self._reads = LedgerReads(services.ledgers)
        self._waiters: tuple[Callable[[], None], ...] = ()
        self._appends = Appends(
            name,
            services.world,
            services.nursery,
            stored,
            self._index,
            self.cache,
            services.limits,
            services.config.retry_timeout_s,
            self,
            services.metadata_is_up,
            services.no_room,
        )
        self._trimmer = Trimmer(
            self,
            services.ledgers,
            services.nursery,
            stored,
            self._index,
            self._appends,
            is_up=services.metadata_is_up,
            clock=services.world.clock,
        )
        self._closed: trio.Event | None = None
        self._readers_made = 0
        self._making = RareLock()

    @property
    def closed(self) -> trio.Event:
        """Set when `close` is done."""
        if self._closed is None:
            self._closed = trio.Event()
        return self._closed

    @property
    def cursor_services(self) -> CursorServices:
        """Return the services of cursors; for `opening`."""
        services = self._cursor_services
        if services is None:
            services = self._cursor_services = replace(
                self._services.cursors,
                quorums=self._config,
                proof=self._proof,
                confirm_ownership=self._confirm_ownership,
            )
        return services

    def append(self, payloads: Sequence[Buffer], sink: AppendSink) -> None:
        """Append a run of at least one entry; the sink hears of its fate, later unless the log takes nothing any
        more."""
        appends = self._appends
        if appends.state is State.OPEN:
            appends.push(PendingAppend(sink, payloads))
        else:
            appends.append_later(payloads, sink)

    # Facts

    def last_entry_of(self, ledger_id: int) -> int | None:
        """See `cursors.doors.Log`."""
        return self._index.last_entry_of(ledger_id)

    def next_position(self, position: Position) -> Position:
        """See `cursors.doors.Log`."""
        return self._index.next_position(position)

    def count_between(self, after: Position, upto: Position) -> int:
        """See `cursors.doors.Log`."""
        return self._index.count_between(after, upto)

    @property
    def last_confirmed(self) -> Position:
        """Return the last entry; entry -1 of the first ledger if there never was one."""
        return self._index.last_confirmed

    @property
    def state(self) -> State:
        return self._appends.state

    @property
    def pending_bytes(self) -> int:
        """Return the bytes appended and not confirmed."""
        writer = self._appends.writer
        return self._appends.pending.queued_bytes + (0 if writer is None else writer.pending_bytes)

    @property
    def ledgers(self) -> tuple[LedgerInfo, ...]:
        """Return the list as stored.

        The last ledger has no entries and size while it is open. After the open no ledger is open until the first
        append."""
        return self._stored.value.ledgers

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        return self._stored.value.properties

    @property
    def entry_count(self) -> int:
        """Return the number of confirmed entries in the log."""
        return self._index.count()

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
    def ledger_reads(self) -> int:
        """Return the number of reads at the bookies since the log was opened."""
        return self._reads.reads

    # Reading

    def first_position(self) -> Position:
        """Return the position of the first entry, existing or future."""
        return self._index.first_position()

    def previous_position(self, position: Position) -> Position:
        """See `cursors.doors.Log`."""
        return self._index.previous_position(position)

    def add_waiter(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each pass that confirmed entries, until `remove_waiter`. Adding it twice has no further
        effect."""
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
            found, was_read = await self._reads.read(source, ledger_id, first, last, size_max)
        except (LedgerError, MetadataError) as error:
            raise ManagedLedgerReadError(f"{self.name}: {start} cannot be read: {error}") from error
        payloads = cast("list[Buffer]", found)
        if was_read:
            others = self._readers_before(start) - (0 if replay else 1)
            if others > 0 and self._index.last_entry_of(ledger_id) is not None:
                self.cache.add(ledger_id, first, payloads, others, trio.current_time())
        return EntryRun(ledger_id, first, payloads)

    def _readers_before(self, position: Position) -> int:
        """Return the number of active cursors that have not read the entry there."""
        if self._appends.readers < 2:
            return self._appends.readers
        cursors = (*self.cursors.values(), *self.reader_cursors.values())
        return sum(cursor.active and cursor.read_position <= position for cursor in cursors)

    # Cursors

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position | Literal["latest", "earliest"] = "latest",
        properties: Sequence[tuple[str, str]] = (),
    ) -> Cursor:
        """Open the durable cursor of that name.

        A new one delivers what follows `initial` (a mark-delete position), and is durable on return. It is active from
        now on. Raises CursorError, ManagedLedgerUnavailableError."""
        self._appends.check_usable()
        async with self._making:
            cursor = self.cursors.get(name)
            if cursor is None:
                cursor = await self._make_cursor(name, self._mark_delete_of(initial), properties)
                self.adopt(cursor)
        cursor.activate()
        return cursor

    async def _make_cursor(self, name: str, mark_delete: Position, properties: Sequence[tuple[str, str]]) -> Cursor:
        """Create a cursor; or return the stored one, if an earlier attempt created it without receiving the answer."""
        services, path = self.cursor_services, log_path(self.name)
        try:
            try:
                return await create_cursor(
                    services, self, path, self.name, name, mark_delete, properties, self._cursor_fenced
                )
            except NodeExistsError:
                async with self._stored.held():
                    await self._stored.check()
                return await recover_cursor(services, self, path, self.name, name, self._cursor_fenced)
        except (ManagedLedgerFencedError, CursorFencedError) as error:
            self._appends.fence(str(error))
            raise
        except MetadataError as error:
            raise ManagedLedgerUnavailableError(f"cursor {name} cannot be made: {error}") from error

    def adopt(self, cursor: Cursor) -> None:
        """Register a durable cursor of this log that was created or recovered."""
        self.cursors = _with(self.cursors, cursor)
        slowest = self._slowest
        if slowest is None:
            slowest = self._slowest = Slowest[Cursor](_durable_position)
        slowest.add(cursor)
        cursor.on_activity = self._activity
        cursor.on_moved_back = slowest.moved_back
        if cursor.store is not None:
            cursor.store.on_durable = partial(self._durable_moved, cursor)

    def _durable_moved(self, cursor: Cursor, back: bool) -> None:
        if back and self._slowest is not None:
            self._slowest.moved_back(cursor)
        self._trimmer.moved()

    def new_reader_cursor(self, position: Position, name: str = "") -> Cursor:
        """Return an active cursor in memory that delivers what follows `position`, and does not prevent trimming.

        EARLIEST: everything, LATEST: what comes from now on. Release it with `drop_reader_cursor`."""
        self._appends.check_usable()
        self._readers_made += 1
        name = name or f"reader-{self._readers_made}"
        cursor = memory_cursor(self, name, self._mark_delete_of(position))
        self.reader_cursors = _with(self.reader_cursors, cursor)
        cursor.on_activity = self._activity
        cursor.activate()
        return cursor

    def drop_reader_cursor(self, cursor: Cursor) -> None:
        """Release a reader cursor; an unknown one is no error."""
        if self.reader_cursors.get(cursor.name) is cursor:
            self.reader_cursors = _without(self.reader_cursors, cursor)
        cursor.deactivate()

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor, node and ledgers; durable on return.

        Raises NoSuchCursorError, ManagedLedgerFencedError, ManagedLedgerUnavailableError."""
        self._appends.check_usable()
        async with self._making:
            cursor = self.cursors.get(name)
            if cursor is None or cursor.store is None:
                raise NoSuchCursorError(f"{self.name} has no cursor {name}")
            store = cursor.store
            store.stop(CursorClosedError(f"cursor {name} was deleted"))
            try:
                ledger_ids, delete = await store.end()
                async with self._stored.held():
                    await self._stored.put(self._stored.value.also_deleting(ledger_ids), delete)
            except MetadataError as error:
                raise ManagedLedgerUnavailableError(f"cursor {name} cannot be deleted: {error}") from error
            except ManagedLedgerFencedError as error:
                self._appends.fence(str(error))
                raise
            cursor.deactivate()
            if self._slowest is not None:
                self._slowest.discard(cursor)
            self.cursors = _without(self.cursors, cursor)
        await self.delete_ledgers(ledger_ids)
        self.want_trim()

    def _mark_delete_of(self, initial: Position | Literal["latest", "earliest"]) -> Position:
        if initial == "latest":
            return self.last_confirmed
        if initial == "earliest":
            return self.previous_position(self.first_position())
        assert not isinstance(initial, str), f"{initial!r} is not an initial position"
        if initial >= min(self.last_confirmed, LATEST):
            return self.last_confirmed
        if initial <= EARLIEST or initial < self.first_position():
            return self.previous_position(self.first_position())
        last = self.last_entry_of(initial.ledger_id)
        if last is None or initial.entry_id > last:
            return self.previous_position(self.next_position(initial))
        return initial

    def _activity(self, change: int) -> None:
        self._appends.readers += change

    def _cursor_fenced(self) -> None:
        self._appends.fence("cursor taken over by another broker")

    # Trimming: see `trimmer`

    def on_switched(self) -> None:
        self._trimmer.switched()

    def on_unneeded(self, ledger_id: int) -> None:
        self._trimmer.delete_unneeded(ledger_id)

    def slowest(self) -> Position | None:
        """Return the position behind which no durable cursor needs anything; None without durable cursors."""
        return None if self._slowest is None else self._slowest.position()

    def effective_retention(self) -> Retention:
        return self.retention or Retention.of(self._config())

    def want_trim(self) -> None:
        """Trim soon, in the background."""
        self._trimmer.want()

    def trim_needs(self) -> int:
        """Return how many new ledgers a trim would create, so that the last one of an unwritten log can be deleted too;
        -1: none can."""
        trimmer = self._trimmer
        if trimmer.takes_a_ledger():
            return 1
        return 0 if trimmer.useless() else -1

    def make_room(self) -> bool:
        """Leave the open ledger of a consumed log, so that it is trimmed too, because a disk is full; return whether
        that has begun."""
        slowest = self.slowest()
        return (slowest is None or slowest >= self.last_confirmed) and self._appends.leave_consumed()

    async def trim(self) -> int:
        """Delete the ledgers that are no longer needed; return how many.

        Raises ManagedLedgerFencedError, ManagedLedgerUnavailableError (incomplete; a later trim or open completes
        it)."""
        return await self._trimmer.trim()

    async def delete_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Delete ledgers that the stored list names for deletion, as far as possible now."""
        await self._trimmer.delete(ledger_ids)

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Forget ledgers removed from the list: nothing may point into them."""
        for ledger_id in ledger_ids:
            self._reads.forget(ledger_id)
            self.cache.forget_ledger(ledger_id)
        if self._services.no_room():
            # Their entries lie among those of the log: a partly used entry log is deleted only with them.
            for cursor in self.cursors.values():
                if cursor.store is not None:
                    cursor.store.leave_ledger()
        start = self.first_position()
        for cursor in (*self.reader_cursors.values(), *self.cursors.values()):
            if not cursor.durable:
                cursor.skip_to(Position(start.ledger_id, -1))
            if cursor.read_position < start:
                cursor.rewind()

    # Life

    @property
    def is_usable(self) -> bool:
        return self._appends.is_usable

    @property
    def appends(self) -> Appends:
        """Return the write path; for `opening`."""
        return self._appends

    @property
    def index(self) -> LogIndex:
        """Return the index; for `opening`."""
        return self._index

    def check_age(self, now: float) -> None:
        """Roll the current ledger if it has reached its age (trio's time)."""
        if self._appends.state is State.OPEN:  # of thousands of logs, most have no open ledger
            self._appends.check_age(now)

    def roll(self) -> None:
        """Switch to a new ledger soon, if the current one has entries."""
        self._appends.roll()

    def abandon(self) -> None:
        """Stop at once because another broker is known to have the log.

        Accepts nothing more, fails unconfirmed appends (ManagedLedgerFencedError), and writes nothing more to metadata
        or bookies, not even on `close`. The next open reads the log again. A missing log is no error."""
        self._appends.fence("its ownership was lost")

    def _proof(self) -> list[Op]:
        try:
            return [self._stored.proof()]
        except ManagedLedgerFencedError as error:
            raise CursorFencedError(str(error)) from error

    async def _confirm_ownership(self) -> None:
        """Check that this broker still has the log. Raises CursorFencedError if another changed the list;
        MetadataError."""
        try:
            async with self._stored.held():
                await self._stored.check()
        except ManagedLedgerFencedError as error:
            raise CursorFencedError(str(error)) from error

    def on_taken_over(self) -> None:
        for cursor in self.cursors.values():
            if cursor.store is not None:
                cursor.store.stop(CursorFencedError(f"{self.name} was taken over"))
        self.cache.clear()
        self._services.on_gone(self)
        self.on_fenced()

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
                self._log.warning("ledger not closed; the next open recovers it", reason=str(error))
            unneeded = self._appends.unneeded()
            if self.cursors or unneeded is not None:
                async with trio.open_nursery() as nursery:
                    for cursor in self.cursors.values():
                        nursery.start_soon(self._close_cursor, cursor, name=f"close cursor {cursor.name}")
                    if unneeded is not None:
                        nursery.start_soon(self.delete_ledgers, [unneeded], name=f"unneeded ledger of {self.name}")
        finally:
            self.cache.clear()
            self.closed.set()
            self._services.on_gone(self)

    @property
    def _log(self) -> Logger:
        return topic_log(log, self.name)

    async def _close_cursor(self, cursor: Cursor) -> None:
        try:
            if cursor.store is not None:
                await cursor.store.close()
        except (CursorError, LedgerError, MetadataError) as error:
            self._log.warning("cursor not closed; the next open recovers it", cursor=cursor.name, reason=str(error))


def _with(cursors: Mapping[str, Cursor], cursor: Cursor) -> Mapping[str, Cursor]:
    """Return these cursors and one more. Most logs have none, and share `_NO_CURSORS`."""
    if not isinstance(cursors, dict):
        cursors = {}
    cursors[cursor.name] = cursor
    return cursors


def _without(cursors: Mapping[str, Cursor], cursor: Cursor) -> Mapping[str, Cursor]:
    if isinstance(cursors, dict):
        del cursors[cursor.name]
    return cursors or _NO_CURSORS


def _durable_position(cursor: Cursor) -> Position:
    return min(cursor.mark_delete, cursor.durable_mark_delete)


def _nothing() -> None:
    pass
