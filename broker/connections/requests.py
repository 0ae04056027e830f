"""The table of requests: each served command and how it runs.

In the pass, in order: what is done at once, or in steps. In a task of the connection: what has to wait; it answers
exactly once, and not necessarily in order. A creation is a task whose producer or consumer is known as on its way from
the pass on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Protocol

from broker.connections import acks, commands
from broker.connections.connection import Connection, RequestTable
from broker.connections.creation import Creation, Creations, Maker
from broker.connections.handshake import auth_response, connect
from broker.connections.lookups import Lookups
from broker.connections.schemas import SchemaRequests
from broker.connections.topic_lists.watchers import Watchers
from broker.connections.topic_lists.watchers import close as close_watcher
from quire.wire.pulsar import PulsarApi_pb2 as pb

InPass = Callable[[Connection, pb.BaseCommand], None]
Work = Callable[[Connection, pb.BaseCommand], Awaitable[None]]


TRANSACTION_COMMANDS = (
    pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST,
    pb.BaseCommand.NEW_TXN,
    pb.BaseCommand.ADD_PARTITION_TO_TXN,
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
    pb.BaseCommand.END_TXN,
)


class InTransactions(Protocol):
    """Handlers of commands of transactions."""

    @property
    def works(self) -> Mapping[int, Work]:
        """Return the handler of each command, to be run in a task."""

    def acknowledge(self, connection: Connection, command: pb.BaseCommand) -> Iterator[None] | None:
        """Apply an ACK, whether or not it is one in a transaction."""


class Guarding(Protocol):
    """Check of commands in front of their handlers."""

    def passes(self, connection: Connection, command: pb.BaseCommand) -> bool | None:
        """Return whether a command may go to its handler; False: a refusal was answered; None: it has to be
        awaited."""

    async def check(self, connection: Connection, command: pb.BaseCommand) -> None:
        """Raise BrokerError if the command is not permitted, or if this cannot be decided now."""


def request_table(
    lookups: Lookups,
    creations: Creations,
    schemas: SchemaRequests,
    watchers: Watchers,
    transactions: InTransactions | None = None,
    guard: Guarding | None = None,
) -> RequestTable:
    """Return the handler of each served command. Any other command is refused.

    `transactions`: None: they are off. `guard`: None: every command is permitted."""
    kind = pb.BaseCommand
    task, creation = partial(_task, guard=guard), partial(_creation, guard=guard)
    of_transactions: dict[int, Callable[[Connection, pb.BaseCommand], Iterator[None] | None]]
    if transactions is None:
        of_transactions = dict.fromkeys(TRANSACTION_COMMANDS, commands.refuse_transaction)
    else:
        of_transactions = {each: task(work) for each, work in transactions.works.items()}
        of_transactions[kind.ACK] = transactions.acknowledge
    return RequestTable(
        by_type={
            kind.CONNECT: connect,
            kind.AUTH_RESPONSE: auth_response,
            kind.PING: commands.ping,
            kind.PONG: commands.pong,
            kind.ACK: acks.acknowledge,
            kind.REDELIVER_UNACKNOWLEDGED_MESSAGES: acks.redeliver,
            kind.FLOW: commands.flow,
            kind.PRODUCER: creation(creations.producer, unless=creations.producer_without_task),
            kind.SUBSCRIBE: creation(creations.subscribe, unless=creations.subscribe_without_task),
            kind.CLOSE_PRODUCER: commands.close_producer,
            kind.CLOSE_CONSUMER: commands.close_consumer,
            kind.UNSUBSCRIBE: task(commands.unsubscribe),
            kind.SEEK: task(commands.seek),
            kind.GET_LAST_MESSAGE_ID: task(commands.get_last_message_id),
            kind.CONSUMER_STATS: task(commands.consumer_stats),
            kind.PARTITIONED_METADATA: task(lookups.partitioned_metadata, unless=lookups.answer_at_once),
            kind.LOOKUP: task(lookups.lookup, unless=lookups.answer_at_once),
            kind.GET_SCHEMA: task(schemas.get),
            kind.GET_OR_CREATE_SCHEMA: task(schemas.get_or_create),
            kind.GET_TOPICS_OF_NAMESPACE: task(lookups.get_topics),
            kind.WATCH_TOPIC_LIST: task(watchers.watch),
            kind.WATCH_TOPIC_LIST_CLOSE: close_watcher,
            **of_transactions,
        },
        large=acks.large,
    )


def _task(
    work: Work,
    *,
    unless: Callable[[Connection, pb.BaseCommand], bool] | None = None,
    guard: Guarding | None = None,
) -> InPass:
    """Start `work` in a task, unless the command could be answered at once."""

    def run(connection: Connection, command: pb.BaseCommand) -> None:
        if unless is None or not unless(connection, command):
            connection.start(command, partial(work, connection, command))

    if guard is None:
        return run
    checking = guard

    async def checked(connection: Connection, command: pb.BaseCommand) -> None:
        await checking.check(connection, command)
        await work(connection, command)

    def guarded(connection: Connection, command: pb.BaseCommand) -> None:
        passes = checking.passes(connection, command)
        if passes is None:
            connection.start(command, partial(checked, connection, command))
        elif passes:
            run(connection, command)

    return guarded


def _creation(
    maker: Maker,
    *,
    unless: Callable[[Connection, pb.BaseCommand, Creation], bool] | None = None,
    guard: Guarding | None = None,
) -> InPass:
    """Register in the pass that a producer or consumer is being created, and create it in a task, unless it needs
    none."""

    async def checked(connection: Connection, command: pb.BaseCommand, creation: Creation) -> None:
        assert guard is not None, "a check is awaited by a guard"
        await guard.check(connection, command)
        await maker(connection, command, creation)

    def run(connection: Connection, command: pb.BaseCommand) -> None:
        creation = Creation(connection, command)
        passes = True if guard is None else guard.passes(connection, command)
        if passes is None:
            connection.start(command, partial(creation.run, checked, command))
        elif not passes:
            creation.end()
        elif unless is None or not unless(connection, command, creation):
            connection.start(command, partial(creation.run, maker, command))

    return run
