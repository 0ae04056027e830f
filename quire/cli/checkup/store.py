"""The metadata store of a configuration: whether it answers, and its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import trio

from quire.cli.checkup import verdicts
from quire.cli.checkup.bookie_clocks import BookieClocks, find_bookie_clocks
from quire.cli.checkup.configured import Configured
from quire.cli.checkup.verdicts import CheckResult
from quire.metadata.errors import MetadataError
from quire.metadata.store import Kind
from quire.servers.process import closing
from quire.world.real import real_world
from quire.world.unwrap import leaves

ANSWER_S: Final = 15.0
PROBE: Final = "/quire-doctor-"
"""Beginning of the name of an ephemeral node, whose time shows ZooKeeper's clock; it is deleted at once."""


def examine(configured: Configured) -> Iterator[CheckResult]:
    """Yield the verdicts. Blocking, for at most ANSWER_S."""
    if configured.metadata is None:
        return
    name = configured.metadata_name or "the metadata store"
    try:
        skew_s, peers = trio.run(_look, configured)
    except BaseException as error:
        causes = list(leaves(error))
        if not all(isinstance(each, (MetadataError, OSError, trio.TooSlowError)) for each in causes):
            raise
        reason = "; ".join(str(each) or f"no answer within {ANSWER_S:g} s" for each in causes)
        yield verdicts.bad("metadata", f"{name}: {reason}", "docs/runbooks/zookeeper-gone.md")
        return
    yield verdicts.ok("metadata", f"{name} answers")
    if skew_s is not None:
        yield verdicts.clock("ZooKeeper", skew_s)
    yield from peers.examine(configured.shown)


async def _look(configured: Configured) -> tuple[float | None, BookieClocks]:
    """Return by how many seconds ZooKeeper's clock is ahead, None if it has none, and the registered bookies."""
    from quire.metadata.zookeeper.store import open_store

    assert configured.metadata is not None
    with trio.fail_after(ANSWER_S):
        async with closing(await open_store(real_world(), configured.metadata)) as store:
            begun = time.time()
            path = await store.create(PROBE, kind=Kind.EPHEMERAL, sequential=True)
            ended = time.time()
            node = await store.get(path)
            await store.delete(path)
            peers = await find_bookie_clocks(store, configured.ledgers_root)
    if node is None or node.modified_ms is None:
        return None, peers
    return node.modified_ms / 1000 - (begun + ended) / 2, peers
