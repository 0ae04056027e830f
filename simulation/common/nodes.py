"""Hosts of a simulated cluster with a session at the metadata service each; bookies, which every such cluster has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Protocol

import trio

from bookie.bookie import Bookie, open_bookie
from bookie.errors import BookieError, StorageFailedError
from bookie.server import serve_bookie
from quire.metadata.errors import MetadataError
from quire.metadata.local.memory import MemoryTree
from quire.servers.process import end_when
from quire.world.doors import World
from quire.world.unwrap import reason_of
from simulation.common.swarm import Swarm
from simulation.machines.metadata import HostMetadata
from simulation.machines.world import Universe

AGAIN_S = 0.2
"""Time after which a process is restarted that ended during an outage of the metadata service."""


class Cluster(Protocol):
    """History to which the hosts belong."""

    universe: Universe

    @property
    def swarm(self) -> Swarm: ...

    @property
    def tree(self) -> MemoryTree: ...

    def tell(self, host: str, name: str, /, **fields: object) -> None: ...

    def bookie_opened(self, node: BookieNode) -> None:
        """Handle that the bookie has replayed its journal."""


class Node(ABC):
    """A host of the cluster, with its session at the metadata service."""

    def __init__(self, story: Cluster, name: str) -> None:
        self.story = story
        self.name = name
        self.host = story.universe.host(name)
        self.metadata: HostMetadata | None = None
        self.crashed = False
        """True while the nemesis keeps it down."""
        self.cut_off = 0
        """Number of faults that keep it from the metadata service."""

    def connect_metadata(self) -> HostMetadata:
        """Open a session for this incarnation."""
        swarm = self.story.swarm
        self.metadata = HostMetadata(
            self.story.tree,
            self.story.universe.derive(f"{self.name}/{self.host.incarnation}/metadata"),
            session_timeout_s=swarm.session_timeout_s,
            late=swarm.late,
            latency_max_s=swarm.latency_max_s,
        )
        if self.cut_off:
            self.metadata.disconnect()
        return self.metadata

    def cut_metadata(self) -> None:
        """Disconnect it from the service, until as many `mend_metadata`s."""
        self.cut_off += 1
        if self.metadata is not None:
            self.metadata.disconnect()

    def mend_metadata(self) -> None:
        self.cut_off -= 1
        if not self.cut_off and self.metadata is not None and self.host.running:
            self.metadata.reconnect()

    def pause(self) -> None:
        """Pause the host as SIGSTOP does; the service hears nothing of it either."""
        self.host.pause()
        self.cut_metadata()

    def resume(self) -> None:
        self.mend_metadata()
        self.host.resume()

    async def crash(self, *, lose_unsynced: bool = True) -> None:
        """Crash the host, which stays down until `restart`."""
        self.crashed = True
        await self.host.crash(lose_unsynced=lose_unsynced)
        if self.metadata is not None:
            self.metadata.disconnect()

    async def restart(self) -> None:
        """Restart the host; a running one is left alone."""
        self.crashed = False
        if not self.host.running:
            await self.host.wait_down()
        if not self.host.running:
            self.start()

    def start(self) -> None:
        self.host.start(self.main)

    async def main(self, world: World, stop: trio.Event) -> None:
        """Run the process. It may end by itself during an outage of the metadata service; a supervisor restarts it."""
        metadata = self.connect_metadata()
        faults = self.host.disk.folders.count
        try:
            await self.serve(world, metadata, stop)
        except* MetadataError as error:
            self.story.tell(self.name, "ProcessEnded", error=reason_of(error))
        except* OSError as error:
            # Expected: a start without any room. Another error, or one on another disk, is a violation.
            if not self.host.disk.is_limited and not self._is_harmed(faults):
                raise
            self.story.tell(self.name, "ProcessEnded", error=reason_of(error))
        except* BookieError as error:
            # Expected: a directory that does not answer, or that has failed and is the only one of its kind.
            if not self._is_harmed(faults):
                raise
            self.story.tell(self.name, "ProcessEnded", error=reason_of(error))
        metadata.disconnect()
        self.story.universe.nursery.start_soon(self._supervise, name=f"supervisor of {self.name}")

    def _is_harmed(self, before: int) -> bool:
        """Return whether a directory has a fault, or has had one since there were `before`."""
        folders = self.host.disk.folders
        return folders.any or folders.count > before

    async def _supervise(self) -> None:
        await self.host.wait_down()
        await trio.sleep(AGAIN_S)
        if not self.crashed:
            await self.restart()

    @abstractmethod
    async def serve(self, world: World, metadata: HostMetadata, stop: trio.Event) -> None:
        """Run the server of this host until `stop` is set."""


class BookieNode(Node):
    """Host of a bookie. Its storage can be inspected without its port."""

    def __init__(self, story: Cluster, name: str) -> None:
        super().__init__(story, name)
        self.config = story.swarm.bookie_config(name)
        self.id = self.config.id
        self.bookie: Bookie | None = None
        """The bookie while it runs and has replayed its journal."""
        self.ready = trio.Event()
        self._opened_by = 0
        """The incarnation that replayed the journal last."""

    async def serve(self, world: World, metadata: HostMetadata, stop: trio.Event) -> None:
        self.bookie = None
        self.ready = trio.Event()
        async with open_bookie(world, self.config, metadata) as bookie, trio.open_nursery() as watching:
            self.bookie = bookie
            self._opened_by = self.host.incarnation
            self.story.bookie_opened(self)
            if bookie.directories.folders[1:] or bookie.journals.folders[1:]:
                failure = StorageFailedError("all directories of a kind have failed")
                watching.start_soon(end_when, bookie.failed, failure, name="bookie failed")
            self.start_jobs(watching, world, bookie, metadata)
            async with trio.open_nursery() as nursery:
                serving = partial(serve_bookie, world, bookie, metadata, bind_address=self.name, stop=stop)
                await nursery.start(serving, name="serve")
                self.ready.set()
            watching.cancel_scope.cancel()

    def start_jobs(self, nursery: trio.Nursery, world: World, bookie: Bookie, metadata: HostMetadata) -> None:
        """Start what runs beside the bookie; it is cancelled when the bookie stops."""

    @property
    def up(self) -> Bookie | None:
        """Return the bookie, unless it is down or has not replayed its journal yet."""
        return self.bookie if self.host.running and self.host.incarnation == self._opened_by else None

    async def wait_up(self) -> None:
        """Wait until it serves."""
        while self.up is None or not self.ready.is_set():
            await trio.sleep(0.05)

    def has(self, ledger_id: int, entry_id: int) -> bool | None:
        """Return whether it has the entry, synced or not; None if it is down, or has lost it and says so (limbo)."""
        bookie = self.up
        if bookie is None:
            return None
        storage = bookie.storage.of(ledger_id)
        with self.host.disk.folders.unseen():
            cached = storage._cache.find(ledger_id, entry_id) is not None
            found = cached or storage._locations.get(ledger_id, entry_id) != 0
        return None if not found and ledger_id in bookie.storage.limbo else found

    def fenced(self, ledger_id: int) -> bool | None:
        bookie = self.up
        return None if bookie is None else bookie.storage.is_fenced(ledger_id)

    def location(self, ledger_id: int, entry_id: int) -> tuple[str, int] | None:
        """Return file and offset of the entry on the disk, if it is there and no longer in the write cache."""
        bookie = self.up
        if bookie is None:
            return None
        storage = bookie.storage.of(ledger_id)
        if storage._cache.find(ledger_id, entry_id) is not None:
            return None
        with self.host.disk.folders.unseen():
            location = storage._locations.get(ledger_id, entry_id)
        if location == 0:
            return None
        return f"{storage._current}/{location >> 32:x}.log", location & 0xFFFFFFFF
