"""A bookie's place in the cluster: among the writable or the read-only ones, as its state says, over lost sessions too.

While the metadata service cannot be reached a registered bookie goes on serving: its clients know it. It moves, or comes back,
when the service does.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from bookie.bookie import Bookie
from quire.metadata.bookies import BookieServiceInfo, keep_registered
from quire.metadata.errors import MetadataError, MetadataUnavailableError
from quire.metadata.store import MetadataStore
from quire.service.background import job_backoff
from quire.service.log import get_logger

log = get_logger(__name__)

RETRY_S: Final = 1.0
"""From a move that failed, as the service could not be reached, to the next try."""


async def stay_registered(
    metadata: MetadataStore,
    bookie: Bookie,
    info: BookieServiceInfo,
    *,
    wait_s: float | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Until cancelled. Starts when it is registered. NodeExistsError if another session holds the name for longer than
    `wait_s` (None: waits for ever), SessionExpiredError if the store's session is over for good, MetadataUnavailableError
    if the service cannot be reached before the first time."""
    started = False
    while True:
        changed = bookie.state_changed
        # The former keeper has ended: it would make its node anew when the next one takes it away. The node itself stays
        # until the next one has its own, so that the bookie is always among one of the two.
        async with trio.open_nursery() as keeping:
            keep = partial(_keep, metadata, bookie, info, wait_s=wait_s, first=not started)
            await keeping.start(keep, name="bookie registration")
            if not started:
                task_status.started()
                started = True
            await changed.wait()
            keeping.cancel_scope.cancel()


async def _keep(
    metadata: MetadataStore,
    bookie: Bookie,
    info: BookieServiceInfo,
    *,
    wait_s: float | None,
    first: bool,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Register it as what it is now; again and again, if it is not for the first time."""
    config = bookie.config
    backoff = job_backoff(bookie.world.rng)
    while True:
        try:
            await keep_registered(
                metadata,
                config.id,
                info,
                read_only=bookie.read_only,
                root=config.ledgers_root,
                wait_s=wait_s,
                task_status=task_status,
            )
        except MetadataUnavailableError as error:
            if first:
                raise
            log.warning("the bookie cannot be registered, it will be tried again", error=str(error))
            await trio.sleep(RETRY_S)
        except MetadataError:
            raise
        except Exception:
            if first:
                raise
            bookie.job_failures.add("registration")
            await trio.sleep(backoff.next())
