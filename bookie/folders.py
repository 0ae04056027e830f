"""A bookie's folders apart from journal and storage files: locks, cookies, and the mark of an unclean shutdown.

<journal folder>/current/   VERSION, <hex>.txn
<ledger folder>/current/    VERSION, lastMark (lastMark.<i> of each journal if there are several), lastId, <hex>.log,
                            DIRTY while it runs
<index folder>/current/     ledgers/, locations/, and VERSION if it is not the ledger folder
each folder                 quire.lock, held while it runs
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bookie.config import BookieConfig
from bookie.cookie import Losing, check_cookies, check_storage, stamp
from bookie.errors import DirectoryInUseError
from bookie.limbo.boot import boot_id, dirty_mark
from quire.metadata.bookies import Cookie
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.world.doors import DiskLock, World

log = get_logger(__name__)

DIRTY_FILE: Final = "DIRTY"
LOCK_FILE: Final = "quire.lock"


def directories_of(config: BookieConfig) -> tuple[str, ...]:
    """Return each folder once: journal, ledgers, indexes."""
    return tuple(dict.fromkeys((*config.journal_directories, *config.ledger_directories, *config.indexes)))


async def lock(world: World, config: BookieConfig) -> list[DiskLock]:
    """Create and lock all folders. DirectoryInUseError, OSError."""

    def job() -> list[DiskLock]:
        locks: list[DiskLock] = []
        for folder in directories_of(config):
            world.disk.make_dirs(folder)
            try:
                locks.append(world.disk.lock(f"{folder}/{LOCK_FILE}"))
            except BlockingIOError as error:
                for held in locks:
                    held.release()
                raise DirectoryInUseError(f"another process serves {folder}") from error
        return locks

    return await world.offload.run(job, name="bookie lock")


def current_folders(config: BookieConfig) -> tuple[str, ...]:
    """Return the folders that carry a cookie."""
    return tuple(f"{folder}/current" for folder in directories_of(config))


async def check(
    world: World, config: BookieConfig, metadata: MetadataStore, instance_id: str, losing: Losing | None = None
) -> None:
    """Check that the folders belong to this bookie; stamp them if it is new.

    CookieMismatchError, MetadataError, OSError.
    """
    cookie = cookie_of(config, instance_id)
    folders = directories_of(config)
    names = _named(tuple(folders), config.root)
    await check_cookies(
        world,
        metadata,
        cookie,
        {f"{folder}/current": name for folder, name in zip(folders, names, strict=True)},
        ledgers_root=config.ledgers_root,
        may_expand=config.allow_storage_expansion,
        losing=losing,
    )
    storage = partial(check_storage, world.disk, config.indexes)
    await world.offload.run(storage, name="storage kind")


async def stamp_again(world: World, config: BookieConfig, instance_id: str) -> None:
    """Write the cookie to all folders, of which some lack it. OSError."""
    await stamp(world, cookie_of(config, instance_id), current_folders(config))


def cookie_of(config: BookieConfig, instance_id: str) -> Cookie:
    """Return the cookie of a bookie with this configuration."""
    return Cookie(
        bookie_id=config.id,
        journal_directories=_named(config.journal_directories, config.root),
        ledger_directories=_named(config.ledger_directories, config.root),
        index_directories=_named(config.index_directories, config.root) or None,
        instance_id=instance_id,
    )


def _named(folders: tuple[str, ...], root: str) -> tuple[str, ...]:
    """Return the folders' names as they stand in the cookie."""
    return tuple(folder.removeprefix(root.rstrip("/") + "/") if root else folder for folder in folders)


async def mark_dirty(world: World, config: BookieConfig) -> None:
    """Record that the bookie is running, so that an unclean shutdown can be detected."""

    def job() -> None:
        for folder in config.ledger_directories:
            path = f"{folder}/current/{DIRTY_FILE}"
            if world.disk.exists(path):
                log.info("the bookie was not shut down cleanly", file=path)
            world.disk.write_atomic(path, dirty_mark(boot_id(world.disk), journaled=config.journal_write))

    await world.offload.run(job, name="dirty")


async def unmark_dirty(world: World, config: BookieConfig) -> None:
    """Record a clean shutdown."""

    def job() -> None:
        for folder in config.ledger_directories:
            world.disk.unlink(f"{folder}/current/{DIRTY_FILE}")
            world.disk.sync_dir(f"{folder}/current")

    await world.offload.run(job, name="dirty")
