"""`quire upgrade`: upgrade, rollback and finalize of a bookie's directories, with the cookie in the cluster.

Exit codes: 0 done or nothing to do, 1 refused or failed, 2 the command line or the configuration cannot be used.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import trio

from bookie.config import BookieConfig
from bookie.errors import BookieError, DirectoryInUseError
from bookie.folders import LOCK_FILE, cookie_of, directories_of
from bookie.interleaved.index_files import has_index_files
from bookie.layouts import upgrade as layouts
from bookie.layouts.detect import CURRENT, LayoutError
from quire.cli.bookie_in_use import user_of
from quire.metadata.bookies import Cookie, encode_cookie, read_cookie
from quire.metadata.errors import MetadataError, NodeExistsError, NoNodeError
from quire.metadata.ledgers import read_instance_id
from quire.metadata.store import ANY_VERSION, MetadataStore
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.located import located, zookeeper_config
from quire.servers.process import closing
from quire.service.errors import ConfigError
from quire.world.doors import World
from quire.world.real import real_world
from quire.world.unwrap import leaves

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
OpenStore = Callable[[], Awaitable[MetadataStore]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrader:
    """One bookie, its cluster, and where its steps are told."""

    world: World
    config: BookieConfig
    store: MetadataStore
    out: TextIO

    def tell(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    async def run(self, step: str, *, force: bool = False) -> None:
        """Take a step. Raises BookieError, MetadataError, OSError."""
        directories = directories_of(self.config)
        with ExitStack() as stack:
            for directory in directories:
                if self.world.disk.exists(directory):
                    lock = self.world.disk.lock(f"{directory}/{LOCK_FILE}")
                    stack.callback(lock.release)
            if user := user_of(directories, self.config.host, self.config.port):
                raise DirectoryInUseError(f"{user}: stop it first")
            if step == "upgrade":
                await self._upgrade(directories)
            elif step == "rollback":
                await self._rollback(directories, force=force)
            else:
                await self._finalize(directories)

    async def _upgrade(self, directories: tuple[str, ...]) -> None:
        cookie = cookie_of(self.config, await read_instance_id(self.store, self.config.ledgers_root))
        stored = await self._stored()
        if stored is not None and not _same(stored, cookie):
            raise LayoutError(
                f"the cluster has a cookie of bookie {self.config.id} that names other directories or another host: "
                "upgrade with the configuration that the bookie had"
            )
        if not layouts.upgrade(self.world.disk, directories, cookie, self.tell):
            self.tell("the directories have the present layout: there is nothing to upgrade")
            return
        await self._store(encode_cookie(cookie))
        self.tell(f"the cluster knows bookie {self.config.id}")
        for index in self.config.indexes:
            if has_index_files(self.world.disk, f"{index}/{CURRENT}"):
                self.tell(
                    f"{index} has index files: convert them before the start, with "
                    "`quire shell convert-to-db-storage`. A rollback is not possible after that"
                )

    async def _rollback(self, directories: tuple[str, ...], *, force: bool) -> None:
        before = layouts.rollback(self.world.disk, directories, force=force, tell=self.tell)
        path = self._path()
        if before is not None:
            await self._store(before)
            self.tell(f"the cluster has the old cookie of bookie {self.config.id}")
            return
        try:
            await self.store.delete(path)
            self.tell(f"the cluster no longer knows bookie {self.config.id}")
        except NoNodeError:
            self.tell(f"the cluster does not know bookie {self.config.id}")

    async def _finalize(self, directories: tuple[str, ...]) -> None:
        if await self._stored() is None:
            raise LayoutError(f"the cluster does not know bookie {self.config.id}: the upgrade was not finished")
        if not layouts.finalize(self.world.disk, directories, self.tell):
            self.tell("there is no upgrade to finalize")

    def _path(self) -> str:
        return f"{self.config.ledgers_root}/cookies/{self.config.id}"

    async def _stored(self) -> Cookie | None:
        found = await read_cookie(self.store, self.config.id, root=self.config.ledgers_root)
        return None if found is None else found.value

    async def _store(self, data: bytes) -> None:
        try:
            await self.store.create(self._path(), data, make_parents=True)
        except NodeExistsError:
            await self.store.put(self._path(), data, ANY_VERSION)


def _same(one: Cookie, other: Cookie) -> bool:
    """Return whether two cookies name the same bookie and directories; an old one has no instance id."""
    return (one.bookie_id, one.journal_directories, one.ledger_directories) == (
        other.bookie_id,
        other.journal_directories,
        other.ledger_directories,
    ) and one.instance_id in ("", other.instance_id)


def run(conf: Path, step: str, *, force: bool, out: TextIO | None = None, err: TextIO | None = None) -> int:
    """Run the command; return the exit code."""
    from quire.metadata.zookeeper.store import open_store
    from quire.service import log

    out, err = out or sys.stdout, err or sys.stderr
    log.configure("error", err)
    try:
        server = BOOKIE.load(conf)
        store_config, root = zookeeper_config(server)
        config = located(server, root).bookie
    except (ConfigError, ValueError, OSError) as error:
        print(f"quire upgrade: {error}", file=err)
        return USAGE
    world = real_world()

    async def main() -> None:
        async with closing(await open_store(world, store_config)) as store:
            await Upgrader(world=world, config=config, store=store, out=out).run(step, force=force)

    try:
        trio.run(main)
    except BaseException as error:
        causes = list(leaves(error))
        if not all(isinstance(cause, (BookieError, MetadataError, OSError)) for cause in causes):
            raise
        for cause in causes:
            running = "a bookie runs on these directories: stop it first"
            print(f"quire upgrade: {running if isinstance(cause, BlockingIOError) else cause}", file=err)
        return FAILED
    return DONE
