"""When a bookie collects garbage: every interval, and soon while a disk is full. What may be dropped: garbage.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from bookie.config import BookieConfig
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.disks.watch import DiskWatch
from bookie.errors import BookieError, StorageFailedError
from bookie.garbage import collect_garbage
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.world.doors import World

log = get_logger(__name__)

WAIT_FULL_S: Final = 5.0
"""Between two rounds while a disk is full."""


class GarbageRounds:
    """Rounds of garbage collection of one bookie. `checkpoint` makes one; `on_failed` is called when the storage can no
    longer be trusted."""

    def __init__(
        self,
        world: World,
        config: BookieConfig,
        storage: DbLedgerStorage,
        disks: DiskWatch,
        *,
        checkpoint: Callable[[], Awaitable[None]],
        on_failed: Callable[[StorageFailedError], None],
    ) -> None:
        self._world = world
        self._config = config
        self._storage = storage
        self._disks = disks
        self._checkpoint = checkpoint
        self._on_failed = on_failed
        self._disk_filled = trio.Event()
        self._scopes: set[trio.CancelScope] = set()
        self._stopping = False
        self._ended = trio.Event()

    def hurry(self) -> None:
        """A disk is full: the next round comes soon."""
        self._disk_filled.set()

    async def collect(self, metadata: MetadataStore, instance_id: str) -> Collected:
        """Drop what belongs to deleted ledgers; a stop breaks it off. MetadataError, OSError, BookieError: nothing or a
        part was dropped."""
        collected = Collected()
        if self._stopping:
            return collected
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                collected = await collect_garbage(
                    self._storage,
                    metadata,
                    root=self._config.ledgers_root,
                    instance_id=instance_id,
                    rng=self._world.rng,
                    settle=self._checkpoint,
                )
            except StorageFailedError as error:
                self._on_failed(error)
                raise
            finally:
                self._scopes.discard(scope)
                if self._stopping and not self._scopes:
                    self._ended.set()
        return collected

    async def run(self, metadata: MetadataStore, instance_id: str) -> None:
        """Collect again and again, for ever."""
        while True:
            await self._until_due()
            try:
                collected = await self.collect(metadata, instance_id)
            except (MetadataError, BookieError, OSError) as error:
                log.warning("garbage collection failed, retrying", reason=str(error))
                continue
            if collected.ledgers or collected.logs:
                log.info(
                    "garbage collected",
                    ledgers=len(collected.ledgers),
                    logs=len(collected.logs),
                    bytes=collected.bytes,
                )

    async def _until_due(self) -> None:
        wait_s = self._config.gc_wait_ms / 1000
        with trio.move_on_after(wait_s):
            await self._disk_filled.wait()
            self._disk_filled = trio.Event()
            wait_s = min(wait_s, WAIT_FULL_S)
            await trio.sleep(wait_s)
        if self._disks.is_full:
            self._disk_filled.set()

    def stop(self) -> None:
        """Begin no round any more."""
        self._stopping = True

    async def end(self) -> None:
        """After `stop`: break off what is collected, and wait for the job that runs: it uses the indexes that are
        closed later."""
        for scope in list(self._scopes):
            scope.cancel()
        if self._scopes:
            await self._ended.wait()
