"""Compacted view of a topic: a ledger with the newest message of each key, up to a position of the log.

    compacted ledger            log
    entries with their ids  ->  what follows the horizon

A reader goes on behind the last id it was given, in the ledger up to the horizon, then in the log. Ids are the same in
both, so it may change from one view to a newer one at any id. Where an id is in the ledger is found by binary search;
for one that follows the last read it is known.

Source: Pulsar's CompactedTopicImpl.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import trio
from cachetools import LRUCache

from broker.topics.compaction import raw_message
from cursors.doors import Ledgers, ReadOnlyLedger
from managed_ledger.errors import ManagedLedgerReadError
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.ledger.position import EARLIEST, Position
from quire.metadata.errors import MetadataError
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.world.doors import Offload

Entries: TypeAlias = list[tuple[Position, memoryview]]
"""Entries with their places in the log, ascending."""
NOTHING = Position(-1, -1)
PLACES_MAX = 1000
"""Ids whose place in the ledger is kept: the steps of searches, and where readers go on."""


class CompactedLedgerLostError(ManagedLedgerReadError):
    """The compacted ledger does not exist. Final, unless there is a newer one."""


class CompactedView:
    """The compacted ledger that holds a topic's messages up to `horizon`."""

    __slots__ = ("_ids", "_last", "_ledgers", "_next", "_opening", "_reader", "horizon", "ledger_id")

    def __init__(self, ledgers: Ledgers, ledger_id: int, horizon: Position) -> None:
        self.ledger_id = ledger_id
        self.horizon = horizon
        """The last position of the log whose message was looked at."""
        self._ledgers = ledgers
        self._reader: ReadOnlyLedger | None = None
        self._opening = trio.Lock()
        self._last: tuple[Position, int] | None = None
        """Answer of `last_message`, which never changes."""
        self._ids: LRUCache[int, Position] = LRUCache(PLACES_MAX)
        """Id of an entry of the ledger."""
        self._next: LRUCache[Position, int] = LRUCache(PLACES_MAX)
        """Entry of the ledger with which a reader goes on from there."""

    async def read(self, position: Position, count_max: int, size_max: int) -> Entries:
        """Return the entries at and behind a position of the log: at least one, unless there is none in the ledger.

        Raises ManagedLedgerReadError, and as such CompactedLedgerLostError."""
        try:
            reader = await self._opened()
            first = await self._find(reader, position)
            if first > reader.last_entry_id:
                return []
            last = min(first + count_max - 1, reader.last_entry_id)
            found = [raw_message.decode(raw) for raw in await reader.read(first, last, size_max=size_max)]
        except (LedgerError, MetadataError, MalformedMetadataError) as error:
            raise self._failure(error) from error
        ledger_id, entry_id = found[-1][0]
        self._next[Position(ledger_id, entry_id + 1)] = first + len(found)
        return found

    async def last_message(self, offload: Offload) -> tuple[Position, int]:
        """Return the entry of the last message, and its number if that is a batch, else -1; (-1, -1) and -1 if the
        ledger is empty. Raises as `read`. Source: Pulsar's ServerCnx.handleLastMessageIdFromCompactionService."""
        if self._last is None:
            self._last = await self._find_last(offload)
        return self._last

    async def _find_last(self, offload: Offload) -> tuple[Position, int]:
        from broker.topics.compaction.units import last_message_in  # imports the codecs

        try:
            reader = await self._opened()
            if reader.last_entry_id < 0:
                return NOTHING, -1
            [raw] = await reader.read(reader.last_entry_id, reader.last_entry_id, size_max=1)
            position, entry = raw_message.decode(raw)
            # In a worker: a large batch is unpacked.
            return position, await offload.run(partial(last_message_in, entry), name="last compacted message")
        except (LedgerError, MetadataError, MalformedMetadataError) as error:
            raise self._failure(error) from error

    async def _opened(self) -> ReadOnlyLedger:
        if self._reader is None:
            async with self._opening:
                if self._reader is None:
                    self._reader = await self._ledgers.open(self.ledger_id, recover=False)
        return self._reader

    async def _find(self, reader: ReadOnlyLedger, position: Position) -> int:
        """Return the first entry of the ledger whose id is not below the position; one more than the last if there is
        none."""
        known = 0 if position <= EARLIEST else self._next.get(position)
        if known is not None:
            return known
        low, high = 0, reader.last_entry_id + 1
        while low < high:
            middle = (low + high) // 2
            found = self._ids.get(middle)
            if found is None:
                [raw] = await reader.read(middle, middle, size_max=1)
                found = self._ids[middle] = raw_message.position_in(raw)
            if found < position:
                low = middle + 1
            else:
                high = middle
        self._next[position] = low
        return low

    def _failure(self, error: Exception) -> ManagedLedgerReadError:
        kind = ManagedLedgerReadError
        if isinstance(error, NoSuchLedgerError):
            kind = CompactedLedgerLostError
        else:
            self._reader = None  # opened again for the next read
        return kind(f"compacted ledger {self.ledger_id} cannot be read: {error}")
