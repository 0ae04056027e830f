"""Collects what watches report."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from quire.metadata.local.watches import TreeWatch
from quire.metadata.store import Changed


async def heard(watch: TreeWatch) -> bool:
    """Whether it tells of something before everybody waits."""
    told: list[Changed] = []

    async def listen() -> None:
        told.append(await watch.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, name="listen")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return told == [Changed(watch.path)]
