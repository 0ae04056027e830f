"""A look at a log that is another owner's: nothing is fenced or written."""

from __future__ import annotations

from cursors.doors import Ledgers
from cursors.errors import CursorDamagedError
from cursors.position_info import NO_LEDGER, decode_node
from managed_ledger.errors import ManagedLedgerUnavailableError
from managed_ledger.ledger_list import decode
from managed_ledger.stored_list import log_path
from quire.ledger.errors import LedgerError, NoSuchEntryError, NoSuchLedgerError
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore


async def had_entries(metadata: MetadataStore, ledgers: Ledgers, name: str, *, compactor: str) -> bool:
    """Whether entries were ever written to the log, as far as is known: one is there, or the cursor `compactor` has passed one,
    whose entries may be in a ledger of its own. Of a log that does not exist there are none.

    ManagedLedgerDamagedError; ManagedLedgerUnavailableError if it cannot be known now."""
    try:
        return await _had_entries(metadata, ledgers, name, compactor)
    except (LedgerError, MetadataError) as error:
        raise ManagedLedgerUnavailableError(f"{name} cannot be looked at: {error}") from error


async def _had_entries(metadata: MetadataStore, ledgers: Ledgers, name: str, compactor: str) -> bool:
    path = log_path(name)
    node = await metadata.get(path)
    if node is None:
        return False
    value = decode(node.value)
    if any(info.entries > 0 for info in value.ledgers):
        return True
    for info in reversed(value.ledgers):
        if await _has_entry(ledgers, info.ledger_id):
            return True
    cursor = await metadata.get(f"{path}/{compactor}")
    return cursor is not None and _has_moved(cursor.value)


async def _has_entry(ledgers: Ledgers, ledger_id: int) -> bool:
    """An open ledger too has its first entry before that counts as confirmed: the bookies learn so with the next one."""
    try:
        reader = await ledgers.open(ledger_id, recover=False)
        if reader.last_entry_id >= 0:
            return True
        await reader.read_unconfirmed(0, 0, size_max=1)
    except (NoSuchLedgerError, NoSuchEntryError):
        return False
    return True


def _has_moved(value: bytes) -> bool:
    """Return whether the cursor has a ledger, or stands behind an entry."""
    try:
        node, state = decode_node(value)
    except CursorDamagedError:
        return True
    return node.ledger_id != NO_LEDGER or (state is not None and state.mark_delete.entry_id >= 0)
