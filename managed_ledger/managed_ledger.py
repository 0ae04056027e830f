"""One endless log: append, read, positions, cursors, trimming, close. Opened by `factory`.

What holds, beside what `appends`, `stored_list`, `trimmer` and the cursors promise:
- ReadersSeeOnlyConfirmed: no read goes above `last_confirmed`, nor above the entries that a closed ledger has in the list.
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
from managed_ledger.appends import Appends, State
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
from managed_ledger.pending import AppendSink, PendingAppend
from managed_ledger.reading import LedgerReads
from managed_ledger.rollover import RolloverLimits
from managed_ledger.session import MetadataSession
from managed_ledger.slowest import Slowest
from managed_ledger.stored_list import StoredList, log_path
from managed_ledger.trimmer import Trimmer
from managed_ledger.trimming import Retention
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
    """What the logs of a broker share."""

    world: World
    metadata: MetadataStore
    ledgers: Ledgers
    nursery: trio.Nursery
    config: ManagedLedgerConfig
    budget: CacheBudget
    cursors: CursorServices
    recoveries: Gate
    """Cursors that are recovered at a time, whatever their logs."""
    on_gone: _Closed
    """The log is fenced or closed: a new open reads it anew."""
    no_room: Callable[[], str] = str
    """Why bookies take no entries of logs, known for sure; "" otherwise."""
    limits: RolloverLimits = field(init=False)
    """Of every log."""
    metadata_is_up: Callable[[], bool] = field(init=False)
    """Whether the metadata service can be reached, as far as is known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", RolloverLimits.of(self.config))
        object.__setattr__(self, "metadata_is_up", MetadataSession(self.metadata).is_up)


class ManagedLedger:
    """See the module. Everything not `async` answers from memory, at once."""

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
        """From the first durable cursor on."""
        self.reader_cursors: Mapping[str, Cursor] = _NO_CURSORS
        self.on_fenced: Callable[[], None] = _nothing
        """Set by the owner; called once, when another broker has taken the log over, or `abandon` gave it up."""
        self.retention: Retention | None = None
        """Instead of what the configuration of the log says; None: as it says."""
        self.cache = EntryCache(services.budget)
        self._services = services
        self._config = config
        self._cursor_services: CursorServices | None = None
        """From the first durable cursor on."""
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
        """For `opening`."""
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
        """Append a run of at least one entry; the sink hears of its fate, later unless the log takes nothing any more."""
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
        """The last entry there is; entry -1 of the first ledger if there was none ever."""
        return self._index.last_confirmed

    @property
    def state(self) -> State:
        return self._appends.state

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not confirmed."""
        writer = self._appends.writer
        return self._appends.pending.queued_bytes + (0 if writer is None else writer.pending_bytes)

    @property
    def ledgers(self) -> tuple[LedgerInfo, ...]:
        """The list as stored: the last ledger without entries and size while it is open; after the open none is, until something is
        appended."""
        return self._stored.value.ledgers

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        return self._stored.value.properties

    @property
    def entry_count(self) -> int:
        """Confirmed entries in the log."""
        return self._index.count()

    @property
    def size(self) -> int:
        """Bytes of payload in the log; of the current ledger those on the way too."""
        writer = self._appends.writer
        current = 0 if writer is None or self._index.current_id != writer.ledger_id else writer.length
        return current + sum(info.size for info in self._stored.value.ledgers)

    @property
    def entries_added(self) -> int:
        """Entries confirmed since the log was opened."""
        return self._appends.entries_added

    @property
    def ledger_reads(self) -> int:
        """Reads that went to the bookies since the log was opened."""
        return self._reads.reads

    # Reading

    def first_position(self) -> Position:
        """Of the first entry that is there, or will be."""
        return self._index.first_position()

    def previous_position(self, position: Position) -> Position:
        """See `cursors.doors.Log`."""
        return self._index.previous_position(position)

    def add_waiter(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each pass that confirmed entries, until `remove_waiter`; adding it twice is adding it once."""
        if callback not in self._waiters:
            self._waiters += (callback,)

    def remove_waiter(self, callback: Callable[[], None]) -> None:
        self._waiters = tuple([each for each in self._waiters if each != callback])

    def on_appended(self) -> None:
        """For `appends`, as `on_switched`, `on_taken_over` and `on_unneeded`."""
        for waiter in self._waiters:
            waiter()

    def read_cached(
        self, position: Position, count_max: int, size_max: int, *, replay: bool = False
    ) -> EntryRun | None:
        """What the cache has from `position` on, at least one entry; None if it has not that one. `replay`: the entry was
        delivered before, so this is not the read that the cache expects of an active cursor."""
        return self.cache.get(position[0], position[1], count_max, size_max, counted=not replay)

    async def read(self, position: Position, count_max: int, size_max: int, *, replay: bool = False) -> EntryRun:
        """Entries from `position` on, or from the next place that has one: of one ledger, at least one, at most
        `count_max` and about `size_max` bytes; without payloads if nothing is confirmed there yet.
        ManagedLedgerReadError, ManagedLedgerFencedError, ManagedLedgerClosedError."""
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
        """Active cursors that have yet to read the entry there."""
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
        """The durable cursor of that name. A new one delivers what comes after `initial` (a mark-delete position), and is
        durable on return. It is active from now on. CursorError, ManagedLedgerUnavailableError."""
        self._appends.check_usable()
        async with self._making:
            cursor = self.cursors.get(name)
            if cursor is None:
                cursor = await self._make_cursor(name, self._mark_delete_of(initial), properties)
                self.adopt(cursor)
        cursor.activate()
        return cursor

    async def _make_cursor(self, name: str, mark_delete: Position, properties: Sequence[tuple[str, str]]) -> Cursor:
        """A new cursor; or the stored one, if an earlier attempt made it and did not hear of it."""
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
        """A durable cursor of this log was made or recovered."""
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
        """A cursor in memory that delivers what comes after `position` (EARLIEST: everything, LATEST: what comes from now
        on); it holds no data back. It is active. Give it back with `drop_reader_cursor`."""
        self._appends.check_usable()
        self._readers_made += 1
        name = name or f"reader-{self._readers_made}"
        cursor = memory_cursor(self, name, self._mark_delete_of(position))
        self.reader_cursors = _with(self.reader_cursors, cursor)
        cursor.on_activity = self._activity
        cursor.activate()
        return cursor

    def drop_reader_cursor(self, cursor: Cursor) -> None:
        """Fine if it is gone."""
        if self.reader_cursors.get(cursor.name) is cursor:
            self.reader_cursors = _without(self.reader_cursors, cursor)
        cursor.deactivate()

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor, node and ledgers; gone for good on return. NoSuchCursorError, ManagedLedgerFencedError,
        ManagedLedgerUnavailableError."""
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
        assert not isinstance(initial, str), f"{initial!r} is no initial position"
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
        self._appends.fence("a cursor was taken over")

    # Trimming: see `trimmer`

    def on_switched(self) -> None:
        self._trimmer.switched()

    def on_unneeded(self, ledger_id: int) -> None:
        self._trimmer.delete_unneeded(ledger_id)

    def slowest(self) -> Position | None:
        """The position behind which no durable cursor needs anything; None without durable cursors."""
        return None if self._slowest is None else self._slowest.position()

    def effective_retention(self) -> Retention:
        return self.retention or Retention.of(self._config())

    def want_trim(self) -> None:
        """Trim soon, in the background."""
        self._trimmer.want()

    def trim_needs(self) -> int:
        """New ledgers that a trim makes, so that the last of a log that is not written to can go, too; -1: nothing can go."""
        trimmer = self._trimmer
        if trimmer.takes_a_ledger():
            return 1
        return 0 if trimmer.useless() else -1

    def make_room(self) -> bool:
        """A disk is full: leave the open ledger if every subscription has consumed it, so that it is trimmed, too. Whether that
        has begun."""
        slowest = self.slowest()
        return (slowest is None or slowest >= self.last_confirmed) and self._appends.leave_consumed()

    async def trim(self) -> int:
        """Delete the ledgers that nobody needs any more; returns how many. ManagedLedgerFencedError,
        ManagedLedgerUnavailableError (whatever was begun, a later trim or open ends)."""
        return await self._trimmer.trim()

    async def delete_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Delete ledgers that the stored list names as to be deleted, as far as that goes now."""
        await self._trimmer.delete(ledger_ids)

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """They are off the list: nothing may point into them."""
        for ledger_id in ledger_ids:
            self._reads.forget(ledger_id)
            self.cache.forget_ledger(ledger_id)
        if self._services.no_room():
            # Their entries lie among those of the log: what is left of an entry log is deleted only with them.
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
        """The writing side; for `opening`."""
        return self._appends

    @property
    def index(self) -> LogIndex:
        """For `opening`."""
        return self._index

    @property
    def reads(self) -> LedgerReads:
        """For `opening`."""
        return self._reads

    def check_age(self, now: float) -> None:
        """Roll the current ledger if it has come of age (trio's time)."""
        self._appends.check_age(now)

    def roll(self) -> None:
        """Go on in a new ledger soon, if the current one has entries."""
        self._appends.roll()

    def abandon(self) -> None:
        """Somebody else is known to own the log: at once, take nothing more, fail what is not confirmed
        (ManagedLedgerFencedError), and write nothing more to metadata or bookies, not even on `close`. The next open reads
        the log anew. Fine if it is gone already."""
        self._appends.fence("its ownership was lost")

    def _proof(self) -> list[Op]:
        try:
            return [self._stored.proof()]
        except ManagedLedgerFencedError as error:
            raise CursorFencedError(str(error)) from error

    async def _confirm_ownership(self) -> None:
        """CursorFencedError: the list was changed by another. MetadataError."""
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
        """Store what is known, cursors first, and let go of everything. Never raises for what recovery mends."""
        if self._appends.state is State.FENCED:
            self.closed.set()  # nothing is left to do, and nothing is waited for
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
    """These and one more. Most logs have none, and share `_NO_CURSORS`."""
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
