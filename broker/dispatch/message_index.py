"""Search for a message by its index, which the broker has put in front of its entry: binary search over a log.

Source: Pulsar's PersistentTopicsBase.internalGetMessageIDByIndexAsync.
"""

from __future__ import annotations

import trio

from broker.dispatch.policies.halving import Halving
from managed_ledger.errors import ManagedLedgerUnavailableError
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import EARLIEST, Position
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import batch_count, broker_metadata
from quire.world.doors import Buffer

LOOK_AHEAD_MAX = 100
"""Entries after one without an index that are looked at in its place."""
SEARCH_S = 25.0
"""Time for one search; clients wait for 30 s."""
_READ_BYTES = 1 << 20


async def entry_with_index(ledger: ManagedLedger, index: int) -> Position | None:
    """Return the entry that has the message of an index, or else the next one; EARLIEST if that message was deleted;
    None if there is none yet.

    Raises ManagedLedgerError, also if the search takes longer than SEARCH_S."""
    places = ledger.index.places()
    search = Halving(0, places.count)
    with trio.move_on_after(SEARCH_S):
        while (number := search.place) is not None:
            last = await _last_index(ledger, places.place(number))
            search.answer(before=last is None or last < index)
        if search.found == places.count:
            return None
        found = places.place(search.found)
        if search.found > 0:
            return found
        run = await ledger.read(found, 1, 1)
        last = _index_of(run.payloads[0]) if run.payloads else None
        return EARLIEST if last is not None and index <= last - _count_of(run.payloads[0]) else found
    raise ManagedLedgerUnavailableError(f"{ledger.name}: no entry found by its index in {SEARCH_S:g} s")


async def _last_index(ledger: ManagedLedger, at: Position) -> int | None:
    """Return the index of the last message of an entry, or of the next one that has any; None: there is none near."""
    left = LOOK_AHEAD_MAX
    count = 1
    while left > 0 and at <= ledger.last_confirmed:
        run = await ledger.read(at, count, _READ_BYTES)
        if not run.payloads:
            break
        for entry in run.payloads:
            if (found := _index_of(entry)) is not None:
                return found
        left -= len(run.payloads)
        count = left
        at = ledger.next_position(Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1))
    return None


def _index_of(entry: Buffer) -> int | None:
    try:
        added = broker_metadata(entry)
    except PulsarWireError:
        return None
    return added.index if added is not None and added.HasField("index") else None


def _count_of(entry: Buffer) -> int:
    try:
        return batch_count(entry)
    except PulsarWireError:
        return 1
