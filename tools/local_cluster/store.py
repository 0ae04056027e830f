"""Access to the metadata store of a local cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from quire.metadata.zookeeper.config import ZooKeeperConfig
from quire.metadata.zookeeper.store import ZooKeeperStore, open_store
from quire.world.real import real_world
from tools.local_cluster.plan import HOST, Addresses
from tools.local_cluster.security import Security


@asynccontextmanager
async def metadata_store(
    addresses: Addresses, security: Security | None, *, timeout_s: float = 30.0
) -> AsyncIterator[ZooKeeperStore]:
    """Open its store, until the block ends. Raises MetadataError. `timeout_s` applies to connecting, and to each
    call."""
    config = ZooKeeperConfig(
        servers=tuple((HOST, node.port) for node in addresses.zookeepers),
        connect_timeout_s=timeout_s,
        call_timeout_s=timeout_s,
        tls=None if security is None else security.zookeeper_tls,
        secure=security is not None,
    )
    store = await open_store(real_world(), config)
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):  # its thread must end, or the process does not
            await store.aclose()
