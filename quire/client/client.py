"""Client: the way to the topics of a cluster.

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
from quire.client.errors import ServerRefusedError
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.client.producer import Producer
from quire.client.reader import Reader
from quire.client.retrying import retrying
from quire.client.service_url import parse_service_url
from quire.client.subscription import Subscription
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName, TopicName
from quire.world.doors import World

A = TypeVar("A", bound=Attachment)

_DEFAULTS = ClientOptions()


@asynccontextmanager
async def open_client(
    world: World, service_url: str, options: ClientOptions = _DEFAULTS
) -> AsyncGenerator[Client, None]:
    """A client of the cluster at `service_url`, pulsar://host:port[,host:port...]; ValueError if it is none. Nothing is
    connected before something is asked for."""
    service = parse_service_url(service_url)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        connections = Connections(world, options, nursery, service)
        try:
            yield Client(Home(world, options, connections), nursery)
        except Exception as error:
            failure = error  # raised outside, so that it is not wrapped in the nursery's group
        finally:
            connections.close()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


class Client:
    """Asks about topics, and opens what reads and writes them. Topic names may be short: see quire.wire.pulsar.names."""

    def __init__(self, home: Home, nursery: trio.Nursery) -> None:
        self._home = home
        self._nursery = nursery

    async def partitions(self, topic: str, *, create: bool = False) -> int:
        """How many partitions the topic has; 0: it is not partitioned. `create`: a topic that does not exist is made, if the
        cluster does that. TopicNotFoundError and other ClientErrors."""
        name = _full_name(topic)
        ask = partial(commands.partitions, topic=name, create=create)
        answer = await self._ask(ask, f"partitions of {name}")
        return answer.partitionMetadataResponse.partitions

    async def topics(self, namespace: str) -> list[str]:
        """Full names of the persistent topics of `tenant/namespace`, partitions one by one, sorted. ClientError."""
        try:
            name = str(NamespaceName.parse(namespace))
        except InvalidNameError as error:
            raise ServerRefusedError(pb.InvalidTopicName, str(error)) from None
        answer = await self._ask(partial(commands.topics_of_namespace, namespace=name), f"topics of {name}")
        return sorted(
            topic for topic in answer.getTopicsOfNamespaceResponse.topics if topic.startswith("persistent://")
        )

    async def reader(self, topic: str, start: MessageId, *, window: int = 1000, name: str = "") -> Reader:
        """A reader of every entry from the entry `start` on (EARLIEST, LATEST: the ends), attached on return. The topic must
        exist: TopicNotFoundError; other ClientErrors. `window`: messages under way or queued; `name`: what operators see."""
        return await self._open(partial(Reader, self._home, _full_name(topic), start, window, name))

    async def producer(
        self, topic: str, *, name: str = "", pending_bytes_max: int = 32 << 20, pending_max: int = 1000
    ) -> Producer:
        """A producer, attached on return; ClientError. At most so many bytes and entries are under way without a receipt.
        Without a `name` the broker makes one."""
        make = partial(Producer, self._home, _full_name(topic), name, pending_bytes_max, pending_max)
        return await self._open(make)

    async def subscription(
        self, topic: str, name: str, *, start: MessageId | None = None, create_topic: bool = True
    ) -> Subscription:
        """A durable subscription, attached on return. If it does not exist it is made: with `start` as its next entry, or
        from the first entry there is. A topic that does not exist is made too, unless `create_topic` says no.

        ConsumerBusyError if another consumer holds it all the while; other ClientErrors. Brokers of Apache Pulsar pay no
        heed to `start`, and begin at the first entry: they hold more, never less.
        """
        return await self._open(partial(Subscription, self._home, _full_name(topic), name, start, create_topic))

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


__all__ = ["Client", "ClientOptions", "MessageId", "Producer", "Reader", "Subscription", "open_client"]
