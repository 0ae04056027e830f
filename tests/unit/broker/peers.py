"""A whole broker in memory and in virtual time: real connections over streams that a test holds the other end of, real
managed ledgers over the fake ledgers of the managed ledger's tests."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio
import trio.testing
from crc32c import crc32c

from broker.config import BrokerOptions
from broker.server import Broker
from managed_ledger.factory import ManagedLedgerFactory
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import Buffer
from tests.support.raw import frame
from tests.unit.managed_ledger.cluster import Cluster
from tests.unit.managed_ledger.fake_ledgers import fake_world, running, until

TOPIC = "persistent://public/default/orders"
OPTIONS = BrokerOptions(message_size_max=1 << 20)
_U32 = struct.Struct("!I")
SUB = pb.CommandSubscribe
C = pb.BaseCommand


def entry(payload: bytes, *, sequence_id: int = 0, **metadata: Any) -> bytes:
    """Return the part of a SEND behind the command."""
    metadata.setdefault("publish_time", 1)
    packed = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, **metadata).SerializeToString()
    checked = _U32.pack(len(packed)) + packed + payload
    return b"\x0e\x01" + _U32.pack(crc32c(checked)) + checked


def payload_of(tail: bytes) -> bytes:
    return tail[10 + _U32.unpack_from(tail, 6)[0] :]


class FakeStream:
    """The broker's end. Takes everything at once unless `window` (bytes) says less."""

    peer = "test:1"

    def __init__(self) -> None:
        self.window: int | None = None
        self.sent = bytearray()
        self.closed = False
        self._incoming = bytearray()
        self._arrived = trio.Event()
        self._writable = trio.Event()

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        await trio.lowlevel.checkpoint()
        while not self._incoming and not self.closed:
            self._arrived = trio.Event()
            await self._arrived.wait()
        if self.closed:
            return 0
        size = min(len(buffer), len(self._incoming))
        buffer[:size] = self._incoming[:size]
        del self._incoming[:size]
        return size

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        if self.closed:
            raise BrokenPipeError(32, "closed")
        data = b"".join(parts)
        taken = len(data) if self.window is None else min(self.window, len(data))
        if self.window is not None:
            self.window -= taken
        self.sent += data[:taken]
        return taken

    async def wait_writable(self) -> None:
        if self.window == 0:
            self._writable = trio.Event()
            await self._writable.wait()
        await trio.lowlevel.checkpoint()
        if self.closed:
            raise BrokenPipeError(32, "closed")

    def close(self) -> None:
        self.closed = True
        self._arrived.set()
        self._writable.set()

    def arrive(self, data: bytes) -> None:
        self._incoming += data
        self._arrived.set()

    def open_window(self) -> None:
        self.window = None
        self._writable.set()


class Peer:
    """A client's end: sends commands, and looks at what came in order."""

    def __init__(self, stream: FakeStream) -> None:
        self.stream = stream
        self.dead = False
        """Answers no PING."""
        self.pings = 0
        self._frames: deque[tuple[pb.BaseCommand, bytes]] = deque()
        self._requests = 0

    def next_id(self) -> int:
        self._requests += 1
        return self._requests

    def send(self, command: pb.BaseCommand, tail: bytes = b"") -> None:
        self.stream.arrive(frame(command, tail))

    def _take(self) -> None:
        sent = self.stream.sent
        while len(sent) >= 4 and len(sent) >= 4 + _U32.unpack_from(sent)[0]:
            size = 4 + _U32.unpack_from(sent)[0]
            command_size = _U32.unpack_from(sent, 4)[0]
            command = pb.BaseCommand.FromString(bytes(sent[8 : 8 + command_size]))
            tail = bytes(sent[8 + command_size : size])
            del sent[:size]
            if command.type == C.PING:
                self.pings += 1
                if not self.dead:
                    self.send(C(type=C.PONG, pong=pb.CommandPong()))
            else:
                self._frames.append((command, tail))

    async def receive(self) -> tuple[pb.BaseCommand, bytes]:
        with trio.fail_after(120):
            while not self._frames:
                await trio.sleep(0.001)
                self._take()
        return self._frames.popleft()

    async def expect(self, kind: pb.BaseCommand.Type) -> pb.BaseCommand:
        command, _ = await self.receive()
        assert command.type == kind, f"expected {C.Type.Name(kind)}, got {command}"
        return command

    async def silent(self, seconds: float = 3.0) -> bool:
        """Whether nothing (but PINGs, which are answered) comes for a while."""
        deadline = trio.current_time() + seconds
        while trio.current_time() < deadline:
            await trio.sleep(0.05)
            self._take()
        assert not self._frames, [command for command, _ in self._frames]
        return True

    async def closed_by_us(self) -> None:
        """Hang up, and wait until the broker has noticed."""
        self.stream.close()
        await trio.testing.wait_all_tasks_blocked()

    async def closed(self) -> None:
        await until(lambda: self.stream.closed)

    # Commands

    async def handshake(self, client_version: str = "test") -> None:
        connect = pb.CommandConnect(client_version=client_version, protocol_version=20)
        self.send(C(type=C.CONNECT, connect=connect))
        await self.expect(C.CONNECTED)

    async def lookup(self, topic: str = TOPIC, **options: Any) -> pb.CommandLookupTopicResponse:
        body = pb.CommandLookupTopic(topic=topic, request_id=self.next_id(), **options)
        self.send(C(type=C.LOOKUP, lookupTopic=body))
        return (await self.expect(C.LOOKUP_RESPONSE)).lookupTopicResponse

    async def producer(self, topic: str = TOPIC, producer_id: int = 1, **options: Any) -> str:
        self.ask_producer(topic, producer_id, **options)
        return (await self.expect(C.PRODUCER_SUCCESS)).producer_success.producer_name

    def ask_producer(self, topic: str = TOPIC, producer_id: int = 1, **options: Any) -> None:
        body = pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=self.next_id(), **options)
        self.send(C(type=C.PRODUCER, producer=body))

    def send_message(self, payload: bytes, sequence_id: int = 0, producer_id: int = 1, **metadata: Any) -> None:
        self.send_entry(entry(payload, sequence_id=sequence_id, **metadata), sequence_id, producer_id)

    def send_entry(self, tail: bytes, sequence_id: int = 0, producer_id: int = 1) -> None:
        body = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=1)
        self.send(C(type=C.SEND, send=body), tail)

    async def publish(self, *payloads: bytes, first: int = 0, **metadata: Any) -> list[pb.MessageIdData]:
        for number, payload in enumerate(payloads):
            self.send_message(payload, first + number, **metadata)
        return [(await self.expect(C.SEND_RECEIPT)).send_receipt.message_id for _ in payloads]

    async def subscribe(self, topic: str = TOPIC, name: str = "s", consumer_id: int = 1, **options: Any) -> None:
        self.ask_subscribe(topic, name, consumer_id, **options)
        await self.expect(C.SUCCESS)

    def ask_subscribe(self, topic: str = TOPIC, name: str = "s", consumer_id: int = 1, **options: Any) -> None:
        options = {"subType": SUB.Exclusive, "initialPosition": SUB.Earliest, **options}
        body = SUB(topic=topic, subscription=name, consumer_id=consumer_id, request_id=self.next_id(), **options)
        self.send(C(type=C.SUBSCRIBE, subscribe=body))

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        self.send(C(type=C.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)))

    async def message(self) -> tuple[pb.CommandMessage, bytes]:
        command, tail = await self.receive()
        assert command.type == C.MESSAGE, command
        return command.message, payload_of(tail)

    async def payloads(self, count: int) -> list[bytes]:
        return [(await self.message())[1] for _ in range(count)]

    def ack(
        self,
        *ids: pb.MessageIdData,
        consumer_id: int = 1,
        cumulative: bool = False,
        request_id: int | None = None,
        properties: dict[str, int] | None = None,
        **options: Any,
    ) -> None:
        kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        pairs = [pb.KeyLongValue(key=key, value=value) for key, value in (properties or {}).items()]
        body = pb.CommandAck(
            consumer_id=consumer_id, ack_type=kind, message_id=ids, request_id=request_id, properties=pairs, **options
        )
        self.send(C(type=C.ACK, ack=body))

    async def answered_ack(self, *ids: pb.MessageIdData, **options: Any) -> pb.CommandAckResponse:
        self.ack(*ids, request_id=self.next_id(), **options)
        return (await self.expect(C.ACK_RESPONSE)).ackResponse

    def redeliver(self, *ids: pb.MessageIdData, consumer_id: int = 1) -> None:
        body = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, message_ids=ids)
        self.send(C(type=C.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=body))

    def seek(self, consumer_id: int = 1, **target: Any) -> int:
        request_id = self.next_id()
        body = pb.CommandSeek(consumer_id=consumer_id, request_id=request_id, **target)
        self.send(C(type=C.SEEK, seek=body))
        return request_id

    def unsubscribe(self, consumer_id: int = 1, *, force: bool = False) -> None:
        body = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=self.next_id(), force=force)
        self.send(C(type=C.UNSUBSCRIBE, unsubscribe=body))

    def close_consumer(self, consumer_id: int = 1) -> None:
        body = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=self.next_id())
        self.send(C(type=C.CLOSE_CONSUMER, close_consumer=body))

    def close_producer(self, producer_id: int = 1) -> None:
        body = pb.CommandCloseProducer(producer_id=producer_id, request_id=self.next_id())
        self.send(C(type=C.CLOSE_PRODUCER, close_producer=body))

    async def last_message_id(self, consumer_id: int = 1) -> tuple[int, int, int]:
        body = pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=self.next_id())
        self.send(C(type=C.GET_LAST_MESSAGE_ID, getLastMessageId=body))
        found = (await self.expect(C.GET_LAST_MESSAGE_ID_RESPONSE)).getLastMessageIdResponse.last_message_id
        return found.ledgerId, found.entryId, found.batch_index

    async def error(self) -> tuple[pb.ServerError, str]:
        failure = (await self.expect(C.ERROR)).error
        return failure.error, failure.message


class Room:
    """Environment of a test: the broker, the parts under it, and a way to connect to it."""

    def __init__(self, broker: Broker, cluster: Cluster, factory: ManagedLedgerFactory, nursery: trio.Nursery) -> None:
        self.broker = broker
        self.cluster = cluster
        self.factory = factory
        self.nursery = nursery

    def open(self) -> Peer:
        """A connection on which nothing was said yet."""
        stream = FakeStream()
        self.nursery.start_soon(self.broker.handle, stream)
        return Peer(stream)

    async def connect(self, client_version: str = "test") -> Peer:
        peer = self.open()
        await peer.handshake(client_version)
        return peer

    async def topic(self, name: str = TOPIC) -> Any:
        [found] = [topic for topic in self.broker.topics.loaded() if topic.name.full == name]
        return found


@asynccontextmanager
async def in_broker(
    *,
    log: dict[str, Any] | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
    **options: Any,
) -> AsyncIterator[Room]:
    """A broker of these options over logs configured by `log`."""
    for each in instruments:
        trio.lowlevel.add_instrument(each)
    cluster = Cluster()
    async with running(cluster.ledgers), cluster.broker(**(log or {})) as factory, trio.open_nursery() as nursery:
        metadata = cluster.stores[0]
        await metadata.multi([Create(path="/admin/policies/public/default", make_parents=True)])
        broker = Broker(
            fake_world(), metadata, factory, replace(OPTIONS, **options), nursery, service_url="pulsar://test:6650"
        )
        broker.start()
        await nursery.start(broker.policies.run)
        yield Room(broker, cluster, factory, nursery)
        nursery.cancel_scope.cancel()
