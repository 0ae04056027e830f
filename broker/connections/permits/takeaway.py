"""End of producers, consumers and watchers whose role has lost its permission.

A change of the permissions in a tenant or namespace comes from the metadata watch, so it does not matter which broker
has made it. The connections that depend on the changed node are checked again, a bounded number of things in one step
of the event loop. A creation that is under way is withdrawn, as if its client had closed it: so none can slip through
between its check and its end.

Source: Pulsar's Producer.checkPermissionsAsync and Consumer.checkPermissionsAsync, which disconnect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import trio

from broker.connections.connection import Connection
from broker.connections.creation import Creation
from broker.connections.permits.needs import needs_of, of_consumer, of_topic_list
from broker.connections.topic_lists.watchers import TopicListWatcher
from broker.ends import End
from broker.errors import ServiceNotReadyError
from broker.security.authorization.authorizer import Authorizer
from broker.security.authorization.commands import COMMANDS
from broker.security.authorization.nodes import Followed
from broker.security.authorization.permissions import Need, on_topic
from broker.topics.producer import Producer
from quire.service.log import get_logger
from quire.wire.pulsar import PulsarApi_pb2 as pb

log = get_logger(__name__)

CHECKED_IN_STEP: Final = 200
"""Producers, consumers and watchers that are checked before other tasks run: about 2 ms."""
RETRY_S: Final = 0.25
"""Time until what could not be decided is checked again."""

Held = tuple[Need, Callable[[], None]]
"""Need of something, and what ends it."""


class Takeaway:
    """Checks after changes of permissions, in one task."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.ended = 0
        """Number of producers, consumers and watchers that were ended."""
        self._authorizer = authorizer
        self._changed: dict[str, Followed[Any]] = {}
        self._all: list[Connection] = []
        """Connections to check whatever has changed."""
        self._wake = trio.Event()
        authorizer.on_change = self._note

    def _note(self, node: Followed[Any]) -> None:
        self._changed[node.path] = node
        self._wake.set()

    def check_all(self, connections: list[Connection]) -> None:
        """Check connections, because the roles that need no permissions are others."""
        self._all = connections
        self._wake.set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            changed, self._changed = self._changed, {}
            every, self._all = self._all, []
            try:
                await self._check_users(every)
            except ServiceNotReadyError as error:
                log.warning("permissions not checked yet", reason=str(error))
                self.check_all(every)
            for node in changed.values():
                try:
                    await self._check_users(list(node.users))
                except ServiceNotReadyError as error:
                    log.warning("permissions not checked yet", path=node.path, reason=str(error))
                    self._note(node)
            if self._changed or self._all:
                await trio.sleep(RETRY_S)

    async def _check_users(self, users: Sequence[object]) -> None:
        """Check connections. Raises ServiceNotReadyError."""
        left = CHECKED_IN_STEP
        for connection in users:
            assert isinstance(connection, Connection), "connections depend on nodes"
            for need, end in held_by(connection):
                decision = self._authorizer.at_once(connection.principal, need, connection, relies_on_memory=True)
                if decision is None:
                    decision = await self._authorizer.decide(connection.principal, need, connection)
                if not decision.allowed:
                    self.ended += 1
                    connection.log.info("permission taken away", on=need.place, reason=decision.reason)
                    end()
                left -= 1
                if left <= 0:
                    left = CHECKED_IN_STEP
                    await trio.lowlevel.checkpoint()


def held_by(connection: Connection) -> Iterator[Held]:
    """Yield what a connection has that needs a permission, with what ends it. An end that comes too late does nothing.

    It may have changed from one element to the next. What is made later is checked when it is made."""
    for key, pending in list(connection.creating.items()):
        if isinstance(pending, Creation):
            for need in needs_of(connection, pending.command):
                yield need, partial(_withdraw, connection, key, pending)
    produce = COMMANDS[pb.BaseCommand.PRODUCER].permission
    for producer in list(connection.producers.values()):
        yield on_topic(produce, producer.topic.name), partial(_end_producer, producer)
    for consumer in list(connection.consumers.values()):
        subscription = consumer.subscription
        need = of_consumer(subscription.topic.name.full, subscription.name)
        yield need, partial(subscription.disconnect, consumer)
    for direct in list(connection.direct.values()):
        other = direct.subscription
        yield of_consumer(other.topic.name.full, other.name), partial(other.disconnect, direct)
    for watcher in list(connection.watchers.values()):
        if isinstance(watcher, TopicListWatcher):
            yield of_topic_list(watcher.namespace), watcher.withdraw


def _end_producer(producer: Producer) -> None:
    producer.topic.end_producer(producer, End.FORBIDDEN)


def _withdraw(connection: Connection, key: tuple[str, int], pending: Creation) -> None:
    if connection.creating.get(key) is pending:
        del connection.creating[key]
        pending.withdraw()
