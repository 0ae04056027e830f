"""Requests that have to wait: each is one async function run in a task of its connection, and answers exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import trio

from broker import replies
from broker.connections.last_message import last_message
from broker.connections.refusals import check_schema
from broker.connections.topic_lists import listed, topic_pattern
from broker.dispatch.consumer import Consumer
from broker.errors import (
    BrokerError,
    ConsumerBusyError,
    ConsumerNotFoundError,
    InvalidTopicError,
    MetadataRefusedError,
    NotAllowedError,
    ProducerBusyError,
    ServiceNotReadyError,
    TopicNotFoundError,
)
from broker.ownership.lookup import Connect, Redirect
from broker.topics.producer import Producer
from broker.topics.topic import Topic, to_signed
from cursors.batch_acks import ACK_SET_WORDS_MAX
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError, UnsupportedTopicNameError
from quire.wire.pulsar.names import NAME_SIZE_MAX, NamespaceName, TopicName, check_subscription_name

if TYPE_CHECKING:
    from broker.connections.connection import Connection
    from broker.server import Broker

Handler = Callable[["Connection", pb.BaseCommand], Awaitable[None]]
Maker = Callable[["Connection", pb.BaseCommand, "Creation"], Awaitable[None]]


@lru_cache(maxsize=1024)
def parse_topic(text: str) -> TopicName:
    """The name a client gave; asked several times per topic. InvalidTopicError, NotAllowedError."""
    try:
        name = TopicName.parse(text)
    except UnsupportedTopicNameError as error:
        raise NotAllowedError(str(error)) from error
    except InvalidNameError as error:
        raise InvalidTopicError(str(error)) from error
    if name.domain != "persistent":
        raise NotAllowedError("only persistent topics are served")
    return name


async def partitioned_metadata(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.partitionMetadata
    topics = connection.broker.topics
    name = parse_topic(request.topic)
    await topics.check_namespace(name)
    count = await topics.partitions(name, create=request.metadata_auto_creation_enabled)
    connection.write((replies.partitions(request.request_id, count),))


async def get_topics(connection: Connection, command: pb.BaseCommand) -> None:
    """Names of a namespace's topics, partitions one by one; without them if the client has them, going by their hash."""
    request = command.getTopicsOfNamespace
    topics = connection.broker.topics
    try:
        namespace = NamespaceName.parse(request.namespace)
    except InvalidNameError as error:
        raise InvalidTopicError(str(error)) from error
    names: list[TopicName] = []
    try:
        await topics.check_namespace(namespace)
        if request.mode != pb.CommandGetTopicsOfNamespace.NON_PERSISTENT:
            names = await topics.names(namespace)
    except TopicNotFoundError:
        pass  # clients that follow a pattern wait for topics to come, of a namespace that may come too
    matches = topic_pattern(request.topics_pattern) if request.HasField("topics_pattern") else None
    found, known = await connection.broker.world.offload.run(partial(listed, names, matches), name="list of topics")
    changed = not (request.HasField("topics_hash") and request.topics_hash == known)
    answer = replies.topics(
        request.request_id, found if changed else [], topics_hash=known, filtered=matches is not None, changed=changed
    )
    connection.write((answer,))


async def lookup(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.lookupTopic
    broker = connection.broker
    counts = broker.lookups
    begun = trio.current_time()
    counts.pending += 1
    try:
        found = await _find_owner(broker, request)
    except BrokerError:
        counts.failures += 1
        raise
    finally:
        counts.pending -= 1
        counts.times.observe((trio.current_time() - begun) * 1000)
    if isinstance(found, Redirect):
        counts.redirects += 1
        answer = replies.redirect(request.request_id, found.broker_url, authoritative=found.authoritative)
    else:
        counts.answers += 1
        answer = replies.lookup(request.request_id, broker.service_url if found.mine else found.broker_url)
    connection.write((answer,))


async def _find_owner(broker: Broker, request: pb.CommandLookupTopic) -> Connect | Redirect:
    name = parse_topic(request.topic)
    await broker.topics.check_namespace(name)
    if request.advertised_listener_name:
        raise ServiceNotReadyError(f"the broker do not have {request.advertised_listener_name} listener")
    return await broker.ownership.lookup(name, authoritative=request.authoritative)


def answer_at_once(connection: Connection, command: pb.BaseCommand) -> bool:
    """PARTITIONED_METADATA and LOOKUP within the pass, where everything is known; False: it takes a task."""
    is_lookup = command.type == pb.BaseCommand.LOOKUP
    text = command.lookupTopic.topic if is_lookup else command.partitionMetadata.topic
    try:
        name = parse_topic(text)
    except BrokerError:
        return False
    if not connection.broker.topics.namespace_is_known(name):
        return False
    if not is_lookup:
        asked = command.partitionMetadata
        count = connection.broker.topics.partitions_at_once(name, create=asked.metadata_auto_creation_enabled)
        if count is None:
            return False
        connection.write((replies.partitions(asked.request_id, count),))
        return True
    request = command.lookupTopic
    if request.advertised_listener_name or not connection.broker.ownership.owns(name):
        return False
    connection.broker.lookups.answered_at_once()
    connection.write((replies.lookup(request.request_id, connection.broker.service_url),))
    return True


async def producer(connection: Connection, command: pb.BaseCommand, creation: Creation) -> None:
    request = command.producer
    producer_id = request.producer_id
    if (known := connection.producers.get(producer_id)) is not None:
        if known.topic.name != parse_topic(request.topic):
            raise NotAllowedError(f"producer {producer_id} of this connection is one of {known.topic.name.full}")
        connection.write((replies.producer_success(request.request_id, known.name),))
        return
    if request.producer_access_mode != pb.Shared:
        raise NotAllowedError("only the shared producer access mode is served")
    if request.txn_enabled:
        raise NotAllowedError("transactions are not served")
    if request.HasField("schema"):
        check_schema(request.topic, request.schema)
    check_properties(connection, request.metadata)
    check_size(request.producer_name, "producer name")
    name = parse_topic(request.topic)
    await check_may_publish(connection.broker, name)
    topic = await connection.broker.topics.get(name)
    if request.initial_subscription_name:
        await open_initial_subscription(topic, request.initial_subscription_name)
    added = await admit_producer(connection, creation, topic, request)
    connection.closed_producers.pop(producer_id, None)
    connection.producers[producer_id] = added
    connection.write((replies.producer_success(request.request_id, added.name),))


async def check_may_publish(broker: Broker, name: TopicName) -> None:
    """NotAllowedError where duplicates are to be dropped: we would store them. TopicNotFoundError (no such namespace),
    MetadataUnavailableError."""
    if broker.topics.find(name) is None:
        await broker.topics.check_namespace(name)  # policies of those that are not there are not asked for
    if await broker.policies.asks_deduplication(name):
        raise NotAllowedError(
            f"{name.full}: its policies ask for deduplication (deduplicationEnabled), which is not served: nobody may publish "
            "until they say false"
        )


async def admit_producer(
    connection: Connection, creation: Creation, topic: Topic, request: pb.CommandProducer
) -> Producer:
    """ProducerBusyError only if who has the name is alive; that costs a PING and its answer."""
    name = request.producer_name or connection.broker.next_producer_name()
    while True:
        creation.check()
        try:
            return topic.add_producer(connection, request.producer_id, name, request.epoch)
        except ProducerBusyError:
            if name not in topic.producers:  # not the name is taken: there are too many
                raise
            holder = topic.producers[name].connection
            if holder is connection or await holder.alive():
                raise


async def open_initial_subscription(topic: Topic, name: str) -> None:
    """Make a durable subscription from the first entry on, if there is none of that name."""
    check_subscription(name)
    wanted = pb.CommandSubscribe(
        subscription=name,
        subType=pb.CommandSubscribe.Exclusive,
        durable=True,
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    try:
        (await topic.subscription(wanted)).abandoned()
    except ConsumerBusyError:
        pass  # it exists, and has consumers of another type


async def subscribe(connection: Connection, command: pb.BaseCommand, creation: Creation) -> None:
    request = command.subscribe
    consumer_id = request.consumer_id
    if (known := connection.consumers.get(consumer_id)) is not None:
        held = (known.subscription.topic.name, known.subscription.name)
        if held != (parse_topic(request.topic), request.subscription):
            raise NotAllowedError(f"consumer {consumer_id} of this connection is one of {held[1]!r}")
        connection.write((replies.success(request.request_id),))
        return
    check_subscription(request.subscription)
    if request.read_compacted and request.subType in (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared):
        raise NotAllowedError("read_compacted goes with exclusive and failover subscriptions only")
    if request.HasField("schema"):
        check_schema(request.topic, request.schema)
    check_properties(connection, request.metadata)
    check_properties(connection, request.subscription_properties)
    check_size(request.consumer_name, "consumer name")
    name = parse_topic(request.topic)
    topic = await connection.broker.topics.get(name, create=request.force_topic_creation)
    consumer = await admit_consumer(connection, creation, topic, request)
    connection.consumers[consumer_id] = consumer
    connection.write((replies.success(request.request_id),))
    consumer.subscription.announce()


async def admit_consumer(
    connection: Connection, creation: Creation, topic: Topic, request: pb.CommandSubscribe
) -> Consumer:
    """ConsumerBusyError only if who keeps the newcomer out is alive; that costs a PING and its answer."""
    name = request.consumer_name or connection.broker.random_name()
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    shared_meta = request.keySharedMeta if request.HasField("keySharedMeta") else None
    while True:
        # Asked for again after a probe: one that is not durable went with the dead consumer.
        subscription = await topic.subscription(request)
        consumer = Consumer(
            connection, subscription, request.consumer_id, name, request.priority_level, epoch, shared_meta
        )
        try:
            creation.check()
            subscription.add_consumer(consumer)
            return consumer
        except ConsumerBusyError:
            holder = subscription.sole_holder()
            if holder is None or holder.connection is connection or await holder.connection.alive():
                raise
            subscription.disconnect(holder)
        except BrokerError:
            subscription.abandoned()
            raise


def check_subscription(name: str) -> None:
    try:
        check_subscription_name(name)
    except InvalidNameError as error:
        # An empty name gets ProducerBusy from the original, which the C++ client shows as InvalidConfiguration.
        raise (ProducerBusyError if not name else NotAllowedError)(str(error)) from error


def check_size(name: str, what: str) -> None:
    if len(name) > NAME_SIZE_MAX:
        raise NotAllowedError(f"a {what} of {len(name)} characters is too long")


def check_properties(connection: Connection, pairs: Iterable[pb.KeyValue]) -> None:
    size = sum(len(pair.key) + len(pair.value) for pair in pairs)
    if size > connection.broker.options.properties_bytes_max:
        raise NotAllowedError(f"properties of {size} bytes are too large")


class Creation:
    """A producer or consumer on its way to an id of a connection: a second creation of that id is refused meanwhile, and the
    client may close it before it is there. Made in the pass that reads the command: a CLOSE may be right behind it."""

    def __init__(self, connection: Connection, command: pb.BaseCommand) -> None:
        self._connection = connection
        if command.type == pb.BaseCommand.PRODUCER:
            self._key = ("producer", command.producer.producer_id)
        else:
            self._key = ("consumer", command.subscribe.consumer_id)
        self._taken = self._key in connection.creating
        if not self._taken:
            connection.creating[self._key] = self

    async def run(self, maker: Maker, command: pb.BaseCommand) -> None:
        """Make it; on return, or with a BrokerError, it is no longer on its way."""
        if self._taken:
            raise ServiceNotReadyError(f"{self._key[0]} {self._key[1]} is already being created on this connection")
        try:
            await maker(self._connection, command, self)
        finally:
            if self._connection.creating.get(self._key) is self:
                del self._connection.creating[self._key]

    def check(self) -> None:
        """ServiceNotReadyError if it is not wanted any more: call it in the step that makes it."""
        if self._connection.closed or self._connection.creating.get(self._key) is not self:
            raise ServiceNotReadyError(f"{self._key[0]} {self._key[1]} was closed while it was being created")


async def unsubscribe(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.unsubscribe
    consumer = find_consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    others = [other for other in subscription.consumers if other is not consumer]
    if others and not request.force:
        raise MetadataRefusedError(f"subscription {subscription.name!r} has other consumers")
    subscription.stop()
    for other in others:
        subscription.disconnect(other)
    close(consumer)
    await subscription.topic.delete_subscription(subscription)
    connection.write((replies.success(request.request_id),))


async def seek(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.seek
    consumer = find_consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    if request.HasField("message_id"):
        target = Position(to_signed(request.message_id.ledgerId), to_signed(request.message_id.entryId))
        ack_set = tuple(request.message_id.ack_set[: ACK_SET_WORDS_MAX + 1])
        if len(ack_set) > ACK_SET_WORDS_MAX:
            raise MetadataRefusedError(f"a SEEK with an ack_set of more than {ACK_SET_WORDS_MAX} words")
        await subscription.seek(target, ack_set)
    elif request.HasField("message_publish_time"):
        await subscription.seek_time(request.message_publish_time)
    else:
        raise MetadataRefusedError("a SEEK needs a message id or a publish time")
    connection.write((replies.success(request.request_id),))


async def get_last_message_id(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.getLastMessageId
    consumer = find_consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    topic = subscription.topic
    try:
        last, batch_index = await last_message(topic.ledger, topic.screen)
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"the last message cannot be read: {error}") from error
    partition = subscription.topic.name.partition
    mark_delete = subscription.cursor.mark_delete
    connection.write((replies.last_message_id(request.request_id, last, partition, batch_index, mark_delete),))


async def consumer_stats(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.consumerStats
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        raise ConsumerNotFoundError(f"consumer {request.consumer_id} is not on this connection")
    subscription = consumer.subscription
    answer = replies.consumer_stats(
        request.request_id,
        name=consumer.name,
        kind=pb.CommandSubscribe.SubType.Name(subscription.kind),
        address=connection.stream.peer,
        permits=subscription.permits_of(consumer),
        unacked=subscription.unacked_of(consumer),
        blocked=consumer.blocked,
        backlog=subscription.backlog,
    )
    connection.write((answer,))


def find_consumer(connection: Connection, consumer_id: int) -> Consumer:
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        raise MetadataRefusedError(f"consumer {consumer_id} is not on this connection")
    return consumer


def close_producer(connection: Connection, request: pb.CommandCloseProducer) -> None:
    """Always succeeds, also for what is unknown or not there yet. What is on its way gets its receipts before the answer."""
    connection.creating.pop(("producer", request.producer_id), None)
    done = replies.success(request.request_id)
    if (known := connection.producers.get(request.producer_id)) is not None:
        known.topic.release_producer(known)
        connection.producer_closed(known)
        known.after_sends(done)
    else:
        connection.write((done,))


def close_consumer(connection: Connection, request: pb.CommandCloseConsumer) -> None:
    """Always succeeds, also for what is unknown or not there yet."""
    connection.creating.pop(("consumer", request.consumer_id), None)
    if (known := connection.consumers.get(request.consumer_id)) is not None:
        close(known)
    connection.write((replies.success(request.request_id),))


def close(consumer: Consumer) -> None:
    """At its client's wish: it is told nothing."""
    consumer.connection.consumers.pop(consumer.consumer_id, None)
    consumer.closed = True
    consumer.subscription.remove_consumer(consumer)


MAKERS: dict[int, Maker] = {
    pb.BaseCommand.PRODUCER: producer,
    pb.BaseCommand.SUBSCRIBE: subscribe,
}
QUICK = frozenset((pb.BaseCommand.PARTITIONED_METADATA, pb.BaseCommand.LOOKUP))
"""What `answer_at_once` may answer."""

HANDLERS: dict[int, Handler] = {
    pb.BaseCommand.PARTITIONED_METADATA: partitioned_metadata,
    pb.BaseCommand.LOOKUP: lookup,
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: get_topics,
    pb.BaseCommand.UNSUBSCRIBE: unsubscribe,
    pb.BaseCommand.SEEK: seek,
    pb.BaseCommand.GET_LAST_MESSAGE_ID: get_last_message_id,
    pb.BaseCommand.CONSUMER_STATS: consumer_stats,
}


def failed(command: pb.BaseCommand, code: pb.ServerError, message: str) -> bytes:
    """A failure, in the reply type that the client waits for."""
    kind = command.type
    if kind == pb.BaseCommand.PARTITIONED_METADATA:
        return replies.partitions_failed(command.partitionMetadata.request_id, code, message)
    if kind == pb.BaseCommand.LOOKUP:
        return replies.lookup_failed(command.lookupTopic.request_id, code, message)
    return replies.own_error(command, code, message)


def refuse(command: pb.BaseCommand) -> bytes:
    """The protocol's own error for what is not served. There are no schemas yet: to ask for one is served, and finds none,
    which is what AUTO_CONSUME and AUTO_PRODUCE of Java go on with."""
    if command.type == pb.BaseCommand.GET_SCHEMA:
        return failed(command, pb.TopicNotFound, f"topic {command.getSchema.topic} has no schema")
    name = pb.BaseCommand.Type.Name(command.type)
    return failed(command, pb.NotAllowedError, f"{name} is not served")


__all__ = [
    "HANDLERS",
    "MAKERS",
    "BrokerError",
    "Creation",
    "Handler",
    "Maker",
    "close_consumer",
    "close_producer",
    "failed",
    "refuse",
]
