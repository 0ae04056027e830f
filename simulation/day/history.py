"""A day in the life of a few bookies: 24 virtual hours in which ledgers are written and deleted.

Garbage is collected and entry logs are compacted at short intervals, auto recovery repairs what lost bookies leave,
operators make bookies read-only and ask for compactions, and the nemesis harms hosts, disks, links and sessions. Some
bookies lose folders, or come back with an older image of their disks, and copy back what they lost (limbo). At the
end everything is healed but a bookie that is lost for good. Then every copy must exist and be right, and after a last
major compaction disks hold little more than living entries, nothing of a deleted ledger, and so after one more kill.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from bookie.db_ledger_storage.compaction.plan import CompactionResult
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.disks import watch
from bookie.errors import BookieError
from bookie.gc.schedule import AskedCompactions
from quire.ledger import LedgerClient
from quire.ledger.bookies.watcher import WatcherConfig
from quire.ledger.context import LedgerConfig
from quire.ledger.opening import open_client_on
from quire.metadata.errors import NoNodeError
from quire.metadata.ledgers import LedgerMetadata, initialize_layout
from quire.metadata.local.memory import MemoryStore
from quire.wire.bookkeeper.entry import Digest
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.world.doors import World
from simulation.cluster.checkers import ClusterChecker, Copy
from simulation.cluster.hosts import RecoveryNode
from simulation.cluster.record import CHECK_TIME
from simulation.common.checkers import ViolationError, require
from simulation.common.histories import watched
from simulation.common.nemesis import FULL_DISK_ERRORS
from simulation.common.nodes import BookieNode, Node
from simulation.common.patching import Patch, patched
from simulation.common.tale import Tale
from simulation.day import swarm as day_swarm
from simulation.day.clients import DayClient
from simulation.day.faults import DayNemesis
from simulation.day.observing import storages_observed
from simulation.day.room import DiskUse, check_deleted, check_use
from simulation.day.swarm import DAY_S, LOOK_S, DaySwarm
from simulation.ledger.checkers import LedgerViolationError
from simulation.ledger.history import LedgerStory
from simulation.ledger.losing import SCRUB_ERRORS
from simulation.ledger.observing import recoveries_observed
from simulation.ledger.taking import CaringNode, until_whole
from simulation.machines.scheduler import HOST
from simulation.machines.world import Universe, run

LIVENESS_S = 600.0
"""Virtual seconds in which the healed bookies must close, repair and compact everything, each."""
MIB = 1 << 20
SMALL_FILES = 64 << 10
SIZE_FIELD = 4
LEDGERS_MIN = 20
ERRORS = (
    *FULL_DISK_ERRORS,
    "directory failed",
    "directory does not answer",
    "flushes fail",
    "the storage has failed",
    "journal",
    "read failed",
    *SCRUB_ERRORS,
    "scrub of a directory stopped",
)
"""Texts of log lines of level ERROR that faults of disks cause."""


@dataclass(frozen=True, slots=True)
class DaySummary:
    seed: int
    digest: str
    confirmed: int
    ledgers: int
    deleted: int
    recoveries: int
    repaired: int
    compactions: int
    compacted_logs: int
    compared: int
    """Copies compared with what was appended."""
    share: float
    """Bytes of entry logs for each byte of living entries at the end, of all bookies."""
    scrubbed: int
    """Entries read by scrubs of bookies since their last start..."""
    healed: int
    """...and the damaged ones of these that were healed."""
    limbos: int
    """Starts of bookies that found ledgers in limbo."""
    crashes: int
    faults: tuple[tuple[str, int], ...]
    virtual_s: float

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in self.faults)
        return (
            f"seed {self.seed}: {self.confirmed} confirmed in {self.ledgers} ledgers, {self.deleted} deleted,"
            f" {self.recoveries} recoveries, {self.repaired} members replaced, {self.compacted_logs} logs compacted in"
            f" {self.compactions} compactions, {self.compared} copies compared, {self.share:.2f} bytes of logs per"
            f" living byte, {self.scrubbed} entries scrubbed, {self.healed} healed,"
            f" {sum(count for _, count in self.faults)} faults ({faults}), {self.crashes} crashes,"
            f" {self.limbos} starts in limbo,"
            f" {self.virtual_s / 3600:.1f} virtual h, digest {self.digest[:16]}"
        )


class DayStory(LedgerStory):
    """One run of the history."""

    swarm: DaySwarm
    checker: ClusterChecker

    def _cast(self) -> None:
        drawn = day_swarm.draw(self.universe.derive("swarm"), self.universe.derive("upkeep"))
        losing = self.universe.derive("losses")
        self.swarm = day_swarm.draw_losses(drawn, losing)
        self.checker = ClusterChecker(self._has, self._fenced)
        self.lost: BookieNode | None = None
        self.caring = [CaringNode(self, f"b{number}") for number in range(self.swarm.bookies)]
        self.all_bookies = [*self.caring]
        self.clients = [DayClient(self, f"c{number}") for number in range(self.swarm.clients)]
        recovery = self.swarm.recovery_config()
        self.recoverers = [RecoveryNode(self, f"a{number}", recovery) for number in range(self.swarm.recoverers)]
        self.nemesis = self.flipping = DayNemesis(self, losing)
        self.ends: dict[int, float] = {}
        self.compactions = 0
        self.compacted_logs = 0
        self.compared = 0
        self.share = 0.0
        self.scrubbed = 0
        self.healed = 0
        self.again: dict[str, dict[int, int]] = {}
        """By bookie and ledger: bytes of entries that were written again, which go with the ledger."""
        self.violation: ViolationError | None = None
        self.violated = trio.Event()
        self._last_clients = 0

    @property
    def bookies(self) -> list[BookieNode]:
        """Return the bookies that are not lost."""
        return [node for node in self.all_bookies if node is not self.lost]

    @property
    def nodes(self) -> list[Node]:
        return [*self.bookies, *self.clients, *self.recoverers]

    @property
    def wants_more(self) -> bool:
        return True

    def recovery_begins(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        history = self.checker.histories.get(ledger_id)
        if history is not None and any(HOST.get() == node.name for node in self.recoverers):
            history.recoveries += 1

    def written_again(self, host: str, ledger_id: int, size: int) -> None:
        ledgers = self.again.setdefault(host, {})
        ledgers[ledger_id] = ledgers.get(ledger_id, 0) + size

    def compacted(self, host: str, storage: DbLedgerStorage, result: CompactionResult) -> None:
        """Check a bookie that has just compacted: each row leads to its entry."""
        self.compactions += 1
        self.compacted_logs += len(result.logs)
        if result.chosen:
            self.tell(host, "Compacted", chosen=result.chosen, deleted=len(result.logs), stayed=result.stayed)
        node = next(node for node in self.all_bookies if node.name == host)
        if result.logs and not node.host.disk.failing_reads:
            try:
                self._read_all(node, storage)
            except ViolationError as error:  # the bookie would take it for an error of its own
                self.violation = self.violation or error
                self.violated.set()

    def _read_all(self, node: BookieNode, storage: DbLedgerStorage) -> int:
        """Read every entry of living ledgers that a bookie has; return their bytes. Raises ViolationError."""
        size = 0
        for ledger_id in storage.ledgers():
            if ledger_id in self.checker.stored and ledger_id not in storage.limbo:
                for entry_id in list(storage.reader.entry_ids(ledger_id)):
                    size += SIZE_FIELD + self._check_copy(Copy(ledger_id, entry_id, node.id), storage)
        return size

    def _check_copy(self, copy: Copy, storage: DbLedgerStorage) -> int:
        """Compare a copy with what was appended; return its bytes. Raises ViolationError."""
        self.compared += 1
        ledger_id, entry_id = copy.ledger_id, copy.entry_id
        metadata, history = self.checker.stored[ledger_id], self.checker.histories.get(ledger_id)
        try:
            entry = memoryview(bytes(storage.reader.read_entry(ledger_id, entry_id)))
            payload = bytes(Digest(metadata.digest_type, metadata.password).open(ledger_id, entry_id, entry))
        except (BookieError, BookkeeperWireError, OSError, ValueError) as error:
            if (ledger_id, entry_id, copy.bookie_id) in self.flipping.flipped:
                return 0
            raise LedgerViolationError(
                "ReplicasAreEqual", ledger_id, entry_id, f"on {copy.bookie_id}: {error}"
            ) from None
        if history is not None and (entry_id > history.lap or payload != history.payloads[entry_id]):
            text = f"on {copy.bookie_id}: {payload[:40]!r}, which was not appended there"
            raise LedgerViolationError("ReplicasAreEqual", ledger_id, entry_id, text)
        return len(entry)

    # --- the run

    async def run_day(self) -> DaySummary:
        rng = self.universe.derive("story")
        self.universe.nursery.start_soon(self._watch_for_violations, name="violations")
        self.tell("", "Drawn", swarm=self.swarm)
        store = MemoryStore(self.tree)
        await initialize_layout(store, rng=rng)
        self.universe.nursery.start_soon(self.tree.run, name="metadata service")
        for node in self.nodes:
            node.start()
        for bookie in self.bookies:
            await bookie.wait_up()
        with trio.fail_after(2 * DAY_S):
            await self.nemesis.run(self.swarm.faults_count)
            await trio.sleep(max(0.0, DAY_S - trio.current_time()))
        with trio.fail_after(LIVENESS_S):
            await self.nemesis.heal()
            self.finished = True
            await self._with_client(self._close_all)
        if self.swarm.losses:
            await until_whole(self.bookies)
        await self._repair(store)
        with trio.fail_after(2 * LIVENESS_S):
            for kept in self.caring:
                if kept is not self.lost:
                    await self._scrub(kept)
        self.flipping.flipped.clear()
        with trio.fail_after(LIVENESS_S):
            await self._with_client(self._write_and_delete)
            for node in self.bookies:
                await self._compact(node)
        await self._check_end(use=True)
        for node in self.bookies:
            await node.crash(lose_unsynced=rng.random() < 0.5)
        for node in self.bookies:
            await node.restart()
            await node.wait_up()
        await self._check_end(use=False)
        self.checker.check_final()
        return self._day_summary()

    async def _watch_for_violations(self) -> None:
        await self.violated.wait()
        assert self.violation is not None
        raise self.violation

    async def _with_client(self, work: Callable[[DayClient, LedgerClient], Awaitable[None]]) -> None:
        """Run `work` in a client of its own."""
        self._last_clients += 1
        node = DayClient(self, f"last{self._last_clients}")
        done = trio.Event()

        async def main(world: World, stop: trio.Event) -> None:
            config = LedgerConfig(add_timeout_s=3, read_timeout_s=3)
            metadata = node.connect_metadata()
            async with open_client_on(world, metadata, config, watcher=WatcherConfig(rack_map_path="")) as client:
                await work(node, client)
                done.set()

        node.host.start(main)
        await done.wait()

    async def _close_all(self, node: DayClient, client: LedgerClient) -> None:
        await node.finish(client)

    async def _write_and_delete(self, node: DayClient, client: LedgerClient) -> None:
        """Write ledgers that no checkpoint has passed, and delete them."""
        for ledger_id in await node.write_late(client):
            await node.delete(client, ledger_id)

    async def _repair(self, store: MemoryStore) -> None:
        """Wait for all copies; ask for a check of all ledgers, as an operator may. Raises ViolationError."""
        try:
            await store.delete(CHECK_TIME)
        except NoNodeError:
            pass
        for node in self.recoverers:
            await node.crash(lose_unsynced=False)
            await node.restart()
        with trio.move_on_after(LIVENESS_S):
            while self._lacking():
                await trio.sleep(1.0)
            return
        raise ViolationError("EveryLedgerHasItsCopies", f"the healed cluster does not get there: {self._lacking()}")

    def _lacking(self) -> str:
        for ledger_id, metadata in self.checker.stored.items():
            if self.lost is not None and any(self.lost.id in each.bookies for each in metadata.fragments):
                return f"ledger {ledger_id} names the lost bookie"
        copy = self.checker.missing()
        return "" if copy is None else f"{copy.bookie_id} lacks {copy.ledger_id}:{copy.entry_id}"

    async def _scrub(self, node: CaringNode) -> None:
        """Have a bookie scrub everything, as an operator may, and wait until all damage is healed."""
        scrubber = node.scrubber
        for _ in range(2):  # the second round begins after one that may have passed some damage
            before = scrubber.counts.rounds
            scrubber.ask()
            while scrubber.counts.rounds == before:
                await trio.sleep(1.0)
        while any([record.damages for record in scrubber.records]):
            await trio.sleep(1.0)
        self.scrubbed += scrubber.counts.entries
        self.healed += scrubber.counts.healed

    async def _compact(self, node: BookieNode) -> None:
        """Have a bookie collect garbage and compact, as an operator may."""
        bookie = node.up
        assert bookie is not None
        for _ in range(2):  # the second one begins after a round that ran already
            while bookie.garbage.forced:
                await trio.sleep(0.1)
            bookie.garbage.force(AskedCompactions())
        while bookie.garbage.forced:
            await trio.sleep(0.1)

    # --- the end

    async def _check_end(self, *, use: bool) -> None:
        """Check every copy, that nothing of a deleted ledger is left, and, with `use`, the bytes on each disk."""
        if self.violation is not None:
            raise self.violation
        logs = living = 0
        deleted = [each.ledger_id for each in self.checker.histories.values() if each.deleted]
        for node in self.bookies:
            bookie = node.up
            assert bookie is not None
            size = 0
            for storage in bookie.garbage.storages:
                check_deleted(node.id, await storage.local_ledgers(), deleted)
                size += self._read_all(node, storage)
            if use:
                found = _use_of(node, size, self._again(node))
                logs += found.log_bytes
                living += found.living
                swarm = self.swarm
                check_use(
                    found, log_size=swarm.entry_log_size, open_logs=2 * swarm.directories, others_max=self._others_max()
                )
        for copy in self.checker.closed_copies():
            bookie = self.by_id[copy.bookie_id].up
            assert bookie is not None
            self._check_copy(copy, bookie.storage.of(copy.ledger_id))
        if use:
            self.share = logs / max(1, living)

    def _others_max(self) -> int:
        files = 3 + self.swarm.journal_backups  # written, ahead of it, before the mark
        return self.swarm.journals * files * MIB + self.swarm.directories * (MIB + SMALL_FILES)

    def _again(self, node: BookieNode) -> int:
        """Return the bytes of living ledgers that a bookie has written again."""
        return sum([size for each, size in self.again.get(node.name, {}).items() if each in self.checker.stored])

    def _day_summary(self) -> DaySummary:
        histories = self.checker.histories.values()
        require(
            len(histories) >= LEDGERS_MIN and self.compacted_logs > 0,
            "HistoryIsBigEnough",
            f"{len(histories)} ledgers, {self.compacted_logs} compacted logs",
        )
        return DaySummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            confirmed=self.confirmed,
            ledgers=len(histories),
            deleted=sum(each.deleted for each in histories),
            recoveries=self.recoveries,
            repaired=self.checker.repaired,
            compactions=self.compactions,
            compacted_logs=self.compacted_logs,
            compared=self.compared,
            share=self.share,
            scrubbed=self.scrubbed,
            healed=self.healed,
            limbos=self.limbos,
            crashes=sum(len(node.host.crashes) for node in self.nodes),
            faults=tuple(sorted(self.nemesis.done.items())),
            virtual_s=trio.current_time(),
        )


def _use_of(node: BookieNode, living: int, again: int) -> DiskUse:
    disk = node.host.disk
    sizes = {path: disk.file(path).volatile.size for path in disk.paths()}
    logs = {path: size for path, size in sizes.items() if path.endswith(".log")}
    return DiskUse(node.id, tuple(logs.items()), living, again, sum(sizes.values()) - sum(logs.values()))


def run_day_history(
    seed: int, *, lines: list[str] | None = None, steps: bool = False, tale: Tale | None = None
) -> DaySummary:
    """Run one day.

    Raises ViolationError if an invariant does not hold, TooSlowError if the healed cluster makes no progress. `lines`
    gets the trace, with every step of every task if `steps`; `tale` its main events."""

    async def main(universe: Universe) -> DaySummary:
        if lines is not None:
            universe.trace.lines = lines
        story = DayStory(universe, tale or Tale(on=False))
        patches: list[Patch] = [(watch, "LOOK_S", LOOK_S)]
        with patched(patches), recoveries_observed(story), storages_observed(story):
            return await story.run_day()

    with watched() as log:
        summary = run(seed, main, keep=lines is not None, steps=steps, limit_s=3 * DAY_S)
        log.check(ERRORS)
        return summary
