"""Creation of producers and consumers: PRODUCER and SUBSCRIBE."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeAlias

import trio

from broker import replies
from broker.connections.admission import admit_exclusive_producer, admit_producer, producer_success, register
from broker.connections.charges import charge_topic
from broker.connections.connection import Connection
from broker.connections.lookups import parse_topic
from broker.connections.non_persistent import DirectCreations
from broker.connections.schemas import schema_of_consumer, version_of_producer
from broker.dispatch.consumer import Consumer, PlainConsumer
from broker.dispatch.subscription import Subscription
from broker.errors import (
    BrokerError,
    ConsumerBusyError,
    NotAllowedError,
    ProducerBusyError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
)
from broker.security.roles import acting_role
from broker.topics.deduplication.switch import follow_policies
from broker.topics.exclusive import AnyTopic
from broker.topics.life.creation import subscriptions_allowed
from broker.topics.life.sending import check_encryption, needs_encryption
from broker.topics.limits import check_type
from broker.topics.loaded_topics import Topics
from broker.topics.policies import Held, TopicPolicies
from broker.topics.rates.following import check_subscribe
from broker.topics.system_names import is_system_cursor
from broker.topics.topic import Topic
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NAME_SIZE_MAX, PERSISTENT, TopicName, check_subscription_name
from quire.world.errors import again

WORK_PER_PRODUCER = 8
"""Cost of a producer that is connected in the pass, beside that of any command; see `WORK_PER_STEP`."""
WORK_PER_CONSUMER = 8

RELOADS_MAX = 3
"""Times that a topic is loaded again for one producer, while its policies change."""

PROPERTIES_IN_PASS = 16
"""Properties of a producer or consumer above which it is connected in a task."""


class Creation:
    """A producer or consumer that is being created under an id of a connection.

    A second creation of that id is refused meanwhile, and the client may close it before it exists. Made in the pass
    that reads the command, since a CLOSE may follow directly."""

    def __init__(self, connection: Connection, command: pb.BaseCommand) -> None:
        self._connection = connection
        self.command = command
        if command.type == pb.BaseCommand.PRODUCER:
            self._key = ("producer", command.producer.producer_id)
        else:
            self._key = ("consumer", command.subscribe.consumer_id)
        self._turn: trio.Event | None = None
        """Set while it waits for its turn."""
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
            self.end()

    @property
    def is_taken(self) -> bool:
        """Return whether another creation of that id is under way."""
        return self._taken

    def end(self) -> None:
        """It is no longer pending."""
        if self._connection.creating.get(self._key) is self:
            del self._connection.creating[self._key]

    async def wait(self, turn: trio.Event) -> None:
        """Wait for its turn, maybe for hours: until then it does not count as a request under way. Returns early if the
        client closes it, which `check` finds."""
        self._turn = turn
        self._connection.request_done()
        try:
            await turn.wait()
        finally:
            self._connection.requests_in_flight += 1
            self._turn = None

    def withdraw(self) -> None:
        """See `Pending`."""
        if self._turn is not None:
            self._turn.set()

    def check(self) -> None:
        """Raise ServiceNotReadyError if the client has closed it meanwhile. Call it in the step that creates it."""
        if self._connection.closed or self._connection.creating.get(self._key) is not self:
            raise ServiceNotReadyError(f"{self._key[0]} {self._key[1]} was closed while it was being created")


Maker: TypeAlias = Callable[[Connection, pb.BaseCommand, Creation], Awaitable[None]]


class Creations:
    """Makes producers and consumers on the broker's topics."""

    def __init__(
        self,
        topics: Topics,
        policies: TopicPolicies,
        direct: DirectCreations,
        enable_transactions: Callable[[Topic], Awaitable[None]] | None = None,
    ) -> None:
        """`enable_transactions`: lets producers of a topic send in transactions; None: they are off."""
        self._topics = topics
        self._policies = policies
        self._direct = direct
        self._enable_transactions = enable_transactions

    async def producer(self, connection: Connection, command: pb.BaseCommand, creation: Creation) -> None:
        """Connect a producer to a topic, which is loaded or created if needed."""
        request = command.producer
        producer_id = request.producer_id
        if (known := connection.producers.get(producer_id)) is not None:
            if known.topic.name != parse_topic(request.topic):
                raise NotAllowedError(f"producer {producer_id} of this connection is in use on {known.topic.name.full}")
            topics = self._topics if known.topic.name.domain == PERSISTENT else self._direct.topics
            found: AnyTopic | None = topics.find(known.topic.name)
            if found is None:
                raise ServiceNotReadyError(f"{known.topic.name.full} is being closed")
            rules = await self._topics.schemas.rules(found.name)
            version = await version_of_producer(self._topics.schemas, found, request, rules)
            connection.write((producer_success(request, known.name, found, schema_version=version),))
            return
        name = self._wanted(connection, request)
        if name.domain != PERSISTENT:
            await self._direct.producer(connection, request, creation, name)
            return
        policies = await self._policies_of(name)
        tombstones, loaded = self._topics.first_use.tombstones, self._topics.find(name) is not None
        returns = await tombstones.knows_producer(name.full, request, loaded=loaded)
        await charge_topic(connection, self._topics, name)
        topic = await self._topics.get(name, create=not returns)
        for _ in range(RELOADS_MAX):
            if follow_policies(topic, policies):
                break
            topic = await self._topics.get(name)
        check_encryption(topic, request.encrypted)
        if request.txn_enabled and self._enable_transactions is not None:
            await self._enable_transactions(topic)
        rules = self._topics.schemas.rules_of(name, policies)
        del policies  # kept until the topic is loaded, so that they are read once
        version = await version_of_producer(self._topics.schemas, topic, request, rules)
        if request.initial_subscription_name:
            await open_initial_subscription(topic, request.initial_subscription_name)
        if request.producer_access_mode == pb.Shared:
            added = await admit_producer(connection, creation, topic, request)
        else:
            added = await admit_exclusive_producer(connection, creation, topic, request)
        register(connection, request, added, topic, version)

    def producer_without_task(self, connection: Connection, command: pb.BaseCommand, creation: Creation) -> bool:
        """Connect a producer as `producer` does, in this pass or in the one that ends the loading of its topic.

        Return False if anything else may have to be waited for, or is wrong; then nothing has happened."""
        request = command.producer
        if creation.is_taken or request.producer_id in connection.producers or request.initial_subscription_name:
            return False
        if request.producer_access_mode != pb.Shared or request.txn_enabled:
            return False
        if len(request.metadata) > PROPERTIES_IN_PASS or request.HasField("schema"):
            return False  # to check these may take long
        try:
            name = self._wanted(connection, request)
        except BrokerError:
            return False
        if name.domain != PERSISTENT or self._topics.first_use.tombstones.has(name.full):
            return False
        if request.epoch and self._topics.find(name) is None:
            return False  # it may be one of a deleted topic
        policies = self._policies.known(name)
        if policies is None or policies.asks_deduplication():
            return False
        if connection.neighbour is not None and self._topics.find(name) is None:
            return False  # it may be a topic too many
        if not request.encrypted and needs_encryption(policies, connection.context.options, name):
            return False
        if self._topics.schemas.defaults.enforces(policies.of_namespace, policies.of_topic):
            return False
        waiting = _Waiting(connection, command, creation, self.producer, policies)
        connection.requests_in_flight += 1
        if self._topics.when_loaded(name, policies, waiting.end):
            connection.work_left -= WORK_PER_PRODUCER
            return True
        connection.requests_in_flight -= 1
        return False

    @staticmethod
    def _wanted(connection: Connection, request: pb.CommandProducer) -> TopicName:
        """Return the topic that a producer is wanted on. Raises BrokerError if it asks for what is not served."""
        check_properties(connection, request.metadata)
        check_size(request.producer_name, "producer name")
        return served(connection, parse_topic(request.topic))

    async def subscribe(self, connection: Connection, command: pb.BaseCommand, creation: Creation) -> None:
        """Connect a consumer to a subscription, which is created if it is new."""
        request = command.subscribe
        consumer_id = request.consumer_id
        known = connection.consumers.get(consumer_id) or connection.direct.get(consumer_id)
        if known is not None:
            held = (known.subscription.topic.name, known.subscription.name)
            if held != (parse_topic(request.topic), request.subscription):
                raise NotAllowedError(f"consumer {consumer_id} of this connection is in use on {held[1]!r}")
            connection.write((replies.success(request.request_id),))
            return
        name = self._wanted_from(connection, request)
        if name.domain != PERSISTENT:
            await self._direct.subscribe(connection, request, creation, name)
            return
        tombstones, loaded = self._topics.first_use.tombstones, self._topics.find(name) is not None
        returns = await tombstones.knows_consumer(name.full, request, loaded=loaded)
        if request.force_topic_creation:
            await charge_topic(connection, self._topics, name)
        topic = await self._topics.get(name, create=request.force_topic_creation and not returns)
        check_subscribe(topic, (connection.stream.peer, request.consumer_name, consumer_id))
        check_type(topic, request.subType)
        if request.durable:
            check_new_subscription(topic, request.subscription)
        await schema_of_consumer(self._topics.schemas, topic, request)
        welcome(connection, request, await admit_consumer(connection, creation, topic, request))

    def subscribe_without_task(self, connection: Connection, command: pb.BaseCommand, creation: Creation) -> bool:
        """Connect a consumer to a subscription of a loaded topic as `subscribe` does, in this pass.

        Return False if anything may have to be waited for, or is wrong; then nothing has happened that `subscribe`
        would not do."""
        request = command.subscribe
        if creation.is_taken or request.consumer_id in connection.consumers or request.HasField("schema"):
            return False
        if request.consumer_id in connection.direct:
            return False
        if len(request.metadata) + len(request.subscription_properties) > PROPERTIES_IN_PASS:
            return False
        try:
            topic = self._topics.find(self._wanted_from(connection, request))
            subscription = None if topic is None else topic.known_subscription(request)
            if topic is None or subscription is None or topic.rates is not None:
                return False
            check_type(topic, request.subType)
            consumer = make_consumer(connection, subscription, request)
            subscription.add_consumer(consumer)
            creation.end()
            welcome(connection, request, consumer)
        except BrokerError:
            return False
        except Exception as error:
            creation.end()
            connection.answer_failure(command, error)
        connection.work_left -= WORK_PER_CONSUMER
        return True

    @staticmethod
    def _wanted_from(connection: Connection, request: pb.CommandSubscribe) -> TopicName:
        """Return the topic that a consumer is wanted on. Raises BrokerError if it asks for what is not served."""
        check_subscription(request.subscription)
        if request.read_compacted and request.subType in (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared):
            raise NotAllowedError("read_compacted goes with exclusive and failover subscriptions only")
        check_properties(connection, request.metadata)
        check_properties(connection, request.subscription_properties)
        check_size(request.consumer_name, "consumer name")
        return served(connection, parse_topic(request.topic))

    async def _policies_of(self, name: TopicName) -> Held:
        """Return the policies of the topic. Raises TopicNotFoundError (no such namespace), MetadataUnavailableError."""
        if self._topics.find(name) is None:
            await self._topics.namespaces.exists(name)  # a missing namespace has no policies
        return await self._policies.load(name)


class _Waiting:
    """A producer that waits for its topic, and for nothing else."""

    __slots__ = ("_command", "_connection", "_creation", "_maker", "_policies")

    def __init__(
        self, connection: Connection, command: pb.BaseCommand, creation: Creation, maker: Maker, policies: Held
    ) -> None:
        """Take the parts it uses. `policies`: kept until the topic is loaded, so that they are read once."""
        self._connection = connection
        self._command = command
        self._creation = creation
        self._maker = maker
        self._policies = policies

    def end(self, found: Topic | BrokerError) -> None:
        """Add the producer to its topic, or answer why it cannot be."""
        connection, creation, request = self._connection, self._creation, self._command.producer
        try:
            if isinstance(found, BrokerError):
                raise again(found) from found
            creation.check()
            name = request.producer_name or connection.context.next_producer_name()
            guarded = found.access is not None or found.deduplication is not None
            if (
                guarded or name in found.producers
            ):  # a holder may be dead, which takes a PING and its answer to find out
                connection.start(self._command, partial(creation.run, self._maker, self._command))
            else:
                added = found.add_producer(connection, request.producer_id, name, request.epoch)
                creation.end()
                register(connection, request, added, found)
        except Exception as error:
            creation.end()
            connection.answer_failure(self._command, error)
        finally:
            connection.request_done()


async def open_initial_subscription(topic: Topic, name: str) -> None:
    """Create a durable subscription from the first entry on, unless one of that name exists."""
    check_subscription(name)
    try:
        check_new_subscription(topic, name)
    except SubscriptionNotFoundError as error:
        raise NotAllowedError(
            "Could not create the initial subscription due to the auto subscription creation is not allowed."
        ) from error
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


def check_new_subscription(topic: Topic, name: str) -> None:
    """Raise SubscriptionNotFoundError if there is no such subscription, and a consumer does not make one.

    Source: Pulsar's ServerCnx.handleSubscribe."""
    if name not in topic.subscriptions and not subscriptions_allowed(topic.policies, topic.context.options, topic.name):
        raise SubscriptionNotFoundError(f"Subscription does not exist: {name!r} of {topic.name.full}")


def make_consumer(
    connection: Connection, subscription: Subscription, request: pb.CommandSubscribe, name: str = ""
) -> Consumer[Subscription]:
    """Return the consumer that is asked for, which is not added yet. `name`: drawn before for one without a name."""
    name = name or request.consumer_name or connection.context.random_name()
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    shared_meta = request.keySharedMeta if request.HasField("keySharedMeta") else None
    plain = connection.context.options.expose_entry_metadata and not connection.takes_entry_metadata
    of_kind = PlainConsumer if plain else Consumer
    made = of_kind(connection, subscription, request.consumer_id, name, request.priority_level, epoch, shared_meta)
    if request.metadata:
        made.properties = {pair.key: pair.value for pair in request.metadata}
    made.read_compacted = request.read_compacted
    made.role = acting_role(connection.principal)
    return made


def welcome(connection: Connection, request: pb.CommandSubscribe, added: Consumer[Subscription]) -> None:
    """Make a consumer known to its connection, and answer."""
    connection.consumers[request.consumer_id] = added
    connection.write((replies.success(request.request_id),))
    added.subscription.announce()


async def admit_consumer(
    connection: Connection, creation: Creation, topic: Topic, request: pb.CommandSubscribe
) -> Consumer[Subscription]:
    """Add the consumer. Raises ConsumerBusyError only if the consumer that keeps it out is alive, which costs a PING
    and its answer."""
    name = request.consumer_name or connection.context.random_name()
    while True:
        # Looked up again after a probe: a non-durable subscription is removed with its dead consumer.
        subscription = await topic.subscription(request)
        consumer = make_consumer(connection, subscription, request, name)
        consumer.takes_any_schema = request.schema.type == pb.Schema.AutoConsume
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


def served(connection: Connection, name: TopicName) -> TopicName:
    """Return the name of a topic. Raises NotAllowedError if its kind is not served."""
    if name.domain == PERSISTENT and not connection.context.options.persistent_topics:
        raise NotAllowedError("Broker is unable to load persistent topic (enablePersistentTopics=false)")
    return name


def check_subscription(name: str) -> None:
    try:
        check_subscription_name(name)
    except InvalidNameError as error:
        # The original refuses an empty name with ProducerBusy, which the C++ client shows as InvalidConfiguration.
        raise (ProducerBusyError if not name else NotAllowedError)(str(error)) from error
    if is_system_cursor(name):  # the code as of the original's NamingException
        raise ProducerBusyError(f"Subscription with reserved subscription name attempted: {name}")


def check_size(name: str, what: str) -> None:
    if len(name) > NAME_SIZE_MAX:
        raise NotAllowedError(f"a {what} of {len(name)} characters is too long")


def check_properties(connection: Connection, pairs: Iterable[pb.KeyValue]) -> None:
    size = sum(len(pair.key) + len(pair.value) for pair in pairs)
    if size > connection.context.options.properties_bytes_max:
        raise NotAllowedError(f"properties of {size} bytes are too large")
