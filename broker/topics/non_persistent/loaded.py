"""The non-persistent topics of this broker. They exist while they are in use: made when a client first names one, and
forgotten when they have had no producer and no subscription for a while, or their bundle goes to another broker.

Their policies hold as those of persistent topics do, as far as they concern what is not stored: limits of producers,
consumers and subscriptions, the rate of publishing, creation at the first use, inactive topics. Source: Pulsar's
NonPersistentTopic (checkGC), AbstractTopic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

import trio

from broker.context import Context
from broker.errors import NotAllowedError, ServiceNotReadyError, TopicExistsError, TopicNotFoundError
from broker.ownership.bundles import Bundle
from broker.ownership.load_reports import TopicCounters
from broker.ownership.local import Owning
from broker.slices import sliced
from broker.topics.life.first_use import FirstUse
from broker.topics.life.sending import follow_sends
from broker.topics.namespace_check import NamespaceCheck
from broker.topics.non_persistent.handling import Handling
from broker.topics.non_persistent.topic import NonPersistentTopic
from broker.topics.partitioned_topics import PartitionedTopics
from broker.topics.policies import Held, TopicPolicies
from broker.topics.rates.broker_rates import BrokerRates
from broker.topics.rates.following import follow_direct
from broker.topics.topic_policies.catalog import INACTIVE_TOPICS
from broker.topics.topic_policies.known import value_of
from quire.service.log import get_logger
from quire.wire.pulsar.names import NamespaceName, TopicName

log = get_logger(__name__)

TOPICS_IN_STEP = 100
"""Topics that a walk over all of them looks at, or closes, before other tasks run."""


class NonPersistentTopics:
    """Non-persistent topics by full name."""

    def __init__(
        self,
        context: Context,
        ownership: Owning,
        policies: TopicPolicies,
        first_use: FirstUse,
        rates: BrokerRates,
        namespaces: NamespaceCheck,
        partitioned: PartitionedTopics,
    ) -> None:
        self._context = context
        self._ownership = ownership
        self._policies = policies
        self._first_use = first_use
        self._rates = rates
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
        rule = await self._first_use.rule(name) if create else None
        if self.find(name) is not None:
            return 0
        if rule is None or not rule.allow:
            if name.partition >= 0:
                exists = name.partition < await self._partitioned.get(name.partitioned)
            else:
                exists = name in await self.names_everywhere(name.namespace_name)
            if not exists:
                raise TopicNotFoundError(f"topic {name.full} does not exist, and may not be created")
            return 0
        if not rule.made or name.partition >= 0:
            return 0
        try:
            await self.create_partitioned(name, rule.made)
        except TopicExistsError:
            pass  # another client created it meanwhile
        return await self._partitioned.get(name)

    async def create_partitioned(
        self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make a partitioned topic.

        Raises TopicExistsError, PartitionCountError, InvalidTopicError, NotAllowedError (the namespace has no room)."""
        async with self._partitioned.changing(name):
            await self._namespaces.takes_topics(name)
            if self.find(name) is not None:
                raise TopicExistsError(f"topic {name.full} exists, and is not partitioned")
            await self._first_use.check_room(name, partitions)
            await self._partitioned.create(name, partitions, properties)

    async def get(self, name: TopicName, *, create: bool = True, explicit: bool = False) -> NonPersistentTopic:
        """Return the topic, made if it may be, or in any case if it is `explicit`.

        Raises TopicNotFoundError, NotAllowedError (these topics are not served, or it is partitioned, or it is none of
        the partitions), NotOwnerError, ServiceNotReadyError, MetadataUnavailableError."""
        if not self._context.options.non_persistent_topics:
            raise NotAllowedError("Broker is not unable to load non-persistent topic (enableNonPersistentTopics=false)")
        if (topic := self.find(name)) is not None:
            return topic
        await self._namespaces.exists(name)
        create = create and (explicit or (await self._first_use.rule(name)).allow)
        count = await self._partitioned.get(name.partitioned)
        if name.partition < 0 and count:
            raise NotAllowedError(f"topic {name.full} is partitioned: use its partitions")
        if name.partition >= count and name.partition >= 0:
            raise NotAllowedError(f"{name.full} is not one of the {count} partitions of {name.partitioned.full}")
        if name.partition < 0 and not create:
            raise TopicNotFoundError(f"topic {name.full} does not exist, and may not be created")
        await self._namespaces.takes_topics(name)
        return await self.make(name, await self._policies.load(name))

    async def make(self, name: TopicName, policies: Held) -> NonPersistentTopic:
        """Return the topic, made if it is not there. Raises NotOwnerError, ServiceNotReadyError."""
        await self._ownership.check(name)
        # From here to the end in one step: the bundle is not given away in between.
        if self._stopping:
            raise ServiceNotReadyError("the broker is stopping")
        if not self._ownership.owns(name):
            raise ServiceNotReadyError(f"the bundle of {name.full} is being unloaded")
        topic = self.find(name)
        if topic is None:
            topic = self._loaded[name.full] = NonPersistentTopic(self._context, name, self._handling, policies)
            follow_direct(topic, self._rates)
            follow_sends(topic)
        return topic

    def follow(self, namespace: str | None) -> None:
        """Let the topics of a namespace follow a change of their policies, in later steps. Limits are looked up when
        they are needed. None: all topics, because options have changed."""
        if self._loaded:
            self._context.nursery.start_soon(self._follow, namespace, name=f"follow policies of {namespace}")

    async def _follow(self, namespace: str | None) -> None:
        async for topic in sliced(self.loaded(), TOPICS_IN_STEP):
            if not topic.closing and namespace in (None, topic.name.namespace_path):
                follow_direct(topic, self._rates)
                follow_sends(topic)
                for subscription in list(topic.subscriptions.values()):
                    subscription.follow_options()

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
        """Forget topics without producers and subscriptions, where their policy about inactive topics says so.

        The mode of the policy makes no difference: nothing has a backlog."""
        now = trio.current_time()
        async for topic in sliced(self.loaded(), TOPICS_IN_STEP):
            if topic.unused_since is None or topic.closing:
                continue
            rule = value_of(topic.policies, INACTIVE_TOPICS, self._context.options)
            if rule.delete and now - topic.unused_since >= rule.after_s:
                log.info("unused non-persistent topic forgotten", topic=topic.name.full)
                self.close(topic)
