"""A blocking client that makes frames of the Pulsar protocol by hand, also those that official clients never send."""

from __future__ import annotations

import socket
import time
from typing import Any, Self

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import C, Commands, Frames, frame, payload_of


class RawClient(Commands):
    """One connection. Answers are waited for by type; anything unexpected fails."""

    def __init__(self, port: int, *, connect: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__()
        self._received = b""
        if connect:
            self._handshake()

    def _handshake(self) -> None:
        try:
            self.ask_connect("raw")
            assert self.receive().type == C.CONNECTED
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, command: pb.BaseCommand, tail: bytes = b"") -> None:
        self.socket.sendall(frame(command, tail))

    def receive_frame(self) -> tuple[pb.BaseCommand, bytes]:
        size = self._exactly(4)
        [cut] = Frames().cut(size + self._exactly(int.from_bytes(size, "big")))
        return cut

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
        """Return the next command of this type. PINGs are answered; an unexpected command fails the test."""
        while True:
            command = self.receive()
            if command.type == kind:
                return command
            if command.type == C.PING:
                self.pong()
                continue
            if command.type in (C.ACTIVE_CONSUMER_CHANGE,):
                continue
            raise AssertionError(f"expected {C.Type.Name(kind)}, got {command}")

    def closed_by_server(self, seconds: float = 10) -> bool:
        """Return whether the server closes the connection, whatever it still sends before."""
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
        """Return whether nothing arrives for a while."""
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
        self.ask_producer(topic, producer_id, **options)
        return self.expect(C.PRODUCER_SUCCESS).producer_success.producer_name

    def publish(
        self, payload: bytes, *, producer_id: int = 1, sequence_id: int = 0, **metadata: Any
    ) -> pb.MessageIdData:
        """Send one message and wait for its receipt."""
        self.send_message(payload, producer_id=producer_id, sequence_id=sequence_id, **metadata)
        return self.expect(C.SEND_RECEIPT).send_receipt.message_id

    def send_message(self, payload: bytes, sequence_id: int = 0, producer_id: int = 1, **metadata: Any) -> None:
        """Send a message of this moment, unless `publish_time` says another."""
        metadata.setdefault("publish_time", int(time.time() * 1000))
        super().send_message(payload, sequence_id, producer_id, **metadata)

    def subscribe(self, topic: str, subscription: str = "s", consumer_id: int = 1, **options: Any) -> None:
        self.ask_subscribe(topic, subscription, consumer_id, **options)
        self.expect(C.SUCCESS)

    def message(self) -> tuple[pb.MessageIdData, bytes]:
        """Return the id and payload of the next MESSAGE."""
        while True:
            command, tail = self.receive_frame()
            if command.type == C.MESSAGE:
                return command.message.message_id, payload_of(tail)
            if command.type == C.PING:
                self.pong()
            elif command.type != C.ACTIVE_CONSUMER_CHANGE:
                raise AssertionError(f"expected MESSAGE, got {command}")

    def ack(
        self, *ids: pb.MessageIdData, cumulative: bool = False, consumer_id: int = 1, answer: bool = True
    ) -> pb.CommandAckResponse | None:
        """Acknowledge; with `answer` a request id is sent and the AckResponse awaited."""
        request_id = self.next_id() if answer else None
        self.send_ack(*ids, cumulative=cumulative, consumer_id=consumer_id, request_id=request_id)
        return self.expect(C.ACK_RESPONSE).ackResponse if answer else None
