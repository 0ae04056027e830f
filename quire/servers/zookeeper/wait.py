"""Startup rule for every server: wait for an unreachable ZooKeeper until it is available or the process is stopped.

An error that waiting does not solve (a certificate, a missing chroot) ends the process."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import trio

from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.zookeeper.store import ZooKeeperConfig, ZooKeeperStore, open_store
from quire.servers.addresses import host_port
from quire.service.log import get_logger
from quire.world.doors import World

log = get_logger(__name__)

ATTEMPT_S: Final = 3.0
"""Deadline of one attempt."""


async def open_when_there(world: World, config: ZooKeeperConfig, stop: trio.Event) -> ZooKeeperStore | None:
    """Connect to ZooKeeper, waiting for it; None if `stop` is set first. Raises NoNodeError: the chroot is missing."""
    servers = ",".join(map(host_port, config.servers))
    since = trio.current_time()
    while not stop.is_set():
        try:
            return await open_store(world, replace(config, connect_timeout_s=ATTEMPT_S))
        except MetadataUnavailableError as error:
            waited_s = round(trio.current_time() - since, 1)
            log.warning("waiting for ZooKeeper", servers=servers, waited_s=waited_s, reason=str(error))
    return None
