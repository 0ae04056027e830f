"""A small Pulsar client for simulated hosts: one connection, awaited requests, frames parsed by hand.

It is deliberately not the broker's own code: receipts, messages and answers are read with protobuf.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio
from crc32c import crc32c

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import Stream, World

_U32 = struct.Struct("!I")


class ClientError(Exception):
    """Error answer of the server, or a lost connection: reconnect."""

    def __init__(self, text: str, code: int = -1) -> None:
        super().__init__(text)
        self.code = code
        """Error of the protocol (pb.ServerError); -1: there was no answer."""


@dataclass(frozen=True, slots=True)
class Message:
    """A delivered message: its position, content, and earlier deliveries."""

    ledger_id: int
    entry_id: int
    payload: bytes
    redelivery_count: int
    deliver_at_ms: int = 0
    """Time before which it is not to be delivered; 0: none."""
    key: str = ""
    publish_ms: int = 0


def frame(command: pb.BaseCommand, tail: bytes = b"") -> bytes:
    body = command.SerializeToString()
    return _U32.pack(4 + len(body) + len(tail)) + _U32.pack(len(body)) + body + tail


def entry(
    producer: str,
    sequence_id: int,
    payload: bytes,
    key: str,
    publish_ms: int,
    deliver_at_ms: int = 0,
    transaction: tuple[int, int] | None = None,
) -> bytes:
    """Return magic, checksum, metadata, payload: the part of a SEND behind the command. `transaction`: its id, most
    significant bits first."""
    metadata = pb.MessageMetadata(producer_name=producer, sequence_id=sequence_id, publish_time=publish_ms)
    if key:
        metadata.partition_key = key
    if deliver_at_ms:
        metadata.deliver_at_time = deliver_at_ms
    if transaction is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = transaction
    packed = metadata.SerializeToString()
    checked = _U32.pack(len(packed)) + packed + payload
    return b"\x0e\x01" + _U32.pack(crc32c(checked)) + checked


class Connection:
    """One connection. `run` has to be running in a task; when it returns the connection is over."""

    def __init__(self, world: World, stream: Stream, host: str = "") -> None:
        self.host = host
        """Host at the other end."""
        self._world = world
        self._stream = stream
        self._request_id = 0
        self._answers: dict[int, pb.BaseCommand] = {}
        self._changed = trio.Event()
        self._unsent = bytearray()
        """Sends beyond the window, in order."""
        self._unsent_some = trio.Event()
        self.receipts: deque[pb.CommandSendReceipt] = deque()
        self.messages: deque[tuple[int, Message]] = deque()
        """(consumer id, message) in the order of their arrival."""
        self.closed = False
        self.dropped: set[int] = set()
        """Consumers closed by the server."""

    @classmethod
    async def open(cls, world: World, host: str, port: int) -> Connection:
        """Connect. Raises OSError if refused. `handshake` follows once `run` is running."""
        return cls(world, await world.network.connect(host, port), host)

    async def run(self) -> None:
        """Receive, and send what did not fit at once, until the end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_rest, name="client sends")
            await self._receive()
            nursery.cancel_scope.cancel()

    async def _send_rest(self) -> None:
        try:
            while True:
                await self._unsent_some.wait()
                while self._unsent:
                    await self._stream.wait_writable()
                    del self._unsent[: self._stream.send_nowait([bytes(self._unsent)])]
                self._unsent_some = trio.Event()
        except OSError:
            self.close()

    async def _receive(self) -> None:
        buffer = bytearray(1 << 16)
        held = b""
        try:
            while True:
                received = await self._stream.receive_into(memoryview(buffer))
                if received == 0:
                    return
                held += bytes(buffer[:received])
                while len(held) >= 4 and len(held) >= 4 + (size := _U32.unpack_from(held)[0]):
                    self._arrived(held[4 : 4 + size])
                    held = held[4 + size :]
                self._wake()
        except OSError:
            return
        finally:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _arrived(self, body: bytes) -> None:
        command_size = _U32.unpack_from(body)[0]
        command = pb.BaseCommand.FromString(body[4 : 4 + command_size])
        kind = command.type
        if kind == pb.BaseCommand.SEND_RECEIPT:
            self.receipts.append(command.send_receipt)
        elif kind == pb.BaseCommand.MESSAGE:
            tail = body[4 + command_size :]
            assert crc32c(tail[6:]) == _U32.unpack_from(tail, 2)[0], "a delivered message is damaged"
            metadata_size = _U32.unpack_from(tail, 6)[0]
            place = command.message.message_id
            metadata = pb.MessageMetadata.FromString(tail[10 : 10 + metadata_size])
            message = Message(
                place.ledgerId,
                place.entryId,
                tail[10 + metadata_size :],
                command.message.redelivery_count,
                metadata.deliver_at_time,
                metadata.partition_key,
                metadata.publish_time,
            )
            self.messages.append((command.message.consumer_id, message))
        elif kind == pb.BaseCommand.PING:
            self.send(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))
        elif kind == pb.BaseCommand.CLOSE_CONSUMER:
            self.dropped.add(command.close_consumer.consumer_id)
        elif kind in (pb.BaseCommand.CLOSE_PRODUCER, pb.BaseCommand.SEND_ERROR):
            self.close()
        else:
            for descriptor, value in command.ListFields():
                if descriptor.name != "type" and hasattr(value, "request_id"):
                    self._answers[value.request_id] = command
                elif kind == pb.BaseCommand.CONNECTED and descriptor.name == "connected":
                    self._answers[0] = command

    def send(self, command: pb.BaseCommand, tail: bytes = b"") -> None:
        """Send one frame; no effect on an ended connection."""
        self._send(frame(command, tail))

    def _send(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            taken = 0 if self._unsent else self._stream.send_nowait([data])
        except OSError:
            self.close()
            return
        if taken < len(data):
            self._unsent += data[taken:]
            self._unsent_some.set()

    async def changed(self) -> None:
        """Wait until something arrived. Raises ClientError on an ended connection."""
        if self.closed:
            raise ClientError("the connection is over")
        await self._changed.wait()

    async def _answer(self, request_id: int) -> pb.BaseCommand:
        with trio.move_on_after(30):
            while request_id not in self._answers:
                await self.changed()
            answer = self._answers.pop(request_id)
            if answer.type == pb.BaseCommand.ERROR:
                raise ClientError(answer.error.message, answer.error.error)
            return answer
        self.close()
        raise ClientError("no answer in 30 s")

    async def ask(self, command: pb.BaseCommand, request_id: int) -> pb.BaseCommand:
        """Send a command with this request id; return its answer. Raises ClientError for a missing answer."""
        self.send(command)
        return await self._answer(request_id)

    def next_id(self) -> int:
        self._request_id += 1
        return self._request_id

    async def handshake(self, token: bytes = b"") -> None:
        """Introduce the client. `token`: of its role; empty: it has none."""
        connect = pb.CommandConnect(client_version="simulation", protocol_version=20)
        if token:
            connect.auth_method_name, connect.auth_data = "token", token
        self.send(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect))
        await self._answer(0)

    async def lookup(self, topic: str, *, authoritative: bool) -> pb.CommandLookupTopicResponse:
        """Return the broker that serves the topic, or the one to ask next. Raises ClientError."""
        number = self.next_id()
        command = pb.CommandLookupTopic(topic=topic, request_id=number, authoritative=authoritative)
        self.send(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=command))
        answer = (await self._answer(number)).lookupTopicResponse
        if answer.response == pb.CommandLookupTopicResponse.Failed:
            raise ClientError(answer.message)
        return answer

    async def producer(
        self, topic: str, producer_id: int, name: str, *, epoch: int = 0, schema: pb.Schema | None = None
    ) -> pb.CommandProducerSuccess:
        """Make a producer. `epoch`: number of times that it connected before."""
        number = self.next_id()
        command = pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=number, producer_name=name)
        if epoch:
            command.epoch = epoch
        if schema is not None:
            command.schema.CopyFrom(schema)
        self.send(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=command))
        return (await self._answer(number)).producer_success

    async def close_producer(self, producer_id: int) -> None:
        number = self.next_id()
        command = pb.CommandCloseProducer(producer_id=producer_id, request_id=number)
        self.send(pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=command))
        await self._answer(number)

    def publish(
        self,
        producer_id: int,
        name: str,
        first: int,
        messages: Sequence[tuple[str, bytes]],
        delay_ms: Callable[[int], int] | None = None,
    ) -> None:
        """Send a run of SENDs in one write, numbered from `first` on; each is (key, payload). Receipts arrive in
        `receipts`. `delay_ms`: delay of a message by its number; 0, or none given: it has none."""
        now_ms = self._world.clock.wall_ms()
        of = delay_ms or (lambda number: 0)
        frames = [
            frame(
                pb.BaseCommand(
                    type=pb.BaseCommand.SEND,
                    send=pb.CommandSend(producer_id=producer_id, sequence_id=number, num_messages=1),
                ),
                entry(name, number, payload, key, now_ms, now_ms + delay if (delay := of(number)) else 0),
            )
            for number, (key, payload) in enumerate(messages, first)
        ]
        self._send(b"".join(frames))

    async def subscribe(
        self,
        topic: str,
        subscription: str,
        consumer_id: int,
        kind: int,
        *,
        durable: bool = True,
        read_compacted: bool = False,
        latest: bool = False,
        name: str = "",
    ) -> None:
        """Subscribe from the beginning, or the end if `latest`, if the subscription is new; a reader (not durable)
        always from the beginning. `name`: of the consumer, if it has one."""
        number = self.next_id()
        command = pb.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            consumer_id=consumer_id,
            request_id=number,
            subType=kind,  # type: ignore[arg-type]
            durable=durable,
            read_compacted=read_compacted,
            initialPosition=pb.CommandSubscribe.Latest if latest else pb.CommandSubscribe.Earliest,
        )
        if name:
            command.consumer_name = name
        if not durable:
            command.start_message_id.ledgerId = (1 << 64) - 1
            command.start_message_id.entryId = (1 << 64) - 1
        self.send(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=command))
        await self._answer(number)

    def flow(self, consumer_id: int, permits: int) -> None:
        command = pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
        self.send(pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=command))

    async def ack(self, consumer_id: int, places: list[tuple[int, int]], *, cumulative: bool = False) -> None:
        """Acknowledge, and wait for the answer. Raises ClientError for an error or a missing answer."""
        number = self.next_id()
        kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        command = pb.CommandAck(consumer_id=consumer_id, ack_type=kind, request_id=number)
        for ledger_id, entry_id in places:
            command.message_id.add(ledgerId=ledger_id, entryId=entry_id)
        self.send(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=command))
        answer = await self._answer(number)
        if answer.ackResponse.HasField("error"):
            raise ClientError(answer.ackResponse.message)

    def ack_unanswered(self, consumer_id: int, place: tuple[int, int]) -> None:
        """Acknowledge one entry without requesting an answer."""
        command = pb.CommandAck(consumer_id=consumer_id, ack_type=pb.CommandAck.Individual)
        command.message_id.add(ledgerId=place[0], entryId=place[1])
        self.send(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=command))

    async def unsubscribe(self, consumer_id: int) -> None:
        number = self.next_id()
        command = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=number)
        self.send(pb.BaseCommand(type=pb.BaseCommand.UNSUBSCRIBE, unsubscribe=command))
        await self._answer(number)

    async def close_consumer(self, consumer_id: int) -> None:
        number = self.next_id()
        command = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=number)
        self.send(pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=command))
        await self._answer(number)

    async def last_message_id(self, consumer_id: int) -> tuple[int, int]:
        number = self.next_id()
        command = pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=number)
        self.send(pb.BaseCommand(type=pb.BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=command))
        place = (await self._answer(number)).getLastMessageIdResponse.last_message_id
        return place.ledgerId, place.entryId
