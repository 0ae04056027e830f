"""Effect of the first use of a topic's name, by the policies of its namespace, and the room there is for it."""

from __future__ import annotations

from broker.config import BrokerOptions
from broker.errors import NotAllowedError, translated
from broker.topics.life.creation import topic_creation
from broker.topics.life.tombstones import Tombstones
from broker.topics.namespace_check import NamespaceCheck
from broker.topics.policies import Held, TopicPolicies
from broker.topics.system_names import is_system_name, is_system_topic
from broker.topics.topic_policies.catalog import MAX_TOPICS
from broker.topics.topic_policies.kinds import AutoTopicCreation
from managed_ledger.stored_list import log_path
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Clock


class FirstUse:
    """First uses of the topics of one broker."""

    def __init__(
        self,
        metadata: MetadataStore,
        policies: TopicPolicies,
        options: BrokerOptions,
        namespaces: NamespaceCheck,
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._policies = policies
        self._namespaces = namespaces
        self.tombstones = Tombstones(options.tombstone_s, metadata, clock)

    async def rule(self, name: TopicName) -> AutoTopicCreation:
        """Return whether a first use makes the topic, and of which kind. Raises TopicNotFoundError (no such namespace),
        MetadataUnavailableError."""
        if (found := self.at_once(name)) is not None:
            return found
        await self._namespaces.exists(name)
        return topic_creation(await self._policies.load(name, only_namespace=True), name)

    def at_once(self, name: TopicName, held: Held | None = None) -> AutoTopicCreation | None:
        """Return `rule` from memory; None: ask. `held`: the policies, if the caller has them."""
        if held is None:
            held = self._policies.known(name)
        return None if held is None else topic_creation(held, name)

    async def check_room(self, name: TopicName, count: int = 1, held: Held | None = None) -> None:
        """Raise NotAllowedError if the namespace cannot have so many more topics or partitions. One that exists is none
        of them. `held`: the policies, if they are known.

        Non-persistent topics do not count, but the partitions of a new one must not be too many.

        Raises MetadataUnavailableError. Source: Pulsar's BrokerService.checkMaxTopicsPerNamespace, which counts the
        logs of the new topic's kind."""
        held = held or await self._policies.load(name, only_namespace=True)
        limit = held.value(MAX_TOPICS)
        if not limit or is_system_topic(name):
            return  # the rule
        path = name.namespace_path
        with translated(path):
            if await self._metadata.get(log_path(name.managed_ledger_path)) is not None:
                return
            try:
                names = await self._metadata.children(log_path(f"{path}/{name.domain}"))
            except NoNodeError:
                names = []
        found = len([each for each in names if not is_system_name(each)])
        if found + count > limit:
            raise NotAllowedError(
                f"Exceed maximum number of topics in namespace {path} ({limit}, maxTopicsPerNamespace)"
            )
