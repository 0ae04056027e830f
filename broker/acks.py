"""ACK and REDELIVER: ids on the wire to positions of a subscription's cursor.

An ACK without a request id gets no answer. One with a request id is answered when everything acknowledged so far on
that cursor is durable: an answered ack is never delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import replies
from broker.topic import to_signed
from cursors.errors import CursorError
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.wire.pulsar import PulsarApi_pb2 as pb

if TYPE_CHECKING:
    from broker.connection import Connection
    from broker.consumer import Consumer

log = get_logger(__name__)


def acknowledge(connection: Connection, ack: pb.CommandAck) -> None:
    """Apply an ACK; a bad one has no effect but an error in the answer, if one was asked for."""
    consumer = connection.consumers.get(ack.consumer_id)
    if consumer is None:
        # A consumer that was closed by a seek or by us may still have acks on their way.
        answer(connection, ack, pb.ConsumerNotFound, f"consumer {ack.consumer_id} is not on this connection")
        return
    problem = refusal(connection, consumer, ack)
    if problem is not None:
        answer(connection, ack, *problem)
        return
    subscription = consumer.subscription
    try:
        if ack.ack_type == pb.CommandAck.Cumulative:
            message = ack.message_id[0]
            position = Position(to_signed(message.ledgerId), to_signed(message.entryId))
            subscription.ack_cumulative(position, tuple(message.ack_set))
        else:
            whole = [
                Position(to_signed(message.ledgerId), to_signed(message.entryId))
                for message in ack.message_id
                if not message.ack_set
            ]
            parts = [
                (Position(to_signed(message.ledgerId), to_signed(message.entryId)), tuple(message.ack_set))
                for message in ack.message_id
                if message.ack_set
            ]
            subscription.ack_individual(consumer, whole, parts)
    except CursorError as error:
        answer(connection, ack, pb.MetadataError, str(error))
        subscription.pump()  # the good ones among them count
        return
    if ack.HasField("request_id"):
        consumer_id, request_id = ack.consumer_id, ack.request_id
        connection.requests_in_flight += 1

        def persisted(error: Exception | None) -> None:
            connection.request_done()
            if error is None:
                connection.write((replies.ack_response(consumer_id, request_id),))
            else:
                connection.write((replies.ack_response(consumer_id, request_id, pb.PersistenceError, str(error)),))

        subscription.cursor.persisted(persisted)
    subscription.pump()


def refusal(connection: Connection, consumer: Consumer, ack: pb.CommandAck) -> tuple[pb.ServerError, str] | None:
    """Why an ACK cannot be applied, as (code, message), or None."""
    if ack.HasField("txnid_most_bits") or ack.HasField("txnid_least_bits"):
        return pb.NotAllowedError, "transactions are not served"
    if len(ack.message_id) > connection.broker.options.acks_in_command_max:
        return pb.NotAllowedError, f"{len(ack.message_id)} message ids in one ACK are too many"
    if ack.ack_type == pb.CommandAck.Cumulative:
        if len(ack.message_id) != 1:
            return pb.MetadataError, "a cumulative ACK carries exactly one message id"
        if not consumer.subscription.single_active:
            return pb.NotAllowedError, "cumulative acks do not go with shared subscriptions"
    return None


def answer(connection: Connection, ack: pb.CommandAck, code: pb.ServerError, message: str) -> None:
    if ack.HasField("request_id"):
        connection.write((replies.ack_response(ack.consumer_id, ack.request_id, code, message),))
    else:
        log.debug("ack refused", peer=connection.stream.peer, consumer_id=ack.consumer_id, reason=message)


def redeliver(connection: Connection, request: pb.CommandRedeliverUnacknowledgedMessages) -> None:
    """Deliver again what the consumer names, or all it holds; the command has no answer."""
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        return
    if request.HasField("consumer_epoch") and (consumer.epoch is None or request.consumer_epoch > consumer.epoch):
        consumer.epoch = request.consumer_epoch
    positions = [Position(to_signed(message.ledgerId), to_signed(message.entryId)) for message in request.message_ids]
    if len(positions) > connection.broker.options.acks_in_command_max:
        positions = []  # there is no answer to say no with: everything, then
    consumer.subscription.redeliver(consumer, positions)
    consumer.subscription.pump()
