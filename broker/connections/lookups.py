"""Lookups of topics: PARTITIONED_METADATA, LOOKUP, GET_TOPICS_OF_NAMESPACE."""

from __future__ import annotations

from functools import lru_cache, partial

import trio

from broker import replies
from broker.connections.charges import charge_partitioned
from broker.connections.connection import Connection
from broker.connections.lookup_counts import LookupCounts
from broker.connections.topic_lists.patterns import listed
from broker.errors import BrokerError, InvalidTopicError, NotAllowedError, ServiceNotReadyError, TopicNotFoundError
from broker.ownership.local import Owning
from broker.ownership.lookup import Connect, Redirect
from broker.topics.loaded_topics import Topics
from broker.topics.non_persistent.loaded import NonPersistentTopics
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError, UnsupportedTopicNameError
from quire.wire.pulsar.names import PERSISTENT, NamespaceName, TopicName


@lru_cache(maxsize=1024)
def parse_topic(text: str) -> TopicName:
    """Parse the name a client gave; called several times per topic. Raises InvalidTopicError, NotAllowedError."""
    try:
        name = TopicName.parse(text)
    except UnsupportedTopicNameError as error:
        raise NotAllowedError(str(error)) from error
    except InvalidNameError as error:
        raise InvalidTopicError(str(error)) from error
    return name


class Lookups:
    """Lookup answers from the broker's topics and its ownership."""

    def __init__(self, topics: Topics, direct: NonPersistentTopics, ownership: Owning, counts: LookupCounts) -> None:
        self._topics = topics
        self._direct = direct
        self._ownership = ownership
        self._counts = counts

    async def partitioned_metadata(self, connection: Connection, command: pb.BaseCommand) -> None:
        """Answer the number of partitions of a topic."""
        request = command.partitionMetadata
        name = parse_topic(request.topic)
        await self._topics.namespaces.exists(name)
        create = request.metadata_auto_creation_enabled
        topics = self._topics if name.domain == PERSISTENT else self._direct
        if create:
            await charge_partitioned(connection, self._topics, topics, name)
        count = await topics.partitions(name, create=create)
        connection.write((replies.partitions(request.request_id, count),))

    async def get_topics(self, connection: Connection, command: pb.BaseCommand) -> None:
        """Answer the names of a namespace's topics, partitions one by one; without names if the client's hash is
        current."""
        request = command.getTopicsOfNamespace
        try:
            namespace = NamespaceName.parse(request.namespace)
        except InvalidNameError as error:
            raise InvalidTopicError(str(error)) from error
        names: list[TopicName] = []
        try:
            await self._topics.namespaces.exists(namespace)
            if request.mode != pb.CommandGetTopicsOfNamespace.NON_PERSISTENT:
                names = await self._topics.names(namespace, system=False)
            if request.mode != pb.CommandGetTopicsOfNamespace.PERSISTENT:
                names = [*names, *await self._direct.names_everywhere(namespace)]
        except TopicNotFoundError:
            pass  # clients with a pattern wait for topics, also of a namespace that does not exist yet
        pattern = request.topics_pattern if request.HasField("topics_pattern") else None
        options = connection.context.options
        if pattern is not None and (not options.pattern_evaluation or len(pattern) > options.pattern_length_max):
            pattern = None  # the client filters what it gets
        found, known, is_filtered = await connection.context.world.offload.run(
            partial(listed, names, pattern), name="list of topics"
        )
        changed = not (request.HasField("topics_hash") and request.topics_hash == known)
        answer = replies.topics(
            request.request_id,
            found if changed else [],
            topics_hash=known,
            filtered=is_filtered,
            changed=changed,
        )
        connection.write((answer,))

    async def lookup(self, connection: Connection, command: pb.BaseCommand) -> None:
        """Answer the broker that serves a topic."""
        request = command.lookupTopic
        counts = self._counts
        begun = trio.current_time()
        counts.pending += 1
        try:
            found = await self._find_owner(request)
        except BrokerError:
            counts.failures += 1
            raise
        finally:
            counts.pending -= 1
            counts.times.observe((trio.current_time() - begun) * 1000)
        if isinstance(found, Redirect):
            counts.redirects += 1
            answer = replies.redirect(request.request_id, found, authoritative=found.authoritative)
        else:
            counts.answers += 1
            answer = replies.lookup(request.request_id, _own(connection) if found.mine else found)
        connection.write((answer,))

    async def _find_owner(self, request: pb.CommandLookupTopic) -> Connect | Redirect:
        name = parse_topic(request.topic)
        await self._topics.namespaces.exists(name)
        if request.advertised_listener_name:
            raise ServiceNotReadyError(f"the broker do not have {request.advertised_listener_name} listener")
        return await self._ownership.lookup(name, authoritative=request.authoritative)

    def answer_at_once(self, connection: Connection, command: pb.BaseCommand) -> bool:
        """Answer PARTITIONED_METADATA or LOOKUP within the pass if everything is known; return False if it needs a
        task."""
        is_lookup = command.type == pb.BaseCommand.LOOKUP
        text = command.lookupTopic.topic if is_lookup else command.partitionMetadata.topic
        try:
            name = parse_topic(text)
        except BrokerError:
            return False
        if not self._topics.namespaces.is_known(name):
            return False
        if not is_lookup:
            asked = command.partitionMetadata
            if name.domain != PERSISTENT:
                return False
            count = self._topics.partitions_at_once(name, create=asked.metadata_auto_creation_enabled)
            if count is None:
                return False
            connection.write((replies.partitions(asked.request_id, count),))
            return True
        request = command.lookupTopic
        if request.advertised_listener_name or not self._ownership.owns(name):
            return False
        self._counts.answered_at_once()
        connection.write((replies.lookup(request.request_id, _own(connection)),))
        return True


def _own(connection: Connection) -> Connect:
    """Return the URLs of this broker."""
    context = connection.context
    return Connect(context.service_url, "", mine=True, broker_url_tls=context.service_url_tls)
