"""New ledger and index folders for a bookie that runs: PUT /api/v1/bookie/expand_storage.

The configuration is read again. Its new folders must be empty; they are stamped, all others are stamped again, and the
cluster's cookie goes last, by the rules of a start with allowStorageExpansion (bookie/cookie.py). The bookie uses them
from its next start on, as the original does. Killed in between, that start finishes it.

Source: BookKeeper's ExpandStorageService, which does not read the file again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from bookie import folders
from quire.metadata.ledgers import read_instance_id
from quire.metadata.store import MetadataStore
from quire.servers.bookie.config import BOOKIE, BookieServerConfig
from quire.servers.bookie.located import located
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.world.doors import World

log = get_logger(__name__)


async def expand_storage(
    world: World, metadata: MetadataStore, running: BookieServerConfig, conf: Path | None
) -> tuple[str, ...]:
    """Add the new folders of `conf` to the cookies of the running bookie; return them. None: it has no file.

    Raises: ConfigError, CookieMismatchError, MetadataError, OSError."""
    if conf is None:
        return ()
    try:
        fresh = await world.offload.run(partial(_read, conf, running), name="configuration")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    known = folders.directories_of(running.bookie)
    added = tuple(each for each in folders.directories_of(fresh.bookie) if each not in known)
    if added and not fresh.bookie.allow_storage_expansion:
        raise ConfigError(f"{', '.join(added)}: set allowStorageExpansion=true to add folders")
    root = running.bookie.ledgers_root
    await folders.check(world, fresh.bookie, metadata, await read_instance_id(metadata, root))
    if added:
        log.info("storage expanded, restart the bookie to use it", folders=", ".join(added))
    return added


def _read(conf: Path, running: BookieServerConfig) -> BookieServerConfig:
    """Return the configuration in the file; host and port are those of the running bookie. ConfigError. Blocking."""
    bookie = running.bookie
    fresh = located(BOOKIE.load(conf), bookie.ledgers_root)
    return replace(fresh, bookie=replace(fresh.bookie, host=bookie.host, port=bookie.port))
