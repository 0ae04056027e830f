"""A blocking client that speaks the Pulsar protocol by hand: what the official clients never send can be sent."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, Self

from crc32c import crc32c

from quire.wire.pulsar import PulsarApi_pb2 as pb

_U32 = struct.Struct("!I")
U64_MAX = (1 << 64) - 1


def frame(command: pb.BaseCommand, tail: bytes = b"") -> bytes:
    body = command.SerializeToString()
    return _U32.pack(4 + len(body) + len(tail)) + _U32.pack(len(body)) + body + tail


def entry(payload: bytes, *, sequence_id: int = 0, producer: str = "raw", **metadata: Any) -> bytes:
    """Return the part of a SEND behind the command: magic, checksum, metadata, payload."""
    packed = pb.MessageMetadata(
        producer_name=producer, sequence_id=sequence_id, publish_time=int(time.time() * 1000), **metadata
    ).SerializeToString()
    checked = _U32.pack(len(packed)) + packed + payload
    return b"\x0e\x01" + _U32.pack(crc32c(checked)) + checked


class RawClient:
    """One connection. Answers are waited for by type; anything unexpected fails."""

    def __init__(self, port: int, *, connect: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._request_id = 0
        if connect:
            self._handshake()

    def _handshake(self) -> None:
        try:
            self.send(
                pb.BaseCommand(
                    type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(client_version="raw", protocol_version=20)
                )
            )
            assert self.receive().type == pb.BaseCommand.CONNECTED
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def next_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def send(self, command: pb.BaseCommand, tail: bytes = b"") -> None:
        self.socket.sendall(frame(command, tail))

    def receive_frame(self) -> tuple[pb.BaseCommand, bytes]:
        size = _U32.unpack(self._exactly(4))[0]
        body = self._exactly(size)
        command_size = _U32.unpack_from(body)[0]
        return pb.BaseCommand.FromString(body[4 : 4 + command_size]), body[4 + command_size :]

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            chunk = self.socket.recv(1 << 18)
            if not chunk:
                raise ConnectionError("the server closed the connection")
            self._received += chunk
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def receive(self) -> pb.BaseCommand:
        return self.receive_frame()[0]

    def expect(self, kind: int) -> pb.BaseCommand:
        """The next command of this type; PING is answered, MESSAGE and others of interest are not skipped silently."""
        while True:
            command = self.receive()
            if command.type == kind:
                return command
            if command.type == pb.BaseCommand.PING:
                self.send(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))
                continue
            if command.type in (pb.BaseCommand.ACTIVE_CONSUMER_CHANGE,):
                continue
            raise AssertionError(f"expected {pb.BaseCommand.Type.Name(kind)}, got {command}")

    def closed_by_server(self, seconds: float = 10) -> bool:
        """Whether the server closes the connection, whatever it still sends before."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
            return True
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing arrives for a while."""
        if self._received:
            return False
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b"never"
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(10)

    def producer(self, topic: str, producer_id: int = 1, **options: Any) -> str:
        self.send(
            pb.BaseCommand(
                type=pb.BaseCommand.PRODUCER,
                producer=pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=self.next_id(), **options),
            )
        )
        return self.expect(pb.BaseCommand.PRODUCER_SUCCESS).producer_success.producer_name

    def publish(
        self, payload: bytes, *, producer_id: int = 1, sequence_id: int = 0, **metadata: Any
    ) -> pb.MessageIdData:
        """Send one message and wait for its receipt."""
        self.send_message(payload, producer_id=producer_id, sequence_id=sequence_id, **metadata)
        return self.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt.message_id

    def send_message(self, payload: bytes, *, producer_id: int = 1, sequence_id: int = 0, **metadata: Any) -> None:
        command = pb.BaseCommand(type=pb.BaseCommand.SEND)
        command.send.producer_id = producer_id
        command.send.sequence_id = sequence_id
        command.send.num_messages = 1
        self.send(command, entry(payload, sequence_id=sequence_id, **metadata))

    def subscribe(self, topic: str, subscription: str = "s", consumer_id: int = 1, **options: Any) -> None:
        self.ask_subscribe(topic, subscription, consumer_id, **options)
        self.expect(pb.BaseCommand.SUCCESS)

    def ask_subscribe(self, topic: str, subscription: str = "s", consumer_id: int = 1, **options: Any) -> None:
        options.setdefault("subType", pb.CommandSubscribe.Exclusive)
        options.setdefault("initialPosition", pb.CommandSubscribe.Earliest)
        self.send(
            pb.BaseCommand(
                type=pb.BaseCommand.SUBSCRIBE,
                subscribe=pb.CommandSubscribe(
                    topic=topic,
                    subscription=subscription,
                    consumer_id=consumer_id,
                    request_id=self.next_id(),
                    **options,
                ),
            )
        )

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        self.send(
            pb.BaseCommand(
                type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
            )
        )

    def message(self) -> tuple[pb.MessageIdData, bytes]:
        """The next MESSAGE: its id and payload."""
        while True:
            command, tail = self.receive_frame()
            if command.type == pb.BaseCommand.MESSAGE:
                size = _U32.unpack_from(tail, 6)[0]
                return command.message.message_id, tail[10 + size :]
            if command.type == pb.BaseCommand.PING:
                self.send(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))
            elif command.type != pb.BaseCommand.ACTIVE_CONSUMER_CHANGE:
                raise AssertionError(f"expected MESSAGE, got {command}")

    def ack(
        self, *ids: pb.MessageIdData, cumulative: bool = False, consumer_id: int = 1, answer: bool = True
    ) -> pb.CommandAckResponse | None:
        """Acknowledge; with `answer` a request id is sent and the AckResponse awaited."""
        command = pb.BaseCommand(type=pb.BaseCommand.ACK)
        command.ack.consumer_id = consumer_id
        command.ack.ack_type = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        command.ack.message_id.extend(ids)
        if answer:
            command.ack.request_id = self.next_id()
        self.send(command)
        return self.expect(pb.BaseCommand.ACK_RESPONSE).ackResponse if answer else None
