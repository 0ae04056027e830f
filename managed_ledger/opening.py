"""Opening of a log: recovery of its last ledger, storing the list as owner, recovery of its cursors.

    1. read the list; none: there is nothing to recover
    2. recover the last ledger, which fences its writer, unless it is closed; a missing one is taken off the list, with
       a warning, unless it has an object of tiered storage, whose end is in the list; any other error fails the open
    3. store the list, with a number that no other open has drawn: this compare-and-set proves that this broker has
       the log. The first append makes the next ledger; only a log without any gets one here, in the same write, for its
       first position. Nothing is stored where nothing is to be proved: no other process can write to the metadata, this
       one did not have the log before, and all that changed is the end of the last ledger, which its metadata tell.
       The next change of the list stores that too
    4. recover all cursors; an error fails the open
    5. delete what the list says is to be deleted, objects of trimmed ledgers too

What holds: NoDivergenceBetweenClientAndMetaData (the list tells the true end of every ledger but the last);
AllAckedEntriesAreReadable: what the last owner confirmed is at or below where recovery ends its ledger.
"""

from __future__ import annotations

import trio

from cursors.cursor import Cursor
from cursors.errors import CursorError
from cursors.opening import recover_cursor
from cursors.topic_log import topic_log
from managed_ledger.config import LogConfigSource
from managed_ledger.errors import (
    ManagedLedgerError,
    ManagedLedgerFencedError,
    ManagedLedgerUnavailableError,
    NoSuchManagedLedgerError,
)
from managed_ledger.ledger_list import LedgerList
from managed_ledger.log_index import NO_LEDGER
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import is_in_object, state_of
from managed_ledger.services import Services
from managed_ledger.stored_list import StoredList, log_path
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError, NoNodeError
from quire.service.log import get_logger
from quire.wire.pulsar.names import decode_name

log = get_logger(__name__)

_RACES_MAX = 3
_OPENING_BITS = 63


async def open_log(
    services: Services, name: str, config: LogConfigSource, *, create: bool, is_first: bool
) -> ManagedLedger:
    """Open a log. `is_first`: this process did not have it before, so nothing that it wrote is on its way.

    Raises NoSuchManagedLedgerError (only without `create`), ManagedLedgerFencedError (another broker opened it
    meanwhile), ManagedLedgerUnavailableError, ManagedLedgerDamagedError, CursorError (a cursor cannot be recovered
    now)."""
    try:
        return await _open(services, name, config, create=create, is_first=is_first)
    except (LedgerError, MetadataError) as error:
        raise ManagedLedgerUnavailableError(f"{name} cannot be opened: {error}") from error


async def _open(
    services: Services, name: str, config: LogConfigSource, *, create: bool, is_first: bool
) -> ManagedLedger:
    stored = StoredList(services.metadata, services.ledgers, config, name)
    for race in range(_RACES_MAX):
        if not await stored.read() and not create:
            raise NoSuchManagedLedgerError(f"there is no log {name}")
        is_new = stored.version < 0
        managed_ledger = ManagedLedger(services, stored)
        closed = await _recover_last(services, name, stored.value)
        try:
            await _begin(services, managed_ledger, stored, closed, is_ours=is_first and services.no_other_broker)
            break
        except ManagedLedgerFencedError:
            if race + 1 == _RACES_MAX or not is_new:
                raise
    try:
        if not is_new:
            await _recover_cursors(services, managed_ledger)
    except (CursorError, MetadataError, ManagedLedgerError):
        await managed_ledger.appends.close()
        raise
    if stored.value.deleting:
        services.nursery.start_soon(managed_ledger.delete_ledgers, stored.value.deleting, name=f"left over of {name}")
    if stored.value.trimmed:
        services.nursery.start_soon(managed_ledger.delete_objects, name=f"objects left over of {name}")
    return managed_ledger


async def _recover_last(services: Services, name: str, value: LedgerList) -> LedgerList:
    """Return the list with the true end of its last ledger, without empty ledgers. Raises LedgerError,
    MetadataError."""
    while value.ledgers:
        last = value.ledgers[-1]
        if is_in_object(last) and state_of(last).bookkeeper_deleted:
            break  # its end is in the list
        try:
            last_entry_id, size = await services.ledgers.recover(last.ledger_id)
        except NoSuchLedgerError:
            if is_in_object(last):
                topic_log(log, name).warning("bookies do not have an offloaded ledger", ledger=last.ledger_id)
                break
            topic_log(log, name).warning("a ledger of the list is gone", ledger=last.ledger_id)
            value = value.without([last.ledger_id])
            continue
        now_ms = services.world.clock.wall_ms()
        value = value.closed(last.ledger_id, entries=last_entry_id + 1, size=size, now_ms=now_ms)
        break
    return value.without([info.ledger_id for info in value.ledgers if info.entries == 0])


async def _begin(
    services: Services, managed_ledger: ManagedLedger, stored: StoredList, closed: LedgerList, *, is_ours: bool
) -> None:
    index = managed_ledger.index
    if closed.terminated is None and not closed.ledgers:
        async with stored.held():
            writer = await stored.new_ledger(closed)
        index.last_confirmed = Position(writer.ledger_id, -1)
        managed_ledger.appends.begin(writer)
        return
    if is_ours and _may_wait(stored, closed):
        stored.value = closed
    else:
        async with stored.held():
            await stored.put(closed.taken_over(services.world.rng.getrandbits(_OPENING_BITS) or 1))
    index.set(closed.ledgers, NO_LEDGER)
    if closed.terminated is not None:
        index.last_confirmed = closed.terminated
        managed_ledger.appends.terminated()
    else:
        last = closed.ledgers[-1]
        index.last_confirmed = Position(last.ledger_id, last.last_entry_id)


def _may_wait(stored: StoredList, closed: LedgerList) -> bool:
    """Return whether the list may be stored with its next change: it names the same ledgers, and the time at which the
    last one was closed decides nothing. An open that does not store that time lets the next one set it anew."""
    if closed is stored.value:
        return True
    return stored.value.names_as(closed) and (stored.value == closed or stored.config().retention_minutes <= 0)


async def _recover_cursors(services: Services, managed_ledger: ManagedLedger) -> None:
    """Recover all cursors concurrently and raise the first error. Raises CursorError, MetadataError."""
    try:
        components = await services.metadata.children(log_path(managed_ledger.name))
    except NoNodeError as error:
        raise ManagedLedgerFencedError(f"{managed_ledger.name} was deleted meanwhile") from error

    async def recover(component: str) -> Cursor:
        async with services.recoveries:
            return await recover_cursor(
                managed_ledger.cursor_services,
                managed_ledger.index,
                log_path(managed_ledger.name),
                managed_ledger.name,
                decode_name(component),
                managed_ledger.cursor_fenced(),
            )

    if len(components) < 2:  # cheaper than a task
        for component in components:
            managed_ledger.adopt(await recover(component))
        return
    found: dict[str, Cursor] = {}
    errors: list[Exception] = []

    async def recover_beside_others(component: str) -> None:
        try:
            found[component] = await recover(component)
        except (CursorError, MetadataError) as error:
            errors.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for component in components:
            nursery.start_soon(recover_beside_others, component, name=f"recover cursor {component}")
    if errors:
        raise errors[0]
    for component in components:
        managed_ledger.adopt(found[component])
