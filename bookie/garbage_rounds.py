"""When a bookie collects garbage: every interval, soon while a disk is full, and when asked. What may be dropped:
garbage.py. Which compaction follows: gc/schedule.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from bookie.config import BookieConfig
from bookie.db_ledger_storage.compaction.plan import CompactionKind, CompactionResult
from bookie.db_ledger_storage.compaction.throttle import CopyThrottle
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.apart import Apart
from bookie.directories.health import DirectoryHealth
from bookie.disks.watch import DiskWatch
from bookie.errors import BookieError, StorageFailedError
from bookie.garbage import collect_garbage, ledgers_of
from bookie.gc.overreplicated import OpenPeers, OverreplicatedLedgers, OverreplicatedStats
from bookie.gc.schedule import AskedCompactions, CompactionSchedule
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerManager
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.service.measuring.outcomes import Outcomes
from quire.service.measuring.summaries import Times
from quire.world.doors import World

log = get_logger(__name__)

WAIT_FULL_S: Final = 5.0
"""Between two rounds while a disk is full."""


@dataclass(slots=True)
class GcStatus:
    """State and history of garbage collection. Times of day in milliseconds since 1970."""

    compacting: CompactionKind | None = None
    """The compaction that runs."""
    last_ms: dict[CompactionKind, int] = field(default_factory=dict)
    """End of the last compaction of each kind, or the start of the bookie."""
    last_locations_ms: int = 0
    """End of the last compaction of the location index."""
    compacting_locations: bool = False
    rounds: Outcomes = field(default_factory=Outcomes)
    """Milliseconds of whole rounds..."""
    compactions: Outcomes = field(default_factory=Outcomes)
    """...and of their compactions."""


class GarbageRounds:
    """Rounds of garbage collection and compaction of one bookie, over all its directories that can be used.
    `checkpoint` makes one; `on_failed` is called with the number of a directory that can no longer be trusted."""

    def __init__(
        self,
        world: World,
        config: BookieConfig,
        storages: Sequence[DbLedgerStorage],
        health: DirectoryHealth,
        disks: DiskWatch,
        *,
        checkpoint: Callable[[], Awaitable[None]],
        on_failed: Callable[[int, StorageFailedError], None],
    ) -> None:
        self._world = world
        self._config = config
        self.storages = storages
        self._apart = Apart(health, on_failed)
        self._disks = disks
        self._checkpoint = checkpoint
        self._hurried = trio.Event()
        self._asked: AskedCompactions | None = None
        """Request for the next round..."""
        self._running: AskedCompactions | None = None
        """...and that of the present one."""
        self._metadata_throttle = CopyThrottle(config.metadata_rate)
        self.open_peers: OpenPeers | None = None
        """Connects to the other bookies. None: ledgers that they have by now stay here."""
        self.overreplicated = OverreplicatedStats()
        now = trio.current_time()
        self.schedule = CompactionSchedule(config, now)
        self._locations_due = self._next_locations(now)
        wall = world.clock.wall_ms()
        self.status = GcStatus(last_ms=dict.fromkeys(CompactionKind, wall), last_locations_ms=wall)

    def hurry(self) -> None:
        """A disk is full: the next round comes soon."""
        self._hurried.set()

    def force(self, asked: AskedCompactions) -> None:
        """Begin a round with the compactions that are asked for: at once, or when the present one has ended."""
        self._asked = asked
        self._hurried.set()

    @property
    def forced(self) -> bool:
        """Return whether a round that was asked for is to come or runs."""
        return self._asked is not None or self._running is not None

    async def collect(self, metadata: MetadataStore, instance_id: str) -> Collected:
        """Drop what belongs to deleted ledgers; a stop breaks it off. MetadataError, OSError, BookieError: nothing or a
        part was dropped."""
        manager = partial(self._ledgers, metadata, instance_id)

        async def collect(directory: int) -> Collected:
            return await collect_garbage(self.storages[directory], manager, settle=self._checkpoint)

        all_collected = await self._apart.each(collect)
        return Collected(
            ledgers=tuple(sorted({each for one in all_collected for each in one.ledgers})),
            logs=tuple([each for one in all_collected for each in one.logs]),
            bytes=sum([one.bytes for one in all_collected]),
            failed=tuple([each for one in all_collected for each in one.failed]),
        )

    async def _ledgers(self, metadata: MetadataStore, instance_id: str) -> LedgerManager:
        return await ledgers_of(
            metadata,
            root=self._config.ledgers_root,
            instance_id=instance_id,
            rng=self._world.rng,
            throttle=self._metadata_throttle,
        )

    async def run(self, metadata: MetadataStore, instance_id: str) -> None:
        """Collect again and again, for ever."""
        wait_s = self._config.overreplicated_wait_ms / 1000
        async with trio.open_nursery() as nursery:
            with self._apart.within(nursery):
                if wait_s > 0:
                    # Beside the rounds: a search reads the metadata of each ledger, and a full disk must not wait for
                    # it.
                    search = partial(self._run_searches, metadata, instance_id, wait_s)
                    nursery.start_soon(search, name="search for ledgers of other bookies")
                await self._run_rounds(metadata, instance_id)

    async def _run_searches(self, metadata: MetadataStore, instance_id: str, wait_s: float) -> None:
        while True:
            await trio.sleep(wait_s)
            try:
                await self.collect_overreplicated(metadata, instance_id)
            except (MetadataError, BookieError, OSError) as error:
                log.warning("search for ledgers of other bookies failed, retrying", reason=str(error))

    async def collect_overreplicated(self, metadata: MetadataStore, instance_id: str) -> list[int]:
        """Delete the ledgers that other bookies have by now: gc/overreplicated.py. MetadataError, OSError,
        BookieError: a part was deleted."""
        if self.open_peers is None:
            return []
        collection = OverreplicatedLedgers(
            self._world,
            self._config.id,
            self.open_peers,
            at_once=self._config.overreplicated_at_once,
            stats=self.overreplicated,
        )

        async def collect(directory: int) -> list[int]:
            deleted = await collection.collect(self.storages[directory], await self._ledgers(metadata, instance_id))
            if deleted:
                try:
                    await self._checkpoint()  # frees their ids
                except (OSError, BookieError) as error:
                    log.warning("checkpoint after deleting ledgers failed, their ids stay held", reason=str(error))
            return deleted

        return [each for deleted in await self._apart.each(collect) for each in deleted]

    async def _run_rounds(self, metadata: MetadataStore, instance_id: str) -> None:
        while True:
            await self._until_due()
            began = trio.current_time()
            self._running, self._asked = self._asked, None
            try:
                good = await self._round(metadata, instance_id, self._running)
            finally:
                self._running = None
            self._observe(self.status.rounds.good if good else self.status.rounds.bad, began)

    async def _round(self, metadata: MetadataStore, instance_id: str, asked: AskedCompactions | None) -> bool:
        """Collect and compact; return whether nothing failed."""
        if asked is None and self._disks.is_almost_full and self._config.force_when_full:
            asked = AskedCompactions()
        try:
            collected = await self.collect(metadata, instance_id)
        except (MetadataError, BookieError, OSError) as error:
            log.warning("garbage collection failed, retrying", reason=str(error))
            return False
        if collected.ledgers or collected.logs:
            log.info(
                "garbage collected",
                ledgers=len(collected.ledgers),
                logs=len(collected.logs),
                bytes=collected.bytes,
            )
        began = trio.current_time()
        try:
            await self._compact(asked)
            if began >= self._locations_due:
                await self.compact_locations()
        except (BookieError, OSError) as error:
            self._observe(self.status.compactions.bad, began)
            log.warning("compaction failed, retrying", reason=str(error))
            return False
        return True

    async def _compact(self, asked: AskedCompactions | None) -> None:
        schedule, status = self.schedule, self.status
        began = trio.current_time()
        full, almost_full = self._disks.is_full, self._disks.is_almost_full
        kind = schedule.due(began, asked=asked, full=full, almost_full=almost_full)
        if kind is None:
            return
        threshold, max_s = schedule.bounds(kind)
        status.compacting = kind

        async def compact(directory: int) -> CompactionResult | None:
            if self._disks.full_directory(directory) and not self._disks.may_compact(directory):
                return None
            goes_on = partial(self._goes_on, kind, asked)
            return await self.storages[directory].compact(kind, threshold, max_s, goes_on)

        try:
            done = [each for each in await self._apart.each(compact) if each is not None]
        finally:
            status.compacting = None
            schedule.ran(kind, trio.current_time())
            wall = self._world.clock.wall_ms()
            for each in (CompactionKind.MINOR, CompactionKind.MAJOR) if kind is CompactionKind.MAJOR else (kind,):
                status.last_ms[each] = wall
        self._observe(status.compactions.good, began)
        if any(each.chosen for each in done):
            log.info(
                "entry logs compacted",
                kind=kind.value,
                chosen=sum([each.chosen for each in done]),
                deleted=sum([len(each.logs) for each in done]),
                copied=sum([each.copied_bytes for each in done]),
                bytes=sum([each.reclaimed_bytes for each in done]),
            )

    def _goes_on(self, kind: CompactionKind, asked: AskedCompactions | None) -> bool:
        full, almost_full = self._disks.is_full, self._disks.is_almost_full
        return self.schedule.goes_on(kind, asked=asked is not None, full=full, almost_full=almost_full)

    async def compact_locations(self, paths: Sequence[str] = ()) -> None:
        """Compact the location index of each directory, or only those of these paths. OSError."""
        self.status.compacting_locations = True

        async def compact(directory: int) -> None:
            storage = self.storages[directory]
            if not paths or storage.locations_path in paths:
                await storage.compact_locations()

        try:
            await self._apart.each(compact)
        finally:
            self.status.compacting_locations = False
            self.status.last_locations_ms = self._world.clock.wall_ms()
            self._locations_due = self._next_locations(trio.current_time())

    def _next_locations(self, now: float) -> float:
        interval = self._config.location_compaction_interval_s
        # Bookies that were started together must not all do it at the same time.
        return now + interval * (1 + self._world.rng.random()) if interval > 0 else float("inf")

    def _observe(self, times: Times, began: float) -> None:
        times.observe(1000 * (trio.current_time() - began))

    async def _until_due(self) -> None:
        wait_s = self._config.gc_wait_ms / 1000
        with trio.move_on_after(wait_s):
            await self._hurried.wait()
        if self._hurried.is_set():
            self._hurried = trio.Event()
            if self._asked is None:
                with trio.move_on_after(min(wait_s, WAIT_FULL_S)):
                    while self._asked is None:
                        await self._hurried.wait()
                        self._hurried = trio.Event()
        if self._disks.is_full:
            self._hurried.set()

    def stop(self) -> None:
        """Begin no round any more."""
        self._apart.stop()

    async def end(self) -> None:
        """After `stop`: break off what is collected, and wait for the job that runs: it uses the indexes that are
        closed later."""
        await self._apart.end()
