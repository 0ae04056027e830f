"""A standalone server with topics that time and limits change, while it crashes: the parts of `simulation.life`.

The server loses power, is killed, or stops, also in the middle of a job after so many changes to its disk; less often
than in the history `standalone`, for time has to pass. Then every part is checked in the healed system, and no ledger
may be without a name (LedgersNeverLeak).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import trio

from broker.server import Broker
from managed_ledger.stored_list import log_path
from quire.metadata.local.rocksdb import open_store
from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.data_directory import claim
from quire.servers.standalone.metadata import initialize
from quire.servers.standalone.process import LEDGERS_ROOT, run_standalone
from quire.wire.pulsar.names import TopicName
from quire.world.doors import World
from simulation.common.checkers import TopicHistory, ViolationError
from simulation.common.explained import Explained, explanations_checked
from simulation.common.histories import watched
from simulation.common.leaks import check_leaks
from simulation.common.operating import operate
from simulation.life.cast import Cast
from simulation.life.part import QUIET_S
from simulation.machines.world import Universe, run
from simulation.standalone.clients import Clients

SERVER = "server"
DATA = "/data"
METADATA = f"{DATA}/metadata"
PORT = 6650
PARTS = 4
HARM_S = 25.0
LIVENESS_S = 120.0


@dataclass(frozen=True, slots=True)
class LifeSummary:
    """Summary of one history."""

    seed: int
    digest: str
    crashes: int
    parts: str
    ledgers: int
    """Ledgers that are left at the end."""
    virtual_s: float

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.crashes} crashes, {self.parts}, {self.ledgers} ledgers left,"
            f" {self.virtual_s:.0f} virtual s, digest {self.digest[:16]}"
        )


class LifeStory:
    """One run of the history."""

    single = True
    calm_since = 0.0
    """No fault leaves a connection to the server."""
    read_s = lost_s = QUIET_S

    def __init__(self, universe: Universe, explained: Explained) -> None:
        self.universe = universe
        self.explained = explained
        self.rng = universe.derive("story")
        self.server = universe.host(SERVER)
        self.clients = Clients(universe, SERVER, PORT, (0,), idle_s=1.0)
        self.cast = Cast(self, PARTS)
        self.config = self._draw_config()
        self.ready = trio.Event()

    def _draw_config(self) -> StandaloneConfig:
        rng = self.rng
        return STANDALONE.build(
            {
                "brokerServicePort": PORT,
                "bindAddress": SERVER,
                "managedLedgerMaxEntriesPerLedger": rng.choice((5, 20, 60)),
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
                "defaultRetentionTimeInMinutes": 0,
                "defaultRetentionSizeInMB": 0,
                "flushInterval": rng.choice((5, 60, 3000)),
                "managedLedgerCursorMaxEntriesPerLedger": rng.choice((3, 20, 50_000)),
                "quireCursorFlushDelayMillis": rng.choice((0, 10, 50)),
                "journalMaxSizeMB": 1,
                "journalPreAllocSizeMB": 1,
                "quireDiskReserveMb": 1,
                "dbStorage_writeCacheMaxSizeMb": 2,
                "dbStorage_readAheadCacheMaxSizeMb": 1,
                "logSizeLimit": 1 << 20,
                "gcWaitTime": 2000,
                "brokerShutdownTimeoutMs": 2000,
                "managedLedgerCacheSizeMB": rng.choice((0, 1, 16)),
                **self.cast.keys,
            }
        )

    # For the parts

    def tell(self, host: str, name: str, /, **fields: object) -> None:
        self.universe.trace.event(host, name, **{key: str(value) for key, value in fields.items()})

    def follow(self, history: TopicHistory) -> None:
        """Answered acknowledgements need no help here: there is one server."""

    async def operate(self, what: str, topic: TopicName, job: Callable[[Broker], Awaitable[None]]) -> bool:
        broker, incarnation = self.explained.brokers.get(SERVER), self.server.incarnation
        if broker is None or not self.ready.is_set():
            return False

        def is_up() -> bool:
            return self.server.running and self.server.incarnation == incarnation

        def failed(error: BaseException) -> None:
            self.tell(SERVER, "Failed", work=what, error=f"{type(error).__name__}: {error}")

        return await operate(SERVER, is_up, partial(job, broker), failed, what)

    async def exists(self, topic: TopicName) -> bool:
        found: list[bool] = []
        while True:
            await self.ready.wait()

            async def look(broker: Broker) -> None:
                node = await broker.metadata.get(log_path(topic.managed_ledger_path))
                found.append(node is not None)

            if await self.operate("look for a topic", topic, look):
                return found[-1]
            await trio.sleep(0.1)

    # The run

    async def prepare(self, world: World, stop: trio.Event) -> None:
        """Make the namespaces, before the first start."""
        directory = await world.offload.run(partial(claim, world.disk, DATA), name="claim")
        metadata = await open_store(world, directory.metadata, create=True)
        try:
            cluster = self.config.broker.cluster_name
            await initialize(metadata, cluster, world.rng)
            await self.cast.prepare(metadata, cluster)
        finally:
            await metadata.aclose()
            directory.lock.release()

    async def serve(self, world: World, stop: trio.Event) -> None:
        def ready(_: Addresses) -> None:
            self.universe.trace.event(SERVER, "ServerReady")
            self.ready.set()

        await run_standalone(world, self.config, data_dir=DATA, ready=ready, stop=stop, http=False)

    async def nemesis(self) -> None:
        rng, server = self.rng, self.server
        while trio.current_time() < HARM_S:
            with trio.fail_after(LIVENESS_S):
                await self.ready.wait()
            await trio.sleep(rng.uniform(0, 7))
            kind = rng.choice(("power", "kill", "fuse", "fuse", "sync", "stop"))
            self.universe.trace.event(SERVER, "Nemesis", kind=kind)
            if kind == "stop":
                with trio.fail_after(LIVENESS_S):
                    await server.stop()
            else:
                if kind == "fuse":
                    server.crash_after(rng.randrange(1, 40))
                elif kind == "sync":
                    server.crash_at_sync(rng.randrange(0, 12))
                if kind in ("fuse", "sync"):
                    with trio.move_on_after(3):
                        await server.wait_down()
                await server.crash(lose_unsynced=kind != "kill")
            self.ready = trio.Event()
            await trio.sleep(rng.choice((0, 0, rng.uniform(0, 4))))
            await server.restart()

    async def run(self) -> LifeSummary:
        self.universe.trace.event("", "Drawn", config=str(self.config), parts=self.cast.summary())
        self.server.start(self.prepare)
        await self.server.wait_down()
        self.server.start(self.serve)
        self.cast.start()
        with trio.fail_after(600):
            await self.nemesis()
        with trio.fail_after(LIVENESS_S):
            await self.ready.wait()
        await self.cast.settle()
        return LifeSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            crashes=len(self.server.crashes),
            parts=self.cast.summary(),
            ledgers=await self._check_leaks(),
            virtual_s=trio.current_time(),
        )

    async def _check_leaks(self) -> int:
        """Stop the server in order, and check its remaining metadata; return the number of ledgers."""
        with trio.fail_after(LIVENESS_S):
            await self.server.stop()
        done = trio.Event()
        found: list[ViolationError | int] = []

        async def look(world: World, stop: trio.Event) -> None:
            metadata = await open_store(world, METADATA)
            try:
                found.append(await check_leaks(world, metadata, LEDGERS_ROOT))
            except ViolationError as error:
                found.append(error)
            await metadata.aclose()
            done.set()

        await self.server.restart(look)
        with trio.fail_after(LIVENESS_S):
            await done.wait()
        if isinstance(found[0], ViolationError):
            raise found[0]
        return found[0]


def run_life_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> LifeSummary:
    """Run one history; see `run_standalone_history`."""
    with watched() as log, explanations_checked() as explained:

        async def main(universe: Universe) -> LifeSummary:
            if lines is not None:
                universe.trace.lines = lines
            return await LifeStory(universe, explained).run()

        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(())
        return summary
