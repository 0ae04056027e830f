"""A whole cluster: brokers, bookies, auditors and workers, one metadata service, clients, and everything that can
happen to them.

Producers and consumers ask any broker for the owner of their topic and go where they are sent. The nemesis harms hosts,
links, disks and sessions, loses a bookie for good, puts owners to sleep, and has bundles unloaded and split. Checkers
look at each confirmation, each delivery, each write of metadata. In the end everything is healed but the bookie that is
lost: then every message must be delivered, every bundle have one owner, every ledger have its copies, and none be
without a name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import trio

from broker.topics.compaction import leftovers
from cursors.position_info import NO_LEDGER, decode_node
from quire.metadata.errors import NoNodeError
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore
from quire.servers.initialize_cluster import NewCluster, initialize
from quire.wire.bookkeeper.entry import Digest
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from simulation.cluster import swarm as cluster_swarm
from simulation.cluster.checkers import Copy, check_owners
from simulation.cluster.faults import ClusterNemesis
from simulation.cluster.record import CHECK_TIME, NAMESPACE, ClusterRecord
from simulation.cluster.summary import ClusterSummary
from simulation.common.checkers import TopicHistory, ViolationError, require
from simulation.common.explained import explanations_checked
from simulation.common.histories import watched
from simulation.common.leaks import named_by_schemas
from simulation.common.nemesis import FULL_DISK_ERRORS
from simulation.common.nodes import Node
from simulation.common.patching import patched
from simulation.common.tale import Tale
from simulation.common.transactions import rounds_of
from simulation.ledger.observing import cluster_observed, recoveries_observed
from simulation.machines.world import Universe, run

CONFIRMED_MIN = 300
PARTS = 4
"""Parts of `simulation.life` in one history that has any."""
FAULTS_MIN = 5
FAULTS_MAX = 16
LIVENESS_S = 200.0
"""Virtual seconds in which the healed cluster must deliver everything, and again to have all copies."""
FORMER_SESSIONS_S = 60.0
"""Virtual seconds that the sessions of killed brokers live on, after an outage of the metadata service."""
ANSWER_S = 5.0
"""Virtual seconds, beside a session timeout, in which a lookup is answered and a bundle taken without faults."""
KINDS = (
    pb.CommandSubscribe.Exclusive,
    pb.CommandSubscribe.Shared,
    pb.CommandSubscribe.Key_Shared,
    pb.CommandSubscribe.Failover,
)


class ClusterStory(ClusterRecord):
    """One run of the history."""

    nemesis: ClusterNemesis

    def __init__(self, universe: Universe, tale: Tale, *, transactions: bool = False, parts: int = 0) -> None:
        super().__init__(universe, tale, transactions=transactions, parts=parts)
        self.rng = universe.derive("story")
        self.users.enough = self._has_entries
        self.nemesis = ClusterNemesis(self)
        if self.swarm.begin_anew:
            self.users.own_front = universe.derive("front").choice(self.brokers).name

    def _has_entries(self) -> bool:
        return self.confirmed_messages >= CONFIRMED_MIN * (0.2 + 0.8 * self.nemesis.progress)

    # --- the run

    def _start_users(self) -> None:
        rng = self.rng
        for number, history in enumerate(self.topics.values()):
            subscribed = [trio.Event() for _ in range(rng.choice((1, 1, 2)))]
            for subscription, event in enumerate(subscribed):
                kind = rng.choice(KINDS)
                for consumer in range(1 if kind == pb.CommandSubscribe.Exclusive else rng.randrange(1, 3)):
                    name = f"s{number}-{subscription}"
                    work = partial(self.users.consume, history, name, kind, event)
                    self.users.start(f"{name}-{consumer}", work, history.topic)
            for producer in range(rng.choice((1, 1, 2))):
                name = f"p{number}-{producer}"
                produce = partial(self.users.produce, history, name, rng.choice(self.swarm.windows), subscribed)
                self.users.start(name, produce, history.topic)
            if rng.random() < 0.5:
                self.own.start(f"q{number}", history, subscribed, follow=False)
            if rng.random() < 0.5 and not self.swarm.trimmed:
                self.own.start(f"f{number}", history, subscribed, follow=True)

        if self.movers is not None:
            self.movers.start()
        if self.cast is not None:
            self.cast.start()
        passing = self.universe.derive("passing")
        for number in range(passing.choice((0, 1, 2))):
            name, topic = f"u{number}", passing.choice(list(self.topics))
            self.users.start(name, partial(self.users.come_and_go, topic, name), topic)

    async def run(self) -> ClusterSummary:
        self.universe.nursery.start_soon(self._watch_for_violations, name="violations")
        self.tell("", "Drawn", swarm=self.swarm)
        store = MemoryStore(self.tree)
        await initialize_layout(store, rng=self.rng)
        cluster = NewCluster(
            name=cluster_swarm.CLUSTER,
            web_url="http://br0:8080",
            coordinators=1,
            storage_containers=0,
            bundles=self.swarm.bundles,
        )
        await initialize(store, cluster, self.rng)
        if self.cast is not None:
            await self.cast.prepare(store, cluster_swarm.CLUSTER)
        self.universe.nursery.start_soon(self.tree.run, name="metadata service")
        for node in self.nodes:
            node.start()
        for bookie in self.bookies:
            await bookie.wait_up()
        self._start_users()
        while self.confirmed_messages < CONFIRMED_MIN / 5:
            await trio.sleep(0.1)
        with trio.fail_after(1000):
            await self.nemesis.run(self.rng.randint(FAULTS_MIN + 3, FAULTS_MAX))
            await self.nemesis.force_takeover()
        await self.nemesis.heal()
        if self.swarm.begin_anew:
            await self._begin_anew()
        # First: a broker that has lost a topic unknowingly answers from memory.
        await self._until("OneOwnerPerBundle", self._misowned)
        await self._until("Liveness", self._has_enough)
        self.users.finish.set()
        await self._until("EveryConfirmedEntryIsDelivered", self._undelivered)
        for topic, history in self.topics.items():
            with trio.fail_after(LIVENESS_S):
                await self._read_all(topic, history)
        await self._until("EveryConfirmedEntryIsDelivered", self._undelivered)
        if self.movers is not None:
            await self.movers.finish(self.own.read_all)
            self.tell("", "Reached", what="AllOrNothing", outcomes=dict(self.movers.outcomes))
        if self.cast is not None:
            await self.cast.settle()
            self.tell("", "Reached", what="Settled", parts=self.cast.summary())
        for broker in self.brokers:
            await self._stop(broker)
        await self._until("LostBookiesAreReplaced", partial(self._unrepaired, self.named_late))
        await self._until("MissedCopiesAreFound", self._missed)
        await self._check_all(store)
        await self._until("LostBookiesAreReplaced", self._unrepaired)
        await self._until("EveryLedgerHasItsCopies", self._lacking)
        return self._summary(self._check_end())

    async def _begin_anew(self) -> None:
        """Check clients after an outage of the metadata service and a restart of all brokers, with the nodes of their
        former sessions alive.

        Everything else works, so clients with the address of one broker are served soon."""
        self.users.front = self.users.own_front
        await self.nemesis.restart_brokers(FORMER_SESSIONS_S)
        begun = trio.current_time()
        limit_s = self.swarm.session_timeout_s + ANSWER_S
        while wrong := self._unserved():
            now = trio.current_time()
            for topic, broker, since in self.users.asking.values():
                late = now - max(since, begun) > limit_s
                require(not late, "LookupsAreAnswered", f"{broker} does not answer who serves {topic}")
            require(now - begun <= limit_s, "BundlesAreTaken", f"{wrong} after {limit_s:g} s")
            await trio.sleep(0.1)
        self.users.front = None
        self.tell("", "Reached", what="BundlesAreTaken")

    def _unserved(self) -> str:
        """Return a topic that no broker serves; all have clients that want it."""
        for topic in self.topics:
            if not any([node.up is not None and node.up.owns(TopicName.parse(topic)) for node in self.brokers]):
                return f"no broker has taken {topic}, its bundles name {dict(self.bundles)}"
        return ""

    async def _read_all(self, topic: str, history: TopicHistory) -> None:
        """Compare all entries with what clients saw; repeat if they saw more meanwhile."""
        while True:
            before = len(history.confirmed), len(history.delivered)
            found = await self.own.read_all(topic)
            if (len(history.confirmed), len(history.delivered)) == before:
                history.check_final(found, trimmed=self.swarm.trimmed)
                if not self.swarm.trimmed:
                    self.own.check(history, found)
                return

    async def _watch_for_violations(self) -> None:
        await self.violated.wait()
        assert self.violation is not None
        raise self.violation

    async def _until(self, name: str, wrong: Callable[[], str]) -> None:
        """Wait until there is no problem. Raises ViolationError with the remaining one at the deadline."""
        with trio.move_on_after(LIVENESS_S):
            while wrong():
                await trio.sleep(0.2)
            self.tell("", "Reached", what=name)
            return
        raise ViolationError(name, f"the healed cluster does not get there: {wrong()}")

    def _has_enough(self) -> str:
        return "" if self.confirmed_messages >= CONFIRMED_MIN else f"{self.confirmed_messages} confirmed"

    def _undelivered(self) -> str:
        for history in self.topics.values():
            withheld = history.undelivered()
            if withheld:
                told = self.explained.told(history.topic, withheld[0][0])
                return f"{history.topic}: not to be had: {withheld[:5]} ({len(withheld)}) {told}"
        return ""

    def _misowned(self) -> str:
        """Return the problem with the bundles; brokers may not have noticed a change of owner yet."""
        urls = {f"pulsar://{node.name}:{cluster_swarm.BROKER_PORT}": node.name for node in self.brokers}
        owned = {
            node.name: [str(each) for each in node.up.owned() if str(each).startswith(f"{NAMESPACE}/")]
            for node in self.brokers
            if node.up is not None
        }
        try:
            check_owners(owned, {bundle: urls[url] for bundle, url in self.bundles.items()})
        except ViolationError as error:
            return str(error)
        return ""

    async def _stop(self, node: Node) -> None:
        """Stop everything permanently, in order."""
        node.crashed = True
        with trio.fail_after(LIVENESS_S):
            await node.host.stop()
        self.tell(node.name, "ProcessStopped")

    async def _check_all(self, store: MemoryStore) -> None:
        """Make an auditor read every copy, from disk, as an operator may: the next elected one finds no earlier
        check."""
        for bookie in self.bookies:
            await bookie.crash(lose_unsynced=False)
            await bookie.restart()
            await bookie.wait_up()
        try:
            await store.delete(CHECK_TIME)
        except NoNodeError:
            pass
        for node in self.recoverers:
            await node.crash(lose_unsynced=False)
            await node.restart()

    def _unrepaired(self, excepted: Collection[int] = ()) -> str:
        """Return a ledger that names the lost bookie."""
        for ledger_id, metadata in self.checker.stored.items():
            if ledger_id not in excepted and self._names_lost(ledger_id):
                return f"ledger {ledger_id} ({metadata.state.name}) names the lost bookie: {metadata.fragments}"
        return ""

    def _missed(self) -> str:
        """Return a copy that never reached its bookie; no auditor was asked to check all ledgers yet."""
        copy = self.checker.missing()
        return "" if copy is None else f"{copy.bookie_id} lacks {copy.ledger_id}:{copy.entry_id}"

    def _lacking(self) -> str:
        if not self.checked:
            return "no auditor has read all copies"
        copy = self.checker.missing()
        if copy is not None:
            return f"{copy.bookie_id} lacks {copy.ledger_id}:{copy.entry_id}"
        return f"ledgers {list(self.marks)[:5]} are marked" if self.marks else ""

    def _check_end(self) -> int:
        named = {
            ledger_id
            for value in self.cursors.values()
            for node in [decode_node(value)[0]]
            for ledger_id in (node.ledger_id, node.previous_ledger_id, *node.deleting)
        }
        for path, value in self.schemas.items():
            named.update(named_by_schemas(path, value))
        named |= self._named_by_compactions()
        self.checker.check_leaks(named - {NO_LEDGER})
        return self.checker.check_copies(self._read_copy)

    def _named_by_compactions(self) -> set[int]:
        """Return compacted ledgers, and those of interrupted compactions."""
        found: set[int] = set()
        for value in self.cursors.values():
            state = decode_node(value)[1]
            if state is not None and leftovers.LEDGER_PROPERTY in state.properties:
                found.add(state.properties[leftovers.LEDGER_PROPERTY])
        for path, value in self.compactions.items():
            found |= {int(path.rpartition("/")[2]), int(value)}
        return found

    def _read_copy(self, copy: Copy) -> bytes | str:
        bookie = self.by_id[copy.bookie_id].up
        if bookie is None:
            return "its bookie is down"
        entry = memoryview(bytes(bookie.storage.reader.read_entry(copy.ledger_id, copy.entry_id)))
        metadata = self.checker.stored[copy.ledger_id]
        digest = Digest(metadata.digest_type, metadata.password)
        try:
            return bytes(digest.open(copy.ledger_id, copy.entry_id, entry))
        except ValueError as error:
            return str(error)

    def _summary(self, copies: int) -> ClusterSummary:
        if self.violation is not None:
            raise self.violation
        require(
            self.nemesis.total >= FAULTS_MIN and self.takeovers > 0,
            "HistoryIsBigEnough",
            f"{self.nemesis.total} faults, {self.takeovers} takeovers",
        )
        crashes = [dropped for node in (*self.all_bookies, *self.clients) for dropped in node.host.crashes]
        subscriptions = [each for history in self.topics.values() for each in history.subscriptions.values()]
        return ClusterSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            confirmed=self.confirmed_messages,
            delivered=sum(len(history.delivered) for history in self.topics.values()),
            answered_acks=sum(len(each.answered) for each in subscriptions),
            ledgers=len(self.checker.histories),
            loads=self.loads,
            takeovers=self.takeovers,
            redirects=self.users.redirects,
            recoveries=self.recoveries,
            repaired=self.checker.repaired,
            copies=copies,
            lost_bookie=self.lost is not None,
            crashes=len(crashes),
            dropping_crashes=sum(1 for dropped in crashes if dropped.writes or dropped.batches),
            faults=tuple(sorted(self.nemesis.done.items())),
            parts="" if self.cast is None else self.cast.summary(),
            virtual_s=trio.current_time(),
        )


def run_cluster_history(
    seed: int,
    *,
    lines: list[str] | None = None,
    steps: bool = False,
    tale: Tale | None = None,
    full_disks: bool = False,
    transactions: bool = False,
    parts: int = 0,
) -> ClusterSummary:
    """Run one history; with `transactions`, some clients move messages in transactions; with so many parts of
    `simulation.life`.

    Raises ViolationError if an invariant does not hold, TooSlowError if the healed cluster makes no progress. `lines`
    gets the trace, with every step of every task if `steps`; `tale` its main events. `full_disks`: disks of bookies
    fill up, too."""

    async def main(universe: Universe) -> ClusterSummary:
        if lines is not None:
            universe.trace.lines = lines
        story = ClusterStory(universe, tale or Tale(on=False), transactions=transactions, parts=parts)
        if full_disks:
            story.nemesis.fill_disks()
        with recoveries_observed(story), cluster_observed(story), explanations_checked() as story.explained:
            return await story.run()

    with watched() as log:
        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(FULL_DISK_ERRORS if full_disks else ())
        return summary


def run_living_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> ClusterSummary:
    """Run one history of a cluster with topics that time and limits change. Raises as `run_cluster_history`."""
    return run_cluster_history(seed, lines=lines, steps=steps, parts=PARTS)


def run_transacting_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> ClusterSummary:
    """Run one history of a cluster with transactions. Raises as `run_cluster_history`."""
    with patched(rounds_of(seed)):
        return run_cluster_history(seed, lines=lines, steps=steps, transactions=True)
