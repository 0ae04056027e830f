"""A topic that holds snapshots, at another broker, of Quire or Pulsar, over the binary protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from broker.errors import ServiceNotReadyError
from broker.topics.schemas.schema import Version, to_wire
from broker.transactions.buffer_state import Snapshot, SnapshotError
from broker.transactions.snapshots.formats import snapshot_message, snapshot_schema
from broker.transactions.snapshots.table import SnapshotTable, Value, value_in
from quire.client.client import Client
from quire.client.errors import ClientError
from quire.client.message_id import MessageId
from quire.client.reader import Reader
from quire.ledger.position import EARLIEST, Position
from quire.wire.pulsar.names import TopicName

ANSWER_S: Final = 25.0
"""Time for one call. Callers wait no longer than clients do for a topic to be loaded."""


class RemoteSnapshots:
    """Snapshots in one topic. Calls raise ServiceNotReadyError."""

    def __init__(self, name: TopicName, client: Client) -> None:
        self._name = name
        self._client = client
        self._table = SnapshotTable()
        self._reading = trio.Lock()
        self._asked = 0
        self._read = 0
        """Number of the last call that was made before the last reading began."""

    async def last(self, key: str) -> Value | None:
        """Return the last value of a key; None: there is none."""
        self._asked += 1
        number = self._asked
        async with self._reading:
            if self._read < number:  # else another caller read on meanwhile
                upto = self._asked
                await self._read_on()
                self._read = upto
            place = self._table.places.get(key)
            found = None if place is None else await self._entry(place)
            if place is not None and found is None:
                # It is compacted away, and what deleted it may be too: only the whole topic tells.
                self._table = SnapshotTable()
                await self._read_on()
                place = self._table.places.get(key)
                found = None if place is None else await self._present(place)
        return None if found is None else value_in(found, key)

    async def at(self, place: Position) -> Value | None:
        """Return the value at a place."""
        return value_in(await self._present(place), None)

    @asynccontextmanager
    async def _reader(self, start: Position) -> AsyncGenerator[Reader, None]:
        reader: Reader | None = None
        try:
            with trio.fail_after(ANSWER_S):
                reader = await self._client.reader(self._name.full, MessageId(*start), window=100, compacted=True)
                yield reader
        except (ClientError, SnapshotError) as error:
            raise ServiceNotReadyError(f"{self._name.full} cannot be read: {error}") from error
        except trio.TooSlowError:
            raise ServiceNotReadyError(f"{self._name.full} cannot be read: no answer in {ANSWER_S:g} s") from None
        finally:
            if reader is not None:
                with trio.CancelScope(shield=True):
                    await reader.close()

    async def _read_on(self) -> None:
        table = self._table
        async with self._reader(table.read_to) as reader:
            last = await reader.last_message_id()
            end = EARLIEST if last.entry_id < 0 else Position(last.ledger_id, last.entry_id)
            while table.read_to < end:
                found = await reader.receive()
                for ledger_id, entry_id, entry in zip(found.ledger_ids, found.entry_ids, found.entries, strict=True):
                    if (ledger_id, entry_id) > table.read_to:
                        table.learn(Position(ledger_id, entry_id), entry)
                await trio.lowlevel.checkpoint()

    async def _entry(self, place: Position) -> bytes | None:
        """Return the entry at a place; None: there is none any more."""
        async with self._reader(place) as reader:
            last = await reader.last_message_id()
            if Position(last.ledger_id, last.entry_id) < place:
                return None  # and nothing behind it would come
            found = await reader.receive()
            return found.entries[0] if (found.ledger_ids[0], found.entry_ids[0]) == place else None

    async def _present(self, place: Position) -> bytes:
        found = await self._entry(place)
        if found is None:
            raise ServiceNotReadyError(f"{self._name.full} cannot be read: there is no message at {place}")
        return found

    async def append(self, topic: TopicName, snapshot: Snapshot | None) -> None:
        """Add the snapshot of a topic; durable on return."""
        wire = to_wire(Version(0, snapshot_schema(), 0), self._name.local)
        try:
            with trio.fail_after(ANSWER_S):
                producer = await self._client.producer(self._name.full, schema=wire)
                try:
                    await producer.send([snapshot_message(topic, snapshot, producer.schema_version)])
                    await producer.flush()
                finally:
                    with trio.CancelScope(shield=True):
                        await producer.close()
        except ClientError as error:
            raise ServiceNotReadyError(f"{self._name.full}: not stored: {error}") from error
        except trio.TooSlowError:
            raise ServiceNotReadyError(f"{self._name.full}: not stored: no answer in {ANSWER_S:g} s") from None
