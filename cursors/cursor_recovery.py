"""Recovery of the stored state of a cursor.

NoFallBack: the snapshot in the node is taken only if the ledgers that it names are gone or empty. Any other failure to
read the last entry fails the open (CursorRecoveryError, passing): bookies that are away for a moment must not bring
acknowledged messages back. Nor must a new owner: it names another ledger before it deletes the old one, so a ledger
counts as gone only if the node is unchanged. (After a ledger is seen to be gone, the next read sees the earlier write.)
"""

from __future__ import annotations

import trio

from cursors.cursor_node import StoredNode
from cursors.doors import Ledgers, ReadOnlyLedger
from cursors.errors import CursorDamagedError, CursorRecoveryError
from cursors.position_info import NO_LEDGER, Stored, base_of, decoding, delayed_index_of
from quire.ledger.errors import LedgerError, NoSuchLedgerError

_READ_BYTES = 1 << 20


async def recover(node: StoredNode, ledgers: Ledgers, cursor_name: str) -> Stored:
    """Return the last durable state.

    Raises CursorRecoveryError, CursorDamagedError, CursorClosedError (no such cursor), CursorFencedError (another
    broker has moved the cursor meanwhile), MetadataError."""
    snapshot = await node.read()
    named = node.value
    if named.ledger_id == NO_LEDGER:
        return snapshot
    stored = await _from_ledger(node, ledgers, named.ledger_id, cursor_name)
    if stored is not None:
        return stored
    node.empty_ledger_id = named.ledger_id
    if named.previous_ledger_id != NO_LEDGER:
        stored = await _from_ledger(node, ledgers, named.previous_ledger_id, cursor_name)
        if stored is not None:
            return stored
        node.log.warning("cursor goes back to the snapshot in its node")
    return snapshot


async def _from_ledger(node: StoredNode, ledgers: Ledgers, ledger_id: int, cursor_name: str) -> Stored | None:
    """Return the state in a cursor ledger; None if the ledger is gone or empty."""
    try:
        reader = await ledgers.open(ledger_id, recover=True)
        last_entry_id = reader.last_entry_id
        if last_entry_id < 0:
            return None
        last = await _read(reader, last_entry_id, last_entry_id)
        base = base_of(last[0])
        if base is None:
            return await _decoded(reader, last)
        if not 0 <= base < last_entry_id:
            raise CursorDamagedError(f"cursor ledger {ledger_id}: entry {last_entry_id} builds on {base}")
        return await _decoded(reader, await _read(reader, base, last_entry_id))
    except NoSuchLedgerError:
        await node.check()
        node.log.warning("cursor ledger is gone", ledger=ledger_id)
        return None
    except LedgerError as error:
        raise CursorRecoveryError(f"cursor {cursor_name}: ledger {ledger_id} cannot be read: {error}") from error


async def _decoded(reader: ReadOnlyLedger, entries: list[bytes]) -> Stored:
    """Decode a chain in short steps: it may have 100,000 batches. Read the index of delayed messages that it names."""
    steps = decoding(entries)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            stored: Stored = done.value
            break
        await trio.lowlevel.checkpoint()
    if stored.delayed_entry_id is not None:
        [entry] = await _read(reader, stored.delayed_entry_id, stored.delayed_entry_id)
        stored.delayed_index = delayed_index_of(entry)
    return stored


async def _read(reader: ReadOnlyLedger, first: int, last: int) -> list[bytes]:
    entries: list[bytes] = []
    while first <= last:
        run = await reader.read(first, last, size_max=_READ_BYTES)
        entries += [bytes(entry) for entry in run]
        first += len(run)
    return entries
