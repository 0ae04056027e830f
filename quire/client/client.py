"""Client of a cluster: access to its topics.

    async with open_client(world, "pulsar://localhost:6650") as client:
        reader = await client.reader("orders", MessageId.EARLIEST)
        while True:
            deliveries = await reader.receive()

Everything opened lives in the client and ends with it. It finds its broker, and after a loss finds it again, by itself;
errors that reach a caller are final, or say that trying did not help for `operation_timeout_s`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import trio

from quire.client import commands
from quire.client.attachment import Attachment, Home
from quire.client.connections import Connections
from quire.client.consumer import Consumer, ConsumerOptions
from quire.client.deduplicated.sequenced import SequencedProducer
from quire.client.errors import ServerRefusedError, TopicNotFoundError
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.client.producer import Producer
from quire.client.reader import Reader
from quire.client.retrying import retrying
from quire.client.service_url import parse_service_url
from quire.client.subscription import Subscription
from quire.client.transactions import ASSIGN_TOPIC, TransactionClient, TransactionProducer
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName, TopicName
from quire.world.doors import World

A = TypeVar("A", bound=Attachment)

_DEFAULTS = ClientOptions()
_CONSUMER = ConsumerOptions()


@asynccontextmanager
async def open_client(
    world: World, service_url: str, options: ClientOptions = _DEFAULTS
) -> AsyncGenerator[Client, None]:
    """Open a client of a cluster. It connects at the first request.

    Args:
        world: the doors to clock, network and randomness.
        service_url: address of the cluster, pulsar://host:port[,host:port...], or pulsar+ssl:// for TLS.
        options: deadlines, back-off and bounds.

    Returns:
        A context manager of the client. On exit it closes everything that was opened.

    Raises:
        ValueError: `service_url` is invalid.
    """
    service = parse_service_url(service_url)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        connections = Connections(world, options, nursery, service)
        try:
            yield Client(Home(world, options, connections), nursery)
        except Exception as error:
            failure = error  # raised outside the nursery, so that it is not wrapped in an exception group
        finally:
            connections.close()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


class Client:
    """Client of one cluster, made by `open_client`. Topic names may be short: see quire.wire.pulsar.names."""

    def __init__(self, home: Home, nursery: trio.Nursery) -> None:
        self._home = home
        self._nursery = nursery

    async def partitions(self, topic: str, *, create: bool = False) -> int:
        """Return the number of partitions of a topic.

        Args:
            topic: name of the topic.
            create: create a missing topic, if the cluster allows that.

        Returns:
            The number of partitions; 0: the topic is not partitioned.

        Raises:
            TopicNotFoundError: the topic or its namespace does not exist.
            ClientError: the request failed.
        """
        name = _full_name(topic)
        ask = partial(commands.partitions, topic=name, create=create)
        answer = await self._ask(ask, f"partitions of {name}")
        return answer.partitionMetadataResponse.partitions

    async def topics(self, namespace: str) -> list[str]:
        """Return the persistent topics of a namespace.

        Args:
            namespace: `tenant/namespace`.

        Returns:
            Full names, partitions one by one, sorted.

        Raises:
            ClientError: the request failed.
        """
        try:
            name = str(NamespaceName.parse(namespace))
        except InvalidNameError as error:
            raise ServerRefusedError(pb.InvalidTopicName, str(error)) from None
        answer = await self._ask(partial(commands.topics_of_namespace, namespace=name), f"topics of {name}")
        return sorted(
            topic for topic in answer.getTopicsOfNamespaceResponse.topics if topic.startswith("persistent://")
        )

    async def schema(self, topic: str, version: bytes = b"") -> tuple[pb.Schema, bytes] | None:
        """Return a schema of a topic.

        Args:
            topic: name of the topic; the partitions of a topic share its schemas.
            version: version of the schema, as messages have it; empty: the newest one.

        Returns:
            The schema and its version; None: the topic has no such schema.

        Raises:
            ClientError: the request failed.
        """
        name = _full_name(topic)
        try:
            answer = await self._ask(partial(commands.get_schema, topic=name, version=version), f"schema of {name}")
        except TopicNotFoundError:
            return None
        found = answer.getSchemaResponse
        return found.schema, found.schema_version

    async def reader(
        self, topic: str, start: MessageId, *, window: int = 1000, name: str = "", compacted: bool = False
    ) -> Reader:
        """Open a reader of every entry of an existing topic from a position on.

        Args:
            topic: name of the topic or partition.
            start: first entry to read (inclusive); EARLIEST and LATEST are the ends.
            window: maximum messages in flight or queued.
            name: name shown to operators.
            compacted: read the last message of each key only, where the topic is compacted.

        Returns:
            The reader, attached to its broker.

        Raises:
            TopicNotFoundError: the topic does not exist.
            ClientError: the reader could not be attached.
        """
        return await self._open(partial(Reader, self._home, _full_name(topic), start, window, name, compacted))

    async def producer(
        self,
        topic: str,
        *,
        name: str = "",
        pending_bytes_max: int = 32 << 20,
        pending_max: int = 1000,
        schema: pb.Schema | None = None,
    ) -> Producer:
        """Open a producer.

        Args:
            topic: name of the topic or partition.
            name: name of the producer; empty: the broker generates one.
            pending_bytes_max: bytes sent without receipt at which `send` waits.
            pending_max: entries sent without receipt at which `send` waits.
            schema: schema of its messages, which the broker checks and numbers.

        Returns:
            The producer, attached to its broker.

        Raises:
            ClientError: the producer could not be attached.
        """
        make = partial(Producer, self._home, _full_name(topic), name, pending_bytes_max, pending_max, schema)
        return await self._open(make)

    async def subscription(
        self, topic: str, name: str, *, start: MessageId | None = None, create_topic: bool = True
    ) -> Subscription:
        """Open a durable subscription, and create it if it does not exist.

        Args:
            topic: name of the topic or partition.
            name: name of the subscription.
            start: next entry of a new subscription; None: the first entry there is. Brokers of Apache Pulsar ignore it
                and begin at the first entry, so they retain more, never less.
            create_topic: create a missing topic.

        Returns:
            The subscription, attached to its broker.

        Raises:
            ConsumerBusyError: another consumer held it during the whole operation timeout.
            ClientError: the subscription could not be attached.
        """
        return await self._open(partial(Subscription, self._home, _full_name(topic), name, start, create_topic))

    async def consumer(self, topic: str, subscription: str, options: ConsumerOptions = _CONSUMER) -> Consumer:
        """Open a consumer of a subscription, and create topic and subscription if they do not exist.

        Args:
            topic: name of the topic or partition.
            subscription: name of the subscription.
            options: type, start and window.

        Returns:
            The consumer, attached to its broker.

        Raises:
            ConsumerBusyError: an Exclusive consumer held it during the whole operation timeout.
            ClientError: the consumer could not be attached.
        """
        return await self._open(partial(Consumer, self._home, _full_name(topic), subscription, options))

    async def transactions(self) -> TransactionClient:
        """Return the coordinators of the cluster, which begin transactions.

        Raises:
            TopicNotFoundError: the cluster has no coordinators: its brokers do not have transactions enabled.
            ClientError: the request failed.
        """
        count = await self.partitions(ASSIGN_TOPIC)
        if count == 0:
            raise TopicNotFoundError("the cluster has no transaction coordinators (transactionCoordinatorEnabled)")
        return TransactionClient(self._home, count)

    async def transaction_producer(
        self, topic: str, *, name: str = "", pending_bytes_max: int = 32 << 20, pending_max: int = 1000
    ) -> TransactionProducer:
        """Open a producer whose entries may be parts of transactions; see `producer`."""
        make = partial(TransactionProducer, self._home, _full_name(topic), name, pending_bytes_max, pending_max)
        return await self._open(make)

    async def sequenced_producer(
        self,
        topic: str,
        name: str,
        *,
        pending_bytes_max: int = 32 << 20,
        pending_max: int = 1000,
        schema: pb.Schema | None = None,
    ) -> SequencedProducer:
        """Open a producer whose caller chooses the sequence ids; see `producer`.

        `name`: name under which the broker keeps the ids. While another producer has it, opening waits."""
        make = partial(SequencedProducer, self._home, _full_name(topic), name, pending_bytes_max, pending_max, schema)
        return await self._open(make)

    async def _open(self, make: Callable[[], A]) -> A:
        attachment = make()
        self._nursery.start_soon(attachment.live, name=str(attachment))
        await attachment.opened()
        return attachment

    async def _ask(self, make: Callable[[int], pb.BaseCommand], what: str) -> pb.BaseCommand:
        async def attempt() -> pb.BaseCommand:
            return await (await self._home.connections.of_service()).request(make)

        return await retrying(self._home.options, self._home.rng, what, attempt)


def _full_name(topic: str) -> str:
    try:
        return TopicName.parse(topic).full
    except InvalidNameError as error:
        raise ServerRefusedError(pb.InvalidTopicName, str(error)) from None


__all__ = [
    "Client",
    "ClientOptions",
    "Consumer",
    "ConsumerOptions",
    "MessageId",
    "Producer",
    "Reader",
    "SequencedProducer",
    "Subscription",
    "TransactionClient",
    "open_client",
]
