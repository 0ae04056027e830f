"""Registration of a bookie in the cluster, as writable or read-only according to its state, also after lost sessions.

While the metadata service cannot be reached a registered bookie continues to serve, because its clients know it. It is
registered again, or in its new state, when the service is reachable.
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
"""Seconds from a failed registration (service unreachable) to the next try."""


async def stay_registered(
    metadata: MetadataStore,
    bookie: Bookie,
    info: BookieServiceInfo,
    *,
    wait_s: float | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep the bookie registered until cancelled. Starts when it is registered.

    Raises: NodeExistsError if another session holds the name for longer than `wait_s` (None: waits without limit),
    SessionExpiredError if the store's session has ended permanently, MetadataUnavailableError if the service cannot be
    reached for the first registration.
    """
    started = False
    while True:
        changed = bookie.state_changed
        # The previous keeper has ended: otherwise it would create its node again when the next keeper removes it. The
        # node itself stays until the next keeper has its own, so the bookie is always registered in one of the two
        # places.
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
    """Register the bookie in its current state; retry until it succeeds unless this is the first registration."""
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
            log.warning("registration of the bookie failed, retrying", reason=str(error))
            await trio.sleep(RETRY_S)
        except MetadataError:
            raise
        except Exception:
            if first:
                raise
            bookie.job_failures.add("registration")
            await trio.sleep(backoff.next())
