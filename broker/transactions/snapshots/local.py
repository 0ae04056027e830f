"""A topic that holds snapshots, where this broker serves it."""

from __future__ import annotations

from typing import Final

import trio

from broker.errors import ServiceNotReadyError
from broker.topics.compaction.view import CompactedView
from broker.topics.topic import Topic
from broker.transactions.buffer_state import SnapshotError
from broker.transactions.snapshots.table import SnapshotTable, Value, value_in
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.writing.awaited import AwaitedAppend
from quire.client.packing import Packed
from quire.ledger.position import EARLIEST, Position

READ_ENTRIES_MAX: Final = 100
READ_BYTES_MAX: Final = 1 << 20
STEP_ENTRIES_MAX: Final = 10
"""Entries that are looked into before other tasks run."""
APPEND_S: Final = 20.0


class LocalSnapshots:
    """Snapshots in one loaded topic. Calls raise ServiceNotReadyError."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.version: bytes | None = None
        """Version of the schema that this broker writes, once it is known."""
        self._table = SnapshotTable()
        self._reading = trio.Lock()

    async def last(self, key: str) -> Value | None:
        """Return the last value of a key; None: there is none."""
        try:
            async with self._reading:
                await self._read_on()
            place = self._table.places.get(key)
            return None if place is None else value_in(await self._entry(place), key)
        except (ManagedLedgerError, SnapshotError) as error:
            raise self._failed(error) from error

    async def at(self, place: Position) -> Value | None:
        """Return the value at a place."""
        try:
            return value_in(await self._entry(place), None)
        except (ManagedLedgerError, SnapshotError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> ServiceNotReadyError:
        return ServiceNotReadyError(f"{self.topic.name.full} cannot be read: {error}")

    def _view(self) -> CompactedView | None:
        compaction = self.topic.compaction
        return None if compaction is None else compaction.view

    async def _read_on(self) -> None:
        """Read to the end: first the compacted part, if there is one, then what follows it."""
        ledger, view = self.topic.ledger, self._view()
        if view is not None and self._table.read_to < view.horizon:
            # From its beginning: what was deleted since may be compacted away, with the message that deleted it.
            self._table = SnapshotTable()
        table = self._table
        while view is not None and table.read_to < view.horizon:
            behind = Position(table.read_to.ledger_id, table.read_to.entry_id + 1)
            found = await view.read(behind, READ_ENTRIES_MAX, READ_BYTES_MAX)
            await self._learn([(place, bytes(entry)) for place, entry in found])
            if not found:
                table.read_to = view.horizon
        while table.read_to < ledger.last_confirmed:
            start = ledger.first_position() if table.read_to == EARLIEST else ledger.next_position(table.read_to)
            run = await ledger.read(start, READ_ENTRIES_MAX, READ_BYTES_MAX, replay=True)
            if not run.payloads:
                break
            await self._learn(
                [
                    (Position(run.ledger_id, run.first_entry_id + index), bytes(payload))
                    for index, payload in enumerate(run.payloads)
                ]
            )

    async def _learn(self, entries: list[tuple[Position, bytes]]) -> None:
        for count, (place, entry) in enumerate(entries, 1):
            self._table.learn(place, entry)
            if not count % STEP_ENTRIES_MAX:
                await trio.lowlevel.checkpoint()

    async def _entry(self, place: Position) -> bytes:
        view = self._view()
        if view is not None and place <= view.horizon:
            found = await view.read(place, 1, 1)
            if found and found[0][0] == place:
                return bytes(found[0][1])
        run = await self.topic.ledger.read(place, 1, 1, replay=True)
        if not run.payloads or (run.ledger_id, run.first_entry_id) != place:
            raise SnapshotError(f"there is no message at {place}")
        return bytes(run.payloads[0])

    async def append(self, message: Packed, producer: str) -> None:
        """Add a message; durable on return."""
        self.topic.check_open()
        now_ms = self.topic.context.world.clock.wall_ms()
        sink = AwaitedAppend()
        self.topic.ledger.append([message.encode(producer, now_ms, now_ms)], sink)
        with trio.move_on_after(APPEND_S) as scope:
            await sink.done.wait()
        if scope.cancelled_caught or sink.error is not None:
            raise ServiceNotReadyError(f"{self.topic.name.full}: not stored: {sink.error or 'no answer in time'}")
