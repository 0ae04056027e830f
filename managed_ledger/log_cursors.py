"""The cursors of one log: creation, recovery by the next owner's open, deletion, and the slowest of them.

Durable cursors are stored below the log's node and prevent trimming; reader cursors are in memory only. A write to a
cursor's node proves that this broker still has the log, because it carries the version of the log's list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import trio

from cursors.cursor import Cursor
from cursors.doors import Log
from cursors.errors import CursorClosedError, CursorError, CursorFencedError
from cursors.opening import create_cursor, memory_cursor, recover_cursor
from cursors.services import CursorServices
from cursors.topic_log import topic_log
from managed_ledger.config import LogConfigSource
from managed_ledger.errors import ManagedLedgerFencedError, ManagedLedgerUnavailableError, NoSuchCursorError
from managed_ledger.log_index import LogIndex
from managed_ledger.slowest import Slowest
from managed_ledger.stored_list import StoredList, log_path
from managed_ledger.trimmer import Trimmer
from managed_ledger.writing.appends import Appends
from quire.ledger.errors import LedgerError
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.metadata.errors import MetadataError, NodeExistsError
from quire.metadata.store import Op
from quire.service.log import get_logger
from quire.service.rare_lock import RareLock
from quire.service.shared_maps import EMPTY, with_item, without_item

log = get_logger(__name__)

NO_CURSORS: Final[Mapping[str, Cursor]] = EMPTY
Initial: TypeAlias = Position | Literal["latest", "earliest"]
"""Start of a new cursor: a mark-delete position, the end, or the start of the log."""


class LogCursors:
    """The cursors of one log, from its first one on."""

    __slots__ = (
        "_appends",
        "_config",
        "_index",
        "_making",
        "_name",
        "_readers_made",
        "_services",
        "_shared",
        "_slowest",
        "_stored",
        "_trimmer",
        "durable",
        "readers",
    )

    def __init__(
        self,
        name: str,
        index: LogIndex,
        shared: CursorServices,
        config: LogConfigSource,
        stored: StoredList,
        appends: Appends,
        trimmer: Trimmer,
    ) -> None:
        """Take the parts it uses. `shared`: the services of the cursors of all logs."""
        self.durable: Mapping[str, Cursor] = NO_CURSORS
        """By subscription name."""
        self.readers: Mapping[str, Cursor] = NO_CURSORS
        self._name = name
        self._index = index
        self._shared = shared
        self._config = config
        self._services: CursorServices | None = None
        """Set from the first durable cursor on."""
        self._slowest: Slowest[Cursor] | None = None
        """Set from the second durable cursor on: of one it is known without a heap."""
        self._stored = stored
        self._appends = appends
        self._trimmer = trimmer
        self._readers_made = 0
        self._making = RareLock()

    @property
    def services(self) -> CursorServices:
        """Return the services of the durable cursors of this log."""
        services = self._services
        if services is None:
            services = self._services = replace(
                self._shared,
                quorums=self._config,
                proof=self._proof,
                confirm_ownership=self._confirm_ownership,
            )
        return services

    async def open(self, name: str, initial: Initial, properties: Sequence[tuple[str, str]]) -> Cursor:
        """Open the durable cursor of that name.

        A new one delivers what follows `initial` (a mark-delete position), and is durable on return. It is active from
        now on. Raises CursorError, ManagedLedgerUnavailableError."""
        self._appends.check_usable()
        async with self._making:
            cursor = self.durable.get(name)
            if cursor is None:
                cursor = await self._make_cursor(name, mark_delete_of(self._index, initial), properties)
                self.adopt(cursor)
        cursor.activate()
        return cursor

    async def _make_cursor(self, name: str, mark_delete: Position, properties: Sequence[tuple[str, str]]) -> Cursor:
        """Create a cursor; or return the stored one, if an earlier attempt created it without receiving the answer."""
        services, path = self.services, log_path(self._name)
        try:
            try:
                return await create_cursor(
                    services, self._index, path, self._name, name, mark_delete, properties, self.cursor_fenced
                )
            except NodeExistsError:
                async with self._stored.held():
                    await self._stored.check()
                return await recover_cursor(services, self._index, path, self._name, name, self.cursor_fenced)
        except (ManagedLedgerFencedError, CursorFencedError) as error:
            self._appends.fence(str(error))
            raise
        except MetadataError as error:
            raise ManagedLedgerUnavailableError(f"cursor {name} cannot be made: {error}") from error

    def adopt(self, cursor: Cursor) -> None:
        """Register a durable cursor of this log that was created or recovered."""
        self.durable = with_item(self.durable, cursor.name, cursor)
        if self._slowest is not None:
            self._slowest.add(cursor)
        elif len(self.durable) > 1:
            self._slowest = Slowest[Cursor](_durable_position)
            for each in self.durable.values():
                self._slowest.add(each)
                each.on_moved_back = self._slowest.moved_back
        if self._slowest is not None:
            cursor.on_moved_back = self._slowest.moved_back
        cursor.on_activity = self._activity
        if cursor.store is not None:
            cursor.store.on_durable = self._durable_moved

    def _durable_moved(self, back: bool) -> None:
        if back and self._slowest is not None:  # of which cursor is not said: it happens when a user seeks
            for cursor in self.durable.values():
                self._slowest.moved_back(cursor)
        self._trimmer.moved()

    def new_reader(self, position: Position, name: str) -> Cursor:
        """Return an active cursor in memory that delivers what follows `position`, and does not prevent trimming.

        EARLIEST: everything, LATEST: what comes from now on. Release it with `drop_reader`."""
        self._appends.check_usable()
        self._readers_made += 1
        name = name or f"reader-{self._readers_made}"
        cursor = memory_cursor(self._index, name, mark_delete_of(self._index, position))
        self.readers = with_item(self.readers, cursor.name, cursor)
        cursor.on_activity = self._activity
        cursor.activate()
        return cursor

    def drop_reader(self, cursor: Cursor) -> None:
        """Release a reader cursor; an unknown one is no error."""
        if self.readers.get(cursor.name) is cursor:
            self.readers = without_item(self.readers, cursor.name)
        cursor.deactivate()

    async def delete(self, name: str, also: Sequence[int] = ()) -> None:
        """Delete a durable cursor, node and ledgers, and `also` these ledgers; durable on return.

        Raises NoSuchCursorError, ManagedLedgerFencedError, ManagedLedgerUnavailableError."""
        self._appends.check_usable()
        async with self._making:
            cursor = self.durable.get(name)
            if cursor is None or cursor.store is None:
                raise NoSuchCursorError(f"{self._name} has no cursor {name}")
            store = cursor.store
            store.stop(CursorClosedError(f"cursor {name} was deleted"))
            try:
                ledger_ids, delete = await store.end()
                ledger_ids = [*ledger_ids, *also]
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
            self.durable = without_item(self.durable, cursor.name)
        await self._trimmer.delete(ledger_ids)
        self._trimmer.want()

    def _activity(self, change: int) -> None:
        self._appends.readers += change

    def cursor_fenced(self) -> None:
        """Give the log up, because another broker has a cursor of it."""
        self._appends.fence("cursor taken over by another broker")

    def active_before(self, position: Position) -> int:
        """Return the number of active cursors that have not read the entry there."""
        if self._appends.readers < 2:
            return self._appends.readers
        cursors = (*self.durable.values(), *self.readers.values())
        return sum(cursor.active and cursor.read_position <= position for cursor in cursors)

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

    def slowest(self) -> Position | None:
        """Return the position behind which no durable cursor needs anything; None without durable cursors."""
        if self._slowest is not None:
            return self._slowest.position()
        for cursor in self.durable.values():
            return _durable_position(cursor)
        return None

    def rest(self) -> None:
        """Give back memory that only writing positions needs, of cursors that write none now."""
        for cursor in self.durable.values():
            if cursor.store is not None:
                cursor.store.rest()

    def leave_ledgers(self) -> None:
        """Leave the ledgers of the cursors, because a disk is full: each may hold a partly used entry log."""
        for cursor in self.durable.values():
            if cursor.store is not None:
                cursor.store.leave_ledger()

    def trimmed_to(self, start: Position) -> None:
        """Note that the log begins at `start`: no cursor may point before it."""
        for cursor in (*self.readers.values(), *self.durable.values()):
            if not cursor.durable:
                cursor.skip_to(Position(start.ledger_id, -1))
            if cursor.read_position < start:
                cursor.rewind()

    def stop(self, error: CursorError) -> None:
        """Store nothing any more."""
        for cursor in self.durable.values():
            if cursor.store is not None:
                cursor.store.stop(error)

    @property
    def close_at_once(self) -> bool:
        """Return whether `close` would only stop the durable cursors."""
        return all(cursor.store is None or cursor.store.closes_at_once for cursor in self.durable.values())

    def close(self, nursery: trio.Nursery) -> None:
        """Store the known state of each cursor, in tasks of the nursery."""
        for cursor in self.durable.values():
            nursery.start_soon(self._close_cursor, cursor, name=f"close cursor {cursor.name}")

    async def _close_cursor(self, cursor: Cursor) -> None:
        try:
            if cursor.store is not None:
                await cursor.store.close()
        except (CursorError, LedgerError, MetadataError) as error:
            topic_log(log, self._name).warning(
                "cursor not closed; the next open recovers it", cursor=cursor.name, reason=str(error)
            )


def mark_delete_of(log: Log, initial: Initial) -> Position:
    """Return the mark-delete position of a new cursor."""
    if initial == "latest":
        return log.last_confirmed
    if initial == "earliest":
        return log.previous_position(log.first_position())
    assert not isinstance(initial, str), f"{initial!r} is not an initial position"
    if initial >= min(log.last_confirmed, LATEST):
        return log.last_confirmed
    if initial <= EARLIEST or initial < log.first_position():
        return log.previous_position(log.first_position())
    last = log.last_entry_of(initial.ledger_id)
    if last is None or initial.entry_id > last:
        return log.previous_position(log.next_position(initial))
    return initial


def _durable_position(cursor: Cursor) -> Position:
    return min(cursor.mark_delete, cursor.durable_mark_delete)
