"""First uses of a topic's name: what they make by the policies of its namespace, and the room there is for it."""

from __future__ import annotations

from broker.config import BrokerOptions
from broker.errors import NotAllowedError, translated
from broker.topics.life.creation import AutoTopics, topics_max, topics_of
from broker.topics.life.tombstones import Tombstones
from broker.topics.namespace_check import NamespaceCheck
from broker.topics.policies import Held, TopicPolicies
from broker.topics.system_names import is_system_name, is_system_topic
from managed_ledger.stored_list import log_path
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore
from quire.wire.pulsar.names import TopicName


class FirstUse:
    """First uses of the topics of one broker."""

    def __init__(
        self, metadata: MetadataStore, policies: TopicPolicies, options: BrokerOptions, namespaces: NamespaceCheck
    ) -> None:
        self._metadata = metadata
        self._policies = policies
        self._options = options
        self._namespaces = namespaces
        self.tombstones = Tombstones(options.tombstone_s)

    async def rule(self, name: TopicName) -> AutoTopics:
        """Return whether a first use makes the topic, and of which kind. Raises TopicNotFoundError (no such namespace),
        MetadataUnavailableError."""
        if (found := self.at_once(name)) is not None:
            return found
        await self._namespaces.exists(name)
        return topics_of(self._options, (await self._policies.load(name)).of_namespace, name)

    def at_once(self, name: TopicName) -> AutoTopics | None:
        """Return `rule` from memory; None: ask."""
        held = self._policies.known(name)
        return None if held is None else topics_of(self._options, held.of_namespace, name)

    async def check_room(self, name: TopicName, count: int = 1, held: Held | None = None) -> None:
        """Raise NotAllowedError if the namespace cannot have so many more topics or partitions. One that exists is none
        of them. `held`: the policies, if they are known.

        Raises MetadataUnavailableError. Source: Pulsar's BrokerService.checkMaxTopicsPerNamespace."""
        held = held or await self._policies.load(name)
        limit = topics_max(self._options, held.of_namespace)
        if not limit or is_system_topic(name):
            return  # the rule
        path = name.namespace_path
        with translated(path):
            if await self._metadata.get(log_path(name.managed_ledger_path)) is not None:
                return
            try:
                names = await self._metadata.children(log_path(f"{path}/persistent"))
            except NoNodeError:
                names = []
        found = len([each for each in names if not is_system_name(each)])
        if found + count > limit:
            raise NotAllowedError(
                f"Exceed maximum number of topics in namespace {path} ({limit}, maxTopicsPerNamespace)"
            )
