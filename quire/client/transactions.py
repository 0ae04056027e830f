"""Transactions: messages and acknowledgements on several topics that count all together, or not at all.

    transactions = await open_transactions(client)
    transaction = await transactions.begin(timeout_s=10)
    await transaction.publishes_to(producer.topic)
    await producer.send(entries, transaction.id)
    await producer.flush()
    await transaction.commit()

A coordinator is a partition of a system topic, and its broker answers the requests of its transactions. Which commands
are sent, and when, was read from TransactionMetaStoreHandler and TransactionImpl of Pulsar's client. The field
txn_ttl_seconds of NEW_TXN has milliseconds, there as here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct

from quire.client import commands
from quire.client.attachment import Home
from quire.client.connection import Connection
from quire.client.errors import ServerRefusedError
from quire.client.packing import Packed
from quire.client.producer import Producer
from quire.client.retrying import retrying
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import ReceiptRun
from quire.wire.pulsar.frames import SendEncoder, encode, encode_varint

ASSIGN_TOPIC = "persistent://pulsar/system/transaction_coordinator_assign"
TransactionId = tuple[int, int]
"""Most and least significant bits."""

_SIZE = Struct("!I")


class TransactionClient:
    """The coordinators of a cluster, taken in turns. Made by `Client.transactions`."""

    def __init__(self, home: Home, coordinators: int) -> None:
        self._home = home
        self._coordinators = coordinators
        self._turn = home.rng.randrange(coordinators)
        self._known: dict[int, Connection] = {}
        """Connections on which a coordinator was asked for."""

    async def begin(self, *, timeout_s: float) -> Transaction:
        """Open a transaction. The coordinator aborts it if it does not end within `timeout_s`. Raises ClientError."""
        self._turn = (self._turn + 1) % self._coordinators
        coordinator = self._turn

        def make(number: int) -> pb.BaseCommand:
            command = pb.BaseCommand(type=pb.BaseCommand.NEW_TXN)
            command.newTxn.request_id = number
            command.newTxn.txn_ttl_seconds = int(timeout_s * 1000)
            command.newTxn.tc_id = coordinator
            return command

        answer = (await self.ask(coordinator, make, "new transaction")).newTxnResponse
        return Transaction(self, coordinator, (answer.txnid_most_bits, answer.txnid_least_bits))

    async def ask(self, coordinator: int, make: Callable[[int], pb.BaseCommand], what: str) -> pb.BaseCommand:
        """Send a request to a coordinator, and retry until it answers. Raises ClientError."""

        async def attempt() -> pb.BaseCommand:
            connection = await self._connected(coordinator)
            try:
                return await connection.request(make)
            except ServerRefusedError as error:
                if error.code in (pb.TransactionCoordinatorNotFound, pb.ServiceNotReady):
                    self._known.pop(coordinator, None)
                raise

        return await retrying(self._home.options, self._home.rng, what, attempt)

    async def _connected(self, coordinator: int) -> Connection:
        known = self._known.get(coordinator)
        if known is not None and not known.closed:
            return known
        connection = await self._home.connections.of_topic(f"{ASSIGN_TOPIC}-partition-{coordinator}")

        def make(number: int) -> pb.BaseCommand:
            command = pb.BaseCommand(type=pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST)
            command.tcClientConnectRequest.request_id = number
            command.tcClientConnectRequest.tc_id = coordinator
            return command

        await connection.request(make)
        self._known[coordinator] = connection
        return connection


class Transaction:
    """One transaction, made by `Transactions.begin`. It ends with `commit` or `abort`."""

    def __init__(self, transactions: TransactionClient, coordinator: int, txn: TransactionId) -> None:
        self.id = txn
        self._transactions = transactions
        self._coordinator = coordinator
        self._topics: set[str] = set()
        self._subscriptions: set[tuple[str, str]] = set()

    async def publishes_to(self, topic: str) -> None:
        """Enter a topic, or partition, before the first message to it. Raises ClientError."""
        if topic in self._topics:
            return

        def make(number: int) -> pb.BaseCommand:
            command = pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN)
            request = command.addPartitionToTxn
            request.request_id = number
            request.txnid_most_bits, request.txnid_least_bits = self.id
            request.partitions.append(topic)
            return command

        await self._transactions.ask(self._coordinator, make, f"transaction with {topic}")
        self._topics.add(topic)

    async def acknowledges(self, topic: str, subscription: str) -> None:
        """Enter a subscription before the first acknowledgement on it. Raises ClientError."""
        if (topic, subscription) in self._subscriptions:
            return

        def make(number: int) -> pb.BaseCommand:
            command = pb.BaseCommand(type=pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN)
            request = command.addSubscriptionToTxn
            request.request_id = number
            request.txnid_most_bits, request.txnid_least_bits = self.id
            request.subscription.add(topic=topic, subscription=subscription)
            return command

        await self._transactions.ask(self._coordinator, make, f"transaction with {subscription} of {topic}")
        self._subscriptions.add((topic, subscription))

    async def commit(self) -> None:
        """End it: everything in it counts. Raises ClientError; the outcome is unknown then, and may be asked again."""
        await self._end(pb.COMMIT)

    async def abort(self) -> None:
        """End it: nothing in it counts. Raises ClientError."""
        await self._end(pb.ABORT)

    async def _end(self, action: pb.TxnAction) -> None:
        def make(number: int) -> pb.BaseCommand:
            command = pb.BaseCommand(type=pb.BaseCommand.END_TXN)
            command.endTxn.request_id = number
            command.endTxn.txnid_most_bits, command.endTxn.txnid_least_bits = self.id
            command.endTxn.txn_action = action
            return command

        await self._transactions.ask(self._coordinator, make, "end of a transaction")


class TransactionProducer(Producer):
    """Producer whose entries may be parts of transactions, opened by `Client.transaction_producer`.

    A transaction must know the topic before its first entry is sent: `Transaction.publishes_to`."""

    def __init__(self, home: Home, topic: str, name: str, pending_bytes_max: int, pending_max: int) -> None:
        super().__init__(home, topic, name, pending_bytes_max, pending_max)
        self._of: dict[int, TransactionId] = {}
        """Transaction of each entry without receipt that has one, by sequence id."""
        self._sends = _TransactionSends(self._producer_id, self._of)
        self._command = partial(commands.producer, transactions=True)

    async def send_in(self, transaction: TransactionId, entries: Sequence[Packed]) -> None:
        """Queue entries of a transaction; see `send`. Several tasks may send at the same time, in any transactions."""
        most, least = (encode_varint(bits) for bits in transaction)
        marks = b"\xb0\x01%b\xb8\x01%b" % (least, most)
        marked = [
            _Marked(each.count, each.size, each.fields + marks, each.payload, transaction, self._of) for each in entries
        ]
        try:
            await self.send(marked)
        finally:
            # Of an entry that was encoded and not queued: the next one gets its number.
            self._of.pop(self._next, None)

    def receipts(self, run: ReceiptRun) -> None:
        """Handle receipts, as `Producer`, and forget the transactions of these entries."""
        super().receipts(run)
        for sequence_id in run.sequence_ids:
            if sequence_id < self._first:
                self._of.pop(sequence_id, None)


@dataclass(frozen=True, slots=True)
class _Marked(Packed):
    """An entry of a transaction."""

    transaction: TransactionId
    of: dict[int, TransactionId]
    """Transactions of the producer's entries, by sequence id."""

    def encode(self, producer_name: str, sequence_id: int, publish_ms: int) -> bytes:
        """Return the entry, and note its transaction: only here is its sequence id known."""
        self.of[sequence_id] = self.transaction
        return Packed.encode(self, producer_name, sequence_id, publish_ms)


class _TransactionSends(SendEncoder):
    """Encoder of SENDs, some of which name a transaction."""

    __slots__ = ("_id", "_of")

    def __init__(self, producer_id: int, of: Mapping[int, TransactionId]) -> None:
        """`of`: transaction of an entry, by sequence id."""
        super().__init__(producer_id)
        self._id = producer_id
        self._of = of

    def frames(self, first_sequence_id: int, counts: Sequence[int], entries: Sequence[bytes]) -> list[bytes]:
        parts: list[bytes] = []
        sequence_id = first_sequence_id
        for count, entry in zip(counts, entries, strict=True):
            command = pb.BaseCommand(type=pb.BaseCommand.SEND)
            command.send.producer_id = self._id
            command.send.sequence_id = sequence_id
            command.send.num_messages = count
            if (transaction := self._of.get(sequence_id)) is not None:
                command.send.txnid_most_bits, command.send.txnid_least_bits = transaction
            head = encode(command)
            parts += (_SIZE.pack(len(head) - 4 + len(entry)) + head[4:], entry)
            sequence_id += count
        return parts
