"""State of a cluster in numbers: its bookies, its auditor, and whether ledgers wait for copies."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from autorecovery.auditing.election import read_auditor
from autorecovery.errors import NoAuditorError
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.metadata import bookies, paths
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore
from quire.world.doors import World


async def describe_cluster(world: World, store: MetadataStore, root: str) -> dict[str, Any]:
    """Return the fields of the original's cluster_info. MetadataError.

    Source: BookKeeper's ClusterInfoService.
    """
    marks = UnderreplicatedLedgers(store, root=root, rng=world.rng, wall_ms=world.clock.wall_ms, owner="overview")
    underreplicated = False
    async with aclosing(marks.list()) as listed:
        async for _ in listed:
            underreplicated = True
            break
    auditor = await read_auditor(store, root)
    writable = await bookies.available(store, root=root)
    read_only = await bookies.readonly(store, root=root)
    present = {*writable, *read_only}
    known = present | set(await known_bookies(store, root))
    return {
        "auditorElected": auditor is not None,
        "auditorId": auditor or "",
        "clusterUnderReplicated": underreplicated,
        "ledgerReplicationEnabled": await marks.is_enabled(),
        "totalBookiesCount": len(known),
        "writableBookiesCount": len(writable),
        "readonlyBookiesCount": len(read_only),
        "unavailableBookiesCount": len(known - present),
    }


async def known_bookies(store: MetadataStore, root: str) -> list[str]:
    """Return the ids of all bookies that have a cookie, running or not, sorted."""
    try:
        return await store.children(paths.join(root, "cookies"))
    except NoNodeError:
        return []


async def running_bookies(store: MetadataStore, root: str) -> list[str]:
    """Return the ids of the registered bookies, writable or not."""
    found: list[str] = []
    for names in (bookies.available, bookies.readonly):
        try:
            found += await names(store, root=root)
        except NoNodeError:
            continue
    return found


async def working_auditor(store: MetadataStore, marks: UnderreplicatedLedgers, root: str) -> str:
    """Return the auditor's id. Raises NoAuditorError if auto recovery is disabled, or there is none."""
    if not await marks.is_enabled():
        raise NoAuditorError("auto recovery is disabled: enable it first (quire shell autorecovery -enable)")
    auditor = await read_auditor(store, root)
    if auditor is None:
        raise NoAuditorError("no auditor is running: start one (quire autorecovery)")
    return auditor
