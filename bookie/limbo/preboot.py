"""First pass after a loss: every ledger that names the bookie is put into limbo and fenced, before it serves.

    limbo     an entry that is not here may have been: the answer is "unknown" (code 107, 507 in version 3), which
              neither ends a ledger nor counts as a fence
    fenced    the bookie may have answered a fence that it no longer knows. The ledger's writer is refused here, so that
              it or its successor opens another ledger

Why all of them, and why before serving: the metadata named a ledger's members before they got entries of it, so what
the bookie held is named now. A ledger that names it later is new to it, and its answers are right.

The original's pass puts only open ledgers whose last fragment has the bookie into limbo; it answers "no such entry" for
the closed ones until they are copied, and does not fence these.

Source: BookKeeper's DataIntegrityCheckImpl.
"""

from __future__ import annotations

from typing import Final

from bookie.db_ledger_storage.limbo_rows import LimboRows
from bookie.directories.limbo import SpreadLimbo
from quire.metadata.errors import MalformedMetadataError, UnsupportedLayoutError
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledger_metadata import LedgerMetadata, LedgerState
from quire.metadata.ledgers import LedgerManager, read_layout
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import master_key
from quire.world.doors import Rng
from quire.world.tasks import for_each

log = get_logger(__name__)

READS_AT_ONCE: Final = 64
"""Ledgers whose metadata is read at the same time."""


def names(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Return whether a ledger has the bookie as a member of any fragment."""
    return any([bookie_id in fragment.bookies for fragment in metadata.fragments])


async def ledger_manager(metadata: MetadataStore, rng: Rng, root: str) -> LedgerManager:
    """Return the access to the cluster's ledgers. MetadataError."""
    layout = await read_layout(metadata, root)
    return LedgerManager(metadata, ids=SequenceLedgerIds(metadata, root), rng=rng, root=root, layout=layout)


async def put_into_limbo(
    metadata: MetadataStore, rng: Rng, root: str, bookie_id: str, rows: LimboRows | SpreadLimbo
) -> int:
    """Put every ledger that names the bookie into limbo; return their number. Durable after the next flush.

    A ledger whose metadata cannot be read is put into limbo too. MetadataError.
    """
    manager = await ledger_manager(metadata, rng, root)
    count = 0

    async def look(ledger_id: int) -> None:
        nonlocal count
        try:
            stored = await manager.read(ledger_id)
            if stored is None or not names(stored.value, bookie_id):
                return
            value = stored.value
            key = master_key(value.password) if value.password_known else b""
        except (MalformedMetadataError, UnsupportedLayoutError) as error:
            log.warning("unreadable metadata, ledger put into limbo", ledger=ledger_id, reason=str(error))
            key = b""
        rows.put(ledger_id, key)
        count += 1

    ids = [ledger_id async for ledger_id in manager.ledger_ids()]
    await for_each(ids, look, at_once=READS_AT_ONCE, name="ledgers put into limbo")
    return count


async def named_by(metadata: MetadataStore, rng: Rng, root: str, bookie_id: str) -> tuple[int | None, int | None]:
    """Return a ledger that names the bookie and is not closed, and any that names it; None if there is none.

    MetadataError.
    """
    manager = await ledger_manager(metadata, rng, root)
    open_one: int | None = None
    any_one: int | None = None

    async def look(ledger_id: int) -> None:
        nonlocal open_one, any_one
        if open_one is not None:
            return
        try:
            stored = await manager.read(ledger_id)
        except (MalformedMetadataError, UnsupportedLayoutError):
            return
        if stored is not None and names(stored.value, bookie_id):
            any_one = ledger_id
            if stored.value.state is not LedgerState.CLOSED:
                open_one = ledger_id

    ids = [ledger_id async for ledger_id in manager.ledger_ids()]
    await for_each(ids, look, at_once=READS_AT_ONCE, name="ledgers that name the bookie")
    return open_one, any_one
