"""Rows of `scripts/bench dispatch`: each runs one load on a server, and records what it found."""

from __future__ import annotations

import selectors
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.consuming import RawConsumer, leave, receive
from bench.procs import Used
from bench.raw import PONG, RawClient, send_frame
from bench.servers import Server
from quire.wire.pulsar import PulsarApi_pb2 as pb

C = pb.BaseCommand
SUB = pb.CommandSubscribe
SIZE = 1024
DRAIN_SIZE = 64 << 10
WAIT_S = 300.0
TAIL_PAUSE_S = 0.005
"""Time between two messages at the tail of a topic that is drained."""
WINDOW = 1000
SUBSCRIPTIONS = 1000
PRODUCERS, FAN_CONSUMERS = 500, 20
TURNS = 5
"""Turns of publishing with deduplication and without, in one round."""
WITH, WITHOUT = "public/deduplicated", "public/plain"
FAN_IN, DRAIN = "fan-in, delivered", "drain of 64 KB messages"
Found = dict[str, float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the loads."""

    messages: int = 20_000
    drain_mb: int = 1000
    seconds: float = 5.0


class Rows:
    """Rows of one server."""

    def __init__(self, server: Server, sizes: Sizes) -> None:
        self.server = server
        self.found: dict[str, list[Found]] = {}
        """By row, what each round found."""
        self._sizes = sizes
        self._topics = 0
        self._has_namespaces = False

    @property
    def runs(self) -> dict[str, Callable[[], None]]:
        """Return the loads by name."""
        return {
            "shared": self.shared,
            "keys": self.keys,
            "fan-in": self.fan_in,
            "drain": self.drain,
            "subscriptions": self.subscriptions,
            "deduplication": self.deduplication,
        }

    def medians(self) -> dict[str, Found]:
        """Return the medians over the rounds, by row."""
        return {
            row: {key: statistics.median(each[key] for each in found) for key in found[0]}
            for row, found in self.found.items()
        }

    # The rows

    def shared(self) -> None:
        """1, 4 and 16 Shared consumers."""
        for count in (1, 4, 16):
            topic = self._filled(self._sizes.messages)
            self._drained(f"{count} Shared", self._sizes.messages, self._consumers(topic, count, SUB.Shared, 1000))

    def keys(self) -> None:
        """As many keys as messages, to Key_Shared consumers beside Shared ones."""
        for queue, messages in ((1000, self._sizes.messages), (1, self._sizes.messages // 4)):
            for name, kind in (("Shared", SUB.Shared), ("Key_Shared", SUB.Key_Shared)):
                topic = self._filled(messages, keys=messages)
                self._drained(f"4 {name}, keys, queue {queue}", messages, self._consumers(topic, 4, kind, queue))

    def fan_in(self) -> None:
        """Publish flat out over many producers, and count what the consumers have at the last receipt."""
        client, topic = self._client()
        consumers = self._consumers(topic, FAN_CONSUMERS, SUB.Key_Shared, 1000)
        for number in range(2, PRODUCERS + 1):
            body = pb.CommandProducer(topic=topic, producer_id=number, request_id=number)
            client.request(C(type=C.PRODUCER, producer=body), C.PRODUCER_SUCCESS)
        stop = time.perf_counter() + self._sizes.seconds
        sent = [0]
        done = threading.Event()

        def publish() -> None:
            sequence = 0
            while time.perf_counter() < stop:
                frames = [
                    send_frame(number, sequence, b"x" * SIZE, key=f"key-{number}-{sequence % 40}")
                    for number in range(1, PRODUCERS + 1)
                ]
                client.socket.sendall(b"".join(frames))
                _receipts(client, len(frames))
                sent[0] += len(frames)
                sequence += 1
            done.set()

        publisher = threading.Thread(target=publish)

        def consume() -> int:
            publisher.start()
            taken = 0
            for each in consumers:
                each.start()
            with selectors.DefaultSelector() as selector:
                for each in consumers:
                    selector.register(each.socket, selectors.EVENT_READ, each)
                while not done.is_set():
                    for key, _ in selector.select(0.05):
                        taken += key.data.read()
            return taken

        self._measure(FAN_IN, consume)
        publisher.join()
        delivered = sum(each.received for each in consumers)
        self.found[FAN_IN][-1]["share"] = delivered / max(1, sent[0])
        leave(consumers)
        client.socket.close()

    def drain(self) -> None:
        """Drain a backlog while a producer sends one message after another."""
        messages = self._sizes.drain_mb * (1 << 20) // DRAIN_SIZE
        client, topic = self._client()
        # The subscription keeps the backlog.
        leave(self._consumers(topic, 1, SUB.Exclusive, 100, "backlog"))
        payload = b"x" * DRAIN_SIZE
        for number in range(messages):
            client.socket.sendall(send_frame(1, number, payload))
            if number >= 8:
                _receipts(client, 1)
        _receipts(client, min(8, messages))
        [reader] = self._consumers(topic, 1, SUB.Exclusive, 100, "backlog")
        took: list[float] = []
        stop = threading.Event()

        def tail() -> None:
            number = messages
            while not stop.wait(TAIL_PAUSE_S):
                begun = time.perf_counter()
                client.socket.sendall(send_frame(1, number, b"x" * SIZE))
                _receipts(client, 1)
                took.append(time.perf_counter() - begun)
                number += 1

        publisher = threading.Thread(target=tail)
        publisher.start()
        self._measure(DRAIN, lambda: receive([reader], messages, WAIT_S))
        stop.set()
        publisher.join()
        row = self.found[DRAIN][-1]
        row["mb_s"] = row["rate"] * DRAIN_SIZE / (1 << 20)
        row["send_p99_ms"] = sorted(took)[int(len(took) * 0.99)] * 1e3
        leave([reader])
        client.socket.close()

    def subscriptions(self) -> None:
        """One of many subscriptions of a topic, beside the only one of another."""
        messages = self._sizes.messages // 4
        for count in (1, SUBSCRIPTIONS):
            client, topic = self._client()
            for number in range(1, count):
                body = SUB(topic=topic, subscription=f"other-{number}", subType=SUB.Shared)
                body.consumer_id = body.request_id = number
                client.subscribe(body)
            self._filled(messages, topic=topic)
            self._drained(f"one of {count} subscriptions", messages, self._consumers(topic, 1, SUB.Shared, 1000))
            client.socket.close()

    def deduplication(self) -> None:
        """Publish in a namespace with deduplication and in one without, in turns."""
        self._make_namespaces()
        for turn in range(TURNS):
            for namespace in (WITHOUT, WITH) if turn % 2 == 0 else (WITH, WITHOUT):
                client, _ = self._client(namespace)
                on = "on" if namespace == WITH else "off"
                self._measure(f"publish, deduplication {on}", partial(self._published, client))
                client.socket.close()

    # Parts of them

    def _client(self, namespace: str = "public/default", topic: str = "") -> tuple[RawClient, str]:
        """Return a producer, by default of a new topic."""
        if not topic:
            self._topics += 1
            topic = f"persistent://{namespace}/dispatch-{self._topics}"
        client = RawClient("127.0.0.1", self.server.port)
        client.producer(topic)
        return client, topic

    def _measure(self, row: str, work: Callable[[], int]) -> None:
        """Record rate and CPU per message of `work`, which returns how many messages it handled."""
        used, begun = Used(self.server.pids), time.perf_counter()
        count = max(1, work())
        took = time.perf_counter() - begun
        self.found.setdefault(row, []).append({"rate": count / took, "cpu_us": used.seconds / count * 1e6})

    def _filled(self, count: int, *, keys: int = 0, topic: str = "") -> str:
        """Publish so many messages, with as many different keys; return the topic, which has a subscription."""
        client, topic = self._client(topic=topic)
        leave(self._consumers(topic, 1, SUB.Shared, 1, "kept"))
        for first in range(0, count, WINDOW):
            numbers = range(first, min(count, first + WINDOW))
            named = [f"key-{each % keys}" if keys else "" for each in numbers]
            frames = [send_frame(1, each, b"x" * SIZE, key=key) for each, key in zip(numbers, named, strict=True)]
            client.socket.sendall(b"".join(frames))
            _receipts(client, len(frames))
        client.socket.close()
        return topic

    def _published(self, client: RawClient) -> int:
        """Publish messages with ascending sequence ids; return how many."""
        count = self._sizes.messages // WINDOW * WINDOW or WINDOW
        for first in range(0, count, WINDOW):
            client.socket.sendall(b"".join(send_frame(1, first + each, b"x" * SIZE) for each in range(WINDOW)))
            _receipts(client, WINDOW)
        return count

    def _consumers(
        self, topic: str, count: int, kind: SUB.SubType, queue: int, subscription: str = "s"
    ) -> list[RawConsumer]:
        made = range(1, count + 1)
        return [RawConsumer(self.server.port, topic, subscription, kind, queue, number) for number in made]

    def _drained(self, row: str, count: int, consumers: list[RawConsumer]) -> None:
        self._measure(row, lambda: receive(consumers, count, WAIT_S))
        taken = sum(each.received for each in consumers)
        leave(consumers)
        if taken < count:
            raise RuntimeError(f"{row} on {self.server.name}: {taken} of {count} messages came within {WAIT_S:g} s")

    def _make_namespaces(self) -> None:
        if not self._has_namespaces:
            for name in (WITH, WITHOUT):
                self._request("PUT", f"namespaces/{name}")
                self._request("POST", f"namespaces/{name}/deduplication", b"true" if name == WITH else b"false")
            self._has_namespaces = True

    def _request(self, method: str, path: str, body: bytes = b"") -> None:
        url = f"http://127.0.0.1:{self.server.web_port}/admin/v2/{path}"
        request = urllib.request.Request(url, data=body or None, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30):
            pass


def _receipts(client: RawClient, count: int) -> None:
    """Wait for so many receipts. Raises RuntimeError for another answer."""
    while count:
        answer, _ = client.receive()
        if answer.type == C.PING:
            client.socket.sendall(PONG)
        elif answer.type == C.SEND_RECEIPT:
            count -= 1
        else:
            raise RuntimeError(f"unexpected answer: {answer}")
