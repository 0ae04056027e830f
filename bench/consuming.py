"""Raw consumers, many in one process and loop: they do next to nothing per message, so that the server is measured."""

from __future__ import annotations

import selectors
import time

from bench.raw import PONG, RawClient, frame
from quire.wire.pulsar import PulsarApi_pb2 as pb

C = pb.BaseCommand
SUB = pb.CommandSubscribe
MESSAGE, PING = C.MESSAGE, C.PING


class RawConsumer:
    """One consumer on a connection of its own. `queue` messages are asked for in advance, as by an official client."""

    def __init__(
        self, port: int, topic: str, subscription: str, kind: SUB.SubType, queue: int, number: int = 1
    ) -> None:
        self.queue = queue
        self.number = number
        self.received = 0
        self._granted = 0
        self._held = b""
        client = RawClient("127.0.0.1", port)
        body = pb.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=kind,
            consumer_id=number,
            request_id=1,
            consumer_name=f"c{number}",
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        client.subscribe(body)
        self.socket = client.socket

    def start(self) -> None:
        self.socket.sendall(self._flow(self.queue))

    def _flow(self, permits: int) -> bytes:
        return frame(C(type=C.FLOW, flow=pb.CommandFlow(consumer_id=self.number, messagePermits=permits)))

    def read(self) -> int:
        """Take what has come, acknowledge it and grant as much; return the number of messages."""
        data = self._held + self.socket.recv(1 << 18)
        position, ids, out = 0, [], b""
        while len(data) - position >= 8:
            size = int.from_bytes(data[position : position + 4], "big") + 4
            if len(data) - position < size:
                break
            end = position + 8 + int.from_bytes(data[position + 4 : position + 8], "big")
            command = C.FromString(data[position + 8 : end])
            if command.type == MESSAGE:
                ids.append(command.message.message_id)
            elif command.type == PING:
                out += PONG
            position += size
        self._held = data[position:]
        if ids:
            body = pb.CommandAck(consumer_id=self.number, ack_type=pb.CommandAck.Individual, message_id=ids)
            out += frame(C(type=C.ACK, ack=body))
            self._granted += len(ids)
            if self._granted * 2 >= self.queue:
                out += self._flow(self._granted)
                self._granted = 0
        if out:
            self.socket.sendall(out)
        self.received += len(ids)
        return len(ids)


def receive(consumers: list[RawConsumer], count: int, seconds: float) -> int:
    """Have the consumers take `count` messages together, within so many seconds; return how many they took."""
    selector = selectors.DefaultSelector()
    for each in consumers:
        selector.register(each.socket, selectors.EVENT_READ, each)
        each.start()
    end, taken = time.perf_counter() + seconds, 0
    while taken < count and time.perf_counter() < end:
        for key, _ in selector.select(0.5):
            taken += key.data.read()
    selector.close()
    return taken


def leave(consumers: list[RawConsumer]) -> None:
    for each in consumers:
        each.socket.close()
