"""Delivery by one standalone server: processor time per message, and rates, in interleaved rounds.

    scripts/bench dispatch [ROW ...] [--rounds 3] [--messages 20000] [--drain-mb 1000] [--seconds 5]

    shared         1 KB to 1, 4 and 16 Shared consumers
    keys           20,000 waiting keys to 4 Key_Shared consumers, beside 4 Shared ones, with queues of 1000 and of 1
    fan-in         500 producers that do not batch, 20 Key_Shared consumers: how many messages come in and go out
    drain          a backlog (of 1 GB) beside a producer and a consumer at its tail: rate, and latency of sends
    subscriptions  consuming one of 1000 subscriptions of a topic, beside the only one of another
    deduplication  publishing with deduplication on, beside off

The generators are raw: what they do per message is the same in all rows. The CPU is that of the server. Medians are
printed, and `out/bench-dispatch.png` has the ratios of the rows that have a bound.
"""

from __future__ import annotations

import argparse
import selectors
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.consuming import RawConsumer, leave, receive
from bench.picture import draw
from bench.procs import scheduled_s
from bench.raw import PONG, RawClient, flood, send_frame
from bench.servers import Server, quire
from quire.wire.pulsar import PulsarApi_pb2 as pb

C = pb.BaseCommand
SUB = pb.CommandSubscribe
SIZE = 1024
WAIT_S = 300.0
WINDOW = 1000
SUBSCRIPTIONS = 1000
PRODUCERS, FAN_CONSUMERS = 500, 20
Row = dict[str, float]


class Bench:
    def __init__(self, server: Server, options: argparse.Namespace) -> None:
        self.server = server
        self.options = options
        self.rows: dict[str, list[Row]] = {}
        self._topics = 0

    def topic(self) -> str:
        self._topics += 1
        return f"persistent://public/default/dispatch-{self._topics}"

    def measure(self, row: str, work: Callable[[], int], **also: float) -> None:
        """Record rate and CPU per message of `work`, which returns how many messages it handled."""
        cpu, begun = scheduled_s(self.server.pids), time.perf_counter()
        count = max(1, work())
        took = time.perf_counter() - begun
        cpu = scheduled_s(self.server.pids) - cpu
        self.rows.setdefault(row, []).append({"rate": count / took, "cpu_us": cpu / count * 1e6, **also})

    def filled(self, topic: str, count: int, *, keys: int = 0) -> None:
        """Publish so many messages, with as many different keys, to a topic."""
        client = RawClient("127.0.0.1", self.server.port)
        client.producer(topic)
        for first in range(0, count, WINDOW):
            numbers = range(first, min(count, first + WINDOW))
            named = [f"key-{each % keys}" if keys else "" for each in numbers]
            frames = [send_frame(1, each, b"x" * SIZE, key=key) for each, key in zip(numbers, named, strict=True)]
            client.socket.sendall(b"".join(frames))
            for _ in numbers:
                while client.receive()[0].type == C.PING:
                    client.socket.sendall(PONG)
        client.socket.close()

    def consumers(
        self, topic: str, count: int, kind: SUB.SubType, queue: int, subscription: str = "s"
    ) -> list[RawConsumer]:
        made = range(1, count + 1)
        return [RawConsumer(self.server.port, topic, subscription, kind, queue, number) for number in made]

    def drained(self, row: str, count: int, consumers: list[RawConsumer]) -> None:
        self.measure(row, lambda: receive(consumers, count, WAIT_S))
        leave(consumers)

    # The rows

    def shared(self) -> None:
        messages = self.options.messages
        for count in (1, 4, 16):
            topic = self.topic()
            self.filled(topic, messages)
            self.drained(f"{count} Shared", messages, self.consumers(topic, count, SUB.Shared, 1000))

    def keys(self) -> None:
        for queue, messages in ((1000, self.options.messages), (1, self.options.messages // 4)):
            for name, kind in (("Shared", SUB.Shared), ("Key_Shared", SUB.Key_Shared)):
                topic = self.topic()
                self.filled(topic, messages, keys=messages)
                self.drained(f"4 {name}, keys, queue {queue}", messages, self.consumers(topic, 4, kind, queue))

    def fan_in(self) -> None:
        """Publish flat out over many producers, and count what the consumers have at the last receipt."""
        topic, stop = self.topic(), time.perf_counter() + self.options.seconds
        consumers = self.consumers(topic, FAN_CONSUMERS, SUB.Key_Shared, 1000)
        client = RawClient("127.0.0.1", self.server.port)
        client.producer(topic)
        for number in range(2, PRODUCERS + 1):
            body = pb.CommandProducer(topic=topic, producer_id=number, request_id=number)
            client.request(C(type=C.PRODUCER, producer=body), C.PRODUCER_SUCCESS)
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
                for _ in frames:
                    while client.receive()[0].type == C.PING:
                        client.socket.sendall(PONG)
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

        self.measure("fan-in, delivered", consume)
        publisher.join()
        delivered = sum(each.received for each in consumers)
        self.rows["fan-in, delivered"][-1]["share"] = delivered / max(1, sent[0])
        leave(consumers)
        client.socket.close()

    def drain(self) -> None:
        """Drain a backlog while another subscription is at the tail and a producer sends one message after another."""
        messages = self.options.drain_mb * (1 << 20) // (64 << 10)
        topic = self.topic()
        client = RawClient("127.0.0.1", self.server.port)
        client.producer(topic)
        payload = b"x" * (64 << 10)
        for number in range(messages):
            client.socket.sendall(send_frame(1, number, payload))
            while client.receive()[0].type == C.PING:
                client.socket.sendall(PONG)
        [reader] = self.consumers(topic, 1, SUB.Exclusive, 100, "backlog")
        took: list[float] = []
        stop = threading.Event()

        def tail() -> None:
            number = messages
            while not stop.is_set():
                begun = time.perf_counter()
                client.socket.sendall(send_frame(1, number, b"x" * SIZE))
                while client.receive()[0].type == C.PING:
                    client.socket.sendall(PONG)
                took.append(time.perf_counter() - begun)
                number += 1
                time.sleep(0.005)

        publisher = threading.Thread(target=tail)
        publisher.start()
        self.measure("drain of 64 KB messages", lambda: receive([reader], messages, WAIT_S))
        stop.set()
        publisher.join()
        row = self.rows["drain of 64 KB messages"][-1]
        row["mb_s"] = row["rate"] / 16
        row["send_p99_ms"] = sorted(took)[int(len(took) * 0.99)] * 1e3
        leave([reader])
        client.socket.close()

    def subscriptions(self) -> None:
        messages = self.options.messages // 4
        for count in (1, SUBSCRIPTIONS):
            topic = self.topic()
            client = RawClient("127.0.0.1", self.server.port)
            for number in range(1, count):
                body = SUB(topic=topic, subscription=f"other-{number}", subType=SUB.Shared)
                body.consumer_id = body.request_id = number
                client.request(C(type=C.SUBSCRIBE, subscribe=body), C.SUCCESS)
            self.filled(topic, messages)
            self.drained(f"one of {count} subscriptions", messages, self.consumers(topic, 1, SUB.Shared, 1000))
            client.socket.close()

    def deduplication(self) -> None:
        for name, on in (("off", False), ("on", True)):
            topic = self.topic()
            if on:
                self._deduplicate(topic)
            seconds = self.options.seconds
            self.measure(f"publish, deduplication {name}", partial(self._published, topic, seconds))

    def _published(self, topic: str, seconds: float) -> int:
        """Publish messages with ascending sequence ids, in batches of sends; return how many."""
        client = RawClient("127.0.0.1", self.server.port)
        client.producer(topic)
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            client.socket.sendall(b"".join(send_frame(1, count + each, b"x" * SIZE) for each in range(WINDOW)))
            for _ in range(WINDOW):
                while client.receive()[0].type == C.PING:
                    client.socket.sendall(PONG)
            count += WINDOW
        client.socket.close()
        return count

    def _deduplicate(self, topic: str) -> None:
        flood("127.0.0.1", self.server.port, topic, 1, 1, 0.01)  # it exists
        local = topic.rsplit("/", 1)[1]
        url = f"http://127.0.0.1:{self.server.web_port}/admin/v2/persistent/public/default/{local}/deduplicationEnabled"
        request = urllib.request.Request(url, data=b"true", method="POST", headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30):
            pass
        time.sleep(1.0)

    def median(self, row: str, key: str) -> float:
        return statistics.median(each[key] for each in self.rows[row])


BOUNDS = (
    (
        "Key_Shared / Shared, rate, queue 1000",
        "4 Key_Shared, keys, queue 1000",
        "4 Shared, keys, queue 1000",
        "rate",
        0.8,
    ),
    ("Key_Shared / Shared, rate, queue 1", "4 Key_Shared, keys, queue 1", "4 Shared, keys, queue 1", "rate", 0.8),
    ("1000 subscriptions / 1, CPU", f"one of {SUBSCRIPTIONS} subscriptions", "one of 1 subscriptions", "cpu_us", 1.1),
    ("deduplication on / off, CPU", "publish, deduplication on", "publish, deduplication off", "cpu_us", 1.05),
)
"""Title, row, row that it is compared with, key, bound: rates are at least that, CPU is at most."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench dispatch", description=__doc__)
    parser.add_argument("row", nargs="*", help="default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--drain-mb", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quire-dispatch-") as folder, quire(Path(folder)) as server:
        bench = Bench(server, options)
        rows = {
            "shared": bench.shared,
            "keys": bench.keys,
            "fan-in": bench.fan_in,
            "drain": bench.drain,
            "subscriptions": bench.subscriptions,
            "deduplication": bench.deduplication,
        }
        if unknown := set(options.row) - set(rows):
            parser.error(f"{', '.join(sorted(unknown))}: rows are {', '.join(rows)}")
        for _ in range(options.rounds):
            for name in options.row or rows:
                rows[name]()
    show(bench)
    return 0


def show(bench: Bench) -> None:
    for row, found in bench.rows.items():
        figures = ", ".join(f"{key} {bench.median(row, key):.4g}" for key in found[0])
        print(f"{row:<34} {figures}", flush=True)
    drawn: list[tuple[str, float, float, str]] = []
    for title, row, other, key, bound in BOUNDS:
        if row in bench.rows and other in bench.rows:
            ratio = bench.median(row, key) / bench.median(other, key)
            drawn.append((title, ratio, bound, "more" if key == "rate" else "less"))
    if "fan-in, delivered" in bench.rows:
        drawn.append(("fan-in: delivered / published", bench.median("fan-in, delivered", "share"), 0.95, "more"))
    for title, ratio, bound, better in drawn:
        print(f"{title}: {ratio:.2f} ({better} is better, bound {bound})")
    if drawn:
        draw(drawn, Path("out/bench-dispatch.png"), "ratio (black mark: bound)")
