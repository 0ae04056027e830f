"""The nemesis of the ledger tier: beside what harms any cluster, disks that lie, hunts for writers, ambushes for
recoveries.

Excluded are losses that no cluster could survive: more than one damaged copy of a ledger's entries, or one where the
ack quorum is a single bookie. Everything else a right cluster must bear: a crash takes only what was never
acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from quire.metadata.ledgers import LedgerMetadata, LedgerState
from simulation.ledger.flips import FlippingNemesis, Lying
from simulation.ledger.swarm import LedgerSwarm


class HuntedLedgers(Lying, Protocol):
    """History whose writers are hunted."""

    @property
    def swarm(self) -> LedgerSwarm: ...

    def rush(self, ledger_id: int) -> None:
        """Make two clients recover this ledger soon."""


class LedgerNemesis(FlippingNemesis):
    """Nemesis of one history of ledgers."""

    def __init__(self, story: HuntedLedgers) -> None:
        super().__init__(story)
        self.story: HuntedLedgers = story
        self._ambushes = 0
        self._acts |= {"hunt": self._hunt}

    def _begin(self, nursery: trio.Nursery) -> None:
        super()._begin(nursery)
        if "hunt" in self.story.swarm.faults:
            nursery.start_soon(self._hunt_often, name="hunter")

    async def _hunt_often(self) -> None:
        """Hunt writers, one after the other, beside everything else."""
        while self.total < self._planned:
            await trio.sleep(self.rng.uniform(0, self.story.swarm.calm_s))
            with self._harming():
                await self._hunt()

    # --- writers

    async def _hunt(self) -> bool:
        """Crash a bookie while the links between a writer and its bookies lag.

        The writer may crash right after it, and the ledger is taken over at once."""
        rng = self.rng
        story = self.story
        nodes = {node.name: node for node in self._nodes()}
        stored = story.checker.stored
        prey = [
            history
            for history in story.checker.histories.values()
            if history.writer in nodes
            and (metadata := stored.get(history.ledger_id)) is not None
            and metadata.state is LedgerState.OPEN
            and metadata.ensemble_size > 1
        ]
        if not prey or self._down >= story.swarm.down_max:
            return False
        prey = [history for history in prey if history.confirmed < history.lap] or prey
        history = rng.choice(prey[-4:])
        writer = nodes[history.writer]
        ensemble = stored[history.ledger_id].fragments[-1].bookies
        victim = story.by_id[rng.choice(ensemble)]
        if victim.name not in nodes:
            return False
        self.note("hunt", ledger=history.ledger_id, victim=victim.name, writer=writer.name)
        links = self._lag_writer(writer.name, ensemble)
        with self._taken(victim):
            await trio.sleep(rng.uniform(0.003, 0.15))
            await victim.crash(lose_unsynced=rng.random() < 0.5)
            with trio.move_on_after(rng.uniform(0.0, 1.0)):
                while history.ledger_id in stored and victim.id in stored[history.ledger_id].fragments[-1].bookies:
                    await trio.sleep(0.002)
            await trio.sleep(rng.choice((0.0, rng.uniform(0.0, 0.02), rng.uniform(0.0, 0.2))))
            story.rush(history.ledger_id)
            if rng.random() < 0.6 and writer.host.running and writer.name not in self._busy:
                with self._taken(writer):
                    await writer.crash()
                    self._end_lags(links)
                    await trio.sleep(rng.uniform(0, 1.0))
                    await writer.restart()
            self._end_lags(links)
            await self._come_back(victim)
        return True

    def _lag_writer(self, writer: str, ensemble: Sequence[str]) -> list[tuple[str, str]]:
        """Make links between a writer and bookies lag: both ways within the ensemble, and to possible members."""
        rng = self.rng
        links = []
        for node in self.story.bookies:
            inside = node.id in ensemble
            there = rng.choice((0.0, 0.0, 0.01, 0.05, 0.2) if inside else (0.0, 0.1, 0.4))
            back = rng.choice((0.0, 0.0, 0.02, 0.1)) if inside else 0.0
            for source, target, seconds in ((writer, node.name, there), (node.name, writer, back)):
                if seconds:
                    self.network.lag(source, target, seconds)
                    links.append((source, target))
        return links

    def _end_lags(self, links: Sequence[tuple[str, str]]) -> None:
        for source, target in links:
            self.network.lag(source, target, 0.0)

    # --- recoveries

    def recovery_begins(self, recoverer: str, writer: str, metadata: LedgerMetadata) -> None:
        """Perhaps disturb a recovery: while the bookies are fenced, links to some lag, and requests to some are
        lost."""
        if self.rng.random() >= self.story.swarm.ambush or self._ambushes >= self.story.swarm.overlap:
            return
        names = [self.story.by_id[bookie_id].name for bookie_id in metadata.fragments[-1].bookies]
        lags, lost = (self._split if self.rng.random() < 0.5 else self._tangle)(recoverer, writer, names)
        self.note("ambush", recoverer=recoverer, writer=writer, lost=" ".join(lost))
        self._ambushes += 1
        self.story.universe.nursery.start_soon(self._ambush, recoverer, lags, lost, name="ambush")

    def _tangle(
        self, recoverer: str, writer: str, bookies: Sequence[str]
    ) -> tuple[list[tuple[str, str, float]], list[str]]:
        """Return any links and their lag, and any bookies that lose requests."""
        rng = self.rng
        lags = [(writer, name, rng.choice((0.0, 0.1, 0.3, 0.6))) for name in bookies]
        lags += [(name, recoverer, rng.choice((0.0, 0.0, 0.03, 0.05))) for name in bookies]
        return lags, [name for name in bookies if rng.random() < 0.35]

    def _split(
        self, recoverer: str, writer: str, bookies: Sequence[str]
    ) -> tuple[list[tuple[str, str, float]], list[str]]:
        """Spread a writer's adds over time.

        They reach one bookie at once, another only after the recovery has asked it, and the others later still. The
        first one is asked late too, and the second one is not fenced with the others, because that request is lost."""
        rng = self.rng
        first, second, *others = rng.sample(bookies, len(bookies)) if len(bookies) > 1 else [*bookies, *bookies]
        lags = [(recoverer, first, rng.uniform(0.03, 0.1)), (writer, second, rng.uniform(0.15, 0.3))]
        lags += [(writer, name, rng.uniform(0.4, 0.8)) for name in others]
        return lags, [second]

    async def _ambush(self, recoverer: str, lags: list[tuple[str, str, float]], lost: list[str]) -> None:
        for source, target, seconds in lags:
            if seconds and source != target:
                self.network.lag(source, target, seconds)
        for name in lost:
            self.network.cut(recoverer, name)
        await trio.sleep(self.rng.uniform(0.001, 0.02))
        for name in lost:
            self.network.lose(recoverer, name)
            self.network.mend(recoverer, name)
        await trio.sleep(self.rng.uniform(0.2, 1.0))
        for source, target, _ in lags:
            self.network.lag(source, target, 0.0)
        self._ambushes -= 1
