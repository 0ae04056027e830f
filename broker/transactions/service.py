"""Transactions of one broker: its coordinators, and the participants on this broker and on others.

Why this is hard: a coordinator, a topic and a subscription are on different brokers, each of which may die at any
moment, and no client may ever come back. So a round every few seconds opens the coordinators of this broker, which
finish what they decided, and asks about every transaction that has been open here for long. What its coordinator does
not know any more is aborted: it never named this topic as a participant, or the topic was told and a late message came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import trio

from broker.background import see_through
from broker.context import Context
from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from broker.errors import (
    BrokerError,
    MetadataUnavailableError,
    ServiceNotReadyError,
    TopicExistsError,
    TopicNotFoundError,
    translated,
)
from broker.ownership.bundles import Bundle
from broker.ownership.local import Owning
from broker.ownership.lookup import Connect
from broker.slices import sliced
from broker.topics.loaded_topics import Topics
from broker.topics.topic import Topic
from broker.topics.topic_policies.known import is_of_system
from broker.transactions.buffer import TransactionBuffer
from broker.transactions.coordinator import Coordinator
from broker.transactions.errors import CoordinatorNotFoundError, InvalidStatusError, TransactionNotFoundError
from broker.transactions.record_log import delete_log
from broker.transactions.records import RecordError
from broker.transactions.remote import RemoteBrokers
from broker.transactions.snapshots.store import Snapshots
from broker.transactions.told_ends import ToldEnds
from broker.transactions.topic_transactions import TransactionsOfTopic
from broker.transactions.txn_id import COORDINATORS, TxnId, coordinator_log, pending_acks_log
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.stored_list import log_path
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import TopicName

log = get_logger(__name__)

COORDINATORS_DEFAULT = 16
ROUND_S = 5.0
OPEN_FOR_S = 10.0
"""Time after which the coordinator of an open transaction is asked whether it still knows it."""
ASKED_IN_ROUND_MAX = 100
TOPICS_IN_STEP = 200


class TransactionService:
    """Transactions of one broker."""

    def __init__(
        self,
        context: Context,
        topics: Topics,
        factory: ManagedLedgerFactory,
        metadata: MetadataStore,
        ownership: Owning,
        snapshots: Snapshots,
    ) -> None:
        self.coordinators: dict[int, Coordinator] = {}
        """Coordinators of this broker, by number."""
        self.told = ToldEnds()
        self._context = context
        self._topics = topics
        self._factory = factory
        self._metadata = metadata
        self._ownership = ownership
        self._opening: dict[int, trio.Lock] = {}
        self.snapshots = snapshots
        self._remote = RemoteBrokers(context)
        self._stopping = False

    # Coordinators

    async def connect(self, coordinator_id: int) -> Coordinator:
        """Return a coordinator of this broker, opened if needed. Raises CoordinatorNotFoundError."""
        async with self._opening.setdefault(coordinator_id, trio.Lock()):
            if (known := self._usable(coordinator_id)) is not None:
                return known
            count = await self._topics.partitioned.get(COORDINATORS)
            if coordinator_id >= count:
                raise CoordinatorNotFoundError(f"there are {count} coordinators, and no {coordinator_id}")
            try:
                await self._ownership.check(COORDINATORS.with_partition(coordinator_id))
                limit = self._context.options.transactions_per_coordinator_max
                made = await Coordinator.open(self._context, self._factory, coordinator_id, self, limit)
            except BrokerError as error:
                raise CoordinatorNotFoundError(f"coordinator {coordinator_id}: {error}") from error
            except (ManagedLedgerError, CursorError, RecordError) as error:
                log.warning("coordinator of transactions not opened", coordinator=coordinator_id, reason=str(error))
                raise CoordinatorNotFoundError(f"coordinator {coordinator_id}: {error}") from error
            if self._stopping or not self._ownership.owns(COORDINATORS.with_partition(coordinator_id)):
                made.abandon()
                raise CoordinatorNotFoundError(f"coordinator {coordinator_id} has another broker")
            self.coordinators[coordinator_id] = made
            log.info("coordinator of transactions opened", coordinator=coordinator_id)
            return made

    async def existing(self, coordinator_id: int) -> Coordinator | None:
        """Return a coordinator of this broker that is open, or has a log; None: it was never used. Raises
        CoordinatorNotFoundError, MetadataUnavailableError."""
        known = self._usable(coordinator_id)
        if known is not None or not await self._has_log(coordinator_id):
            return known
        return await self.connect(coordinator_id)

    async def _has_log(self, coordinator_id: int) -> bool:
        path = log_path(coordinator_log(coordinator_id).managed_ledger_path)
        with translated(path):
            return await self._metadata.get(path) is not None

    def _usable(self, coordinator_id: int) -> Coordinator | None:
        known = self.coordinators.get(coordinator_id)
        return None if known is None or known.closed or not known.records.is_usable else known

    def coordinator_of(self, coordinator_id: int) -> Coordinator:
        """Return a coordinator that is open here. Raises CoordinatorNotFoundError."""
        known = self._usable(coordinator_id)
        if known is None:
            raise CoordinatorNotFoundError(f"coordinator {coordinator_id} is not open on this broker")
        return known

    def lose(self, bundle: Bundle) -> None:
        """Drop the coordinators of a bundle that another broker has."""
        for coordinator_id in self._of_bundle(bundle):
            self.coordinators.pop(coordinator_id).abandon()

    async def unload(self, bundle: Bundle) -> None:
        """Close the coordinators of a bundle that goes to another broker."""
        for coordinator_id in self._of_bundle(bundle):
            await self._close(self.coordinators.pop(coordinator_id))

    def _of_bundle(self, bundle: Bundle) -> list[int]:
        return [each for each in self.coordinators if bundle.has(COORDINATORS.with_partition(each))]

    async def close(self) -> None:
        """Stop gracefully: every coordinator is closed."""
        self._stopping = True
        self._remote.close()
        self.snapshots.close()
        for coordinator_id in list(self.coordinators):
            await self._close(self.coordinators.pop(coordinator_id))

    async def _close(self, coordinator: Coordinator) -> None:
        try:
            await coordinator.close()
        except Exception as error:
            log.warning("coordinator of transactions not closed cleanly", reason=repr(error))

    def owner_of(self, txn: TxnId) -> str:
        """Return the owner of a transaction; "" if it has none. Raises CoordinatorNotFoundError,
        TransactionNotFoundError."""
        return self.coordinator_of(txn.most).state.owner_of(txn)

    # For operators

    def now_ms(self) -> int:
        return self._context.world.clock.wall_ms()

    async def url_of(self, coordinator_id: int) -> str:
        """Return the URL of the broker that has a coordinator; "": this one."""
        found = await self._ownership.lookup(COORDINATORS.with_partition(coordinator_id), authoritative=False)
        return "" if isinstance(found, Connect) and found.mine else found.broker_url

    def transactions_of(self, topic: str) -> TransactionsOfTopic | None:
        """Return the transactions of a topic that is loaded here."""
        name = parsed(topic)
        loaded = None if name is None else self._topics.find(name)
        found = None if loaded is None else loaded.transactions
        return found if isinstance(found, TransactionsOfTopic) else None

    # Participants

    async def end_on_partition(self, topic: str, txn: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Tell a topic the end of a transaction, wherever it is. Raises BrokerError."""
        name = parsed(topic)
        if name is None or await self._is_gone(name):
            return
        with self.told.telling(name, commit=commit):
            if await self._is_mine(name):
                await self.end_here(name, txn, commit=commit, low_watermark=low_watermark)
            else:
                await self._remote.end_on_partition(name, txn, commit=commit, low_watermark=low_watermark)

    async def end_on_subscription(
        self, topic: str, subscription: str, txn: TxnId, *, commit: bool, low_watermark: int
    ) -> None:
        """Tell a subscription the end of a transaction, wherever it is. Raises BrokerError."""
        name = parsed(topic)
        if name is None or await self._is_gone(name):
            return
        with self.told.telling(name, commit=commit):
            if await self._is_mine(name):
                await self.end_here(name, txn, subscription, commit=commit, low_watermark=low_watermark)
            else:
                tell = self._remote.end_on_subscription
                await tell(name, subscription, txn, commit=commit, low_watermark=low_watermark)

    async def end_here(
        self, name: TopicName, txn: TxnId, subscription: str | None = None, *, commit: bool, low_watermark: int
    ) -> None:
        """End a transaction on a topic of this broker, or on one of its subscriptions; nothing remains to be done for
        one that does not exist any more. Raises BrokerError."""
        try:
            topic = await self._topics.get(name, create=False)
        except TopicNotFoundError:
            return
        found = topic.transactions
        if not isinstance(found, TransactionsOfTopic):
            return
        if subscription is None:
            await found.end_on_topic(txn, commit=commit, low_watermark=low_watermark)
        else:
            await found.end_on_subscription(subscription, txn, commit=commit, low_watermark=low_watermark)

    async def _is_mine(self, name: TopicName) -> bool:
        found = await self._ownership.lookup(name, authoritative=False)
        return isinstance(found, Connect) and found.mine

    async def _is_gone(self, name: TopicName) -> bool:
        """Return whether the topic was deleted."""
        try:
            return not await self._topics.exists(name)
        except TopicNotFoundError:
            return True

    # Topics

    async def of(self, topic: Topic) -> TransactionsOfTopic:
        """Return the transactions of a topic, made at the first use."""
        if topic.transactions is None:
            topic.check_open()
            topic.transactions = TransactionsOfTopic(topic, self._factory, self.snapshots)
        found = topic.transactions
        assert isinstance(found, TransactionsOfTopic), "there is one kind"
        return found

    def topic_of(self, consumer: Consumer[Subscription]) -> Topic:
        """Return the topic of a consumer. Raises ServiceNotReadyError if it is being closed."""
        subscription = consumer.subscription
        topic = self._topics.find(subscription.topic.name)
        if topic is None or topic.subscriptions.get(subscription.name) is not subscription:
            raise ServiceNotReadyError(f"topic {subscription.topic.name.full} is being closed; look it up again")
        return topic

    async def enable(self, topic: Topic) -> None:
        """Let producers of a topic send in transactions. Raises BrokerError."""
        if not is_of_system(topic.name):
            await (await self.of(topic)).enable()

    async def delete_acks(self, topic: TopicName, subscriptions: Sequence[str]) -> None:
        """Delete what is stored about the transactions of a deleted topic and its subscriptions. Raises
        ManagedLedgerError."""
        for name in subscriptions:
            await delete_log(self._factory, pending_acks_log(topic, name))
        if not is_of_system(topic):
            await self.snapshots.forget(topic)

    # The round

    async def run(self) -> None:
        """Open the coordinators that have a log here, end what is left open, and store snapshots, until cancelled."""
        while not self._stopping:
            for job in (self._ensure_topic, self._open_coordinators, self._keep_topics):
                try:
                    await job()
                except (BrokerError, ManagedLedgerError) as error:
                    log.debug("round of transactions incomplete", reason=str(error))
                except Exception as error:
                    log.error("round of transactions failed", reason=repr(error), exc_info=True)
            await trio.sleep(ROUND_S)

    async def _ensure_topic(self) -> None:
        """Create the partitioned topic by which clients find coordinators, as the original's set-up does."""
        partitioned = self._topics.partitioned
        if await partitioned.get(COORDINATORS):
            return
        async with partitioned.changing(COORDINATORS):
            try:
                await partitioned.create(COORDINATORS, COORDINATORS_DEFAULT)
            except TopicExistsError:
                pass  # another broker was faster

    async def _open_coordinators(self) -> None:
        """Open every coordinator that has a log and that this broker has: it may have to finish a transaction whose
        client never comes back."""
        for coordinator_id in range(await self._topics.partitioned.get(COORDINATORS)):
            if self._usable(coordinator_id) is not None:
                continue
            if not await self._has_log(coordinator_id):
                continue
            if await self._is_mine(COORDINATORS.with_partition(coordinator_id)):
                try:
                    await self.connect(coordinator_id)
                except CoordinatorNotFoundError as error:
                    log.debug("coordinator not opened yet", coordinator=coordinator_id, reason=str(error))

    async def _keep_topics(self) -> None:
        asked = 0
        unstored: set[str] = set()
        async for topic in sliced(self._topics.loaded(), TOPICS_IN_STEP):
            found = topic.transactions
            if topic.closing or not isinstance(found, TransactionsOfTopic):
                continue
            buffer = found.buffer
            if buffer is not None:
                await self._store_if_due(topic.name, buffer, unstored)
                asked += await self._ask(buffer.state.open, buffer.seen_open, buffer.abort_soon, asked)
            for acks in list(found.acks.values()):
                asked += await self._ask(acks.state.open, acks.seen_open, acks.abort_soon, asked)

    async def _store_if_due(self, name: TopicName, buffer: TransactionBuffer, unstored: set[str]) -> None:
        """Store a snapshot if it is time. `unstored`: namespaces whose snapshots could not be stored in this round."""
        options = self._context.options
        if name.namespace_path in unstored:
            return
        if buffer.is_due(options.transaction_snapshot_count, options.transaction_snapshot_interval_s):
            try:
                await see_through(self._context.nursery, buffer.store_snapshot, name="snapshot of transactions")
            except BrokerError as error:
                unstored.add(name.namespace_path)
                log.info("snapshot of transactions not stored yet", topic=name.full, reason=str(error))

    async def _ask(
        self, opened: Iterable[TxnId], seen: dict[TxnId, float], abort: Callable[[TxnId], None], asked: int
    ) -> int:
        """Ask about transactions that are open for long; abort those that are over. Return how many were asked for."""
        now = trio.current_time()
        current = dict.fromkeys(opened)
        for gone in [txn for txn in seen if txn not in current]:
            del seen[gone]
        count = 0
        for txn in current:
            if now - seen.setdefault(txn, now) < OPEN_FOR_S or asked + count >= ASKED_IN_ROUND_MAX:
                continue
            count += 1
            seen[txn] = now
            try:
                if await self._is_over(txn):
                    abort(txn)
            except BrokerError as error:
                log.debug("coordinator not asked", txn=str(txn), reason=str(error))
        return count

    async def _is_over(self, txn: TxnId) -> bool:
        """Return whether the coordinator of a transaction does not know it any more. Raises BrokerError."""
        count = await self._topics.partitioned.get(COORDINATORS)
        if not count:
            raise MetadataUnavailableError("the number of coordinators is not known")
        if txn.most >= count:
            return True
        name = COORDINATORS.with_partition(txn.most)
        try:
            if await self._is_mine(name):
                await (await self.connect(txn.most)).add(txn)
            else:
                await self._remote.check_open(name, txn)
        except TransactionNotFoundError:
            return True
        except InvalidStatusError:
            return False  # its coordinator tells the end
        return False


def parsed(topic: str) -> TopicName | None:
    """Return the name of a topic; None for a name that no topic has."""
    try:
        return TopicName.parse(topic)
    except InvalidNameError:
        log.warning("a transaction names a topic that cannot exist", topic=topic[:200])
        return None
