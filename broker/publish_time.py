"""Finds an entry by the time it was published, by binary search over a managed ledger."""

from __future__ import annotations

from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import LATEST, Position
from quire.wire.pulsar.metadata import read_metadata


async def first_published_at(ledger: ManagedLedger, publish_time_ms: int) -> Position:
    """The first entry whose publish time is `publish_time_ms` or later; LATEST if there is none.

    Publish times are the producers' clocks; where they run backwards the answer is one of the places where they pass the
    time. ManagedLedgerError, PulsarWireError.
    """

    async def is_before(position: Position) -> bool:
        run = await ledger.read(position, 1, 1)
        return bool(run.payloads) and read_metadata(run.payloads[0]).publish_time < publish_time_ms

    for info in ledger.ledgers:
        last = ledger.last_entry_of(info.ledger_id)
        if last is None or last < 0 or await is_before(Position(info.ledger_id, last)):
            continue
        low, high = 0, last
        while low < high:
            middle = (low + high) // 2
            if await is_before(Position(info.ledger_id, middle)):
                low = middle + 1
            else:
                high = middle
        return Position(info.ledger_id, low)
    return LATEST
