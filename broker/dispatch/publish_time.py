"""Search for an entry by its time: binary search over the entries of a log, of which it reads about log2.

The time of an entry is its broker's, if the broker has added it, or else its producer's publish time. Source: Pulsar's
PersistentMessageFinder and Commands.getEntryTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from broker.dispatch.policies.halving import Halving
from managed_ledger.errors import ManagedLedgerUnavailableError
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.places import Places
from quire.ledger.position import LATEST, Position
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import entry_time
from quire.world.doors import Buffer

LOOK_AROUND_MAX = 100
"""Entries after an unreadable one, and before it in its ledger, that are read in its place."""
SEARCH_S = 25.0
"""Time for one search; clients wait for 30 s."""
_READ_BYTES = 1 << 20


async def first_published_at(ledger: ManagedLedger, publish_time_ms: int) -> Position:
    """Return the first entry whose time is `publish_time_ms` or later; LATEST if there is none.

    Times come from clocks. Where they run backwards, the answer is one of the places where they pass the time. An entry
    with unreadable metadata has the time of the next readable one, or else of the one before it. If none within
    `LOOK_AROUND_MAX` either way is readable, it counts as published late, since it is better to deliver too much than
    too little.
    Raises ManagedLedgerError, also if the search takes longer than SEARCH_S."""
    places = ledger.index.places()
    found = await _first_not_before(ledger, places, publish_time_ms, Halving(0, places.count))
    return LATEST if found == places.count else places.place(found)


async def last_published_before(ledger: ManagedLedger, publish_time_ms: int, start: Position) -> Position | None:
    """Return the last entry from `start` on whose time is below `publish_time_ms`; None if that of the first is not.

    Times count, and errors are raised, as `first_published_at` says."""
    places = ledger.index.places()
    low = places.number(start)
    found = await _first_not_before(ledger, places, publish_time_ms, Halving(low, places.count, first_alone=True))
    return places.place(found - 1) if found > low else None


async def time_of(ledger: ManagedLedger, position: Position) -> int | None:
    """Return the time of the entry at a place, in ms since 1970, as the search does; None: unknown.

    Raises ManagedLedgerError."""
    run = await ledger.read(position, 1, 1)
    times = _times(run.payloads)
    if times or not run.payloads:
        return times[0] if times else None
    return await _time_around(ledger, Position(run.ledger_id, run.first_entry_id))


async def _first_not_before(ledger: ManagedLedger, places: Places, publish_time_ms: int, search: Halving) -> int:
    """Return the number of the first entry, of those of the search, that is not before the time."""
    with trio.move_on_after(SEARCH_S):
        while (number := search.place) is not None:
            found = await time_of(ledger, places.place(number))
            search.answer(before=found is not None and found < publish_time_ms)
        return search.found
    raise ManagedLedgerUnavailableError(f"{ledger.name}: no entry found by its time in {SEARCH_S:g} s")


async def _time_around(ledger: ManagedLedger, position: Position) -> int | None:
    """Return the time of the next readable entry, or else of the nearest one before; None: none is readable."""
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


def _times(entries: Iterable[Buffer]) -> list[int]:
    """Return the times of `entries` whose metadata can be read and has one."""
    times: list[int] = []
    for entry in entries:
        try:
            found = entry_time(entry)
        except PulsarWireError:
            continue
        if found is not None:
            times.append(found)
    return times
