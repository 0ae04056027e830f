"""A cluster of bookies on simulated machines of their own, which are stopped, killed, emptied and put back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.service import open_repair_client
from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from bookie.integrity.check import DataIntegrity
from bookie.integrity.peers import OtherCopies
from bookie.scrubber.scrubber import Scrubber
from bookie.server import serve_bookie
from quire.ledger import LedgerClient
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata
from quire.metadata.ledgers import LedgerManager, SequenceLedgerIds, initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.bookie.peers import peers_on
from quire.world.doors import World
from simulation.machines.disk_image import DiskImage
from simulation.machines.key_value import MapImages
from simulation.machines.world import Universe, on_host
from tests.unit.bookie.build import Client

CONFIG = BookieConfig(
    journal_directories=("/journal",),
    ledger_directories=("/ledgers",),
    journal_prealloc_mb=1,
    write_cache_mb=2,
    integrity_check=True,
    integrity_stamp=True,
)
CLIENT = AutoRecoveryConfig()


class Member:
    """One bookie and its machine."""

    def __init__(self, cluster: IntegrityCluster, name: str, config: BookieConfig) -> None:
        self.cluster = cluster
        self.name = name
        self.host = cluster.universe.host(name)
        self.config = replace(config, bookie_id=f"{name}:3181", host=name)
        self.id = self.config.id
        self.checks = True
        """True if it copies back what it lost."""
        self._up: Bookie | None = None
        self.integrity: DataIntegrity | None = None
        self.scrubber: Scrubber | None = None
        self._failures: list[Exception] = []
        self._ready = trio.Event()
        self._end = trio.Event()

    @property
    def bookie(self) -> Bookie:
        assert self._up is not None, f"{self.name} is down"
        return self._up

    async def start(self) -> None:
        """Start it; raises the error that prevents this."""
        self._up = self.integrity = None
        self._failures.clear()
        self._ready, self._end = trio.Event(), trio.Event()
        self.host.start(self._main)
        await self._ready.wait()
        if self._failures:
            await self.host.wait_down()
            raise self._failures[0]

    async def _main(self, world: World, stop: trio.Event) -> None:
        store = MemoryStore(self.cluster.tree)
        try:
            async with open_bookie(world, self.config, store) as bookie:
                self._up = bookie

                @asynccontextmanager
                async def peers() -> AsyncGenerator[OtherCopies]:
                    async with open_repair_client(world, store, CLIENT) as client:
                        yield peers_on(client, CLIENT, bookie_id=self.id)

                self.integrity = DataIntegrity(bookie, store, peers)
                self.scrubber = Scrubber(bookie, store, peers)
                async with trio.open_nursery() as nursery:
                    serve = partial(serve_bookie, world, bookie, store, bind_address=self.name, stop=self._end)
                    await nursery.start(serve, name="serve")
                    if self.checks:
                        nursery.start_soon(self.integrity.run, name="data integrity")
                    nursery.start_soon(self.scrubber.run, name="scrub")
                    self._ready.set()
                    await self._end.wait()
                    nursery.cancel_scope.cancel()
        except Exception as error:
            if self.host.running and not self._ready.is_set():
                self._failures.append(error)
            elif self.host.running:
                raise
        finally:
            self._up = None
            self._ready.set()
            self.cluster.tree.expire(store.session)

    async def stop(self) -> None:
        self._end.set()
        await self.host.wait_down()

    async def kill(self, *, lose_unsynced: bool = False) -> None:
        """Kill the process; with `lose_unsynced`, cut the power of the machine."""
        await self.host.crash(lose_unsynced=lose_unsynced)
        await self.host.wait_down()

    async def start_and_crash(self, changes: int) -> None:
        """Start it, and cut the power after so many changes to the disk, or a moment after it serves."""
        self._up = self.integrity = None
        self._failures.clear()
        self._ready, self._end = trio.Event(), trio.Event()
        self.host.start(self._main)
        self.host.crash_after(changes)
        with trio.move_on_after(20):
            await self.host.wait_down()
        if self.host.running:
            await self.host.crash()
            await self.host.wait_down()

    def set(self, **settings: object) -> None:
        self.config = replace(self.config, **settings)  # type: ignore[arg-type]

    def forbid_losses(self) -> None:
        self.set(integrity_check=False, integrity_stamp=False)

    def allow_losses(self) -> None:
        self.set(integrity_check=True, integrity_stamp=True)

    def boots(self, boot_id: bytes) -> None:
        """Give the machine's kernel this boot id."""
        path = "/proc/sys/kernel/random/boot_id"
        image = self.host.disk
        if path in image.paths():
            image.remove(path)
        for folder in ("/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/kernel/random"):
            for names in (image.names, image.durable_names):
                names.setdefault(folder, {})
        image.add(path)
        image.cut(path, len(boot_id))
        image.overwrite(path, 0, boot_id)
        image.sync_names("/proc/sys/kernel/random")

    def damage_journal(self, text: bytes) -> None:
        """Flip a bit of this text in the journal."""
        disk = self.host.disk
        for path in disk.paths():
            if path.endswith(".txn") and text in disk.read(path):
                disk.flip(path, disk.read(path).index(text), 1)
                return
        raise AssertionError(f"{text!r} is not in the journal")

    def empty(self, folder: str) -> None:
        """Remove everything from one folder."""
        for path in self.host.disk.paths():
            if path.startswith(f"{folder}/") and not path.endswith("quire.lock"):
                self.host.disk.remove(path)
        for name in ("ledgers", "locations"):
            if folder.startswith("/ledgers"):
                self.host.maps.remove(f"{folder}/current/{name}")

    def wipe(self) -> None:
        """Give it an empty disk."""
        self.host.disk, self.host.maps = DiskImage(), MapImages()

    def image(self) -> tuple[DiskImage, MapImages]:
        return self.host.disk.fork(), self.host.maps.fork()

    def put_back(self, image: tuple[DiskImage, MapImages]) -> None:
        self.host.disk, self.host.maps = image[0].fork(), image[1].fork()

    async def add(self, ledger_id: int, count: int) -> None:
        """Add entries 0 to `count - 1`, acknowledged."""
        await Client(self.bookie).add(ledger_id, 0, count)


class IntegrityCluster:
    def __init__(self, universe: Universe, world: World) -> None:
        self.universe = universe
        self.world = world
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.members: dict[str, Member] = {}
        self.manager = LedgerManager(self.store, ids=SequenceLedgerIds(self.store, "/ledgers"), rng=world.rng)

    async def begin(self, *names: str, config: BookieConfig = CONFIG) -> list[Member]:
        await initialize_layout(self.store, rng=self.world.rng)
        for name in names:
            self.members[name] = Member(self, name, config)
            await self.members[name].start()
        return list(self.members.values())

    async def ledger(self, *members: Member, write_quorum: int = 0, ack_quorum: int = 2) -> int:
        """Make the metadata of an open ledger on these members, as a writer that died leaves it; return its id."""
        metadata = LedgerMetadata(
            ensemble_size=len(members),
            write_quorum=write_quorum or len(members),
            ack_quorum=ack_quorum,
            fragments=(Fragment(0, tuple(each.id for each in members)),),
            password=b"secret",
        )
        return (await self.manager.create(metadata))[0]

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        stored = await self.manager.read(ledger_id)
        assert stored is not None
        return stored.value

    @asynccontextmanager
    async def client(self) -> AsyncIterator[LedgerClient]:
        async with open_repair_client(self.world, self.store, CLIENT) as client:
            yield client


@asynccontextmanager
async def integrity_cluster(universe: Universe) -> AsyncIterator[IntegrityCluster]:
    async with on_host(universe, "client") as world:
        cluster = IntegrityCluster(universe, world)
        yield cluster
        for member in cluster.members.values():
            if member.host.running:
                await member.stop()
