"""Commands about producers and consumers of non-persistent topics.

Such a consumer is in `Connection.direct`, all others are in `Connection.consumers`: so the commands about the latter
look here only for an id that they do not find.

Acknowledgements, redelivery and seek succeed and change nothing: nothing that was delivered is kept. There is no last
message, so a reader is answered with an error when it asks for its id.
Source: Pulsar's NonPersistentSubscription, ServerCnx.
"""

from __future__ import annotations

from broker import replies
from broker.connections.admission import Creating, admit_exclusive_producer, admit_producer, register
from broker.connections.charges import charge_direct
from broker.connections.connection import Connection
from broker.connections.schemas import schema_of_consumer, version_of_producer
from broker.dispatch.consumer import Consumer
from broker.ends import End
from broker.errors import ConsumerBusyError, MetadataRefusedError, NotAllowedError
from broker.security.roles import acting_role
from broker.topics.life.sending import check_encryption
from broker.topics.non_persistent.loaded import NonPersistentTopics
from broker.topics.non_persistent.subscription import NonPersistentSubscription
from broker.topics.non_persistent.topic import NonPersistentTopic
from broker.topics.schemas.registry import Schemas
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName

Direct = Consumer[NonPersistentSubscription]


class DirectCreations:
    """Makes producers and consumers on non-persistent topics."""

    def __init__(self, topics: NonPersistentTopics, schemas: Schemas) -> None:
        self.topics = topics
        self._schemas = schemas

    async def producer(
        self, connection: Connection, request: pb.CommandProducer, creation: Creating, name: TopicName
    ) -> None:
        """Connect a producer to a topic, which is made if needed."""
        charge_direct(connection, self.topics, name)
        topic = await self.topics.get(name)
        version = await version_of_producer(self._schemas, topic, request, await self._schemas.rules(name))
        topic = await self.topics.get(name)  # unused and forgotten, or unloaded, meanwhile
        check_encryption(topic, request.encrypted)
        if request.initial_subscription_name:
            raise NotAllowedError("a subscription of a non-persistent topic is made by its consumers only")
        admit = admit_producer if request.producer_access_mode == pb.Shared else admit_exclusive_producer
        register(connection, request, await admit(connection, creation, topic, request), topic, version)

    async def subscribe(
        self, connection: Connection, request: pb.CommandSubscribe, creation: Creating, name: TopicName
    ) -> None:
        """Connect a consumer to a subscription, which is made if it is new."""
        if request.force_topic_creation:
            charge_direct(connection, self.topics, name)
        topic = await self.topics.get(name, create=request.force_topic_creation)
        await schema_of_consumer(self._schemas, topic, request)
        topic = await self.topics.get(name, create=request.force_topic_creation)
        added = await _admitted(connection, creation, topic, request)
        connection.direct[request.consumer_id] = added
        connection.write((replies.success(request.request_id),))
        added.subscription.announce()


async def _admitted(
    connection: Connection, creation: Creating, topic: NonPersistentTopic, request: pb.CommandSubscribe
) -> Direct:
    """Add the consumer. Raises ConsumerBusyError only if the consumer that keeps it out is alive, which costs a PING
    and its answer."""
    name = request.consumer_name or connection.context.random_name()
    meta = request.keySharedMeta if request.HasField("keySharedMeta") else None
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    while True:
        creation.check()
        subscription = topic.subscription(request)
        consumer = Consumer(connection, subscription, request.consumer_id, name, request.priority_level, epoch, meta)
        consumer.properties = {pair.key: pair.value for pair in request.metadata}
        consumer.role = acting_role(connection.principal)
        consumer.takes_any_schema = request.schema.type == pb.Schema.AutoConsume
        try:
            subscription.add_consumer(consumer, request.subType)
            return consumer
        except ConsumerBusyError:
            holder = subscription.sole_holder()
            if holder is None or holder.connection is connection or await holder.connection.alive():
                raise
            subscription.disconnect(holder)
        finally:
            subscription.abandoned()


def flow(connection: Connection, request: pb.CommandFlow) -> None:
    """Add permits."""
    if (consumer := connection.direct.get(request.consumer_id)) is not None:
        consumer.flowed()
        consumer.subscription.flow(consumer, request.messagePermits)


def acknowledged(connection: Connection, ack: pb.CommandAck) -> bool:
    """Answer an ACK of such a consumer, if one was requested. Return False if there is none of that id."""
    if ack.consumer_id not in connection.direct:
        return False
    if ack.HasField("request_id"):
        connection.write((replies.ack_response(ack.consumer_id, ack.request_id),))
    return True


def unsubscribe(connection: Connection, consumer: Direct, request: pb.CommandUnsubscribe) -> None:
    """Delete the subscription of a consumer. Raises MetadataRefusedError."""
    subscription = consumer.subscription
    if len(subscription.consumers) > 1 and not request.force:
        raise MetadataRefusedError(f"subscription {subscription.name!r} has other consumers")
    close(consumer)
    subscription.delete()
    connection.write((replies.success(request.request_id),))


def stats(connection: Connection, consumer: Direct, request_id: int) -> bytes:
    """Return the answer to CONSUMER_STATS."""
    subscription = consumer.subscription
    return replies.consumer_stats(
        request_id,
        connection.context.measures.of(consumer),
        name=consumer.name,
        kind=pb.CommandSubscribe.SubType.Name(subscription.kind),
        address=connection.stream.peer,
        permits=subscription.permits_of(consumer),
        unacked=0,
        blocked=False,
        backlog=0,
    )


def close(consumer: Direct) -> None:
    """Close a consumer at the request of its client."""
    consumer.subscription.end_consumer(consumer, End.CLIENT)
