"""Hosts of a simulated cluster, and the events observed from outside: what they store, append, and get confirmed.

Checkers are asked at each of these events. The first violation is kept, for servers may take it for an error of their
own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from broker.ownership.ownership import Ownership
from broker.ownership.values import decode_owner
from broker.topics.compaction import leftovers
from broker.topics.delayed_delivery import DELAYED_DELIVERY_DEFAULT
from managed_ledger import ledger_list
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper.entry import Buffer
from simulation.cluster import swarm as cluster_swarm
from simulation.cluster.checkers import ClusterChecker, Process
from simulation.cluster.clients import ClusterClients
from simulation.cluster.hosts import BrokerNode, RecoveryNode
from simulation.cluster.own_clients import OwnClients
from simulation.cluster.stage import ClusterStage
from simulation.cluster.transacting import Movers
from simulation.common.checkers import TopicHistory, ViolationError
from simulation.common.explained import Explained
from simulation.common.nemesis import Nemesis
from simulation.common.nodes import BookieNode, Node
from simulation.common.tale import Tale
from simulation.ledger.checkers import LedgerHistory
from simulation.ledger.history import LEDGER
from simulation.life.cast import Cast
from simulation.machines.metadata import WatchedTree
from simulation.machines.scheduler import HOST
from simulation.machines.world import Universe

NAMESPACE = "public/default"
LIST = re.compile(r"/managed-ledgers/((?:public/[^/]+|pulsar/system)/persistent/[^/]+)$")
CURSOR = re.compile(r"/managed-ledgers/(?:public/[^/]+|pulsar/system)/persistent/[^/]+/[^/]+$")
SCHEMAS = re.compile(r"(?:/quire)?/schemas/public/[^/]+/[^/]+$")
COMPACTIONS = re.compile(leftovers.ROOT + r"/public/[^/]+/persistent/[^/]+/[^/]+$")
BUNDLE = re.compile(r"/namespace/(public/default/0x[0-9a-f]+_0x[0-9a-f]+)$")
CHECK_TIME = "/ledgers/underreplication/checkallledgersctime"
MARK = re.compile(r"/ledgers/underreplication/ledgers/.*/urL([0-9]+)$")


class ClusterRecord:
    """Record of one history: its hosts, and their known state."""

    nemesis: Nemesis

    def __init__(self, universe: Universe, tale: Tale, *, transactions: bool = False, parts: int = 0) -> None:
        """`transactions`: some clients move messages in transactions; `parts`: number of parts of `simulation.life`."""
        self.universe = universe
        self.tale = tale
        self.swarm = cluster_swarm.draw(universe.derive("swarm"))
        self.explained = Explained()
        self.tree = WatchedTree(self._metadata_changed)
        self.checker = ClusterChecker(self._has, self._fenced)
        self.all_bookies = [BookieNode(self, f"b{number}") for number in range(self.swarm.bookies)]
        self.by_id = {node.id: node for node in self.all_bookies}
        self.users = ClusterClients(universe, "", cluster_swarm.BROKER_PORT, self.swarm.sizes, rest_s=1.0, idle_s=1.0)
        self.movers = Movers(self.users) if transactions else None
        self.stage = ClusterStage(self)
        self.cast = Cast(self.stage, parts) if parts else None
        self.keys: dict[str, object] = dict(self.movers.keys if self.movers else {}) | (
            self.cast.keys if self.cast else {}
        )
        self.brokers = [BrokerNode(self, f"br{number}") for number in range(self.swarm.brokers)]
        recovery = self.swarm.recovery_config()
        self.recoverers = [RecoveryNode(self, f"a{number}", recovery) for number in range(self.swarm.recoverers)]
        self.lost: BookieNode | None = None
        """The bookie whose disk is permanently lost."""
        self.lost_at = 0.0
        self.named_late: set[int] = set()
        """Ledgers that name it although it has long been lost: a paused writer had chosen it before, and stored it
        afterwards. Only the periodic audit, or that of the next auditor, finds them."""
        self.users.brokers = [node.name for node in self.brokers]
        delays = universe.derive("delays")
        delay_every, delay_ms = delays.choice((0, 0, 0, 5)), delays.choice((500, 3000))
        if delay_every:
            self.users.delay_ms = lambda number: delay_ms * (number % delay_every == 0)
        self.users.early_ms = DELAYED_DELIVERY_DEFAULT.tick_ms
        self.own = OwnClients(self.users)
        self.topics = {
            name: TopicHistory(name)
            for name in [f"persistent://{NAMESPACE}/t{number}" for number in range(self.swarm.topics)]
        }
        self.watched = dict(self.topics)
        """Topics whose answered acknowledgements are checked."""
        self.compactions: dict[str, bytes] = {}
        """Values of the nodes of compactions under way by path."""
        self.recoveries = 0
        self.loads = 0
        self.takeovers = 0
        self.marks: dict[int, None] = {}
        """Ledgers that are marked as lacking copies."""
        self.bundles: dict[str, str] = {}
        """Broker URL in the node of each bundle."""
        self.checked = False
        """True once an auditor has read every copy since the request."""
        self.cursors: dict[str, bytes] = {}
        """Values of the cursors' nodes by path."""
        self.schemas: dict[str, bytes] = {}
        """Values of the nodes of schemas by path."""
        self.violation: ViolationError | None = None
        self.violated = trio.Event()

    @property
    def bookies(self) -> list[BookieNode]:
        """Return the bookies that are not lost."""
        return [node for node in self.all_bookies if node is not self.lost]

    @property
    def clients(self) -> Sequence[Node]:
        """Return the hosts with clients of bookies."""
        return [*self.brokers, *self.recoverers]

    @property
    def nodes(self) -> Sequence[Node]:
        return [*self.bookies, *self.clients]

    @property
    def confirmed_messages(self) -> int:
        return sum(len(history.confirmed) for history in self.topics.values())

    # --- what happened

    def tell(self, host: str, name: str, /, **fields: Any) -> None:
        """Record an event for the tale, and for the digest."""
        self.tale.add(host, name, fields)
        self.universe.trace.event(host, name, **{key: str(value) for key, value in fields.items()})

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """Keep the first violation for the caller of the history, because servers may handle it as their own error."""
        try:
            yield
        except ViolationError as error:
            if self.violation is None:
                self.violation = error
                self.violated.set()

    def _process(self) -> Process:
        name = HOST.get()
        host = self.universe.hosts.get(name)
        return name, 0 if host is None else host.incarnation

    def _metadata_changed(self, path: str, value: bytes | None) -> None:
        with self._checking():
            if found := LEDGER.match(path):
                self._ledger_changed(int(found[1].replace("/", "") + found[2]), value)
            elif found := LIST.match(path):
                self._list_changed(found[1], value)
            elif CURSOR.match(path):
                self._keep(self.cursors, path, value)
            elif SCHEMAS.match(path):
                self._keep(self.schemas, path, value)
            elif COMPACTIONS.match(path):
                self._keep(self.compactions, path, value)
            elif found := BUNDLE.match(path):
                owner = None if value is None else decode_owner(value).broker_url
                self.tell(HOST.get(), "BundleOwned", bundle=found[1], owner=owner)
                self._keep(self.bundles, found[1], owner)
            elif path == CHECK_TIME:
                self.checked = value is not None
            elif found := MARK.match(path):
                ledger_id = int(found[1])
                self.tell(HOST.get(), "LedgerMarked" if value is not None else "LedgerUnmarked", ledger=ledger_id)
                self._keep(self.marks, ledger_id, None if value is None else ())

    @staticmethod
    def _keep(known: dict[Any, Any], key: object, value: object) -> None:
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value

    def _ledger_changed(self, ledger_id: int, value: bytes | None) -> None:
        named_before = self._names_lost(ledger_id)
        self.checker.metadata_changed(ledger_id, value)
        metadata = self.checker.stored.get(ledger_id)
        long_known = trio.current_time() > self.lost_at + 2 * self.swarm.session_timeout_s
        if self._names_lost(ledger_id) and not named_before and long_known:
            self.named_late.add(ledger_id)
        if metadata is None:
            self.tell(HOST.get(), "LedgerDeleted", ledger=ledger_id)
            return
        self.tell(
            HOST.get(),
            "MetadataStored",
            ledger=ledger_id,
            state=metadata.state.name,
            last=metadata.last_entry_id,
            fragments=" ".join(f"{each.first_entry_id}:{','.join(each.bookies)}" for each in metadata.fragments),
        )

    def _names_lost(self, ledger_id: int) -> bool:
        metadata = self.checker.stored.get(ledger_id)
        if self.lost is None or metadata is None:
            return False
        return any(self.lost.id in fragment.bookies for fragment in metadata.fragments)

    def _list_changed(self, topic: str, value: bytes | None) -> None:
        writer = self._process()
        found = None if value is None else ledger_list.decode(value)
        if found is not None:
            ledgers = " ".join(f"{info.ledger_id}:{info.entries}" for info in found.ledgers)
            self.tell(writer[0], "ListStored", topic=topic, ledgers=ledgers, deleting=str(found.deleting))
            self.takeovers += self.checker.owners.get(topic, writer) != writer
        self.checker.list_changed(topic, found, writer)

    def bookie_opened(self, node: BookieNode) -> None:
        self.tell(node.name, "BookieOpened")
        with self._checking():
            self.checker.bookie_back(node.id)

    def _has(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool | None:
        return self.by_id[bookie_id].has(ledger_id, entry_id)

    def _fenced(self, bookie_id: str, ledger_id: int) -> bool | None:
        return self.by_id[bookie_id].fenced(ledger_id)

    def recovery_begins(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.tell(HOST.get(), "RecoveryBegan", ledger=ledger_id)
        self.recoveries += 1
        history = self.checker.histories.get(ledger_id)
        if history is not None:
            history.recoveries += 1

    def recovery_fenced(self, ledger_id: int, metadata: LedgerMetadata, lac: int) -> None:
        self.tell(HOST.get(), "RecoveryFenced", ledger=ledger_id, lac=lac)
        with self._checking():
            self.checker.fencing_ended(ledger_id, metadata)

    def writer_made(self, writer: LedgerWriter) -> LedgerHistory:
        self.tell(HOST.get(), "LedgerCreated", ledger=writer.ledger_id)
        return self.checker.opened(writer.ledger_id, self._process())

    def appended(self, history: LedgerHistory, first: int, payloads: Sequence[Buffer]) -> None:
        last = first + len(payloads) - 1
        self.tell(HOST.get(), "EntriesSent", ledger=history.ledger_id, first=first, last=last)
        with self._checking():
            self.checker.appended(history, first, payloads)

    def confirmed(self, history: LedgerHistory, first: int, last: int) -> None:
        self.tell(HOST.get(), "EntriesConfirmed", ledger=history.ledger_id, first=first, last=last)
        with self._checking():
            self.checker.confirmed(history, first, last)

    def topic_loading(self, topic: str) -> None:
        if topic in self.watched:
            self.tell(HOST.get(), "TopicLoading", topic=topic)
            self.loads += 1
            self.users.topic_loading(HOST.get(), self.watched[topic])

    def ownership_runs(self, ownership: Ownership) -> None:
        for node in self.brokers:
            if node.name == HOST.get():
                node.ownership = ownership
