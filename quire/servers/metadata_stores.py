"""Metadata stores by their URL, for tools: a ZooKeeper, or the data directory of a stopped standalone server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from quire.metadata.store import MetadataStore
from quire.metadata.zookeeper.config import ZooKeeperConfig
from quire.servers.broker.config import BROKER
from quire.servers.process import closing
from quire.servers.standalone.data_directory import claim
from quire.servers.zookeeper.keys import pulsar_store
from quire.world.doors import World
from quire.world.real import real_world

STANDALONE: Final = "standalone:"
"""Scheme of a data directory, which no server may use meanwhile."""
SESSION_TIMEOUT_S: Final = 30.0


@asynccontextmanager
async def opened_store(url: str, conf: Path | None, *, make: bool) -> AsyncIterator[MetadataStore]:
    """Open a store and close it at the end.

    Args:
        url: `zk:host:2181,host:2181/chroot` or `standalone:DIRECTORY`, an absolute path.
        conf: a broker.conf with the keys of the connection to ZooKeeper.
        make: create the chroot, or the directory, if it is missing.

    Raises ConfigError, InvalidConnectStringError, DataDirectoryError, FileNotFoundError, MetadataError.
    """
    world = real_world()
    if url.startswith(STANDALONE):
        async with _local(world, url.removeprefix(STANDALONE), make=make) as store:
            yield store
        return
    from quire.metadata.zookeeper.store import open_store

    where = pulsar_store(url, "", key="--metadata-store", configuration_key="--metadata-store")
    keys = BROKER.load(conf).metadata
    config = ZooKeeperConfig(
        servers=where.servers,
        chroot=where.chroot,
        make_chroot=make,
        session_timeout_s=SESSION_TIMEOUT_S,
        secure=keys.secure,
        auth=keys.credentials,
        tls=keys.tls_settings,
    )
    async with closing(await open_store(world, config)) as store:
        yield store


@asynccontextmanager
async def _local(world: World, folder: str, *, make: bool) -> AsyncIterator[MetadataStore]:
    from quire.metadata.local.rocksdb import open_store

    if not make and not await world.offload.run(partial(world.disk.exists, f"{folder}/metadata"), name="exists"):
        raise FileNotFoundError(f"{folder} has no metadata")
    directory = await world.offload.run(partial(claim, world.disk, folder), name="claim")
    try:
        store = await open_store(world, directory.metadata, create=make)
        try:
            yield store
        finally:
            await store.aclose()
    finally:
        directory.lock.release()
