"""Commands of transactions: of clients to a coordinator, of coordinators to participants, and ACKs in a transaction.

Source: Pulsar's ServerCnx. Where transactions are off, each is refused as there: with an ERROR.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from weakref import ref

import trio
from cachetools import LRUCache

from broker import replies
from broker.connections import acks
from broker.connections.connection import Connection
from broker.connections.lookups import parse_topic
from broker.errors import BrokerError, ConsumerNotFoundError, MetadataRefusedError, NotAllowedError
from broker.positions import position_of
from broker.security.roles import acting_role
from broker.transactions.coordinator_state import ENDED_MAX
from broker.transactions.errors import TransactionNotFoundError
from broker.transactions.pending_state import Ack
from broker.transactions.records import CUMULATIVE, INDIVIDUAL
from broker.transactions.service import TransactionService
from broker.transactions.txn_id import TxnId
from cursors.batch_acks import ACK_SET_WORDS_MAX, BATCH_SIZE_MAX
from cursors.errors import CursorError
from quire.wire.pulsar import PulsarApi_pb2 as pb

ACKS_IN_STEP = 256
"""Message ids of one ACK in a transaction that are worked on before other tasks run, and stored as one record."""
PARTICIPANTS_MAX = 10_000
"""Maximum number of partitions or subscriptions in one command."""
NAMES_IN_STEP = 500
"""Names of participants that are looked at before other tasks run."""
TTL_MAX_MS = 1 << 53

Work = Callable[[Connection, pb.BaseCommand], Awaitable[None]]


class TransactionRequests:
    """Handlers of the commands, on the broker's transactions."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service
        self._answered: LRUCache[TxnId, ref[Connection]] = LRUCache(ENDED_MAX)
        """Connections that were answered the end of a transaction. Another one may ask again, since the answer may have
        been lost with its connection; to the same one the transaction does not exist any more, as in the original."""

    @property
    def works(self) -> dict[int, Work]:
        """Return the handler of each command, to be run in a task."""
        kind = pb.BaseCommand
        return {
            kind.TC_CLIENT_CONNECT_REQUEST: self._connect,
            kind.NEW_TXN: self._new,
            kind.ADD_PARTITION_TO_TXN: self._add_partitions,
            kind.ADD_SUBSCRIPTION_TO_TXN: self._add_subscriptions,
            kind.END_TXN: self._end,
            kind.END_TXN_ON_PARTITION: self._end_on_partition,
            kind.END_TXN_ON_SUBSCRIPTION: self._end_on_subscription,
        }

    # Clients and their coordinator

    async def _connect(self, connection: Connection, command: pb.BaseCommand) -> None:
        request = command.tcClientConnectRequest
        await self._service.connect(request.tc_id)
        connection.write((replies.coordinator_connected(request.request_id),))

    async def _new(self, connection: Connection, command: pb.BaseCommand) -> None:
        request = command.newTxn
        if request.txn_ttl_seconds > TTL_MAX_MS:
            raise NotAllowedError(f"a transaction of {request.txn_ttl_seconds} ms is too long")
        txn = await self._service.coordinator_of(request.tc_id).new(
            request.txn_ttl_seconds, acting_role(connection.principal)
        )
        connection.write((replies.transaction_opened(request.request_id, *txn),))

    async def _add_partitions(self, connection: Connection, command: pb.BaseCommand) -> None:
        request = command.addPartitionToTxn
        txn = TxnId(request.txnid_most_bits, request.txnid_least_bits)
        _check_count(len(request.partitions))
        names = list(request.partitions)
        await _check_names(names)
        await self._service.coordinator_of(txn.most).add(txn, names)
        connection.write((replies.of_transaction(command, *txn),))

    async def _add_subscriptions(self, connection: Connection, command: pb.BaseCommand) -> None:
        request = command.addSubscriptionToTxn
        txn = TxnId(request.txnid_most_bits, request.txnid_least_bits)
        _check_count(len(request.subscription))
        names = [(each.topic, each.subscription) for each in request.subscription]
        await _check_names([topic for topic, _ in names])
        await self._service.coordinator_of(txn.most).add(txn, (), names)
        connection.write((replies.of_transaction(command, *txn),))

    async def _end(self, connection: Connection, command: pb.BaseCommand) -> None:
        request = command.endTxn
        txn = TxnId(request.txnid_most_bits, request.txnid_least_bits)
        answered = self._answered.get(txn)
        if answered is not None and answered() is connection:
            raise TransactionNotFoundError(f"transaction {txn} is over, as this connection was answered")
        await self._service.coordinator_of(txn.most).end(txn, commit=request.txn_action == pb.COMMIT)
        connection.write((replies.of_transaction(command, *txn),))
        self._answered[txn] = ref(connection)

    # Coordinators and participants

    async def _end_on_partition(self, connection: Connection, command: pb.BaseCommand) -> None:
        request = command.endTxnOnPartition
        txn = TxnId(request.txnid_most_bits, request.txnid_least_bits)
        commit, mark = request.txn_action == pb.COMMIT, _watermark(request)
        await self._service.end_here(parse_topic(request.topic), txn, commit=commit, low_watermark=mark)
        connection.write((replies.of_transaction(command, *txn),))

    async def _end_on_subscription(self, connection: Connection, command: pb.BaseCommand) -> None:
        request = command.endTxnOnSubscription
        txn = TxnId(request.txnid_most_bits, request.txnid_least_bits)
        topic, name = parse_topic(request.subscription.topic), request.subscription.subscription
        commit, mark = request.txn_action == pb.COMMIT, _watermark(request)
        await self._service.end_here(topic, txn, name, commit=commit, low_watermark=mark)
        connection.write((replies.of_transaction(command, *txn),))

    # Acknowledgements

    def acknowledge(self, connection: Connection, command: pb.BaseCommand) -> Iterator[None] | None:
        """Apply an ACK; one of a transaction in a task."""
        ack = command.ack
        if not ack.HasField("txnid_least_bits") and not ack.HasField("txnid_most_bits"):
            return acks.acknowledge(connection, command)
        connection.start(command, partial(self._acknowledge, connection, command))
        return None

    async def _acknowledge(self, connection: Connection, command: pb.BaseCommand) -> None:
        ack = command.ack
        try:
            await self._apply(connection, ack)
        except (BrokerError, CursorError) as error:
            code = error.code if isinstance(error, BrokerError) else pb.MetadataError
            acks.answer(connection, ack, code, str(error))
            return
        if ack.HasField("request_id"):
            connection.write((replies.ack_response(ack.consumer_id, ack.request_id),))

    async def _apply(self, connection: Connection, ack: pb.CommandAck) -> None:
        consumer = connection.consumers.get(ack.consumer_id)
        if consumer is None:
            raise ConsumerNotFoundError(f"no consumer {ack.consumer_id} on this connection")
        problem = acks.refusal(connection, consumer, ack, len(ack.message_id), in_transaction=True)
        if problem is not None:
            raise _Refused(*problem)
        txn = TxnId(ack.txnid_most_bits, ack.txnid_least_bits)
        ack_type = CUMULATIVE if ack.ack_type == pb.CommandAck.Cumulative else INDIVIDUAL
        topic = self._service.topic_of(consumer)
        transactions = await self._service.of(topic)
        ids: Sequence[pb.MessageIdData] = ack.message_id
        for at in range(0, len(ids), ACKS_IN_STEP):
            acked = [_ack_of(each) for each in ids[at : at + ACKS_IN_STEP]]
            await transactions.acknowledge(consumer, txn, acked, ack_type)
            await trio.lowlevel.checkpoint()


class _Refused(BrokerError):
    """An ACK cannot be applied."""

    def __init__(self, code: pb.ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code


def _ack_of(message: pb.MessageIdData) -> Ack:
    if len(message.ack_set) > ACK_SET_WORDS_MAX or not 0 <= message.batch_size <= BATCH_SIZE_MAX:
        raise MetadataRefusedError(f"a batch has at most {BATCH_SIZE_MAX} messages")
    return Ack(position_of(message), tuple(message.ack_set), message.batch_size)


def _check_count(count: int) -> None:
    if count > PARTICIPANTS_MAX:
        raise NotAllowedError(f"{count} participants in one command are too many")


async def _check_names(topics: Sequence[str]) -> None:
    """Raise InvalidTopicError if one of them is no name. They are kept as the client wrote them, which may be short:
    clients look for them so in the metadata of a transaction."""
    for count, topic in enumerate(topics, 1):
        parse_topic(topic)
        if not count % NAMES_IN_STEP:
            await trio.lowlevel.checkpoint()


def _watermark(request: pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription) -> int:
    """Return the low watermark of the coordinator; -1: it names none."""
    has = request.HasField("txnid_least_bits_of_low_watermark")
    mark = request.txnid_least_bits_of_low_watermark if has else -1
    return mark if mark < 1 << 63 else -1
