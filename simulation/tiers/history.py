"""Ledgers of one topic that are offloaded, leave their bookie, and are trimmed, while everything is killed.

Two brokers take the log from each other; a job writes objects to a folder on a machine of its own; a producer, a
consumer that acknowledges, and a reader that goes back use whichever broker has the log. Brokers and the job are killed
at each step, the machine of the folder loses power and is away for a while, and bits of objects are flipped while the
bookie still has the ledger. The topic lives twice: at the end of a life it is deleted. What holds:

    EachMessageIsReadOnce        in order, with the bytes that were sent
    AllAckedEntriesAreReadable   everything confirmed is read, once faults have ended, and again from the beginning
    EveryLedgerHasACopy          at any time: bookies have each ledger of the list, or its object is whole
    ObjectsNeverLeak             in the end an object belongs to a ledger of the list, and a deleted topic has none
    LedgersNeverLeak             a deleted topic has no ledger
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import trio

from cursors.errors import CursorError
from managed_ledger import leaving
from managed_ledger.errors import ManagedLedgerError, NoSuchManagedLedgerError, ObjectError
from managed_ledger.ledger_list import decode as decode_list
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import state_of
from managed_ledger.stored_list import log_path
from quire.ledger.position import Position
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import LedgerManager, initialize_layout
from quire.metadata.local.memory import MemoryStore
from simulation.common.checkers import ViolationError, require
from simulation.common.histories import watched
from simulation.common.patching import patched
from simulation.machines.host import Host
from simulation.machines.world import Universe, run
from simulation.tiers.brokers import ANSWER_S, BOOKIE, BROKERS, NAME, Brokers
from simulation.tiers.job import OffloadJob, OwnerAwayError
from simulation.tiers.storage import decode, path_of

T = TypeVar("T")

LIVES = 2
MESSAGES = 90
"""Messages of a life that are confirmed at least."""
KILLS = 14
"""Kills at steps in a life, at most."""
LIVENESS_S = 30.0
"""Virtual seconds in which a healed system must do what is asked."""
PROBABILITY = 0.12
"""Probability of a kill at a step of a job or of a storage."""
METADATA_PROBABILITY = 0.02
"""Probability of a kill before or after a write of metadata, of which there are many more."""


@dataclass(frozen=True, slots=True)
class OffloadSummary:
    seed: int
    digest: str
    confirmed: int
    read: int
    completed: int
    left: int
    kills: Counter[str]
    flips: int

    def __str__(self) -> str:
        kills = ", ".join(f"{step} {count}" for step, count in sorted(self.kills.items()))
        return (
            f"seed {self.seed}: {self.confirmed} confirmed, {self.read} read, {self.completed} ledgers offloaded,"
            f" {self.left} left their bookie, {self.flips} bits flipped, killed at {kills}, digest {self.digest[:16]}"
        )


class _Sink:
    """Receiver of the outcome of an append, which the producer has at once."""

    def __init__(self, confirmed: Callable[[int], None], count: int) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None
        self._confirmed = confirmed
        self._count = count

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self._confirmed(count)
        self._count -= count
        if not self._count:
            self.done.set()

    def failed(self, error: Exception) -> None:
        self.error = error
        self.done.set()


class OffloadStory(Brokers):
    """One run of the history."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(universe)
        self.job_host = universe.host("job")
        self.job = OffloadJob(self.job_host, self, self.mount, partial(self.point, self.job_host))
        self.sent: list[bytes] = []
        self.confirmed: set[int] = set()
        self.read: set[int] = set()
        self.last_read = -1
        self.position = Position(-1, -1)
        self.kills: Counter[str] = Counter()
        self.kills_left = 0
        self.flips = 0
        self.left: set[int] = set()

    # Faults

    async def point(self, host: Host, step: str) -> None:
        """Kill the process of a host at this step, at times."""
        probability = METADATA_PROBABILITY if step.startswith("metadata") else PROBABILITY
        if self.kills_left and host.running and self.rng.random() < probability:
            self.kills_left -= 1
            self.kills[step] += 1
            self.universe.trace.event(host.name, "KilledAt", step=step)
            host.cut_power(lose_unsynced=False)
            await trio.sleep_forever()

    def flip(self) -> None:
        """Flip a bit of an object whose ledger the bookie still has, and will have until the object is verified."""
        if not self.mount.is_up:
            return
        names = [each for each in self.mount.names() if not each[2] and each[1] not in self.verified]
        if names:
            ledger_id, uid, _ = self.rng.choice(names)
            path = path_of(ledger_id, uid)
            size = self.mount.host.disk.file(path).volatile.size
            self.mount.host.disk.flip(path, self.rng.randrange(size), self.rng.randrange(8))
            self.flips += 1
            self.universe.trace.event("mount", "Flipped", ledger=ledger_id, uid=uid)

    async def nemesis(self, done: Callable[[], bool]) -> None:
        """Kill, restart and damage until `done`; then let everything run."""
        rng, hosts = self.rng, [self.universe.host(name) for name in (*BROKERS, "job", "mount")]
        while not done():
            await trio.sleep(rng.uniform(0.1, 0.6))
            for host in hosts:
                if not host.running and rng.random() < 0.7:
                    await host.restart()
            kind = rng.choice(("kill", "move", "mount", "flip", "flip", "truncate", "nothing"))
            if kind == "kill":
                await rng.choice(hosts[:3]).crash(lose_unsynced=False)
            elif kind == "move":
                self.owner = rng.choice(BROKERS)
            elif kind == "mount":
                await self.mount.host.crash()
            elif kind == "flip":
                self.flip()
            elif kind == "truncate" and rng.random() < 0.4:
                with suppress(OwnerAwayError, ManagedLedgerError, CursorError):
                    await self.call(lambda log: log.truncate())
            await self.check_copies()
        self.kills_left = 0
        for host in hosts:
            if not host.running:
                await host.restart()

    # Clients

    async def produce(self, until: int) -> None:
        """Append until so many are confirmed; nothing is sent twice."""
        while len(self.confirmed) < until:
            await trio.sleep(self.rng.uniform(0, 0.1))
            first = len(self.sent)
            count = self.rng.randint(1, 4)
            self.sent += [b"%d/" % (first + each) + self.rng.randbytes(20) for each in range(count)]
            payloads = self.sent[first:]
            numbers = iter(range(first, first + count))

            def confirmed(count: int, numbers: Any = numbers) -> None:
                self.confirmed.update(next(numbers) for _ in range(count))

            async def append(log: ManagedLedger, payloads: Any = payloads, confirmed: Any = confirmed) -> None:
                sink = _Sink(confirmed, len(payloads))
                log.append(payloads, sink)
                await sink.done.wait()

            with suppress(OwnerAwayError, ManagedLedgerError, CursorError):
                await self.call(append)

    async def consume(self, done: Callable[[], bool]) -> None:
        """Read what is behind the last position, and acknowledge it at times, until `done` and all is read."""
        while not (done() and self.confirmed <= self.read):
            with suppress(OwnerAwayError, ManagedLedgerError, CursorError):
                run = await self.call(lambda log: log.read(max(self.position, log.first_position()), 10, 1 << 16))
                for payload in run.payloads:
                    number = self._check(bytes(payload))
                    require(number not in self.read, "EachMessageIsReadOnce", f"{number} comes again")
                    require(number > self.last_read, "EachMessageIsReadOnce", f"{number} after {self.last_read}")
                    self.read.add(number)
                    self.last_read = number
                if run.payloads:
                    last = Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1)
                    self.position = Position(last.ledger_id, last.entry_id + 1)
                    if self.rng.random() < 0.6:
                        await self.acknowledge(last)
                    continue
            await trio.sleep(self.rng.uniform(0, 0.2))

    async def acknowledge(self, position: Position) -> None:
        async def work(log: ManagedLedger) -> None:
            cursor = log.cursors["sub"]
            cursor.ack_cumulative(position)
            await cursor.wait_persisted()

        await self.call(work)

    def _check(self, payload: bytes) -> int:
        number = int(payload.split(b"/")[0])
        require(payload == self.sent[number], "EachMessageIsReadOnce", f"{number} has other bytes")
        return number

    async def read_back(self) -> bool:
        """Read everything that the log has, from its beginning; return False if it was trimmed in the meantime. Raises
        OwnerAwayError, ManagedLedgerError."""

        async def work(log: ManagedLedger) -> int:
            position, last = log.first_position(), -1
            while (run := await log.read(position, 10, 1 << 16)).payloads:
                for payload in run.payloads:
                    number = self._check(bytes(payload))
                    require(number > last, "EachMessageIsReadOnce", f"{number} after {last}")
                    last = number
                position = Position(run.ledger_id, run.first_entry_id + len(run.payloads))
            return last

        return await self.call(work) in (-1, self.last_read)

    async def look_back(self) -> None:
        """Go back to the beginning again and again."""
        while True:
            await trio.sleep(self.rng.uniform(0.3, 1.5))

            async def work(log: ManagedLedger) -> None:
                ledgers = [info for info in log.ledgers if info.entries]
                if ledgers:
                    info = self.rng.choice(ledgers)
                    run = await log.read(Position(info.ledger_id, self.rng.randrange(info.entries)), 5, 1 << 16)
                    for payload in run.payloads:
                        self._check(bytes(payload))

            with suppress(OwnerAwayError, ManagedLedgerError, CursorError):
                await self.call(work)

    # Checks

    async def check_copies(self) -> None:
        """Check EveryLedgerHasACopy, if the list does not change in the meantime."""
        store = MemoryStore(self.tree)
        manager = LedgerManager(store, ids=SequenceLedgerIds(store), rng=self.rng)
        node = await store.get(log_path(NAME))
        if node is None or not self.mount.is_up:
            return
        lost: list[str] = []
        for info in decode_list(node.value).ledgers:
            state = state_of(info)
            if state.bookkeeper_deleted:
                self.left.add(info.ledger_id)
                try:
                    found = decode(state.uid, self.mount.read(path_of(info.ledger_id, state.uid)))
                    if len(found) != info.entries:
                        lost.append(f"the object of ledger {info.ledger_id} has {len(found)} entries")
                except ObjectError as error:
                    lost.append(f"ledger {info.ledger_id}: {error}")
        for info in decode_list(node.value).ledgers:
            if not state_of(info).bookkeeper_deleted and await manager.read(info.ledger_id) is None:
                lost.append(f"bookies do not have ledger {info.ledger_id}")
        now = await store.get(log_path(NAME))
        if lost and now is not None and now.version == node.version and self.mount.is_up:
            raise ViolationError("EveryLedgerHasACopy", lost[0])

    async def objects_left(self) -> list[int]:
        """Return the ledgers of objects that belong to no ledger of the list."""
        node = await MemoryStore(self.tree).get(log_path(NAME))
        ledgers = () if node is None else decode_list(node.value).ledgers
        known = {(info.ledger_id, state_of(info).uid) for info in ledgers}
        return [ledger_id for ledger_id, uid, _ in self.mount.names() if (ledger_id, uid) not in known]

    async def until(
        self, name: str, work: Callable[[], Awaitable[object]], text: str, within_s: float = LIVENESS_S
    ) -> None:
        """Repeat `work` until it returns something that is true. Raises ViolationError."""
        found: object = None
        with trio.move_on_after(within_s):
            while not found:
                with suppress(OwnerAwayError, ManagedLedgerError, CursorError, ObjectError):
                    found = await work()
                await trio.sleep(0 if found else 1.0)
        require(bool(found), name, text)

    # The story

    async def live(self) -> None:
        """Run one life of the topic."""
        self.kills_left = KILLS
        target = len(self.confirmed) + MESSAGES
        done = False
        is_sent = False

        async def work() -> None:
            nonlocal is_sent
            await self.produce(target)
            is_sent = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.look_back, name="look back")
            async with trio.open_nursery() as clients:
                clients.start_soon(work, name="producer")
                clients.start_soon(self.consume, lambda: done, name="consumer")
                await self.nemesis(lambda: is_sent)
                done = True
                clients.cancel_scope.deadline = trio.current_time() + LIVENESS_S
            nursery.cancel_scope.cancel()
        missing = sorted(self.confirmed - self.read)
        require(not missing, "AllAckedEntriesAreReadable", f"{missing[:9]} of {len(missing)} are not read")
        await self.check_copies()

        await self.until("AllAckedEntriesAreReadable", self.read_back, "the log is not read from its beginning")

        async def trims() -> bool:
            await self.acknowledge(Position(self.position.ledger_id, self.position.entry_id - 1))
            await self.call(lambda log: log.truncate())
            return True

        await self.until("Liveness", trims, "the log is not trimmed")

        async def is_tidy() -> bool:
            return not await self.objects_left()

        await self.until("ObjectsNeverLeak", is_tidy, "an object of no ledger of the list stays")
        self.kills_left = KILLS
        await self._delete()

    async def _delete(self) -> None:
        """Delete the topic, while brokers are killed."""
        is_deleted = False

        async def delete() -> bool:
            try:
                await self.ask(lambda factory: factory.delete(NAME))
            except NoSuchManagedLedgerError:
                pass
            return True

        async def work() -> None:
            nonlocal is_deleted
            await self.until("Liveness", delete, "the topic is not deleted", KILLS * 4 * ANSWER_S)
            is_deleted = True

        await self.job_host.crash(lose_unsynced=False)  # it opens the log, which makes it anew, as clients do
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, name="deletion")
            while not is_deleted:
                await trio.sleep(self.rng.uniform(0.05, 0.4))
                for name in (*BROKERS, "mount"):
                    if not self.universe.host(name).running:
                        await self.universe.host(name).restart()
        self.kills_left = 0
        require(not self.mount.names(), "ObjectsNeverLeak", f"a deleted topic has {self.mount.names()}")
        store = MemoryStore(self.tree)
        manager = LedgerManager(store, ids=SequenceLedgerIds(store), rng=self.rng)
        left = [ledger_id async for ledger_id in manager.ledger_ids()]
        require(not left, "LedgersNeverLeak", f"a deleted topic has {left}")
        await self.job_host.restart()

    async def run(self) -> OffloadSummary:
        await initialize_layout(MemoryStore(self.tree), rng=self.rng)
        universe = self.universe
        universe.host(BOOKIE).start(self.serve_bookie)
        await self.bookie_is_ready.wait()
        self.mount.host.start(self.mount.serve)
        for name in BROKERS:
            universe.host(name).start(partial(self.serve_broker, name))
        self.job_host.start(self.job.serve)
        for _ in range(LIVES):
            await self.live()
        return OffloadSummary(
            seed=universe.seed,
            digest=universe.trace.digest(),
            confirmed=len(self.confirmed),
            read=len(self.read),
            completed=self.job.completed,
            left=len(self.left),
            kills=self.kills,
            flips=self.flips,
        )


def run_offload_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> OffloadSummary:
    """Run one history; see `run_standalone_history`."""
    with watched() as log, patched([(leaving, "RETRY_S", 3.0)]):

        async def main(universe: Universe) -> OffloadSummary:
            if lines is not None:
                universe.trace.lines = lines
            return await OffloadStory(universe).run()

        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(())
        return summary
