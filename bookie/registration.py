"""A bookie's place in the cluster: among the writable or the read-only ones, as its state says, over lost sessions too."""

from __future__ import annotations

import trio

from bookie.bookie import Bookie
from quire.metadata.bookies import BookieServiceInfo, keep_registered
from quire.metadata.store import MetadataStore


async def stay_registered(
    metadata: MetadataStore,
    bookie: Bookie,
    info: BookieServiceInfo,
    *,
    wait_s: float | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Until cancelled. Starts when it is registered. NodeExistsError if another session holds the name for longer than
    `wait_s` (None: waits for ever), SessionExpiredError if the store's session is over for good."""
    config = bookie.config
    started = False
    while True:
        changed = bookie.state_changed
        # The former keeper has ended: it would make its node anew when the next one takes it away. The node itself stays
        # until the next one has its own, so that the bookie is always among one of the two.
        async with trio.open_nursery() as keeping:

            async def keep(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
                await keep_registered(
                    metadata,
                    config.id,
                    info,
                    read_only=bookie.read_only,
                    root=config.ledgers_root,
                    wait_s=wait_s,
                    task_status=task_status,
                )

            await keeping.start(keep, name="bookie registration")
            if not started:
                task_status.started()
                started = True
            await changed.wait()
            keeping.cancel_scope.cancel()
