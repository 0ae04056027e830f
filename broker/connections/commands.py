"""Commands about existing consumers and producers of a connection, and about the connection itself."""

from __future__ import annotations

from broker import replies
from broker.connections import non_persistent
from broker.connections.connection import Connection
from broker.dispatch.consumer import Consumer
from broker.dispatch.last_message import last_message
from broker.dispatch.subscription import Subscription
from broker.ends import End
from broker.errors import ConsumerNotFoundError, MetadataRefusedError, NotAllowedError, ServiceNotReadyError
from broker.positions import position_of
from cursors.batch_acks import ACK_SET_WORDS_MAX
from managed_ledger.errors import ManagedLedgerError
from quire.wire.pulsar import PulsarApi_pb2 as pb


def ping(connection: Connection, command: pb.BaseCommand) -> None:
    connection.write((replies.PONG,))


def pong(connection: Connection, command: pb.BaseCommand) -> None:
    """Accept a PONG. Like any command, it was noted as a sign of life when it was received."""


def flow(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.flow
    if (consumer := connection.consumers.get(request.consumer_id)) is not None:
        consumer.flowed()
        consumer.subscription.flow(consumer, request.messagePermits)
    else:
        non_persistent.flow(connection, request)


async def unsubscribe(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.unsubscribe
    if (direct := connection.direct.get(request.consumer_id)) is not None:
        non_persistent.unsubscribe(connection, direct, request)
        return
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
    if request.consumer_id in connection.direct:
        connection.write((replies.success(request.request_id),))
        return
    consumer = find_consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    if request.HasField("message_id"):
        target = position_of(request.message_id)
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
    if request.consumer_id in connection.direct:
        raise NotAllowedError("getLastMessageId is not supported on non-persistent topic")
    consumer = find_consumer(connection, request.consumer_id)
    subscription = consumer.subscription
    topic = subscription.topic
    try:
        last, batch_index = await last_message(topic.ledger, topic.screen, topic.read_bound)
        view = None if topic.compaction is None else topic.compaction.view
        if consumer.read_compacted and view is not None and last <= view.horizon:
            last, batch_index = await view.last_message(connection.context.world.offload)
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"the last message cannot be read: {error}") from error
    partition = subscription.topic.name.partition
    mark_delete = subscription.cursor.mark_delete
    connection.write((replies.last_message_id(request.request_id, last, partition, batch_index, mark_delete),))


async def consumer_stats(connection: Connection, command: pb.BaseCommand) -> None:
    request = command.consumerStats
    if (direct := connection.direct.get(request.consumer_id)) is not None:
        connection.write((non_persistent.stats(connection, direct, request.request_id),))
        return
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        raise ConsumerNotFoundError(f"no consumer {request.consumer_id} on this connection")
    subscription = consumer.subscription
    measures = connection.context.measures
    rates = measures.of(consumer)._replace(expired=measures.of(subscription).expired)
    answer = replies.consumer_stats(
        request.request_id,
        rates,
        name=consumer.name,
        kind=pb.CommandSubscribe.SubType.Name(subscription.kind),
        address=connection.stream.peer,
        permits=subscription.permits_of(consumer),
        unacked=subscription.unacked_of(consumer),
        blocked=consumer.blocked,
        backlog=subscription.backlog,
    )
    connection.write((answer,))


def find_consumer(connection: Connection, consumer_id: int) -> Consumer[Subscription]:
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        raise MetadataRefusedError(f"no consumer {consumer_id} on this connection")
    return consumer


def close_producer(connection: Connection, command: pb.BaseCommand) -> None:
    """Close a producer; always succeeds, also for an unknown one or one being created.

    Receipts of its pending sends go out before the answer."""
    request = command.close_producer
    if (pending := connection.creating.pop(("producer", request.producer_id), None)) is not None:
        pending.withdraw()
    done = replies.success(request.request_id)
    if (known := connection.producers.get(request.producer_id)) is not None:
        known.topic.end_producer(known, End.CLIENT)
        known.after_sends(done)
    else:
        connection.write((done,))


def close_consumer(connection: Connection, command: pb.BaseCommand) -> None:
    """Close a consumer; always succeeds, also for an unknown one or one being created."""
    request = command.close_consumer
    if (pending := connection.creating.pop(("consumer", request.consumer_id), None)) is not None:
        pending.withdraw()
    if (known := connection.consumers.get(request.consumer_id)) is not None:
        close(known)
    elif (direct := connection.direct.get(request.consumer_id)) is not None:
        non_persistent.close(direct)
    connection.write((replies.success(request.request_id),))


def close(consumer: Consumer[Subscription]) -> None:
    """Close at the client's request, without notifying it."""
    consumer.subscription.end_consumer(consumer, End.CLIENT)


def refuse_transaction(connection: Connection, command: pb.BaseCommand) -> None:
    """Refuse a command of transactions where they are off, with an ERROR as the original does.

    Source: Pulsar's ServerCnx.checkTransactionEnableAndSendError."""
    for field, body in command.ListFields():
        if field.name != "type":
            connection.write((replies.error(body.request_id, pb.NotAllowedError, "Transactions are not enabled."),))
