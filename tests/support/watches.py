"""Collects what watches report."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from quire.metadata.store import Changed, Watch


async def heard(watch: Watch, path: str) -> bool:
    """Return whether the watch reports a change of `path` at once: before all tasks wait. It may report no other."""
    told: list[Changed] = []

    async def listen() -> None:
        told.append(await watch.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, name="listen")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert told in ([], [Changed(path)])
    return bool(told)
