"""Creation of producers and consumers: PRODUCER and SUBSCRIBE."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from broker import replies
from broker.connections.connection import Connection
from broker.connections.lookups import parse_topic
from broker.connections.refusals import check_schema
from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from broker.errors import BrokerError, ConsumerBusyError, NotAllowedError, ProducerBusyError, ServiceNotReadyError
from broker.topics.loaded_topics import Topics
from broker.topics.policies import Held, TopicPolicies
from broker.topics.producer import Producer
from broker.topics.topic import Topic
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NAME_SIZE_MAX, TopicName, check_subscription_name


class Creation:
    """A producer or consumer that is being created under an id of a connection.

    A second creation of that id is refused meanwhile, and the client may close it before it exists. Made in the pass
    that reads the command, since a CLOSE may follow directly."""

    def __init__(self, connection: Connection, command: pb.BaseCommand) -> None:
        self._connection = connection
        if command.type == pb.BaseCommand.PRODUCER:
            self._key = ("producer", command.producer.producer_id)
        else:
            self._key = ("consumer", command.subscribe.consumer_id)
        self._taken = self._key in connection.creating
        if not self._taken:
            connection.creating[self._key] = self

    async def run(
        self, maker: Callable[[Connection, pb.BaseCommand, Creation], Awaitable[None]], command: pb.BaseCommand
    ) -> None:
        """Run the creation. When this returns or raises BrokerError, it is no longer pending."""
        if self._taken:
            raise ServiceNotReadyError(f"{self._key[0]} {self._key[1]} is already being created on this connection")
        try:
            await maker(self._connection, command, self)
        finally:
            if self._connection.creating.get(self._key) is self:
                del self._connection.creating[self._key]

    def check(self) -> None:
        """Raise ServiceNotReadyError if the client has closed it meanwhile. Call it in the step that creates it."""
        if self._connection.closed or self._connection.creating.get(self._key) is not self:
            raise ServiceNotReadyError(f"{self._key[0]} {self._key[1]} was closed while it was being created")


class Creations:
    """Makes producers and consumers on the broker's topics."""

    def __init__(self, topics: Topics, policies: TopicPolicies) -> None:
        self._topics = topics
        self._policies = policies

    async def producer(self, connection: Connection, command: pb.BaseCommand, creation: Creation) -> None:
        """Connect a producer to a topic, which is loaded or created if needed."""
        request = command.producer
        producer_id = request.producer_id
        if (known := connection.producers.get(producer_id)) is not None:
            if known.topic.name != parse_topic(request.topic):
                raise NotAllowedError(f"producer {producer_id} of this connection is in use on {known.topic.name.full}")
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
        policies = await self._check_may_publish(name)
        topic = await self._topics.get(name)
        del policies  # kept until the topic is loaded, so that they are read once
        if request.initial_subscription_name:
            await open_initial_subscription(topic, request.initial_subscription_name)
        added = await admit_producer(connection, creation, topic, request)
        connection.closed_producers.pop(producer_id, None)
        connection.producers[producer_id] = added
        connection.write((replies.producer_success(request.request_id, added.name),))

    async def subscribe(self, connection: Connection, command: pb.BaseCommand, creation: Creation) -> None:
        """Connect a consumer to a subscription, which is created if it is new."""
        request = command.subscribe
        consumer_id = request.consumer_id
        if (known := connection.consumers.get(consumer_id)) is not None:
            held = (known.subscription.topic.name, known.subscription.name)
            if held != (parse_topic(request.topic), request.subscription):
                raise NotAllowedError(f"consumer {consumer_id} of this connection is in use on {held[1]!r}")
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
        topic = await self._topics.get(name, create=request.force_topic_creation)
        consumer = await admit_consumer(connection, creation, topic, request)
        connection.consumers[consumer_id] = consumer
        connection.write((replies.success(request.request_id),))
        consumer.subscription.announce()

    async def _check_may_publish(self, name: TopicName) -> Held:
        """The policies of the topic. NotAllowedError where duplicates are to be dropped: we would store them.
        TopicNotFoundError (no such namespace), MetadataUnavailableError."""
        if self._topics.find(name) is None:
            await self._topics.check_namespace(name)  # a missing namespace has no policies
        policies = await self._policies.load(name)
        if policies.asks_deduplication():
            raise NotAllowedError(
                f"{name.full}: its policies ask for deduplication (deduplicationEnabled), which is not served; "
                "set it to false to publish"
            )
        return policies


async def admit_producer(
    connection: Connection, creation: Creation, topic: Topic, request: pb.CommandProducer
) -> Producer:
    """Add the producer. Raises ProducerBusyError only if the holder of the name is alive, which costs a PING and its
    answer."""
    name = request.producer_name or connection.context.next_producer_name()
    while True:
        creation.check()
        try:
            return topic.add_producer(connection, request.producer_id, name, request.epoch)
        except ProducerBusyError:
            if name not in topic.producers:  # the limit of producers is reached, not the name taken
                raise
            holder = topic.producers[name].connection
            if holder is connection or await holder.alive():
                raise


async def open_initial_subscription(topic: Topic, name: str) -> None:
    """Create a durable subscription from the first entry on, unless one of that name exists."""
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


async def admit_consumer(
    connection: Connection, creation: Creation, topic: Topic, request: pb.CommandSubscribe
) -> Consumer[Subscription]:
    """Add the consumer. Raises ConsumerBusyError only if the consumer that keeps it out is alive, which costs a PING
    and its answer."""
    name = request.consumer_name or connection.context.random_name()
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    shared_meta = request.keySharedMeta if request.HasField("keySharedMeta") else None
    while True:
        # Looked up again after a probe: a non-durable subscription is removed with its dead consumer.
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
        # The original refuses an empty name with ProducerBusy, which the C++ client shows as InvalidConfiguration.
        raise (ProducerBusyError if not name else NotAllowedError)(str(error)) from error


def check_size(name: str, what: str) -> None:
    if len(name) > NAME_SIZE_MAX:
        raise NotAllowedError(f"a {what} of {len(name)} characters is too long")


def check_properties(connection: Connection, pairs: Iterable[pb.KeyValue]) -> None:
    size = sum(len(pair.key) + len(pair.value) for pair in pairs)
    if size > connection.context.options.properties_bytes_max:
        raise NotAllowedError(f"properties of {size} bytes are too large")
