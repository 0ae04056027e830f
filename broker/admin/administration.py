"""Operations on topics, partitions and subscriptions by name, for operators and readers that plan work. No HTTP in it.

Names come parsed. The name of a partitioned topic stands for all its partitions where that makes sense (subscriptions,
deletion); where it does not, IsPartitionedError. A change that has begun is completed even if its caller goes away.

On a cluster the partitions of a topic have many owners: an operation on all of them is carried out here by one broker,
any one, which asks the others for theirs (`others`). An operation on one topic is for its owner, which the caller finds
first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import trio

from broker.admin.other_brokers import OtherBrokers, RemoteTopic
from broker.admin.stats import internal_stats
from broker.admin.stats.internal_stats import InternalStats
from broker.background import for_all, see_through
from broker.config import BrokerOptions
from broker.dispatch.publish_time import first_published_at
from broker.errors import (
    BrokerError,
    IsPartitionedError,
    NotAllowedError,
    NotPartitionedError,
    ServiceNotReadyError,
    SubscriptionBusyError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
    TopicBusyError,
    TopicNotFoundError,
)
from broker.explain.explain import Explain
from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR
from broker.topics.loaded_topics import Topics
from broker.topics.non_persistent.loaded import NonPersistentTopics
from broker.topics.schemas.registry import Schemas
from broker.topics.subscription_cursors import Pairs
from broker.topics.system_names import is_system_cursor
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar.errors import InvalidNameError, PulsarWireError
from quire.wire.pulsar.names import PERSISTENT, NamespaceName, TopicName, check_subscription_name

__all__ = ["EARLIEST", "LATEST", "Administration", "InternalStats", "Position"]

log = get_logger(__name__)

LEDGERS_ROOT = "/ledgers"

T = TypeVar("T")


class Administration:
    """Administrative operations of one broker.

    Every call raises BrokerError. Beside the errors a method names, these are TopicNotFoundError (no such namespace or
    topic), ServiceNotReadyError, MetadataUnavailableError and BeingDeletedError (all passing). A change is durable when
    its call returns."""

    explain: Explain
    """Set by the broker."""

    def __init__(
        self, topics: Topics, direct: NonPersistentTopics, metadata: MetadataStore, nursery: trio.Nursery
    ) -> None:
        self._topics = topics
        self.direct = direct
        self.partitioned = topics.partitioned
        self.metadata = metadata
        self._nursery = nursery
        self._finishing: set[str] = set()
        self.others: OtherBrokers | None = None
        """None: this broker serves every topic."""
        self.ledgers_root = LEDGERS_ROOT
        self.check_quotas: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.transactions: object = None
        """The broker's `TransactionService`; None: transactions are off."""

    @property
    def schemas(self) -> Schemas:
        """Return the schemas of topics."""
        return self._topics.schemas

    async def check_namespace(self, name: TopicName) -> None:
        """Raise TopicNotFoundError if the namespace of a topic does not exist."""
        await self._topics.namespaces.exists(name)

    async def check_new_topic(self, name: TopicName) -> None:
        """Raise TopicNotFoundError or NotAllowedError if a topic that does not exist may not be made."""
        await self._topics.namespaces.takes_topics(name)
        await self._topics.first_use.check_room(name)

    @property
    def options(self) -> BrokerOptions:
        """Return the broker's configuration, which holds where no policy says otherwise."""
        return self._topics.options

    # Partitioned topics

    async def create_partitioned_topic(
        self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None, log: bytes | None = None
    ) -> None:
        """Make a partitioned topic with the logs of its partitions. `log`: value of each, see PartitionedTopics.create.

        Raises TopicExistsError (a topic of that name, of either kind), PartitionCountError, InvalidTopicError (the name
        is like that of a partition)."""
        if name.domain != PERSISTENT:
            await self.direct.create_partitioned(name, partitions, properties)
            return
        async with self.partitioned.changing(name):
            await self._topics.namespaces.takes_topics(name)
            await self._topics.first_use.check_room(name, partitions)
            await self.partitioned.create(name, partitions, properties, log)

    async def grow_partitioned_topic(self, name: TopicName, partitions: int) -> None:
        """Grow the topic to `partitions` in all. With the count it already has, only missing logs are made.

        New partitions get the durable subscriptions of the others, from their first entry on.
        Raises NotPartitionedError, PartitionCountError (fewer than there are, or too many)."""
        await self._topics.namespaces.takes_topics(name)
        await self.complete(partial(self._grow, name, partitions), f"grow {name.full}")

    async def _grow(self, name: TopicName, partitions: int) -> None:
        async with self.partitioned.changing(name):
            before = await self.partitioned.grow(name, partitions)
            if partitions > before:
                await self._subscribe_late(name, before, partitions)

    async def _subscribe_late(self, name: TopicName, before: int, partitions: int) -> None:
        """Add to the new partitions the subscriptions that were made on the old ones while the topic grew."""
        wanted = await self._names_on(name, range(before))
        for index in range(before, partitions):
            partition = name.with_partition(index)
            for subscription in sorted(wanted - set(await self.partitioned.subscriptions(partition))):
                await self._subscribe(partition, subscription, EARLIEST)

    async def _names_on(self, name: TopicName, indexes: range) -> set[str]:
        found: set[str] = set()
        for index in indexes:
            found.update(await self.partitioned.subscriptions(name.with_partition(index)))
        return {each for each in found if not is_system_cursor(each)}

    async def partitions(self, name: TopicName) -> int:
        """Return the number of partitions; 0: not partitioned, whether or not there is a topic of that name. Makes
        nothing."""
        await self._topics.namespaces.exists(name)
        return await self._partitions(name)

    async def delete_partitioned_topic(self, name: TopicName, force: bool = False) -> None:
        """Delete a partitioned topic with all its partitions.

        Raises NotPartitionedError; TopicBusyError without `force`, and then nothing was deleted. After an interrupted
        deletion the topic cannot be used; deleting or using it again completes the deletion."""
        await self._topics.namespaces.exists(name)
        await self.complete(partial(self._delete_partitioned, name, force), f"delete {name.full}")

    async def _delete_partitioned(self, name: TopicName, force: bool) -> None:
        async with self.partitioned.changing(name):
            found = await self.partitioned.find(name)
            if found is None:
                raise NotPartitionedError(f"there is no partitioned topic {name.full}")
            counted = range(found.partitions)
            if not found.deleted:
                if not force:
                    await self._check_unused(map(name.with_partition, counted))
                await self.partitioned.mark(name, deleted=True)
                if not force:
                    try:
                        await self._check_unused(map(name.with_partition, counted))
                    except TopicBusyError:
                        await self.partitioned.mark(name, deleted=False)
                        raise
            # From here on no client loads a partition. Loaded partitions are closed and their clients disconnected.
            # Partitions without a log are included: one may be on its way since before the mark.
            numbers = sorted({*counted, *await self.partitioned.existing_partitions(name)})
            await for_all(map(name.with_partition, numbers), self.delete_wherever, name="delete partitions")
            if name.domain == PERSISTENT:  # a topic of the other kind may have the same schemas
                await self._topics.forget(name)
            await self.partitioned.delete(name)
            log.info("partitioned topic deleted", topic=name.full, partitions=found.partitions)

    async def _check_unused(self, names: Iterable[TopicName]) -> None:
        await for_all(names, self.check_unused, name="look for users")

    async def check_unused(self, name: TopicName) -> None:
        """Raise TopicBusyError if producers or consumers are connected to the topic, on whichever broker."""
        if (remote := await self.elsewhere(name)) is None:
            self._of(name).check_unused(name)
        else:
            await remote.check_unused()

    async def delete_wherever(self, name: TopicName) -> None:
        """Delete one topic or partition on whichever broker serves it, even while in use. A missing topic is no
        error."""
        try:
            if (remote := await self.elsewhere(name)) is None:
                await self._of(name).delete(name, force=True)
            else:
                await remote.delete()
        except TopicNotFoundError:
            pass

    async def delete_left_over(self, namespace: NamespaceName) -> None:
        """Delete the topics of a deleted namespace, which no broker owns any more.

        Raises ServiceNotReadyError (some topics remain), MetadataUnavailableError."""
        await self._topics.delete_left_over(namespace)

    def finish_deletion(self, name: TopicName) -> None:
        """Complete an interrupted deletion in the background, unless that is under way. Called when such a topic is
        used."""
        if name.full not in self._finishing and not self.partitioned.is_changing(name):
            self._finishing.add(name.full)
            self._nursery.start_soon(self._finish_deletion, name, name=f"delete {name.full}")

    async def _finish_deletion(self, name: TopicName) -> None:
        try:
            await self.delete_partitioned_topic(name, force=True)
        except BrokerError as error:
            log.warning("deletion of a partitioned topic not ended yet", topic=name.full, reason=str(error))
        finally:
            self._finishing.discard(name.full)

    # Topics

    async def topics_of_namespace(self, namespace: NamespaceName) -> list[str]:
        """Return full names, partitions one by one, sorted."""
        await self._topics.namespaces.exists(namespace)
        return [name.full for name in await self._topics.names(namespace)]

    async def partitioned_topics_of_namespace(self, namespace: NamespaceName, domain: str = PERSISTENT) -> list[str]:
        """Return full names without `-partition-N`, sorted."""
        await self._topics.namespaces.exists(namespace)
        return [name.full for name in await self.partitioned.names(namespace, domain)]

    async def exists(self, name: TopicName) -> bool:
        """Return whether there is a topic, or partition, of that name. A partitioned topic does not count as one."""
        await self._topics.namespaces.exists(name)
        return await self._topics.exists(name)

    async def create_topic(self, name: TopicName, properties: Pairs = ()) -> None:
        """Create a topic without partitions, or a missing partition. Raises TopicExistsError, NotAllowedError."""
        await self._topics.create(name, properties)

    async def delete_topic(self, name: TopicName, force: bool = False) -> None:
        """Delete a topic or partition.

        Raises TopicBusyError (producers or consumers are connected, without `force`), IsPartitionedError."""
        await self._check_plain(name)
        await self._topics.delete(name, force=force)

    # Subscriptions

    async def create_subscription(
        self, name: TopicName, subscription: str, position: Position, properties: Pairs = ()
    ) -> None:
        """Create a durable subscription that delivers the entry at `position` next (EARLIEST, LATEST too).

        On a partitioned topic it is created on every partition, where only EARLIEST and LATEST make sense. The topic is
        made if it may be. Raises SubscriptionExistsError (of a partitioned topic: on every partition), NotAllowedError
        (invalid name)."""
        try:
            check_subscription_name(subscription)
        except InvalidNameError as error:
            raise NotAllowedError(str(error)) from error
        await self._topics.namespaces.exists(name)
        count = await self._topics.partitions(name, create=True)
        made: list[TopicName] = []

        async def create(each: TopicName) -> None:
            if await self._subscribe(each, subscription, position, properties):
                made.append(each)

        every = _every(name, count)
        await self.complete(
            partial(for_all, every, create, name="create subscriptions"), f"create subscription on {name.full}"
        )
        if not made:
            raise SubscriptionExistsError(f"subscription {subscription!r} of {name.full} exists")

    async def _subscribe(self, name: TopicName, subscription: str, position: Position, properties: Pairs = ()) -> bool:
        """Make a subscription of one topic on whichever broker serves it; return whether there was none."""
        try:
            if (remote := await self.elsewhere(name)) is None:
                await (await self._topics.get(name)).create_subscription(subscription, position, properties)
            else:
                await remote.create_subscription(subscription, position, properties)
        except SubscriptionExistsError:
            return False
        return True

    async def delete_subscription(self, name: TopicName, subscription: str, force: bool = False) -> None:
        """Delete a subscription; of a partitioned topic on every partition.

        Raises SubscriptionNotFoundError, SubscriptionBusyError (it has consumers, without `force`; then nothing was
        deleted on this broker)."""
        topics, elsewhere = await self._existing(name)
        holders = [topic for topic in topics if subscription in topic.subscriptions]
        remotes = [each for each in elsewhere if subscription in await self.partitioned.subscriptions(each.name)]
        if not holders and not remotes:
            raise SubscriptionNotFoundError(f"{name.full} has no subscription {subscription!r}")
        if not force and any(topic.subscriptions[subscription].consumers for topic in holders):
            raise SubscriptionBusyError(f"subscription {subscription!r} of {name.full} has consumers")

        async def delete(topic: Topic) -> None:
            try:
                await topic.delete_subscription_by_name(subscription, force=force)
            except SubscriptionNotFoundError:
                pass  # another request created it first

        async def delete_there(remote: RemoteTopic) -> None:
            try:
                await remote.delete_subscription(subscription, force=force)
            except SubscriptionNotFoundError:
                pass

        async def delete_all() -> None:
            await for_all(remotes, delete_there, name="delete subscriptions")
            await for_all(holders, delete, name="delete subscriptions")

        await self.complete(delete_all, f"delete subscription of {name.full}")

    async def subscriptions(self, name: TopicName) -> list[str]:
        """Return names, sorted; of a partitioned topic those on any partition. Includes connected readers and, as the
        original does, the cursor of the compaction, but not that of deduplication."""
        found: set[str] = set()
        for each in await self._every_existing(name):
            found.update(await self.partitioned.subscriptions(each))
            if (topic := self._topics.find(each)) is not None:
                found.update(topic.subscriptions)
        return sorted(found - {DEDUPLICATION_CURSOR})

    # Looking inside

    async def internal_stats(self, name: TopicName, metadata: bool = False) -> InternalStats:
        """Return the internal state of one topic or partition; with `metadata`, also each ledger's metadata.

        Raises IsPartitionedError."""
        topic = await self.plain_topic(name)
        schemas = [place.ledger_id for place in await self._topics.schemas.places(name)]
        read = partial(internal_stats.read_metadata, self.metadata, self.ledgers_root)
        return await internal_stats.gather(topic, read, schemas, show_metadata=metadata)

    async def internal_stats_json(self, name: TopicName, metadata: bool = False) -> Any:
        """Return the JSON of `internal_stats` for one topic or partition, from whichever broker serves it."""
        if (remote := await self.elsewhere(name)) is None:
            return (await self.internal_stats(name, metadata)).as_json()
        return await remote.internal_stats(metadata)

    async def unload_topic(self, name: TopicName) -> None:
        """Close a topic, all partitions of a partitioned one. The next use loads it again. Raises
        TopicNotFoundError."""
        every = await self._every_existing(name)

        async def unload(each: TopicName) -> None:
            if (remote := await self.elsewhere(each)) is not None:
                await remote.unload()
            elif (topic := self._topics.find(each)) is not None:
                self._topics.close_soon(topic)
                await topic.ledger.closed.wait()

        await self.complete(partial(for_all, every, unload, name="unload partitions"), f"unload {name.full}")

    async def message_id_at(self, name: TopicName, epoch_ms: int) -> Position:
        """Return the first entry published at or after `epoch_ms` (ms since 1970), or else the position of the next
        entry.

        The latter may be one too early, never too late, if entries are published meanwhile. Raises IsPartitionedError.
        Source: the original's ManagedLedgerImpl.asyncFindPosition, which answers the place behind the last entry."""
        topic = await self.plain_topic(name)
        end = topic.ledger.next_position(topic.ledger.last_confirmed)
        try:
            found = await first_published_at(topic.ledger, epoch_ms)
        except (ManagedLedgerError, PulsarWireError) as error:
            raise ServiceNotReadyError(f"{name.full}: {error}") from error
        return end if found == LATEST else found

    # Names

    async def _partitions(self, name: TopicName) -> int:
        return 0 if name.partition >= 0 else await self.partitioned.get(name)

    async def _check_plain(self, name: TopicName) -> None:
        await self._topics.namespaces.exists(name)
        if await self._partitions(name):
            raise IsPartitionedError(f"topic {name.full} is partitioned; use one of its partitions instead")

    async def plain_topic(self, name: TopicName) -> Topic:
        """Return one topic or partition that this broker serves, loaded. Raises IsPartitionedError."""
        await self._check_plain(name)
        return await self._topics.get(name, create=False)

    async def _every_existing(self, name: TopicName) -> list[TopicName]:
        """Return the topic, or the partitions of a partitioned one. Raises TopicNotFoundError if there is neither."""
        await self._topics.namespaces.exists(name)
        count = await self._partitions(name)
        if not count and not await self._topics.exists(name):
            raise TopicNotFoundError(f"topic {name.full} does not exist")
        return _every(name, count)

    def _of(self, name: TopicName) -> Topics | NonPersistentTopics:
        return self._topics if name.domain == PERSISTENT else self.direct

    async def elsewhere(self, name: TopicName) -> RemoteTopic | None:
        """Return the topic, or partition, if another broker serves it. Raises the BrokerErrors of a lookup."""
        return None if self.others is None else await self.others.find(name)

    async def partition(self, name: TopicName) -> Topic:
        """Return an existing partition that this broker serves, loaded."""
        return await self._topics.get(name, create=False)

    async def _existing(self, name: TopicName) -> tuple[list[Topic], list[RemoteTopic]]:
        """Return the topic, or its existing partitions, loaded; and separately the partitions of other brokers."""
        await self._topics.namespaces.exists(name)
        count = await self._partitions(name)
        if not count:
            return [await self._topics.get(name, create=False)], []
        found: list[Topic] = []
        elsewhere: list[RemoteTopic] = []

        async def load(each: TopicName) -> None:
            if (remote := await self.elsewhere(each)) is not None:
                elsewhere.append(remote)
                return
            try:
                found.append(await self._topics.get(each, create=False))
            except TopicNotFoundError:
                pass

        await for_all(_every(name, count), load, name="load partitions")
        return found, elsewhere

    # Doing

    async def complete(self, job: Callable[[], Awaitable[T]], name: str) -> T:
        """Run a change to its end even if the caller goes away, and return its result."""
        return await see_through(self._nursery, job, name=name)


def _every(name: TopicName, partitions: int) -> list[TopicName]:
    return [name.with_partition(index) for index in range(partitions)] or [name]
