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


def request_table(
    lookups: Lookups,
    creations: Creations,
    schemas: SchemaRequests,
    watchers: Watchers,
    transactions: InTransactions | None = None,
) -> RequestTable:
    """Return the handler of each served command. Any other command is refused. `transactions`: None: they are off."""
    kind = pb.BaseCommand
    of_transactions: dict[int, Callable[[Connection, pb.BaseCommand], Iterator[None] | None]]
    if transactions is None:
        of_transactions = dict.fromkeys(TRANSACTION_COMMANDS, commands.refuse_transaction)
    else:
        of_transactions = {each: _task(work) for each, work in transactions.works.items()}
        of_transactions[kind.ACK] = transactions.acknowledge
    return RequestTable(
        by_type={
            kind.CONNECT: connect,
            kind.AUTH_RESPONSE: auth_response,
            kind.AUTH_RESPONSE: auth_response,
            kind.PING: commands.ping,
            kind.PONG: commands.pong,
            kind.ACK: acks.acknowledge,
            kind.REDELIVER_UNACKNOWLEDGED_MESSAGES: acks.redeliver,
            kind.FLOW: commands.flow,
            kind.PRODUCER: _creation(creations.producer, unless=creations.producer_without_task),
            kind.SUBSCRIBE: _creation(creations.subscribe, unless=creations.subscribe_without_task),
            kind.CLOSE_PRODUCER: commands.close_producer,
            kind.CLOSE_CONSUMER: commands.close_consumer,
            kind.UNSUBSCRIBE: _task(commands.unsubscribe),
            kind.SEEK: _task(commands.seek),
            kind.GET_LAST_MESSAGE_ID: _task(commands.get_last_message_id),
            kind.CONSUMER_STATS: _task(commands.consumer_stats),
            kind.PARTITIONED_METADATA: _task(lookups.partitioned_metadata, unless=lookups.answer_at_once),
            kind.LOOKUP: _task(lookups.lookup, unless=lookups.answer_at_once),
            kind.GET_SCHEMA: _task(schemas.get),
            kind.GET_OR_CREATE_SCHEMA: _task(schemas.get_or_create),
            kind.GET_TOPICS_OF_NAMESPACE: _task(lookups.get_topics),
            kind.WATCH_TOPIC_LIST: _task(watchers.watch),
            kind.WATCH_TOPIC_LIST_CLOSE: close_watcher,
            **of_transactions,
        },
        large=acks.large,
    )


def _task(work: Work, *, unless: Callable[[Connection, pb.BaseCommand], bool] | None = None) -> InPass:
    """Start `work` in a task, unless the command could be answered at once."""

    def run(connection: Connection, command: pb.BaseCommand) -> None:
        if unless is None or not unless(connection, command):
            connection.start(command, partial(work, connection, command))

    return run


def _creation(maker: Maker, *, unless: Callable[[Connection, pb.BaseCommand, Creation], bool] | None = None) -> InPass:
    """Register in the pass that a producer or consumer is being created, and create it in a task, unless it needs
    none."""

    def run(connection: Connection, command: pb.BaseCommand) -> None:
        creation = Creation(connection, command)
        if unless is None or not unless(connection, command, creation):
            connection.start(command, partial(creation.run, maker, command))

    return run
