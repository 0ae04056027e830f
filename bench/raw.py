"""A raw pipelining generator: pre-encoded SEND frames on one socket, a bounded number unanswered, receipts counted.

It does next to nothing per message, so that what is measured is the server.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections import deque

from crc32c import crc32c

from bench.waiting import poll_until
from quire.wire.pulsar import PulsarApi_pb2 as pb

READY_S = 60.0
"""Time for a server that has just started, moves the topic's bundle or is slow, to serve a topic."""
TRY_AGAIN_S = 0.5
SENT_MAX = 256 << 10
"""Bytes sent at once; with TLS all of them are encrypted first."""
_U32 = struct.Struct("!I")


def frame(command: pb.BaseCommand, tail: bytes = b"") -> bytes:
    body = command.SerializeToString()
    return _U32.pack(4 + len(body) + len(tail)) + _U32.pack(len(body)) + body + tail


def send_frame(producer_id: int, sequence_id: int, payload: bytes, name: str = "raw", key: str = "") -> bytes:
    """Return one SEND with its checksum, in the form of the official clients."""
    metadata = pb.MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=int(time.time() * 1000))
    if key:
        metadata.partition_key = key
    packed = metadata.SerializeToString()
    checked = _U32.pack(len(packed)) + packed + payload
    tail = b"\x0e\x01" + _U32.pack(crc32c(checked)) + checked
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id = producer_id
    command.send.sequence_id = sequence_id
    command.send.num_messages = 1
    return frame(command, tail)


PONG = frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))


NOT_READY = (pb.ServiceNotReady, pb.ConsumerBusy)
"""Errors of a topic that is being loaded or moves, and of one whose exclusive consumer has just left."""


class NotReadyError(RuntimeError):
    """The server does not serve the topic at this moment. A retry after another lookup helps."""


class RawClient:
    """A blocking connection that speaks just enough of the protocol."""

    def __init__(self, host: str, port: int, *, tls: bool = False, token: bytes = b"") -> None:
        """Connect. With `tls` any certificate is accepted. `token`: of the client's role; empty: it has none."""
        self.socket = socket.create_connection((host, port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self._received = b""
        self.request(
            pb.BaseCommand(
                type=pb.BaseCommand.CONNECT,
                connect=pb.CommandConnect(
                    client_version="raw",
                    protocol_version=20,
                    auth_method_name="token" if token else "none",
                    auth_data=token or None,
                ),
            ),
            pb.BaseCommand.CONNECTED,
        )

    def request(self, command: pb.BaseCommand, expected: int) -> pb.BaseCommand:
        """Send a command and wait for the answer of the expected type. Raises an error for any other."""
        self.socket.sendall(frame(command))
        while True:
            answer, _ = self.receive()
            if answer.type == pb.BaseCommand.PING:
                self.socket.sendall(frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())))
            elif answer.type == expected:
                return answer
            elif answer.type == pb.BaseCommand.ERROR and answer.error.error in NOT_READY:
                raise NotReadyError(answer.error.message)
            else:
                raise RuntimeError(f"unexpected answer: {answer}")

    def receive(self) -> tuple[pb.BaseCommand, bytes]:
        """Return the next command and what follows it in its frame."""
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

    def producer(self, topic: str, producer_id: int = 1) -> str:
        """Open a producer on a topic, as soon as it is served; return its name."""
        body = pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=3)
        command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body)
        return self.opened(topic, command, pb.BaseCommand.PRODUCER_SUCCESS).producer_success.producer_name

    def subscribe(self, body: pb.CommandSubscribe) -> None:
        """Subscribe to a topic, as soon as it is served."""
        command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=body)
        self.opened(body.topic, command, pb.BaseCommand.SUCCESS)

    def opened(self, topic: str, command: pb.BaseCommand, expected: int) -> pb.BaseCommand:
        """Look a topic up, send a command and return its answer. Both are repeated while the server does not serve the
        topic. Raises NotReadyError, with the last answer, if that lasts."""
        answers: list[pb.BaseCommand] = []
        refusals = [""]

        def is_answered() -> bool:
            try:
                self._look_up(topic)
                answers.append(self.request(command, expected))
            except NotReadyError as error:
                refusals.append(str(error))
            return bool(answers)

        if not poll_until(is_answered, READY_S, poll_s=TRY_AGAIN_S):
            raise NotReadyError(f"{topic} was not served within {READY_S:g} s: {refusals[-1]}")
        return answers[0]

    def _look_up(self, topic: str) -> None:
        metadata = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=1)
        self.request(
            pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=metadata),
            pb.BaseCommand.PARTITIONED_METADATA_RESPONSE,
        )
        lookup = pb.CommandLookupTopic(topic=topic, request_id=2)
        found = self.request(
            pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=lookup), pb.BaseCommand.LOOKUP_RESPONSE
        ).lookupTopicResponse
        if found.response == pb.CommandLookupTopicResponse.Failed and found.error in NOT_READY:
            raise NotReadyError(found.message)


def flood(
    host: str,
    port: int,
    topic: str,
    size: int,
    window: int,
    seconds: float,
    *,
    tls: bool = False,
    token: bytes = b"",
) -> tuple[int, float]:
    """Keep `window` messages of `size` bytes unanswered for `seconds`; return counted receipts and seconds taken."""
    client = RawClient(host, port, tls=tls, token=token)
    client.producer(topic)
    frames = [send_frame(1, number, b"x" * size) for number in range(window)]
    starts = [0]
    for each in frames:
        starts.append(starts[-1] + len(each))
    blob = memoryview(b"".join(frames))
    peer = client.socket
    peer.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(peer, selectors.EVENT_READ)
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    held = 0
    sent = answered = 0  # frames
    out: deque[memoryview] = deque()
    writing = False
    begin = time.perf_counter()
    end = begin + seconds
    while True:
        now = time.perf_counter()
        if now < end:
            room = window - (sent - answered)
            while room > 0:
                first = sent % window
                count = min(room, window - first)
                out.append(blob[starts[first] : starts[first + count]])
                sent += count
                room -= count
        elif answered == sent:
            break
        while out:
            try:
                taken = peer.send(out[0][:SENT_MAX])
            except (BlockingIOError, ssl.SSLWantWriteError):
                break
            if taken == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][taken:]
        if bool(out) != writing:
            writing = bool(out)
            selector.modify(peer, selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0))
        # (What OpenSSL has decrypted already does not make the socket readable.)
        if not (isinstance(peer, ssl.SSLSocket) and peer.pending()):
            selector.select(1.0)
        try:
            received = peer.recv_into(view[held:])
        except (BlockingIOError, ssl.SSLWantReadError):
            continue
        if received == 0:
            raise ConnectionError("the server closed the connection")
        held += received
        position = 0
        while held - position >= 4:
            length = int.from_bytes(buffer[position : position + 4], "big") + 4
            if held - position < length:
                break
            if buffer[position + 9] == 7:  # the command's type, first in it: SEND_RECEIPT
                answered += 1
            elif buffer[position + 9] == 18:  # PING
                out.append(memoryview(PONG))
            else:
                raise RuntimeError(f"unexpected answer: {bytes(buffer[position : position + length])!r}")
            position += length
        if position:
            view[: held - position] = bytes(view[position:held])
            held -= position
    taken_s = time.perf_counter() - begin
    peer.close()
    return answered, taken_s
