"""Commands about transactions from this broker to others, over the binary protocol. Source: Pulsar's
TransactionBufferClientImpl, TransactionBufferHandlerImpl."""

from __future__ import annotations

from collections.abc import Callable

import trio

from broker.context import Context
from broker.errors import BrokerError, ServiceNotReadyError
from broker.transactions.errors import CoordinatorNotFoundError, InvalidStatusError, TransactionNotFoundError
from broker.transactions.txn_id import TxnId
from quire.client.connections import Connections
from quire.client.errors import ClientError, ServerRefusedError
from quire.client.options import ClientOptions
from quire.client.service_url import parse_service_url
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName

ANSWER_S = 30.0
"""Time that another broker has for its answer. Source: the client's operation timeout in the original."""

_ERRORS: dict[int, type[BrokerError]] = {
    pb.TransactionNotFound: TransactionNotFoundError,
    pb.InvalidTxnStatus: InvalidStatusError,
    pb.TransactionCoordinatorNotFound: CoordinatorNotFoundError,
}


class RemoteBrokers:
    """Connections to the other brokers, made at the first use and kept."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._connections: Connections | None = None

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()

    async def end_on_partition(self, topic: TopicName, txn: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Raises ServiceNotReadyError, TransactionNotFoundError."""

        def make(request_id: int) -> pb.BaseCommand:
            command = pb.BaseCommand(type=pb.BaseCommand.END_TXN_ON_PARTITION)
            request = command.endTxnOnPartition
            request.topic = topic.full
            _fill(request, request_id, txn)
            request.txn_action = pb.COMMIT if commit else pb.ABORT
            if low_watermark >= 0:
                request.txnid_least_bits_of_low_watermark = low_watermark
            return command

        await self._ask(topic, make)

    async def end_on_subscription(
        self, topic: TopicName, subscription: str, txn: TxnId, *, commit: bool, low_watermark: int
    ) -> None:
        """Raises ServiceNotReadyError, TransactionNotFoundError."""

        def make(request_id: int) -> pb.BaseCommand:
            command = pb.BaseCommand(type=pb.BaseCommand.END_TXN_ON_SUBSCRIPTION)
            request = command.endTxnOnSubscription
            request.subscription.topic = topic.full
            request.subscription.subscription = subscription
            _fill(request, request_id, txn)
            request.txn_action = pb.COMMIT if commit else pb.ABORT
            if low_watermark >= 0:
                request.txnid_least_bits_of_low_watermark = low_watermark
            return command

        await self._ask(topic, make)

    async def check_open(self, coordinator: TopicName, txn: TxnId) -> None:
        """Return if a transaction is open: it is given no partition, which changes nothing.

        Raises TransactionNotFoundError (it is over), InvalidStatusError (it is being ended), CoordinatorNotFoundError,
        ServiceNotReadyError."""

        def make(request_id: int) -> pb.BaseCommand:
            command = pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN)
            _fill(command.addPartitionToTxn, request_id, txn)
            return command

        await self._ask(coordinator, make)

    async def _ask(self, topic: TopicName, make: Callable[[int], pb.BaseCommand]) -> None:
        if self._connections is None:
            context = self._context
            address = parse_service_url(context.own_url)
            options = ClientOptions(credentials=context.credentials)
            self._connections = Connections(context.world, options, context.nursery, address, tls=context.client_tls)
        try:
            with trio.fail_after(ANSWER_S):
                connection = await self._connections.of_topic(topic.full)
                await connection.request(make)
        except ServerRefusedError as error:
            raise _ERRORS.get(error.code, ServiceNotReadyError)(f"{topic.full}: {error}") from error
        except ClientError as error:
            raise ServiceNotReadyError(f"{topic.full}: {error}") from error
        except trio.TooSlowError:
            raise ServiceNotReadyError(f"{topic.full}: no answer within {ANSWER_S:g} s") from None


def _fill(
    request: pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription | pb.CommandAddPartitionToTxn,
    request_id: int,
    txn: TxnId,
) -> None:
    request.request_id = request_id
    request.txnid_most_bits = txn.most
    request.txnid_least_bits = txn.least
