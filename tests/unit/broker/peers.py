"""A whole broker in memory and in virtual time: real connections over streams whose other end the test has, and real
managed ledgers over the fake ledgers of the managed ledger's tests."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio
import trio.testing

from broker.config import BrokerOptions
from broker.connections.connection import Connection
from broker.security.authentication.authentication import Authentication
from broker.security.authorization.config import AuthorizationOptions
from broker.security.principal import Principal
from broker.server import Broker
from managed_ledger.factory import ManagedLedgerFactory
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import Buffer
from tests.support.pulsar_frames import C, Commands, Frames, frame, payload_of
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import Cluster
from tests.unit.managed_ledger.fake_ledgers import fake_world, running

TOPIC = "persistent://public/default/orders"
OPTIONS = BrokerOptions(message_size_max=1 << 20)


class FakeStream:
    """The broker's end. It accepts everything at once, or at most `window` bytes."""

    peer = "test:1"
    peer_certificate: bytes | None = None

    def __init__(self) -> None:
        self.window: int | None = None
        self.refuses = False
        """True if the peer has reset the connection."""
        self.sent = bytearray()
        self.closed = False
        self._incoming = bytearray()
        self._arrived = trio.Event()
        self._writable = trio.Event()
        self._left = trio.Event()

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
        if self.closed or self.refuses:
            raise BrokenPipeError(32, "closed")
        data = b"".join(parts)
        taken = len(data) if self.window is None else min(self.window, len(data))
        if self.window is not None:
            self.window -= taken
        self.sent += data[:taken]
        self._left.set()
        return taken

    async def wait_sent(self) -> None:
        """Wait until something is in `sent`, or for the next send if nothing is."""
        if not self.sent:
            self._left = trio.Event()
            await self._left.wait()

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


class Peer(Commands):
    """A client's end: sends commands, and takes the received frames in order."""

    def __init__(self, stream: FakeStream) -> None:
        super().__init__()
        self.stream = stream
        self.dead = False
        """True if PINGs are not answered."""
        self.pings = 0
        self._frames: deque[tuple[pb.BaseCommand, bytes]] = deque()
        self._cutter = Frames()

    def send(self, command: pb.BaseCommand, tail: bytes = b"") -> None:
        self.stream.arrive(frame(command, tail))

    def take(self) -> None:
        """Take what has arrived, and answer PINGs."""
        sent = self.stream.sent
        for command, tail in self._cutter.cut(sent):
            if command.type == C.PING:
                self.pings += 1
                if not self.dead:
                    self.pong()
            else:
                self._frames.append((command, tail))
        sent.clear()

    async def receive(self) -> tuple[pb.BaseCommand, bytes]:
        deadline = trio.current_time() + 120
        while not self._frames:
            with trio.fail_at(deadline):
                await self.stream.wait_sent()
            await self._take_burst()
        return self._frames.popleft()

    async def _take_burst(self) -> None:
        """Take what has arrived, and what follows it at once."""
        await trio.sleep(0.001)
        self.take()

    async def expect(self, kind: pb.BaseCommand.Type) -> pb.BaseCommand:
        command, _ = await self.receive()
        assert command.type == kind, f"expected {C.Type.Name(kind)}, got {command}"
        return command

    async def silent(self, seconds: float = 3.0) -> bool:
        """Return whether no frame arrives for a while; PINGs are answered and do not count."""
        with trio.move_on_after(seconds):
            while True:
                await self.stream.wait_sent()
                await self._take_burst()
        self.take()
        assert not self._frames, [command for command, _ in self._frames]
        return True

    async def closed_by_us(self) -> None:
        """Close the connection, and wait until the broker has detected it."""
        self.stream.close()
        await trio.testing.wait_all_tasks_blocked()

    async def closed(self) -> None:
        await until(lambda: self.stream.closed)

    # Commands

    async def handshake(self, client_version: str = "test") -> None:
        self.ask_connect(client_version)
        await self.expect(C.CONNECTED)

    async def lookup(self, topic: str = TOPIC, **options: Any) -> pb.CommandLookupTopicResponse:
        self.ask_lookup(topic, **options)
        return (await self.expect(C.LOOKUP_RESPONSE)).lookupTopicResponse

    async def producer(self, topic: str = TOPIC, producer_id: int = 1, **options: Any) -> str:
        self.ask_producer(topic, producer_id, **options)
        return (await self.expect(C.PRODUCER_SUCCESS)).producer_success.producer_name

    def ask_producer(self, topic: str = TOPIC, producer_id: int = 1, **options: Any) -> None:
        super().ask_producer(topic, producer_id, **options)

    async def publish(self, *payloads: bytes, first: int = 0, **metadata: Any) -> list[pb.MessageIdData]:
        for number, payload in enumerate(payloads):
            self.send_message(payload, first + number, **metadata)
        return [(await self.expect(C.SEND_RECEIPT)).send_receipt.message_id for _ in payloads]

    async def refused_producer(self, topic: str = TOPIC, producer_id: int = 1, **options: Any) -> pb.ServerError:
        """Ask for a producer that must be refused, and return the code of the error."""
        self.ask_producer(topic, producer_id, **options)
        return (await self.error())[0]

    async def end_producer(self, producer_id: int = 1) -> None:
        self.close_producer(producer_id)
        await self.expect(C.SUCCESS)

    async def subscribe(
        self, topic: str = TOPIC, name: str = "s", consumer_id: int = 1, *, permits: int = 0, **options: Any
    ) -> None:
        """Add a consumer, and give it permits."""
        self.ask_subscribe(topic, name, consumer_id, **options)
        await self.expect(C.SUCCESS)
        if permits:
            self.flow(permits, consumer_id)

    async def refused_consumer(
        self, topic: str = TOPIC, name: str = "s", consumer_id: int = 1, **options: Any
    ) -> pb.ServerError:
        """Ask for a consumer that must be refused, and return the code of the error."""
        self.ask_subscribe(topic, name, consumer_id, **options)
        return (await self.error())[0]

    async def end_consumer(self, consumer_id: int = 1) -> None:
        self.close_consumer(consumer_id)
        await self.expect(C.SUCCESS)

    async def end_subscription(self, consumer_id: int = 1, *, force: bool = False) -> None:
        self.unsubscribe(consumer_id, force=force)
        await self.expect(C.SUCCESS)

    async def sought(self, consumer_id: int = 1, **target: Any) -> None:
        """Seek, which ends the consumer."""
        self.seek(consumer_id, **target)
        await self.expect(C.CLOSE_CONSUMER)
        await self.expect(C.SUCCESS)

    def ask_subscribe(self, topic: str = TOPIC, name: str = "s", consumer_id: int = 1, **options: Any) -> None:
        super().ask_subscribe(topic, name, consumer_id, **options)

    async def message(self) -> tuple[pb.CommandMessage, bytes]:
        command, tail = await self.receive()
        assert command.type == C.MESSAGE, command
        return command.message, payload_of(tail)

    async def payloads(self, count: int) -> list[bytes]:
        return [(await self.message())[1] for _ in range(count)]

    def ack(self, *ids: pb.MessageIdData, **options: Any) -> None:
        self.send_ack(*ids, **options)

    async def answered_ack(self, *ids: pb.MessageIdData, **options: Any) -> pb.CommandAckResponse:
        self.send_ack(*ids, request_id=self.next_id(), **options)
        return (await self.expect(C.ACK_RESPONSE)).ackResponse

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
        """Open a connection, without a CONNECT."""
        stream = FakeStream()
        self.nursery.start_soon(self.broker.handle, stream)
        return Peer(stream)

    async def connect(self, client_version: str = "test", *, role: str = "", original: str | None = None) -> Peer:
        """Open a connection and send CONNECT; `role`: the one that authentication finds, "" for none."""
        peer = self.open()
        await peer.handshake(client_version)
        if role:
            self.connection_of(peer).principal = Principal(role, original)
        return peer

    def connection_of(self, peer: Peer) -> Connection:
        """Return the broker's end of a connection."""
        [found] = [each for each in self.broker.connections if each.stream is peer.stream]
        return found

    async def topic(self, name: str = TOPIC) -> Any:
        [found] = [topic for topic in self.broker.topics.loaded() if topic.name.full == name]
        return found


@asynccontextmanager
async def in_broker(
    *,
    log: dict[str, Any] | None = None,
    authorization: AuthorizationOptions | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
    authentication: Authentication | None = None,
    live: BrokerOptions | None = None,
    **options: Any,
) -> AsyncIterator[Room]:
    """Run a broker with these options, or with the object `live`, over logs configured by `log`."""
    for each in instruments:
        trio.lowlevel.add_instrument(each)
    cluster = Cluster()
    async with running(cluster.ledgers), cluster.broker(**(log or {})) as factory, trio.open_nursery() as nursery:
        metadata = cluster.stores[0]
        await metadata.multi([Create(path="/admin/policies/public/default", make_parents=True)])
        broker = Broker(
            fake_world(),
            metadata,
            factory,
            live or replace(OPTIONS, **options),
            nursery,
            service_url="pulsar://test:6650",
            authorization=authorization,
            authentication=authentication,
        )
        broker.start()
        await nursery.start(broker.policies.run)
        yield Room(broker, cluster, factory, nursery)
        nursery.cancel_scope.cancel()
