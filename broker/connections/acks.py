"""ACK and REDELIVER: ids on the wire to positions of a subscription's cursor.

An ACK without a request id gets no answer. One with a request id is answered when everything acknowledged so far on
that cursor is durable: an answered ack is never delivered again.

A command with more ids than WORK_PER_STEP is worked on in steps: the functions here return an iterator then, and the
connection takes one element per step of the event loop, before it reads on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from broker import replies
from broker.connections.bounds import WORK_PER_STEP
from broker.connections.connection import Connection
from broker.connections.non_persistent import acknowledged
from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from broker.positions import position_of
from cursors.batch_acks import ACK_SET_WORDS_MAX, BATCH_SIZE_MAX
from cursors.errors import CursorError, InvalidAckError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.large_commands import LargeCommand

T = TypeVar("T")

PROPERTIES_MAX = 64
PROPERTY_NAME_MAX = 256
"""Maximum numbers that one cumulative ACK may store with the position, and characters of their names. All are stored
with each position."""
_CONSUMERS_PER_ID = 8
"""Cost of an id that the consumer does not hold, in ids: it is looked up at the other consumers, so a step handles
fewer."""


def acknowledge(connection: Connection, command: pb.BaseCommand) -> Iterator[None] | None:
    """Apply an ACK. An invalid one has no effect but an error in the answer, if one was requested."""
    ack = command.ack
    ids = ack.message_id
    connection.work_left -= len(ids)
    consumer = _acking(connection, ack, len(ids))
    if consumer is None:
        return None
    if ack.HasField("validation_error"):
        _unreadable(connection, consumer, ack)
    step = _ids_per_step(consumer)
    if len(ids) > step:
        return _acknowledge_in_steps(connection, ack, _slices((ids,), step))
    _finish(connection, consumer, ack, _apply(consumer, ack, ids))
    return None


def _unreadable(connection: Connection, consumer: Consumer[Subscription], ack: pb.CommandAck) -> None:
    """Log that a client gave up a message it could not read."""
    connection.log.warning(
        "client acknowledged a message it could not read",
        topic=consumer.subscription.topic.name.full,
        subscription=consumer.subscription.name,
        reason=pb.CommandAck.ValidationError.Name(ack.validation_error),
        position=f"{ack.message_id[0].ledgerId}:{ack.message_id[0].entryId}" if ack.message_id else "",
    )


def _acknowledge_in_steps(
    connection: Connection, ack: pb.CommandAck, slices: Iterable[Sequence[pb.MessageIdData]]
) -> Iterator[None]:
    error: CursorError | None = None
    for ids in slices:
        consumer = _acking(connection, ack, 1)
        if consumer is None:
            return
        error = _apply(consumer, ack, ids) or error
        consumer.subscription.pump()
        yield
    if (consumer := _acking(connection, ack, 1)) is not None:
        _finish(connection, consumer, ack, error)


def _acking(connection: Connection, ack: pb.CommandAck, count: int) -> Consumer[Subscription] | None:
    """Return the consumer that acknowledges `count` ids; None if the ACK is invalid, which was answered."""
    consumer = connection.consumers.get(ack.consumer_id)
    if consumer is None:
        if acknowledged(connection, ack):
            return None  # on a non-persistent topic
        # A consumer closed by a seek or by the broker may still have acks on their way.
        answer(connection, ack, pb.ConsumerNotFound, f"no consumer {ack.consumer_id} on this connection")
        return None
    problem = refusal(connection, consumer, ack, count)
    if problem is not None:
        answer(connection, ack, *problem)
        return None
    return consumer


def _apply(consumer: Consumer[Subscription], ack: pb.CommandAck, ids: Sequence[pb.MessageIdData]) -> CursorError | None:
    """Acknowledge `ids`; return the error of the invalid ones. The others took effect."""
    subscription = consumer.subscription
    too_long: list[Position] = []
    whole: list[Position] = []
    parts: list[tuple[Position, tuple[int, ...]]] = []
    held = subscription.unacked_of(consumer)
    for message in ids:
        position = position_of(message)
        words = message.ack_set
        if not words:
            whole.append(position)
        elif len(words) > ACK_SET_WORDS_MAX:
            too_long.append(position)
        else:
            parts.append((position, tuple(words)))
    try:
        if ack.ack_type == pb.CommandAck.Cumulative:
            for position in whole:
                subscription.ack_cumulative(position, ())
            for position, ack_set in parts:
                subscription.ack_cumulative(position, ack_set)
            _keep_properties(consumer, ack)
        elif whole or parts:
            subscription.ack_individual(consumer, whole, parts)
        # A type that counts what a consumer holds knows the messages of the batches.
        consumer.has_acked(max(len(ids), held - subscription.unacked_of(consumer)))
    except CursorError as error:
        return error.with_traceback(None)  # which has the frame of the caller
    if too_long:
        return InvalidAckError(
            too_long, f"an ack_set has at most {ACK_SET_WORDS_MAX} words ({BATCH_SIZE_MAX} messages)"
        )
    return None


def _keep_properties(consumer: Consumer[Subscription], ack: pb.CommandAck) -> None:
    """Store the numbers of a cumulative ACK with its position, replacing earlier ones. Those of an individual ACK have
    no meaning.

    Source: Pulsar's Consumer.messageAcked and ManagedCursorImpl.asyncMarkDelete."""
    cursor = consumer.subscription.cursor
    if ack.properties or cursor.has_properties:
        cursor.set_properties({pair.key: pair.value for pair in ack.properties})


def _finish(
    connection: Connection, consumer: Consumer[Subscription], ack: pb.CommandAck, error: CursorError | None
) -> None:
    subscription = consumer.subscription
    if error is not None:
        answer(connection, ack, pb.MetadataError, str(error))
        subscription.pump()  # the valid ids count
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


def refusal(
    connection: Connection,
    consumer: Consumer[Subscription],
    ack: pb.CommandAck,
    count: int,
    *,
    in_transaction: bool = False,
) -> tuple[pb.ServerError, str] | None:
    """Return why an ACK of `count` ids cannot be applied, as (code, message), or None."""
    if (ack.HasField("txnid_most_bits") or ack.HasField("txnid_least_bits")) and not in_transaction:
        return pb.NotAllowedError, "transactions are off, or the ACK has too many ids for one"
    if count > connection.context.options.acks_in_command_max:
        return pb.NotAllowedError, f"{count} message ids in one ACK are too many"
    if len(ack.properties) > PROPERTIES_MAX or any(len(pair.key) > PROPERTY_NAME_MAX for pair in ack.properties):
        return pb.NotAllowedError, (
            f"an ACK has at most {PROPERTIES_MAX} properties, with names of at most {PROPERTY_NAME_MAX} characters"
        )
    if ack.ack_type == pb.CommandAck.Cumulative:
        if count != 1:
            return pb.MetadataError, "a cumulative ACK carries exactly one message id"
        if not consumer.subscription.single_active:
            return pb.NotAllowedError, "cumulative acks do not go with shared subscriptions"
    return None


def answer(connection: Connection, ack: pb.CommandAck, code: pb.ServerError, message: str) -> None:
    if ack.HasField("request_id"):
        connection.write((replies.ack_response(ack.consumer_id, ack.request_id, code, message),))
    else:
        connection.log.debug("ack refused", consumer_id=ack.consumer_id, reason=message)


def redeliver(connection: Connection, command: pb.BaseCommand) -> Iterator[None] | None:
    """Apply a REDELIVER, which has no answer."""
    return _redeliver(connection, command.redeliverUnacknowledgedMessages)


def _redeliver(connection: Connection, request: pb.CommandRedeliverUnacknowledgedMessages) -> Iterator[None] | None:
    """Deliver again the entries that the command names, or all that the consumer holds."""
    ids: Sequence[pb.MessageIdData] = request.message_ids
    connection.work_left -= len(ids)
    consumer = _redelivering(connection, request)
    if consumer is None:
        return None
    if len(ids) > connection.context.options.acks_in_command_max:
        ids = ()  # no answer can carry an error, so deliver all again
    if len(ids) > WORK_PER_STEP:
        return _redeliver_in_steps(connection, request, _slices((ids,), WORK_PER_STEP))
    if not ids and len(held := consumer.subscription.held(consumer)) > WORK_PER_STEP:
        return _redeliver_in_steps(connection, request, _slices((held,), WORK_PER_STEP))
    consumer.subscription.redeliver(consumer, _positions(ids))
    consumer.subscription.pump()
    return None


def _redelivering(
    connection: Connection, request: pb.CommandRedeliverUnacknowledgedMessages
) -> Consumer[Subscription] | None:
    consumer = connection.consumers.get(request.consumer_id)
    known = consumer is not None and request.HasField("consumer_epoch")
    if consumer is not None and known and (consumer.epoch is None or request.consumer_epoch > consumer.epoch):
        consumer.epoch = request.consumer_epoch
    return consumer


def _redeliver_in_steps(
    connection: Connection,
    request: pb.CommandRedeliverUnacknowledgedMessages,
    slices: Iterable[Sequence[pb.MessageIdData] | Sequence[Position]],
) -> Iterator[None]:
    """Take back all entries before any is delivered again, so that they come in order."""
    for ids in slices:
        consumer = connection.consumers.get(request.consumer_id)
        if consumer is None:
            return
        consumer.subscription.redeliver(consumer, _positions(ids))
        if consumer.subscription.single_active:
            break  # this type ignores the ids
        yield
    if (consumer := connection.consumers.get(request.consumer_id)) is not None:
        consumer.subscription.pump()


def large(connection: Connection, command: LargeCommand) -> Iterator[None]:
    """Apply an ACK or REDELIVER of more bytes than are parsed in one step. Raises FrameError."""
    yield from command.pieces(connection.context.options.acks_in_command_max)
    part = command.part
    if isinstance(part, pb.CommandAck):
        if command.refused is not None:
            answer(connection, part, pb.NotAllowedError, command.refused)
            return
        consumer = _acking(connection, part, sum(map(len, command.ids)))
        if consumer is not None:
            yield from _acknowledge_in_steps(connection, part, _slices(command.ids, _ids_per_step(consumer)))
        return
    consumer = _redelivering(connection, part)
    if consumer is None:
        return
    if command.refused is None and command.ids:
        yield from _redeliver_in_steps(connection, part, _slices(command.ids, WORK_PER_STEP))
    else:
        rest = _redeliver(connection, part)  # names none: all
        if rest is not None:
            yield from rest


def _positions(ids: Sequence[pb.MessageIdData] | Sequence[Position]) -> list[Position]:
    return [each if isinstance(each, Position) else position_of(each) for each in ids]


def _slices(lists: Iterable[Sequence[T]], size: int) -> Iterator[Sequence[T]]:
    """Yield all elements of `lists` in order, at most `size` at a time."""
    for each in lists:
        for at in range(0, len(each), size):
            yield each[at : at + size]


def _ids_per_step(consumer: Consumer[Subscription]) -> int:
    return max(64, WORK_PER_STEP // (1 + len(consumer.subscription.consumers) // _CONSUMERS_PER_ID))
