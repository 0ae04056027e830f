"""Permissions that a command needs, and on what (pure, beside the parsing of names)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from broker.connections.connection import Connection
from broker.connections.lookups import parse_topic
from broker.errors import AuthorizationError, InvalidTopicError
from broker.security.authorization.commands import COMMANDS, CommandRow
from broker.security.authorization.permissions import Need, Permission, on_topic
from broker.transactions.txn_id import TxnId
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName

_KIND = pb.BaseCommand


def needs_of(connection: Connection, command: pb.BaseCommand) -> Iterator[Need]:
    """Yield what a command needs. A command about something that its connection does not have needs nothing: its
    handler refuses it.

    Raises AuthorizationError (the command has no row), InvalidTopicError, NotAllowedError (a name that is none)."""
    row = COMMANDS.get(command.type)
    if row is None:
        raise AuthorizationError(f"{_KIND.Type.Name(command.type)} is in no table of permissions")
    if row.permission is Permission.NOTHING:
        return
    of = _BY_TYPE.get(command.type)
    if of is None:
        yield Need(row.permission)
    else:
        yield from of(connection, command, row)


def transaction_of(command: pb.BaseCommand) -> TxnId | None:
    """Return the transaction that a command is about; None: it is about none."""
    body = _TRANSACTIONS.get(command.type)
    if body is None:
        return None
    request = getattr(command, body)
    return TxnId(request.txnid_most_bits, request.txnid_least_bits)


def of_producer(request: pb.CommandProducer) -> Iterator[Need]:
    """Yield what a producer needs, as long as it exists."""
    row = COMMANDS[_KIND.PRODUCER]
    name = parse_topic(request.topic)
    yield _on(row.permission, request.topic)
    if request.initial_subscription_name and row.also is not None:
        yield on_topic(row.also, name, request.initial_subscription_name)


def of_consumer(topic: str, subscription: str) -> Need:
    """Return what a consumer needs, as long as it exists."""
    return on_topic(COMMANDS[_KIND.SUBSCRIBE].permission, parse_topic(topic), subscription)


def of_topic_list(namespace: NamespaceName) -> Need:
    """Return what a watcher of a topic list needs, as long as it exists."""
    return _on_namespace(COMMANDS[_KIND.WATCH_TOPIC_LIST].permission, namespace)


def _on_namespace(permission: Permission, namespace: NamespaceName) -> Need:
    return Need(permission, namespace.tenant, str(namespace))


@lru_cache(maxsize=1024)
def _on(permission: Permission, topic: str) -> Need:
    """Return a need on a topic; clients name the same one several times."""
    return on_topic(permission, parse_topic(topic))


def _namespace(text: str, row: CommandRow) -> Iterator[Need]:
    try:
        yield _on_namespace(row.permission, NamespaceName.parse(text))
    except InvalidNameError as error:
        raise InvalidTopicError(str(error)) from error


def _consumer(connection: Connection, consumer_id: int, row: CommandRow) -> Iterator[Need]:
    found = connection.consumers.get(consumer_id) or connection.direct.get(consumer_id)
    if found is not None:
        yield on_topic(row.permission, found.subscription.topic.name, found.subscription.name)


def _participants(row: CommandRow, topics: Iterator[tuple[str, str]]) -> Iterator[Need]:
    yield Need(row.permission)
    for topic, subscription in topics:
        if row.also is not None:
            yield on_topic(row.also, parse_topic(topic), subscription)


_BY_TYPE: dict[int, Callable[[Connection, pb.BaseCommand, CommandRow], Iterator[Need]]] = {
    _KIND.LOOKUP: lambda _, command, row: iter((_on(row.permission, command.lookupTopic.topic),)),
    _KIND.PARTITIONED_METADATA: lambda _, command, row: iter((_on(row.permission, command.partitionMetadata.topic),)),
    _KIND.GET_SCHEMA: lambda _, command, row: iter((_on(row.permission, command.getSchema.topic),)),
    _KIND.GET_OR_CREATE_SCHEMA: lambda _, command, row: iter((_on(row.permission, command.getOrCreateSchema.topic),)),
    _KIND.GET_TOPICS_OF_NAMESPACE: lambda _, command, row: _namespace(command.getTopicsOfNamespace.namespace, row),
    _KIND.WATCH_TOPIC_LIST: lambda _, command, row: _namespace(command.watchTopicList.namespace, row),
    _KIND.PRODUCER: lambda _, command, row: of_producer(command.producer),
    _KIND.SUBSCRIBE: lambda _, command, row: iter(
        (of_consumer(command.subscribe.topic, command.subscribe.subscription),)
    ),
    _KIND.UNSUBSCRIBE: lambda connection, command, row: _consumer(connection, command.unsubscribe.consumer_id, row),
    _KIND.SEEK: lambda connection, command, row: _consumer(connection, command.seek.consumer_id, row),
    _KIND.GET_LAST_MESSAGE_ID: lambda connection, command, row: _consumer(
        connection, command.getLastMessageId.consumer_id, row
    ),
    _KIND.CONSUMER_STATS: lambda connection, command, row: _consumer(
        connection, command.consumerStats.consumer_id, row
    ),
    _KIND.ADD_PARTITION_TO_TXN: lambda _, command, row: _participants(
        row, ((topic, "") for topic in command.addPartitionToTxn.partitions)
    ),
    _KIND.ADD_SUBSCRIPTION_TO_TXN: lambda _, command, row: _participants(
        row, ((each.topic, each.subscription) for each in command.addSubscriptionToTxn.subscription)
    ),
}
_TRANSACTIONS: dict[int, str] = {
    _KIND.ADD_PARTITION_TO_TXN: "addPartitionToTxn",
    _KIND.ADD_SUBSCRIPTION_TO_TXN: "addSubscriptionToTxn",
    _KIND.END_TXN: "endTxn",
}
"""Commands about a transaction, and the field that names it."""
KEPT_BY_TYPE = (_KIND.PRODUCER, _KIND.SUBSCRIBE, _KIND.WATCH_TOPIC_LIST)
"""Commands that make what needs its permission as long as it exists."""
