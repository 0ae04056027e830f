"""Clients of a day: ledgers are written now and then, followed, taken over, and deleted when their time is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from quire.ledger import LedgerClient, LedgerError, open_client_on
from quire.ledger.bookies.watcher import WatcherConfig
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerState
from quire.world.doors import World
from simulation.common.checkers import message
from simulation.day.swarm import DAY_S, DaySwarm
from simulation.ledger.hosts import PASSWORD, ClientNode, ClientStory
from simulation.machines.metadata import HostMetadata

RETENTION_CHECK_S = 120.0
LATE_LEDGERS = 3
LATE_ENTRIES = 4


class DayClientStory(ClientStory, Protocol):
    """History as used by its clients."""

    ends: dict[int, float]
    """Virtual time at which each ledger is deleted."""

    @property
    def swarm(self) -> DaySwarm: ...


class DayClient(ClientNode):
    """Host of a process with one ledger client."""

    def __init__(self, story: DayClientStory, name: str) -> None:
        super().__init__(story, name)
        self.story: DayClientStory = story

    async def serve(self, world: World, metadata: HostMetadata, stop: trio.Event) -> None:
        config = self.story.swarm.ledger_config(world.rng)
        gap_s = self.story.swarm.gap_s
        async with (
            open_client_on(world, metadata, config, watcher=WatcherConfig(rack_map_path="")) as client,
            trio.open_nursery() as nursery,
        ):
            for work, mean_s in (
                (self._write, gap_s),
                (self._take_over, 2 * gap_s),
                (self._follow, 2 * gap_s),
                (self._retain, RETENTION_CHECK_S),
            ):
                nursery.start_soon(self._now_and_then, world, client, work, mean_s, name=work.__name__[1:])

    async def _now_and_then(
        self,
        world: World,
        client: LedgerClient,
        work: Callable[[World, LedgerClient], Awaitable[None]],
        mean_s: float,
    ) -> None:
        while not self.story.finished:
            await trio.sleep(min(world.rng.expovariate(1 / mean_s), 4 * mean_s))
            if self.story.finished:
                return
            try:
                await work(world, client)
            except (LedgerError, MetadataError) as error:
                self.story.tell(self.name, "Failed", work=work.__name__[1:], error=f"{type(error).__name__}: {error}")

    async def _write(self, world: World, client: LedgerClient) -> None:
        rng, story = world.rng, self.story
        known = len(story.checker.histories)
        await super()._write(world, client)
        for ledger_id in list(story.checker.histories)[known:]:
            if rng.random() >= story.swarm.kept:
                life_s = rng.expovariate(1 / rng.choice(story.swarm.lives_s))
                story.ends.setdefault(ledger_id, trio.current_time() + life_s)

    async def _retain(self, world: World, client: LedgerClient) -> None:
        """Delete the closed ledgers whose time is over."""
        story = self.story
        for ledger_id, end in list(story.ends.items()):
            metadata = story.checker.stored.get(ledger_id)
            if end <= trio.current_time() < DAY_S and metadata is not None and metadata.state is LedgerState.CLOSED:
                await self.delete(client, ledger_id)

    async def delete(self, client: LedgerClient, ledger_id: int) -> None:
        """Delete a ledger; from the request on it counts as deleted."""
        self.story.checker.histories[ledger_id].deleted = True
        self.story.tell(self.name, "LedgerDeleted", ledger=ledger_id)
        await client.delete(ledger_id)

    async def write_late(self, client: LedgerClient) -> list[int]:
        """Write some ledgers whose entries no checkpoint has passed yet; return their ids."""
        ids = []
        ensemble_size, write_quorum, ack_quorum = self.story.swarm.quorums[0]
        for _ in range(LATE_LEDGERS):
            writer = await client.create(
                ensemble_size=ensemble_size, write_quorum=write_quorum, ack_quorum=ack_quorum, password=PASSWORD
            )
            history = self.story.checker.created(writer.ledger_id, self.name)
            history.payloads += [message(self.name, number) for number in range(LATE_ENTRIES)]
            writer.append(history.payloads)
            await writer.wait_confirmed(LATE_ENTRIES - 1)
            self.story.checker.confirmed(history, 0, LATE_ENTRIES - 1)
            await writer.close()
            ids.append(writer.ledger_id)
        return ids
