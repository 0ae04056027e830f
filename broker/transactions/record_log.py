"""A log of records in a managed ledger, with one cursor: an entry is acknowledged when no record in it matters.

Records are numbered by their entry. What is left after a restart is replayed in order; the ledgers behind it are
trimmed as those of a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from cursors.cursor import Cursor
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError, ManagedLedgerUnavailableError, NoSuchManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer

log = get_logger(__name__)

READ_ENTRIES_MAX = 100
READ_BYTES_MAX = 1 << 20
"""Bounds of one read of the replay."""

Done = Callable[[Position | None], None]


class RecordReplay(Protocol):
    """Receiver of replayed entries."""

    def __call__(self, position: Position, entry: Buffer) -> None: ...


class RecordLog:
    """Log of records, open."""

    def __init__(self, name: TopicName, ledger: ManagedLedger, cursor: Cursor) -> None:
        self.name = name
        self.ledger = ledger
        self.cursor = cursor
        self.appended = 0
        """Records written since it was opened."""
        self._holds: dict[Position, int] = {}
        """Records that matter, of entries with more than one."""

    @classmethod
    async def open(cls, factory: ManagedLedgerFactory, name: TopicName, cursor_name: str) -> RecordLog:
        """Open it, made if it is missing. Its former owner writes nothing from then on. Raises ManagedLedgerError,
        CursorError."""
        ledger = await factory.open(name.managed_ledger_path, create=True)
        cursor = await ledger.open_cursor(cursor_name, initial="earliest")
        cursor.deactivate()
        return cls(name, ledger, cursor)

    async def replay(self, seen: RecordReplay) -> None:
        """Call `seen` with each entry that matters, in order. Raises ManagedLedgerError."""
        ledger, cursor = self.ledger, self.cursor
        cursor.rewind()
        position = cursor.read_position
        end = ledger.last_confirmed
        while position <= end:
            run = await ledger.read(position, READ_ENTRIES_MAX, READ_BYTES_MAX)
            if not run.payloads:
                break
            for index, payload in enumerate(run.payloads):
                at = Position(run.ledger_id, run.first_entry_id + index)
                if not cursor.is_acked(at):
                    seen(at, payload)
            last = Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1)
            position = ledger.next_position(last)

    def append(self, record: bytes, done: Done) -> None:
        """Append a record. `done` is called when it is durable, with its position; with None: it may be lost, and the
        log takes no more."""
        self.appended += 1
        self.ledger.append([record], _Sink(done, self))

    async def write(self, record: bytes, applied: Done) -> None:
        """As `append`, and wait. `applied` is called even if the caller is cancelled. Raises
        ManagedLedgerUnavailableError."""
        ready = trio.Event()
        places: list[Position | None] = []

        def done(position: Position | None) -> None:
            places.append(position)
            applied(position)
            ready.set()

        self.append(record, done)
        await ready.wait()
        if places[0] is None:
            raise ManagedLedgerUnavailableError(f"{self.name.full} takes no records")

    def holds(self, position: Position, records: int) -> None:
        """Note that an entry has so many records, each of which `settle` names once."""
        if records > 1:
            self._holds[position] = records

    def settle(self, positions: Iterable[Position]) -> None:
        """Acknowledge records that do not matter any more, one for each element."""
        over: list[Position] = []
        for position in positions:
            left = self._holds.get(position, 1) - 1
            if left > 0:
                self._holds[position] = left
            else:
                self._holds.pop(position, None)
                over.append(position)
        if over:
            try:
                self.cursor.ack_individual(over)
            except CursorError as error:  # they are replayed once more
                log.warning("records are kept", topic=self.name.full, reason=str(error))

    @property
    def is_usable(self) -> bool:
        return self.ledger.is_usable

    async def close(self) -> None:
        await self.ledger.close()

    def abandon(self) -> None:
        """Write nothing more, because another broker has it."""
        self.ledger.abandon()


class _Sink:
    """Outcome of one append."""

    __slots__ = ("_done", "_log")

    def __init__(self, done: Done, record_log: RecordLog) -> None:
        self._done = done
        self._log = record_log

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self._done(Position(ledger_id, first_entry_id))

    def failed(self, error: Exception) -> None:
        log.warning("record not stored", topic=self._log.name.full, reason=str(error))
        self._done(None)


async def delete_log(factory: ManagedLedgerFactory, name: TopicName) -> None:
    """Delete a log of records; a missing one is no error. Raises ManagedLedgerError."""
    try:
        await factory.delete(name.managed_ledger_path)
    except NoSuchManagedLedgerError:
        pass


__all__ = ["CursorError", "ManagedLedgerError", "RecordLog", "delete_log"]
