"""LedgersNeverLeak for a server with embedded metadata, checked in the metadata of the stopped server."""

from __future__ import annotations

from cursors.position_info import NO_LEDGER, decode_node
from managed_ledger.ledger_list import decode
from quire.metadata.ledger_ids import BlockLedgerIds
from quire.metadata.ledgers import LedgerManager
from quire.metadata.store import MetadataStore
from quire.world.doors import World
from simulation.common.checkers import ViolationError

_LOGS = "/managed-ledgers"
_DEPTH = 4
"""Depth of tenant/namespace/persistent/topic; cursors are below."""


async def check_leaks(world: World, metadata: MetadataStore, ledgers_root: str) -> int:
    """Check that every ledger is named, and that every ledger of a list exists; return the number of ledgers.

    Named means: in a list, in its ledgers to be deleted, or in a cursor's node. Raises ViolationError."""
    ids = BlockLedgerIds(metadata, ledgers_root)
    manager = LedgerManager(metadata, ids=ids, rng=world.rng, root=ledgers_root)
    stored = {ledger_id async for ledger_id in manager.ledger_ids()}
    listed, named = await _named(metadata)
    for ledger_id in sorted(listed - stored):
        raise ViolationError("ListsAgreeWithLedgers", f"ledger {ledger_id} of a list is gone")
    for ledger_id in sorted(stored - listed - named):
        raise ViolationError("LedgersNeverLeak", f"no list and no cursor names ledger {ledger_id}")
    return len(stored)


async def _named(metadata: MetadataStore) -> tuple[set[int], set[int]]:
    """Return ledgers in lists, and those named elsewhere."""
    listed: set[int] = set()
    named: set[int] = set()
    paths = [(_LOGS, 0)]
    while paths:
        path, depth = paths.pop()
        node = await metadata.get(path)
        if node is None:
            continue
        if depth == _DEPTH:
            value = decode(node.value)
            listed.update(info.ledger_id for info in value.ledgers)
            named.update(value.deleting)
        elif depth == _DEPTH + 1:
            cursor, _ = decode_node(node.value)
            named.update({cursor.ledger_id, cursor.previous_ledger_id, *cursor.deleting} - {NO_LEDGER})
        if depth <= _DEPTH:
            paths += [(f"{path}/{child}", depth + 1) for child in await metadata.children(path)]
    return listed, named
