"""Opening a topic: what is checked before, and what is tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from broker.context import Context
from broker.errors import BeingDeletedError, MetadataUnavailableError, NotAllowedError, translated
from broker.ownership.local import Owning
from broker.topics.compaction.compaction import Compaction
from broker.topics.compaction.leftovers import COMPACTION_CURSOR
from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR
from broker.topics.deduplication.replay import open_deduplication
from broker.topics.entry_stamps import EntryStamp, StampingTopic, open_stamp, stamp_kinds
from broker.topics.life.first_use import FirstUse
from broker.topics.life.sending import follow_sends
from broker.topics.partitioned_topics import PartitionedTopics
from broker.topics.policies import TopicPolicies
from broker.topics.rates.broker_rates import BrokerRates
from broker.topics.rates.following import follow_rates
from broker.topics.takeover import Takeover
from broker.topics.topic import Topic
from broker.topics.topic_policies.known import is_of_system
from broker.transactions.buffer_state import Snapshot
from broker.transactions.txn_id import SNAPSHOT_PROPERTY, SNAPSHOT_TOPICS, is_log_of_transactions
from cursors.errors import CursorRecoveryError
from managed_ledger.errors import ManagedLedgerFencedError, ManagedLedgerUnavailableError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.service.recent import Recent
from quire.wire.pulsar.names import TopicName
from quire.world.backoff import Backoff

log = get_logger(__name__)

HOLD_S = 15.0
"""Seconds for which loading is retried while bookies or metadata are away, before the callers get the error.

A refused client retries ever more slowly, long after they are back. Less than clients wait for an answer (30 s)."""
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 0.5
NAMESPACES_MAX = 10_000
NAMESPACE_TTL_S = 5.0
"""Time for which it is kept whether a namespace has topics with snapshots of transactions."""


async def has_node(metadata: MetadataStore, path: str) -> bool:
    """Return whether the node exists. Raises MetadataUnavailableError."""
    with translated(path):
        return await metadata.get(path) is not None


def _has_transactions(ledger: ManagedLedger) -> bool:
    """Return whether a log has ever had messages of transactions."""
    properties = ledger.properties
    return bool(properties) and any(name == SNAPSHOT_PROPERTY for name, _ in properties)


class StoredSnapshots(Protocol):
    """Interface to the snapshots of transactions; see broker.transactions.buffer."""

    async def find(self, topic: TopicName, has_ledger: Callable[[int], bool]) -> Snapshot | None: ...

    async def store(self, topic: TopicName, snapshot: Snapshot | None) -> None: ...


class Wanted(Protocol):
    """A topic that is being loaded."""

    create: bool
    """True if it may be created when it does not exist."""


class TopicLoader:
    """Opens topics of one broker. `takes_topics` raises TopicNotFoundError if no topic may be made in the
    namespace; `close_soon` takes a topic down in the background."""

    def __init__(
        self,
        context: Context,
        factory: ManagedLedgerFactory,
        metadata: MetadataStore,
        ownership: Owning,
        policies: TopicPolicies,
        rates: BrokerRates,
        partitioned: PartitionedTopics,
        takeover: Takeover,
        *,
        takes_topics: Callable[[TopicName], Awaitable[None]],
        first_use: FirstUse,
        close_soon: Callable[[Topic], None],
    ) -> None:
        self._context = context
        self._factory = factory
        self._metadata = metadata
        self._ownership = ownership
        self._policies = policies
        self._rates = rates
        self._partitioned = partitioned
        self._takeover = takeover
        self._takes_topics = takes_topics
        self._first_use = first_use
        self._close_soon = close_soon
        self._stamping = stamp_kinds(context.options.entry_metadata)
        self.snapshots: Callable[[], StoredSnapshots] | None = None
        """Returns the store of snapshots of transactions; None: there is none."""
        self._with_snapshots: Recent[str, bool] = Recent(NAMESPACES_MAX, NAMESPACE_TTL_S)
        self.stopping = False
        """The broker stops: nothing is tried again."""

    async def load(self, name: TopicName, loading: Wanted, give_up_at: float) -> Topic:
        """The topic, opened: tried again and again while what is away may come back. Raises as what is opened does:
        BrokerError, ManagedLedgerError, CursorError."""
        backoff: Backoff | None = None  # most topics are loaded at the first try
        while True:
            try:
                return await self._load_once(name, loading)
            except (ManagedLedgerUnavailableError, CursorRecoveryError, MetadataUnavailableError) as error:
                final = isinstance(error, BeingDeletedError) or self.stopping
                backoff = backoff or Backoff(RETRY_FIRST_S, RETRY_MAX_S, self._context.world.rng)
                pause_s = backoff.next()
                if final or trio.current_time() + pause_s > give_up_at:
                    raise
                log.info("topic not loaded yet", topic=name.full, reason=str(error))
            await trio.sleep(pause_s)

    async def _load_once(self, name: TopicName, loading: Wanted) -> Topic:
        if is_log_of_transactions(name):
            raise NotAllowedError(f"{name.full} is a log of transactions, and no topic for clients")
        if name.partition >= 0:
            return await self._open(name, create=await self._check_partition(name) and loading.create)
        async with self._partitioned.changing(name):
            # Not while another task creates a partitioned topic of that name.
            if await self._partitioned.get(name):
                raise NotAllowedError(f"topic {name.full} is partitioned: use its partitions")
            return await self._open(name, create=loading.create)

    async def _open(self, name: TopicName, *, create: bool) -> Topic:
        if create:
            # Clients of a deleted topic return at once, and would recreate it in a namespace that is being deleted.
            await self._takes_topics(name)
        # Before: opening fences the current writer. After: opening takes time, and the bundle may be lost.
        await self._ownership.check(name)
        # Before it is opened: what is open is trimmed.
        policies = await self._policies.load(name)
        if create:
            await self._first_use.check_room(name, held=policies)
        self._takeover.check(name, policies)
        ledger = await self._factory.open(name.managed_ledger_path, create=create, config=policies)
        try:
            deduplication = None
            if policies.asks_deduplication() or DEDUPLICATION_CURSOR in ledger.cursors:
                deduplication = await open_deduplication(ledger, self._context.options, policies)
            stamp: EntryStamp | None = None
            if any(self._stamping):
                stamp = await open_stamp(ledger, self._stamping, self._context.world.clock)
            if stamp is None:
                topic = Topic(self._context, name, ledger, self._close_soon, policies)
            else:
                topic = StampingTopic(self._context, name, ledger, self._close_soon, policies, stamp)
            topic.deduplication = deduplication
            topic.restore_subscriptions()
            has_snapshot = _has_transactions(ledger) or await self._may_have_snapshot(name)
            if has_snapshot or self._context.options.transactions:
                await self._recover_transactions(topic, has_snapshot)
            await self._ownership.check(name)
        except BaseException:
            ledger.abandon()
            raise
        if not ledger.is_usable:
            # Taken over or closed since: no later event would report it.
            raise ManagedLedgerFencedError(f"{name.full} was lost while it was being loaded")
        if COMPACTION_CURSOR in ledger.cursors:
            topic.compaction = Compaction(topic)
            topic.compaction.recover()
        follow_rates(topic, self._rates)
        follow_sends(topic)
        return topic

    async def _may_have_snapshot(self, name: TopicName) -> bool:
        """Return whether the namespace has a topic with snapshots of transactions: Quire and Pulsar store one before
        the first message of a transaction."""
        if is_of_system(name):
            return False
        namespace = name.namespace_path
        known = self._with_snapshots.get(namespace)
        if known is None:
            known = False
            for local in SNAPSHOT_TOPICS:
                topic = TopicName(name.domain, name.tenant, name.namespace, local)
                stored = await has_node(self._metadata, log_path(topic.managed_ledger_path))
                known = known or stored or await self._partitioned.get(topic) > 0
            self._with_snapshots.put(namespace, known)
        return known

    async def _recover_transactions(self, topic: Topic, has_snapshot: bool) -> None:
        from broker.transactions.recovery import recover_transactions  # few topics have any

        if self.snapshots is None:
            return
        enabled = self._context.options.transactions
        topic.transactions = await recover_transactions(
            topic, self._factory, self._metadata, self.snapshots(), has_snapshot=has_snapshot, with_acks=enabled
        )
        if not enabled and topic.read_bound is not None:
            log.error(
                "messages behind an open transaction are held back, because transactions are off: "
                "set transactionCoordinatorEnabled=true until it is over",
                topic=topic.name.full,
                bound=str(topic.read_bound),
            )

    async def _check_partition(self, name: TopicName) -> bool:
        """Check whether a partition that has no log may be created.

        An existing partition of no partitioned topic may be used, so that its data stays reachable. Raises
        NotAllowedError, BeingDeletedError, MetadataUnavailableError.
        Source: the original's BrokerService.validateTopicConsistency, which refuses existing ones too."""
        count = await self._partitioned.get(name.partitioned)
        if count == 0:
            if not await has_node(self._metadata, log_path(name.managed_ledger_path)):
                raise NotAllowedError(
                    f"{name.partitioned.full}, of which {name.full} would be a partition, is not partitioned"
                )
            return False
        if name.partition >= count:
            raise NotAllowedError(f"{name.full} is not one of the {count} partitions of {name.partitioned.full}")
        return True
