"""Following of a node: look at it now, after every change, and periodically in case a watch was missed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from quire.metadata.errors import MetadataError, MetadataUnavailableError, SessionExpiredError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger

log = get_logger(__name__)

RETRY_S = 0.5
"""Time between looks while the service is unreachable and no watch reports its return."""


class Tasks:
    """Nursery for the tasks of one part, open while `run` runs."""

    def __init__(self) -> None:
        self.nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run until cancelled, then cancel all tasks."""
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self.nursery = None


async def follow(store: MetadataStore, path: str, look: Callable[[], Awaitable[None]], *, recheck_s: float) -> None:
    """Call `look` until cancelled; after a MetadataError it is called again soon.

    Raises SessionExpiredError if the store goes on with no session."""
    watch = store.watch(path)
    try:
        while True:
            pause_s = recheck_s
            try:
                await look()
            except SessionExpiredError:
                raise
            except MetadataError as error:
                pause_s = RETRY_S
                if not isinstance(error, MetadataUnavailableError):
                    log.warning("node not followed; tried again", path=path, reason=str(error))
            with trio.move_on_after(pause_s):
                await watch.next()
    finally:
        watch.close()
