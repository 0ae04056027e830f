"""Look at a log of another broker, without fencing or writing."""

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
    """Return whether entries were ever written to the log, as far as is known; False for a missing log.

    True if there is an entry, or if the cursor `compactor` has passed one, whose entries may be in a ledger of its own.
    Raises ManagedLedgerDamagedError; ManagedLedgerUnavailableError if it cannot be determined now."""
    try:
        return await _had_entries(metadata, ledgers, name, compactor)
    except (LedgerError, MetadataError) as error:
        raise ManagedLedgerUnavailableError(f"{name} cannot be read: {error}") from error


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
    """Return whether the ledger has an entry.

    An open ledger too has its first entry before it counts as confirmed, which bookies learn with the next one."""
    try:
        reader = await ledgers.open(ledger_id, recover=False)
        if reader.last_entry_id >= 0:
            return True
        await reader.read_unconfirmed(0, 0, size_max=1)
    except (NoSuchLedgerError, NoSuchEntryError):
        return False
    return True


def _has_moved(value: bytes) -> bool:
    """Return whether the cursor has a ledger, or is behind an entry."""
    try:
        node, state = decode_node(value)
    except CursorDamagedError:
        return True
    return node.ledger_id != NO_LEDGER or (state is not None and state.mark_delete.entry_id >= 0)
