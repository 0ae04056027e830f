from __future__ import annotations

import pytest
import trio

from autorecovery.auditing.registrations import Registrations
from quire.metadata.local.memory import MemoryStore, MemoryTree
from tests.unit.autorecovery.cluster import Cluster


@pytest.mark.parametrize("moment", range(4))
@pytest.mark.parametrize("read_only", [True, False])
async def test_a_bookie_that_moves_between_the_two_kinds_is_always_seen(
    read_only: bool, moment: int, cluster: Cluster, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for each number of reads before its move."""
    await cluster.come("b1", read_only=not read_only)
    store = MemoryStore(cluster.tree)
    children = store.children
    reads = 0

    async def late(path: str) -> list[str]:
        nonlocal reads
        if reads == moment:
            await cluster.come("b1", read_only=read_only)
        reads += 1
        return await children(path)

    monkeypatch.setattr(store, "children", late)
    assert await Registrations(store, "/ledgers").read() == (frozenset({"b1"}), frozenset({"b1"}))
    assert reads == 4


async def test_a_cluster_that_was_never_used_has_nobody(cluster: Cluster, nursery: trio.Nursery) -> None:
    assert await Registrations(MemoryStore(MemoryTree()), "/ledgers").read() == (frozenset(), frozenset())
