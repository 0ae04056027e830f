"""History of the ledger tier: many bookies, many clients, one metadata service, and all their faults.

Clients make ledgers with the quorums that the seed allows, append, close them or leave them, take over those of others,
several at a time, follow, re-read and delete them; the nemesis harms hosts, links, disks and sessions. The checkers
look into the bookies' storage and into the metadata after every event. In the end everything is healed: then every
ledger must be closed and read, and another one written, within a virtual deadline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import trio

from bookie.db_ledger_storage.storage import DbLedgerStorage
from quire.ledger import LedgerError
from quire.ledger.bookies.watcher import WatcherConfig
from quire.ledger.context import LedgerConfig
from quire.ledger.opening import open_client_on
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerMetadata, LedgerState, initialize_layout
from quire.metadata.local.memory import MemoryStore
from quire.wire.bookkeeper.run import Run
from quire.world.doors import World
from simulation.common.checkers import require
from simulation.common.folder_nemesis import FOLDER_ERRORS, FOLDER_FAULTS
from simulation.common.histories import watched
from simulation.common.nemesis import FULL_DISK_ERRORS, Nemesis
from simulation.common.nodes import BookieNode, Node
from simulation.common.tale import Tale
from simulation.ledger import swarm as ledger_swarm
from simulation.ledger.checkers import LedgerChecker, LedgerHistory
from simulation.ledger.faults import LedgerNemesis
from simulation.ledger.hosts import ClientNode
from simulation.ledger.losing import (
    LIMBO_WAYS,
    SCRUB_ERRORS,
    WAYS,
    LosingNemesis,
    LosingNode,
    Losses,
    draw_losses,
)
from simulation.ledger.observing import recoveries_observed
from simulation.ledger.taking import until_whole
from simulation.machines.metadata import WatchedTree
from simulation.machines.scheduler import HOST
from simulation.machines.world import Universe, run

CONFIRMED_MIN = 300
FAULTS_MIN = 5
LIVENESS_S = 300.0
"""Virtual seconds in which the healed cluster must close and read everything."""
LEDGER = re.compile(r"/ledgers/([0-9/]+)/L([0-9]+)$")
"""Path of a ledger's metadata."""


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    seed: int
    digest: str
    confirmed: int
    ledgers: int
    recoveries: int
    unmeasured: int
    """Ledgers of unknown length after a recovery."""
    followed: int
    """Entries read from open ledgers."""
    ensemble_changes: int
    copies: int
    """Copies looked up in the bookies' storage."""
    crashes: int
    dropping_crashes: int
    faults: tuple[tuple[str, int], ...] = field(default=())
    """Faults by kind."""
    virtual_s: float = 0.0
    limbos: int = 0
    """Starts of bookies that found ledgers in limbo."""

    @property
    def folder_faults(self) -> int:
        """Return how many single directories had a fault."""
        return sum(count for kind, count in self.faults if kind in FOLDER_FAULTS)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in self.faults)
        return (
            f"seed {self.seed}: {self.confirmed} confirmed in {self.ledgers} ledgers, {self.recoveries} recoveries"
            f" ({self.unmeasured} without a length), {self.ensemble_changes} ensemble changes, {self.followed} "
            "followed,"
            f" {self.copies} copies checked,"
            f" {sum(count for _, count in self.faults)} faults ({faults}), {self.crashes} crashes"
            f" ({self.dropping_crashes} dropped unsynced writes), {self.limbos} starts in limbo,"
            f" {self.virtual_s:.0f} virtual s, digest {self.digest[:16]}"
        )


class LedgerStory:
    """One run of the history."""

    nemesis: Nemesis

    def __init__(self, universe: Universe, tale: Tale, *, spread: bool = False, loses: bool = False) -> None:
        """`spread`: bookies have several directories, each with faults of its own. `loses`: bookies lose data, and
        copy it back (losing.py). Both: in every history bookies have several directories, compact, and go into limbo.
        """
        self.universe = universe
        self.tale = tale
        self._spread = spread
        self._loses = loses
        self.losses: Losses | None = None
        self.tree = WatchedTree(self._metadata_changed)
        self.finished = False
        self.all_bookies: list[BookieNode] = []
        self._cast()
        self.by_id = {node.id: node for node in self.all_bookies}
        self.recoveries = 0
        self.followed = 0
        self.ensemble_changes = 0
        self.limbos = 0
        self._rushed: list[int] = []
        """Ledgers that others are to recover too, at the same time."""

    def _cast(self) -> None:
        """Draw the options of the seed, and make the hosts."""
        drawn = ledger_swarm.draw(self.universe.derive("swarm"))
        directories = self.universe.derive("directories")
        if self._spread and self._loses:
            self.swarm = ledger_swarm.draw_house(drawn, directories)
        else:
            self.swarm = ledger_swarm.draw_directories(drawn, directories) if self._spread else drawn
        if self._loses:
            self._cast_losing(self.universe.derive("losses"))
            return
        self.checker = LedgerChecker(self._has, self._fenced)
        self.all_bookies = [BookieNode(self, f"b{number}") for number in range(self.swarm.bookies)]
        self.clients = [ClientNode(self, f"c{number}") for number in range(self.swarm.clients)]
        self.nemesis = self.hunter = LedgerNemesis(self)

    def _cast_losing(self, rng: Random) -> None:
        """Make the hosts of bookies that lose data, perhaps with several directories."""
        if not self._spread and rng.random() < 0.4:
            self.swarm = ledger_swarm.draw_directories(self.swarm, rng)
        self.swarm, self.losses = draw_losses(self.swarm, rng, ways=LIMBO_WAYS if self._spread else WAYS)
        self.losses = replace(self.losses, surely=self._spread)
        self.checker = LedgerChecker(self._has, self._fenced)
        self.all_bookies = [LosingNode(self, f"b{number}", self.losses) for number in range(self.swarm.bookies)]
        self.clients = [ClientNode(self, f"c{number}") for number in range(self.swarm.clients)]
        self.nemesis = self.hunter = LosingNemesis(self, self.losses, rng)

    @property
    def bookies(self) -> list[BookieNode]:
        """Return the bookies that are not lost for good."""
        return self.all_bookies

    @property
    def nodes(self) -> list[Node]:
        return [*self.bookies, *self.clients]

    @property
    def flips(self) -> bool:
        """Return whether disks may have bit errors: then every entry needs a digest that detects them."""
        return "flipped entry" in self.swarm.faults

    @property
    def confirmed(self) -> int:
        return sum(history.confirmed + 1 for history in self.checker.histories.values())

    @property
    def wants_more(self) -> bool:
        """Return whether writers hurry, until there are enough entries for the events so far."""
        return self.confirmed < CONFIRMED_MIN * (0.2 + 0.8 * self.nemesis.progress)

    # --- events

    def tell(self, host: str, name: str, /, **fields: Any) -> None:
        """Record an event for the tale, and for the digest."""
        self.tale.add(host, name, fields)
        self.universe.trace.event(host, name, **{key: str(value) for key, value in fields.items()})

    def _metadata_changed(self, path: str, value: bytes | None) -> None:
        found = LEDGER.match(path)
        if found is None:
            return
        ledger_id = int(found[1].replace("/", "") + found[2])
        before = self.checker.stored.get(ledger_id)
        self.checker.metadata_changed(ledger_id, value)
        metadata = self.checker.stored.get(ledger_id)
        if metadata is not None:
            if before is not None:
                self.ensemble_changes += len(metadata.fragments) - len(before.fragments)
            self.tell(
                HOST.get(),
                "MetadataStored",
                ledger=ledger_id,
                state=metadata.state.name,
                last=metadata.last_entry_id,
                fragments=" ".join(f"{each.first_entry_id}:{','.join(each.bookies)}" for each in metadata.fragments),
            )

    def bookie_opened(self, node: BookieNode) -> None:
        """Check a bookie that has replayed its journal: it must have what it acknowledged."""
        self.tell(node.name, "BookieOpened")
        self.checker.bookie_back(node.id)
        self.limbos += node.bookie is not None and bool(node.bookie.storage.limbo.ledgers())
        if self.tale.on and node.bookie is not None:
            for storage in node.bookie.storage.directories:
                self._listen(node, storage)

    def _listen(self, node: BookieNode, storage: DbLedgerStorage) -> None:
        """Record in the tale what the bookie stores."""
        add, fence = storage.add, storage.set_fenced

        def add_told(run: Run) -> None:
            fields = {"ledger": run.ledger_id, "first": run.first, "last": run.last}
            self.tale.add(node.name, "EntriesStored", fields)
            add(run)

        def fence_told(ledger_id: int) -> None:
            self.tale.add(node.name, "LedgerFenced", {"ledger": ledger_id})
            fence(ledger_id)

        storage.add = add_told  # type: ignore[method-assign]
        storage.set_fenced = fence_told  # type: ignore[method-assign]

    def _has(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool | None:
        return self.by_id[bookie_id].has(ledger_id, entry_id)

    def _fenced(self, bookie_id: str, ledger_id: int) -> bool | None:
        return self.by_id[bookie_id].fenced(ledger_id)

    def recovery_begins(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        history = self.checker.histories.get(ledger_id)
        if history is None:
            return
        if any([node.name == HOST.get() for node in self.bookies]):
            history.recoveries += 1  # a bookie that copies back what it lost; clients count their own
        if not self.finished:
            self.hunter.recovery_begins(HOST.get(), history.writer, metadata)

    def recovery_fenced(self, ledger_id: int, metadata: LedgerMetadata, lac: int) -> None:
        self.tell(HOST.get(), "RecoveryFenced", ledger=ledger_id, lac=lac)
        self.checker.fencing_ended(ledger_id, metadata)

    # --- choices of clients

    def rush(self, ledger_id: int) -> None:
        """Make two clients recover this ledger soon."""
        self._rushed += [ledger_id] * 2

    def choose_open(self, rng: Random) -> LedgerHistory | None:
        """Return a ledger to recover: one that others recover too, or any that is not closed."""
        histories = self.checker.histories
        stored = self.checker.stored
        rushed = [each for each in self._rushed if each in stored and stored[each].state is not LedgerState.CLOSED]
        if rushed and rng.random() < 0.6:
            self._rushed.remove(rushed[0])
            return histories[rushed[0]]
        candidates = [
            history
            for history in histories.values()
            if history.payloads and (metadata := stored.get(history.ledger_id)) and metadata.state != LedgerState.CLOSED
        ]
        if not candidates:
            return None
        under_way = [history for history in candidates if history.confirmed < history.lap]
        history = rng.choice(under_way if under_way and rng.random() < 0.75 else candidates)
        if rng.random() < 0.4:
            self._rushed += [history.ledger_id] * rng.randint(1, 2)
        return history

    def choose_any(self, rng: Random) -> LedgerHistory | None:
        histories = [history for history in self.checker.histories.values() if not history.deleted]
        return rng.choice(histories[-8:]) if histories else None

    def choose_closed(self, rng: Random) -> LedgerHistory | None:
        stored = self.checker.stored
        histories = [
            history
            for history in self.checker.histories.values()
            if not history.deleted
            and (metadata := stored.get(history.ledger_id)) is not None
            and metadata.state is LedgerState.CLOSED
        ]
        return rng.choice(histories) if histories else None

    @contextmanager
    def ignoring_errors(self) -> Iterator[None]:
        try:
            yield
        except (LedgerError, MetadataError):
            return

    # --- the run

    async def run(self) -> LedgerSummary:
        rng = self.universe.derive("story")
        self.tell("", "Drawn", swarm=self.swarm)
        await initialize_layout(MemoryStore(self.tree), rng=rng)
        self.universe.nursery.start_soon(self.tree.run, name="metadata service")
        for bookie in self.bookies:
            bookie.start()
        for bookie in self.bookies:
            await bookie.wait_up()
        for client in self.clients:
            client.start()
        with trio.fail_after(1200):
            await self.nemesis.run(rng.randint(FAULTS_MIN + 2, 14))
        with trio.fail_after(LIVENESS_S):
            await self.nemesis.heal()
            while self.confirmed < CONFIRMED_MIN:
                await trio.sleep(0.1)
            self.finished = True
            await self._finish()
        if self.losses is not None:
            await until_whole(self.bookies)
        self.checker.check_final()
        return self._summary()

    async def _finish(self) -> None:
        """Run a new client that closes and reads everything."""
        last = ClientNode(self, "last")
        done = trio.Event()

        async def main(world: World, stop: trio.Event) -> None:
            config = LedgerConfig(add_timeout_s=3, read_timeout_s=3)
            metadata = last.connect_metadata()
            async with open_client_on(world, metadata, config, watcher=WatcherConfig(rack_map_path="")) as client:
                await last.finish(client)
                done.set()

        last.host.start(main)
        await done.wait()

    def _summary(self) -> LedgerSummary:
        confirmed = self.confirmed
        require(
            confirmed >= CONFIRMED_MIN and self.nemesis.total >= FAULTS_MIN,
            "HistoryIsBigEnough",
            f"{confirmed} confirmed, {self.nemesis.total} faults",
        )
        crashes = [dropped for node in self.nodes for dropped in node.host.crashes]
        return LedgerSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            confirmed=confirmed,
            ledgers=len(self.checker.histories),
            recoveries=self.recoveries,
            unmeasured=sum(each.length_missed_at is not None for each in self.checker.histories.values()),
            followed=self.followed,
            ensemble_changes=self.ensemble_changes,
            copies=self.checker.checks,
            crashes=len(crashes),
            dropping_crashes=sum(1 for dropped in crashes if dropped.writes or dropped.batches),
            faults=tuple(sorted(self.nemesis.done.items())),
            virtual_s=trio.current_time(),
            limbos=self.limbos,
        )


def run_ledger_history(
    seed: int,
    *,
    lines: list[str] | None = None,
    steps: bool = False,
    tale: Tale | None = None,
    full_disks: bool = False,
    spread: bool = False,
    loses: bool = False,
) -> LedgerSummary:
    """Run one history.

    Raises ViolationError if an invariant does not hold, TooSlowError if the healed cluster makes no progress. `lines`
    gets the trace, with every step of every task if `steps`; `tale` its main events. `full_disks`: disks of bookies
    fill up, too. `spread`: bookies have several directories, with faults of single ones. `loses`: bookies lose data."""
    announced: list[str] = []

    async def main(universe: Universe) -> LedgerSummary:
        if lines is not None:
            universe.trace.lines = lines
        story = LedgerStory(universe, tale or Tale(on=False), spread=spread, loses=loses)
        if full_disks or (story.losses is not None and story.losses.full_disks):
            story.nemesis.fill_disks()
            announced.extend(FULL_DISK_ERRORS)
        if story.losses is not None and story.losses.way == "scrubbed":
            announced.extend(SCRUB_ERRORS)
        with recoveries_observed(story):
            return await story.run()

    with watched() as log:
        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check((*announced, *(FOLDER_ERRORS if summary.folder_faults else ())))
        return summary


run_losing_history = partial(run_ledger_history, loses=True)
"""As `run_ledger_history`, of bookies that lose data and copy it back."""
run_housekeeping_history = partial(run_ledger_history, spread=True, loses=True)
"""As `run_ledger_history`, of bookies with several directories, compactions and limbo, all in every history."""
run_spread_history = partial(run_ledger_history, spread=True)
"""As `run_ledger_history`, of bookies with several directories."""
