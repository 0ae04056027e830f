"""A broker in memory that can be killed, with as much of one as the whole demo needs, and with planted errors."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from zlib import crc32

from tools.demo.files import Line
from tools.demo.messaging import Consumer, Publisher, Received


class FakeServer:
    """A server, alive or not. A published message is stored at once and answered by a thread a little later;
    acknowledgements are stored at once. A kill loses answers in transit, so publishers send again, as the real client
    does."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.alive = threading.Event()
        self.kills = 0
        self.log: list[Line] = []
        self.acknowledged: set[int] = set()
        self.publishers: list[FakePublisher] = []
        self.consumers: list[DemoConsumer] = []
        self.lose: Callable[[Line], bool] = lambda _: False
        """Lines to lose although they are answered."""
        self.swap = False
        """Deliver the second line of each file before the first."""

    def start(self) -> None:
        with self.lock:
            for consumer in self.consumers:
                consumer.queue.clear()
            for position in range(len(self.log)):
                if position not in self.acknowledged:
                    self._dispatch(position)
            for publisher in self.publishers:
                for line, _ in publisher.unanswered:
                    self._store(line)
            self.alive.set()

    def kill(self) -> None:
        with self.lock:
            self.alive.clear()
            self.kills += 1

    def stop(self) -> None:
        self.alive.clear()

    def errors(self) -> list[str]:
        return []

    def _store(self, line: Line) -> None:
        if not self.lose(line):
            self.log.append(line)
            self._dispatch(len(self.log) - 1)

    def _dispatch(self, position: int) -> None:
        if self.consumers:
            line = self.log[position]
            self.consumers[crc32(line.key.encode()) % len(self.consumers)].queue.append(position)


class FakePublisher:
    def __init__(self, server: FakeServer, window: int) -> None:
        self.server = server
        self.room = threading.Semaphore(window)
        self.unanswered: deque[tuple[Line, Callable[[str | None], None]]] = deque()
        self.closed = threading.Event()
        threading.Thread(target=self._answer, daemon=True).start()

    def send(self, line: Line, done: Callable[[str | None], None]) -> None:
        self.room.acquire()
        with self.server.lock:
            self.unanswered.append((line, done))
            if self.server.alive.is_set():
                self.server._store(line)

    def _answer(self) -> None:
        while not self.closed.wait(0.0005):
            if not self.server.alive.wait(0.1):
                continue
            with self.server.lock:
                answered = [self.unanswered.popleft() for _ in range((len(self.unanswered) + 1) // 2)]
            for _, done in answered:
                done(None)
                self.room.release()

    def close(self) -> None:
        self.closed.set()


class DemoConsumer:
    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.queue: deque[int] = deque()

    def receive(self, timeout_ms: int) -> Received | None:
        with self.server.lock:
            if self.server.alive.is_set() and self.queue:
                if self.server.swap and len(self.queue) > 1:
                    self.server.swap = False
                    self.queue.rotate(-1)
                position = self.queue.popleft()
                return Received(self.server.log[position], position)
        threading.Event().wait(0.001)
        return None

    def acknowledge(self, received: Received) -> None:
        with self.server.lock:
            if self.server.alive.is_set():
                self.server.acknowledged.add(received.handle)

    def close(self) -> None:
        with self.server.lock:
            if self in self.server.consumers:
                self.server.consumers.remove(self)


class FakeMessaging:
    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.batched: list[bool] = []

    def publisher(self, name: str, *, batched: bool, window: int) -> Publisher:
        self.batched.append(batched)
        made = FakePublisher(self.server, window)
        with self.server.lock:
            self.server.publishers.append(made)
        return made

    def consumer(self, name: str) -> Consumer:
        made = DemoConsumer(self.server)
        with self.server.lock:
            self.server.consumers.append(made)
            for consumer in self.server.consumers:
                consumer.queue.clear()
            for position in range(len(self.server.log)):
                if position not in self.server.acknowledged:
                    self.server._dispatch(position)
        return made
