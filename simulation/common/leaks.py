"""LedgersNeverLeak for a server with embedded metadata, checked in the metadata of the stopped server."""

from __future__ import annotations

from broker.topics.compaction import leftovers
from broker.topics.schemas import storage, stored
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

    Named means: in a list, in its ledgers to be deleted, in a cursor's node, as the compacted ledger of a topic or one
    that may replace it, or by the schemas of a topic. Raises ViolationError."""
    ids = BlockLedgerIds(metadata, ledgers_root)
    manager = LedgerManager(metadata, ids=ids, rng=world.rng, root=ledgers_root)
    existing = {ledger_id async for ledger_id in manager.ledger_ids()}
    listed, named = await _named(metadata)
    located, begun = await ledgers_of_schemas(metadata)
    begun |= await ledgers_of_compactions(metadata)
    for ledger_id in sorted((listed | located) - existing):
        raise ViolationError("ListsAgreeWithLedgers", f"ledger {ledger_id} of a list is gone")
    for ledger_id in sorted(existing - listed - named - located - begun):
        raise ViolationError("LedgersNeverLeak", f"no list, no cursor and no schema names ledger {ledger_id}")
    return len(existing)


async def ledgers_of_schemas(metadata: MetadataStore) -> tuple[set[int], set[int]]:
    """Return the ledgers of versions that count, and those of writes and deletions that were interrupted."""
    located: set[int] = set()
    begun: set[int] = set()
    for _, value in await _below(metadata, stored.ROOT):
        locator = stored.decode_locator(value)
        (begun if locator.deleting else located).update(locator.ledger_ids)
    begun.update([int(value) for _, value in await _below(metadata, storage.INTENTS)])
    return located, begun


async def ledgers_of_compactions(metadata: MetadataStore) -> set[int]:
    """Return the ledgers of compactions that were interrupted, new and old ones."""
    found: set[int] = set()
    for path, value in await _below(metadata, leftovers.ROOT, 5):
        found |= {int(path.rpartition("/")[2]), int(value)}
    return found - {NO_LEDGER}


def named_by_schemas(path: str, value: bytes) -> list[int]:
    """Return the ledgers that a node of schemas names: a locator, or the node of a write that is under way."""
    return [int(value)] if path.startswith(f"{storage.INTENTS}/") else stored.decode_locator(value).ledger_ids


async def _below(metadata: MetadataStore, root: str, levels: int = 3) -> list[tuple[str, bytes]]:
    """Return the nodes of topics, so many levels below `root`."""
    paths = [root]
    for _ in range(levels):
        above, paths = paths, []
        for path in above:
            if await metadata.get(path) is not None:
                paths += [f"{path}/{child}" for child in await metadata.children(path)]
    found = [(path, await metadata.get(path)) for path in paths]
    return [(path, node.value) for path, node in found if node is not None]


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
            cursor, state = decode_node(node.value)
            if state is not None and leftovers.LEDGER_PROPERTY in state.properties:
                listed.add(state.properties[leftovers.LEDGER_PROPERTY])
            named.update({cursor.ledger_id, cursor.previous_ledger_id, *cursor.deleting} - {NO_LEDGER})
        if depth <= _DEPTH:
            paths += [(f"{path}/{child}", depth + 1) for child in await metadata.children(path)]
    return listed, named
