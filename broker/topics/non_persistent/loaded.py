"""The non-persistent topics of this broker. They exist while they are in use: made when a client first names one, and
forgotten when they have had no producer and no subscription for a while, or their bundle goes to another broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import trio

from broker.config import PARTITIONED
from broker.context import Context
from broker.errors import NotAllowedError, ServiceNotReadyError, TopicExistsError, TopicNotFoundError
from broker.ownership.bundles import Bundle
from broker.ownership.load_reports import TopicCounters
from broker.ownership.local import Owning
from broker.slices import sliced
from broker.topics.namespace_check import NamespaceCheck
from broker.topics.non_persistent.handling import Handling
from broker.topics.non_persistent.topic import NonPersistentTopic
from broker.topics.partitioned_topics import PartitionedTopics
from quire.service.log import get_logger
from quire.wire.pulsar.names import NamespaceName, TopicName

log = get_logger(__name__)

UNUSED_S: Final = 60.0
"""Time after which a topic without producers and subscriptions is forgotten. Source: NonPersistentTopic.checkGC, with
the default of brokerDeleteInactiveTopicsFrequencySeconds."""
TOPICS_IN_STEP = 100
"""Topics that a walk over all of them looks at, or closes, before other tasks run."""


class NonPersistentTopics:
    """Non-persistent topics by full name."""

    def __init__(
        self, context: Context, ownership: Owning, namespaces: NamespaceCheck, partitioned: PartitionedTopics
    ) -> None:
        self._context = context
        self._ownership = ownership
        self._namespaces = namespaces
        self._partitioned = partitioned
        self._loaded: dict[str, NonPersistentTopic] = {}
        self._handling = Handling(context.turn, context.options.non_persistent_pending_max)
        self._stopping = False
        self.names_elsewhere: Callable[[NamespaceName], Awaitable[list[TopicName]]] | None = None
        """Return the topics of a namespace on the other brokers; None: there are no others."""

    def loaded(self) -> list[NonPersistentTopic]:
        return list(self._loaded.values())

    def find(self, name: TopicName) -> NonPersistentTopic | None:
        """Return the topic, if it is loaded and open."""
        topic = self._loaded.get(name.full)
        return None if topic is None or topic.closing else topic

    def names(self, namespace: NamespaceName) -> list[TopicName]:
        """Return the topics of a namespace on this broker, partitions one by one, in order."""
        path = str(namespace)
        return sorted(topic.name for topic in self._loaded.values() if topic.name.namespace_path == path)

    async def names_everywhere(self, namespace: NamespaceName) -> list[TopicName]:
        """Return the topics of a namespace on all brokers, in order. Raises BrokerError if one cannot be asked."""
        elsewhere = [] if self.names_elsewhere is None else await self.names_elsewhere(namespace)
        return sorted({*self.names(namespace), *elsewhere})

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """Return how many partitions a client is to see, as `Topics.partitions` does.

        A missing topic that may not be made is one that no broker has. Raises TopicNotFoundError, and
        ServiceNotReadyError if a broker cannot be asked. Source: NamespaceService.checkTopicExists of the original."""
        if name.partition < 0 and (count := await self._partitioned.get(name)):
            return count
        options = self._context.options
        create = create and options.allow_auto_topic_creation
        if self.find(name) is not None:
            return 0
        if not create:
            if name.partition >= 0:
                exists = name.partition < await self._partitioned.get(name.partitioned)
            else:
                exists = name in await self.names_everywhere(name.namespace_name)
            if not exists:
                raise TopicNotFoundError(f"topic {name.full} does not exist, and may not be created")
        if not create or options.auto_topic_type != PARTITIONED or name.partition >= 0:
            return 0
        try:
            await self.create_partitioned(name, options.partitions_default)
        except TopicExistsError:
            pass  # another client created it meanwhile
        return await self._partitioned.get(name)

    async def create_partitioned(
        self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make a partitioned topic. Raises TopicExistsError, PartitionCountError, InvalidTopicError."""
        async with self._partitioned.changing(name):
            await self._namespaces.takes_topics(name)
            if self.find(name) is not None:
                raise TopicExistsError(f"topic {name.full} exists, and is not partitioned")
            await self._partitioned.create(name, partitions, properties)

    async def get(self, name: TopicName, *, create: bool = True, explicit: bool = False) -> NonPersistentTopic:
        """Return the topic, made if it may be, or in any case if it is `explicit`.

        Raises TopicNotFoundError, NotAllowedError (these topics are not served, or it is partitioned, or it is none of
        the partitions), NotOwnerError, ServiceNotReadyError, MetadataUnavailableError."""
        if not self._context.options.non_persistent_topics:
            raise NotAllowedError("Broker is not unable to load non-persistent topic (enableNonPersistentTopics=false)")
        if (topic := self.find(name)) is not None:
            return topic
        create = create and (explicit or self._context.options.allow_auto_topic_creation)
        await self._namespaces.exists(name)
        count = await self._partitioned.get(name.partitioned)
        if name.partition < 0 and count:
            raise NotAllowedError(f"topic {name.full} is partitioned: use its partitions")
        if name.partition >= count and name.partition >= 0:
            raise NotAllowedError(f"{name.full} is not one of the {count} partitions of {name.partitioned.full}")
        if name.partition < 0 and not create:
            raise TopicNotFoundError(f"topic {name.full} does not exist, and may not be created")
        await self._namespaces.takes_topics(name)
        return await self.make(name)

    async def make(self, name: TopicName) -> NonPersistentTopic:
        """Return the topic, made if it is not there. Raises NotOwnerError, ServiceNotReadyError."""
        await self._ownership.check(name)
        # From here to the end in one step: the bundle is not given away in between.
        if self._stopping:
            raise ServiceNotReadyError("the broker is stopping")
        if not self._ownership.owns(name):
            raise ServiceNotReadyError(f"the bundle of {name.full} is being unloaded")
        topic = self.find(name)
        if topic is None:
            topic = self._loaded[name.full] = NonPersistentTopic(self._context, name, self._handling)
        return topic

    def counters(self) -> Iterator[TopicCounters]:
        """Return the counts of the topics."""
        for topic in self.loaded():
            subscriptions = topic.subscriptions.values()
            messages_out = sum(each.messages_out for each in subscriptions)
            yield TopicCounters(
                topic.name, topic.messages_in, topic.bytes_in, messages_out, len(topic.producers), topic.consumer_count
            )

    def check_unused(self, name: TopicName) -> None:
        """Raise TopicBusyError if producers or consumers are connected."""
        if (topic := self.find(name)) is not None:
            topic.check_unused()

    # The end of topics

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Disconnect the clients of a topic and forget it. Raises TopicBusyError, TopicNotFoundError, NotOwnerError."""
        await self._ownership.check(name)
        if (topic := self.find(name)) is None:
            await self._namespaces.exists(name)
            raise TopicNotFoundError(f"topic {name.full} does not exist")
        if not force:
            topic.check_unused()
        self.close(topic)

    def close(self, topic: NonPersistentTopic, next_owner: str = "") -> None:
        """Disconnect the clients of a topic and forget it. They come back at once: here, or to `next_owner`."""
        topic.close(next_owner)
        if self._loaded.get(topic.name.full) is topic:
            del self._loaded[topic.name.full]

    async def unload(self, bundle: Bundle, next_owner: str = "") -> None:
        """Close the topics of a bundle, which is disabled."""
        async for topic in sliced(self.loaded(), TOPICS_IN_STEP):
            if not topic.closing and bundle.has(topic.name):
                self.close(topic, next_owner)

    def lose(self, bundle: Bundle) -> None:
        """Close the topics of a bundle that another broker has, in later steps."""
        if self._loaded:
            self._context.nursery.start_soon(self.unload, bundle, name=f"lose non-persistent topics of {bundle}")

    async def close_all(self) -> None:
        """Close all topics, because the broker stops."""
        self._stopping = True
        async for topic in sliced(self.loaded(), TOPICS_IN_STEP):
            self.close(topic)

    async def forget_unused(self) -> None:
        """Forget topics that were not used for `UNUSED_S`."""
        now = trio.current_time()
        async for topic in sliced(self.loaded(), TOPICS_IN_STEP):
            if topic.unused_since is not None and now - topic.unused_since >= UNUSED_S and not topic.closing:
                log.info("unused non-persistent topic forgotten", topic=topic.name.full)
                self.close(topic)
