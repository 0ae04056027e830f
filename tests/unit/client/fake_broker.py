"""A broker in memory for tests of quire.client, on the simulated network under virtual time; written with protobuf
only.

A test changes the broker's behaviour:
- `broker.refuse[kind]`: (code, message) pairs, one per request of that kind, before it is answered as usual
- `broker.silent`: kinds of requests that get no answer
- `broker.on[kind] = handler(session, command, payload) -> bool`: True if the request needs no further answer
- `broker.drop()` ends every connection; with `broker.deaf` received bytes are not read
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trio

from quire.client.client import Client, open_client
from quire.client.options import ClientOptions
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import Stream, World
from simulation.machines.world import Universe, in_universe, on_host
from tests.support.pulsar_frames import Frames, frame

T = TypeVar("T")
B = pb.BaseCommand
HOST = "broker"
PORT = 6650
URL = f"pulsar://{HOST}:{PORT}"
TOPIC = "persistent://public/default/t"
LEDGER = 7
NONE = (1 << 64) - 1


@dataclass
class FakeConsumer:
    session: Session
    consumer_id: int
    request: pb.CommandSubscribe
    next: int
    permits: int = 0


@dataclass
class FakeBroker:
    """One topic, one ledger."""

    universe: Universe
    entries: list[bytes] = field(default_factory=list)
    mark_delete: dict[str, int] = field(default_factory=dict)
    """Entry id of the mark-delete position, by durable subscription."""
    received: list[pb.BaseCommand] = field(default_factory=list)
    refuse: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    on: dict[int, Callable[[Session, pb.BaseCommand, bytes], bool]] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    consumers: list[FakeConsumer] = field(default_factory=list)
    message_size_max: int = 5 << 20
    deaf: bool = False
    connections: int = 0
    published: list[tuple[str, int]] = field(default_factory=list)
    """Producer name and sequence id of every entry that was stored by a SEND."""

    def kinds(self) -> list[str]:
        """Return the received commands, in order."""
        return [B.Type.Name(command.type) for command in self.received]

    def of(self, kind: int) -> list[pb.BaseCommand]:
        return [command for command in self.received if command.type == kind]

    def drop(self) -> None:
        for session in list(self.sessions):
            session.stream.close()

    def append(self, *entries: bytes) -> None:
        self.entries += entries
        self.pump()

    def pump(self) -> None:
        for consumer in list(self.consumers):
            while consumer.permits > 0 and consumer.next < len(self.entries):
                command = B(type=B.MESSAGE)
                command.message.consumer_id = consumer.consumer_id
                command.message.message_id.ledgerId = LEDGER
                command.message.message_id.entryId = consumer.next
                consumer.session.send(command, self.entries[consumer.next])
                consumer.next += 1
                consumer.permits -= 1

    async def serve(self, world: World, stop: trio.Event) -> None:
        listener = await world.network.listen(HOST, PORT)
        async with trio.open_nursery() as nursery:
            while True:
                session = Session(self, await listener.accept())
                self.connections += 1
                nursery.start_soon(session.run, name="session")


class Session:
    """One connection."""

    def __init__(self, broker: FakeBroker, stream: Stream) -> None:
        self.broker = broker
        self.stream = stream
        self.producers: dict[int, str] = {}
        self._unsent = bytearray()
        self._some = trio.Event()

    def send(self, command: pb.BaseCommand, payload: bytes = b"") -> None:
        self._unsent += frame(command, payload)
        self._some.set()

    async def run(self) -> None:
        self.broker.sessions.append(self)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, name="session writes")
                await self._read()
                nursery.cancel_scope.cancel()
        except* OSError:
            pass
        finally:
            self.stream.close()
            self.broker.sessions.remove(self)
            self.broker.consumers = [each for each in self.broker.consumers if each.session is not self]

    async def _write(self) -> None:
        while True:
            await self._some.wait()
            while self._unsent:
                await self.stream.wait_writable()
                del self._unsent[: self.stream.send_nowait([bytes(self._unsent)])]
            self._some = trio.Event()

    async def _read(self) -> None:
        frames = Frames()
        buffer = bytearray(1 << 16)
        while size := await self.stream.receive_into(memoryview(buffer)):
            for command, payload in frames.cut(buffer[:size]):
                if not self.broker.deaf:
                    self._handle(command, payload)

    def _handle(self, command: pb.BaseCommand, payload: bytes) -> None:
        broker, kind = self.broker, command.type
        broker.received.append(command)
        handler = broker.on.get(kind)
        if (handler is not None and handler(self, command, payload)) or kind in broker.silent:
            return
        if broker.refuse.get(kind):
            self._refuse(command, *broker.refuse[kind].pop(0))
            return
        work = getattr(self, "_" + B.Type.Name(kind).lower(), None)
        if work is not None:
            work(command, payload)

    def _refuse(self, command: pb.BaseCommand, code: Any, message: str) -> None:
        if command.type == B.LOOKUP:
            self.send(_answer(B.LOOKUP_RESPONSE, "lookupTopicResponse", command.lookupTopic.request_id,
                              response=2, error=code, message=message))  # fmt: skip
        elif command.type == B.PARTITIONED_METADATA:
            request_id = command.partitionMetadata.request_id
            self.send(_answer(B.PARTITIONED_METADATA_RESPONSE, "partitionMetadataResponse", request_id,
                              response=1, error=code, message=message))  # fmt: skip
        elif command.type == B.ACK:
            self.send(_answer(B.ACK_RESPONSE, "ackResponse", command.ack.request_id,
                              consumer_id=command.ack.consumer_id, error=code, message=message))  # fmt: skip
        elif command.type == B.SEND:
            answer = B(type=B.SEND_ERROR)
            answer.send_error.producer_id = command.send.producer_id
            answer.send_error.sequence_id = command.send.sequence_id
            answer.send_error.error = code
            answer.send_error.message = message
            self.send(answer)
        else:
            [(_, part)] = [pair for pair in command.ListFields() if pair[0].name != "type"]
            self.send(_answer(B.ERROR, "error", getattr(part, "request_id", NONE), error=code, message=message))

    def _success(self, request_id: int) -> None:
        self.send(_answer(B.SUCCESS, "success", request_id))

    def _ping(self, command: pb.BaseCommand, payload: bytes) -> None:
        self.send(B(type=B.PONG, pong=pb.CommandPong()))

    def _connect(self, command: pb.BaseCommand, payload: bytes) -> None:
        answer = B(type=B.CONNECTED)
        answer.connected.server_version = "fake"
        answer.connected.max_message_size = self.broker.message_size_max
        self.send(answer)

    def _partitioned_metadata(self, command: pb.BaseCommand, payload: bytes) -> None:
        request = command.partitionMetadata
        self.send(_answer(B.PARTITIONED_METADATA_RESPONSE, "partitionMetadataResponse", request.request_id,
                          response=0, partitions=3))  # fmt: skip

    def _lookup(self, command: pb.BaseCommand, payload: bytes) -> None:
        self.send(_answer(B.LOOKUP_RESPONSE, "lookupTopicResponse", command.lookupTopic.request_id,
                          response=1, brokerServiceUrl=URL, authoritative=True))  # fmt: skip

    def _get_topics_of_namespace(self, command: pb.BaseCommand, payload: bytes) -> None:
        answer = _answer(B.GET_TOPICS_OF_NAMESPACE_RESPONSE, "getTopicsOfNamespaceResponse",
                         command.getTopicsOfNamespace.request_id)  # fmt: skip
        topics = ["persistent://public/default/b", "non-persistent://public/default/n", "persistent://public/default/a"]
        answer.getTopicsOfNamespaceResponse.topics.extend(topics)
        self.send(answer)

    def _get_schema(self, command: pb.BaseCommand, payload: bytes) -> None:
        request = command.getSchema
        answer = _answer(B.GET_SCHEMA_RESPONSE, "getSchemaResponse", request.request_id)
        if request.topic.endswith("/bare"):
            answer.getSchemaResponse.error_code = pb.TopicNotFound
            answer.getSchemaResponse.error_message = "no schema"
        else:
            answer.getSchemaResponse.schema.CopyFrom(pb.Schema(name="s", type=pb.Schema.String, schema_data=b""))
            answer.getSchemaResponse.schema_version = request.schema_version or b"newest"
        self.send(answer)

    def _producer(self, command: pb.BaseCommand, payload: bytes) -> None:
        request = command.producer
        self.producers[request.producer_id] = name = request.producer_name or "made-by-broker"
        self.send(_answer(B.PRODUCER_SUCCESS, "producer_success", request.request_id, producer_name=name))

    def _send(self, command: pb.BaseCommand, payload: bytes) -> None:
        request = command.send
        if request.producer_id in self.producers:
            self.broker.append(payload)
            self.broker.published.append((self.producers[request.producer_id], request.sequence_id))
            answer = B(type=B.SEND_RECEIPT)
            answer.send_receipt.producer_id = request.producer_id
            answer.send_receipt.sequence_id = request.sequence_id
            answer.send_receipt.message_id.ledgerId = LEDGER
            answer.send_receipt.message_id.entryId = len(self.broker.entries) - 1
            self.send(answer)

    def _close_producer(self, command: pb.BaseCommand, payload: bytes) -> None:
        self.producers.pop(command.close_producer.producer_id, None)
        self._success(command.close_producer.request_id)

    def _subscribe(self, command: pb.BaseCommand, payload: bytes) -> None:
        request = command.subscribe
        name = request.subscription
        start = 0
        if request.HasField("start_message_id"):
            start = min(request.start_message_id.entryId, len(self.broker.entries))
            if request.start_message_id.ledgerId == NONE:
                start = 0
        if request.durable:
            start = self.broker.mark_delete.setdefault(name, start - 1) + 1
        else:
            self.broker.mark_delete[name] = start - 1
        self.broker.consumers.append(FakeConsumer(self, request.consumer_id, request, start))
        self._success(request.request_id)

    def _consumer(self, consumer_id: int) -> FakeConsumer | None:
        found = [each for each in self.broker.consumers if each.session is self and each.consumer_id == consumer_id]
        return found[0] if found else None

    def _flow(self, command: pb.BaseCommand, payload: bytes) -> None:
        if (consumer := self._consumer(command.flow.consumer_id)) is not None:
            consumer.permits += command.flow.messagePermits
            self.broker.pump()

    def _ack(self, command: pb.BaseCommand, payload: bytes) -> None:
        if (consumer := self._consumer(command.ack.consumer_id)) is not None:
            name = consumer.request.subscription
            self.broker.mark_delete[name] = max(self.broker.mark_delete[name], command.ack.message_id[0].entryId)
        self.send(_answer(B.ACK_RESPONSE, "ackResponse", command.ack.request_id, consumer_id=command.ack.consumer_id))

    def _seek(self, command: pb.BaseCommand, payload: bytes) -> None:
        consumer = self._consumer(command.seek.consumer_id)
        assert consumer is not None
        self.broker.mark_delete[consumer.request.subscription] = command.seek.message_id.entryId - 1
        self.close_consumer(consumer)
        self._success(command.seek.request_id)

    def close_consumer(self, consumer: FakeConsumer) -> None:
        self.broker.consumers.remove(consumer)
        answer = B(type=B.CLOSE_CONSUMER)
        answer.close_consumer.consumer_id = consumer.consumer_id
        answer.close_consumer.request_id = NONE
        self.send(answer)

    def _get_last_message_id(self, command: pb.BaseCommand, payload: bytes) -> None:
        consumer = self._consumer(command.getLastMessageId.consumer_id)
        assert consumer is not None
        answer = _answer(
            B.GET_LAST_MESSAGE_ID_RESPONSE, "getLastMessageIdResponse", command.getLastMessageId.request_id
        )
        body = answer.getLastMessageIdResponse
        body.last_message_id.ledgerId = LEDGER
        body.last_message_id.entryId = (len(self.broker.entries) - 1) & NONE
        body.consumer_mark_delete_position.ledgerId = LEDGER
        body.consumer_mark_delete_position.entryId = self.broker.mark_delete[consumer.request.subscription] & NONE
        self.send(answer)

    def _unsubscribe(self, command: pb.BaseCommand, payload: bytes) -> None:
        consumer = self._consumer(command.unsubscribe.consumer_id)
        assert consumer is not None
        del self.broker.mark_delete[consumer.request.subscription]
        self.broker.consumers.remove(consumer)
        self._success(command.unsubscribe.request_id)

    def _close_consumer(self, command: pb.BaseCommand, payload: bytes) -> None:
        consumer = self._consumer(command.close_consumer.consumer_id)
        if consumer is not None:
            self.broker.consumers.remove(consumer)
        self._success(command.close_consumer.request_id)


def _answer(kind: pb.BaseCommand.Type, part: str, request_id: int, **fields: Any) -> pb.BaseCommand:
    answer = B(type=kind)
    body = getattr(answer, part)
    body.request_id = request_id
    for name, value in fields.items():
        setattr(body, name, value)
    return answer


@asynccontextmanager
async def story(*, url: str = URL, seed: int = 0, **options: Any) -> AsyncIterator[tuple[Client, FakeBroker]]:
    """Yield a client with these options and the broker that it is connected to, each on a host of its own."""
    async with in_universe(seed, keep=True) as universe, connected(universe, url=url, **options) as both:
        yield both


@asynccontextmanager
async def connected(universe: Universe, *, url: str = URL, **options: Any) -> AsyncIterator[tuple[Client, FakeBroker]]:
    """Yield a client with these options and the broker that it is connected to, each on a host of the universe."""
    broker = FakeBroker(universe)
    universe.host(HOST).start(broker.serve)
    async with on_host(universe, "client") as world, open_client(world, url, ClientOptions(**options)) as client:
        yield client, broker
