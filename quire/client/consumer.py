"""Consumer: a member of a subscription, which receives entries and acknowledges them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.client import commands
from quire.client.attachment import Home
from quire.client.connection import Connection
from quire.client.message_id import MessageId
from quire.client.receiving import Receiving
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import MessageRun
from quire.wire.pulsar.frames import encode

_U64 = 0xFFFF_FFFF_FFFF_FFFF
ACKNOWLEDGED_MAX = 1000
"""Entries in one ACK."""
_TYPES = {
    "Exclusive": pb.CommandSubscribe.Exclusive,
    "Shared": pb.CommandSubscribe.Shared,
    "Failover": pb.CommandSubscribe.Failover,
    "Key_Shared": pb.CommandSubscribe.Key_Shared,
}
TYPES = tuple(_TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Requests of a consumer to its subscription. Raises ValueError for invalid values."""

    type: str = "Exclusive"
    """One of TYPES."""
    durable: bool = True
    """False: the subscription ends with its last consumer."""
    earliest: bool = False
    """A new subscription starts at the first entry instead of behind the last one."""
    window: int = 1000
    """Maximum messages in flight or queued."""
    name: str = ""
    """Name of the consumer; empty: one is drawn."""
    replicated: bool = False
    """The state of the subscription is replicated to other clusters."""

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(f"subscription type {self.type!r} is not one of {', '.join(TYPES)}")
        if self.window < 1:
            raise ValueError(f"a window of {self.window} messages lets none through")


class Consumer(Receiving):
    """Consumer of one topic, opened by `Client.consumer`.

    Entries that were not acknowledged come again, to this consumer or to another one of the subscription: after a lost
    connection, and after `close`. So an entry may come twice, and none is lost."""

    def __init__(self, home: Home, topic: str, subscription: str, options: ConsumerOptions) -> None:
        super().__init__(home, topic, f"consumer of subscription {subscription!r} of {topic}", options.window)
        self.subscription = subscription
        self._asked = options
        self._name = options.name or f"consumer-{home.rng.getrandbits(40):010x}"

    def acknowledge(self, ids: Sequence[tuple[int, int]]) -> None:
        """Send acknowledgements of whole entries, named by ledger and entry, without waiting for answers.

        While the consumer is not attached they are dropped: the broker delivers those entries again."""
        connection = self._connection
        if connection is None:
            return
        for first in range(0, len(ids), ACKNOWLEDGED_MAX):
            command = _ack(self._consumer_id, ids[first : first + ACKNOWLEDGED_MAX])
            connection.send(encode(command))

    async def confirm(self, ids: Sequence[tuple[int, int]], *, transaction: tuple[int, int] | None = None) -> None:
        """Acknowledge whole entries, and wait until the broker has recorded it.

        Args:
            ids: ledger and entry of each.
            transaction: id of the transaction that they are a part of (most and least significant bits).

        Raises:
            ClientError: the request failed. In a transaction, an entry that another one acknowledged is refused.
        """
        for first in range(0, len(ids), ACKNOWLEDGED_MAX):
            part = ids[first : first + ACKNOWLEDGED_MAX]

            def ask(number: int, part: Sequence[tuple[int, int]] = part) -> pb.BaseCommand:
                command = _ack(self._consumer_id, part)
                command.ack.request_id = number
                if transaction is not None:
                    command.ack.txnid_most_bits, command.ack.txnid_least_bits = transaction
                return command

            await self._request(ask)

    async def mark_delete(self) -> MessageId:
        """Return the last entry up to which everything is acknowledged. Raises ClientError."""
        answer = await self._request(lambda number: commands.last_message_id(number, self._consumer_id))
        return MessageId.of(answer.getLastMessageIdResponse.consumer_mark_delete_position)

    async def unsubscribe(self) -> None:
        """Delete the subscription, and close this consumer. Raises ClientError if the request failed."""
        await self._request(lambda number: commands.unsubscribe(number, self._consumer_id))
        await self.close()

    # Events of the connection

    def delivered(self, run: MessageRun) -> None:
        """Handle received entries."""
        self._keep(run)

    # Attachment

    async def _attach(self, connection: Connection) -> None:
        # A new id each time, so that entries in flight for the old one are dropped: the broker delivers them again.
        self._consumer_id = self._home.next_id()
        connection.consumers[self._consumer_id] = self
        self._forget()
        await connection.request(self._subscribe)
        self._permits = 0

    def _subscribe(self, request_id: int) -> pb.BaseCommand:
        asked = self._asked
        command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
        request = command.subscribe
        request.topic = self.topic
        request.subscription = self.subscription
        request.subType = _TYPES[asked.type]
        request.consumer_id = self._consumer_id
        request.request_id = request_id
        request.consumer_name = self._name
        request.durable = asked.durable
        position = pb.CommandSubscribe.Earliest if asked.earliest else pb.CommandSubscribe.Latest
        request.initialPosition = position
        request.force_topic_creation = True
        if asked.replicated:
            request.replicate_subscription_state = True
        if asked.type == "Key_Shared":
            request.keySharedMeta.keySharedMode = pb.AUTO_SPLIT
        if not asked.durable:
            start = MessageId.EARLIEST if asked.earliest else MessageId.LATEST
            request.start_message_id.ledgerId = start.ledger_id & _U64
            request.start_message_id.entryId = start.entry_id & _U64
        return command


def _ack(consumer_id: int, ids: Sequence[tuple[int, int]]) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.ACK)
    command.ack.consumer_id = consumer_id
    command.ack.ack_type = pb.CommandAck.Individual
    for ledger_id, entry_id in ids:
        command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    return command
