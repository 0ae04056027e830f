"""Finds an entry by the time it was published, by binary search over the ledgers of a log and the entries of one."""

from __future__ import annotations

from collections.abc import Callable

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

    async def first_not_before(count: int, place: Callable[[int], Position]) -> int:
        """Of `count` places in order, the number of the first that is not before the time; `count` if all are."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if await is_before(place(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    lasts = [(info.ledger_id, ledger.last_entry_of(info.ledger_id)) for info in ledger.ledgers]
    ends = [Position(ledger_id, last) for ledger_id, last in lasts if last is not None and last >= 0]
    found = await first_not_before(len(ends), ends.__getitem__)
    if found == len(ends):
        return LATEST
    ledger_id, last = ends[found]
    return Position(ledger_id, await first_not_before(last, lambda entry_id: Position(ledger_id, entry_id)))
