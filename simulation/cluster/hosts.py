"""Hosts of a simulated cluster beside its bookies: brokers, and processes with auditor and replication worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.service import open_repair_client, run_autorecovery
from broker.errors import BrokerError
from broker.ownership.ownership import Ownership
from quire.ledger.opening import open_client_on
from quire.metadata.errors import MetadataError
from quire.servers.addresses import Addresses
from quire.servers.broker.process import run_broker_on
from quire.world.doors import World
from quire.world.outbox import Turn
from simulation.cluster.swarm import ClusterSwarm
from simulation.common.nodes import Cluster, Node
from simulation.machines.metadata import HostMetadata
from simulation.machines.power import PowerCut
from simulation.machines.scheduler import HOST

JOB_S = 60.0
"""Virtual seconds that an operator waits for a broker's answer."""


class ServerCluster(Cluster, Protocol):
    """History as used by its brokers."""

    @property
    def swarm(self) -> ClusterSwarm: ...

    @property
    def keys(self) -> Mapping[str, object]:
        """Return further keys of the brokers' configuration."""


class BrokerNode(Node):
    """Host of a broker."""

    def __init__(self, story: ServerCluster, name: str) -> None:
        super().__init__(story, name)
        self.config = story.swarm.broker_config(name, story.keys)
        self.id = f"{name}:{self.config.listen.web_port}"
        self.ready = trio.Event()
        self.ownership: Ownership | None = None
        """Broker of this incarnation, once it runs."""

    async def serve(self, world: World, metadata: HostMetadata, stop: trio.Event) -> None:
        self.ready = trio.Event()
        self.ownership = None
        config = self.config
        turn = Turn()
        keys = config.ledger_client
        client = open_client_on(world, metadata, keys.client, watcher=keys.watcher, turn=turn)
        async with client as ledgers:
            await run_broker_on(
                world, metadata, ledgers, config, ready=self._is_ready, stop=stop, turn=turn, http=False
            )

    def _is_ready(self, addresses: Addresses) -> None:
        self.story.tell(self.name, "BrokerReady")
        self.ready.set()

    @property
    def up(self) -> Ownership | None:
        """Return the ownership, while it serves."""
        return self.ownership if self.host.running and self.ready.is_set() else None

    async def ask(self, what: str, job: Callable[[], Awaitable[None]]) -> None:
        """Make the broker do something for an operator. It may fail, or crash meanwhile."""

        async def run() -> None:
            HOST.set(self.name)
            try:
                await job()
            except (BrokerError, MetadataError, OSError, PowerCut) as error:
                self.story.tell(self.name, "Failed", work=what, error=f"{type(error).__name__}: {error}")

        with trio.move_on_after(JOB_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, name=what)


class RecoveryNode(Node):
    """Host of a process with auditor and replication worker."""

    def __init__(self, story: Cluster, name: str, config: AutoRecoveryConfig) -> None:
        super().__init__(story, name)
        self.config = config

    async def serve(self, world: World, metadata: HostMetadata, stop: trio.Event) -> None:
        async with open_repair_client(world, metadata, self.config) as client:
            await run_autorecovery(world, metadata, client, self.config, name=f"{self.name}:3181", stop=stop)
