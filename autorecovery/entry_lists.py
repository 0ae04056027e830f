"""Requests to a bookie for the list of its entries of a ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from autorecovery.errors import ListOfEntriesError
from quire.ledger.client import LedgerClient
from quire.ledger.errors import BookieError, rc_name
from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.availability import Availability
from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.v2 import Rc

ListEntries: TypeAlias = Callable[[str, int], Awaitable[Availability]]
"""Function that asks a bookie, by id, for the list of its entries of a ledger; ListOfEntriesError."""


def entry_lists(client: LedgerClient) -> ListEntries:
    """Return a `ListEntries` over the client's connections.

    The originals with their usual storage never answer: that takes the read timeout.
    """
    bookies = client._context.bookies

    async def list_entries(bookie_id: str, ledger_id: int) -> Availability:
        try:
            body = await bookies.connection(bookie_id).list_of_entries(ledger_id).wait()
        except BookieError as error:
            raise ListOfEntriesError(f"bookie {bookie_id}: {error}") from error
        if body.rc in (Rc.NO_LEDGER, Rc.NO_ENTRY):
            return Availability(())
        if type(body) is not v3.EntryList or body.rc != Rc.OK:
            raise ListOfEntriesError(f"bookie {bookie_id} does not list ledger {ledger_id}: {rc_name(body.rc)}")
        try:
            return Availability.decode(body.availability)
        except MalformedError as error:
            raise ListOfEntriesError(f"bookie {bookie_id}: {error}") from error

    return list_entries
