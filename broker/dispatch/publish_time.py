"""Search for an entry by its publish time: binary search over the ledgers of a log and the entries of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import LATEST, Position
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import read_metadata
from quire.world.doors import Buffer

LOOK_AROUND_MAX = 100
"""Entries after an unreadable one, and before it in its ledger, that are read in its place."""
_READ_BYTES = 1 << 20


async def first_published_at(ledger: ManagedLedger, publish_time_ms: int) -> Position:
    """Return the first entry whose publish time is `publish_time_ms` or later; LATEST if there is none.

    Publish times come from the producers' clocks. Where they run backwards, the answer is one of the places where they
    pass the time. An entry with unreadable metadata has the time of the next readable one, or else of the one before
    it. If none within `LOOK_AROUND_MAX` either way is readable, it counts as published late, since it is better to
    deliver too much than too little.
    Raises ManagedLedgerError."""

    async def published_at(position: Position) -> int | None:
        """Return the publish time of an entry; None: unknown."""
        run = await ledger.read(position, 1, 1)
        times = _times(run.payloads)
        if times or not run.payloads:
            return times[0] if times else None
        return await published_around(Position(run.ledger_id, run.first_entry_id))

    async def published_around(position: Position) -> int | None:
        at, left = ledger.next_position(position), LOOK_AROUND_MAX
        while left > 0 and at <= ledger.last_confirmed:
            run = await ledger.read(at, left, _READ_BYTES)
            if not run.payloads:
                break
            if times := _times(run.payloads):
                return times[0]
            left -= len(run.payloads)
            at = ledger.next_position(Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1))
        nearest: int | None = None
        at = Position(position.ledger_id, max(0, position.entry_id - LOOK_AROUND_MAX))
        while at < position:
            run = await ledger.read(at, position.entry_id - at.entry_id, _READ_BYTES)
            if not run.payloads:
                break
            if times := _times(run.payloads):
                nearest = times[-1]
            at = Position(run.ledger_id, run.first_entry_id + len(run.payloads))
        return nearest

    async def is_before(position: Position) -> bool:
        found = await published_at(position)
        return found is not None and found < publish_time_ms

    async def first_not_before(count: int, place: Callable[[int], Position]) -> int:
        """Return the number of the first of `count` ordered places that is not before the time; `count` if all are."""
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


def _times(entries: Iterable[Buffer]) -> list[int]:
    """Yield the publish times of `entries` whose metadata can be read and has one."""
    times: list[int] = []
    for entry in entries:
        try:
            metadata = read_metadata(entry)
        except PulsarWireError:
            continue
        if metadata.HasField("publish_time"):
            times.append(metadata.publish_time)
    return times
