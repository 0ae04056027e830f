"""A producer and a consumer of a topic that go on while a test breaks things."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pulsar

from tests.support.waiting import wait_until


class Traffic:
    """One producer and one consumer of a topic that go on whatever happens, each in its thread. An error that the
    application would see ends them and fails the test."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.sent: list[int] = []
        """Numbers for which a receipt came, in order."""
        self.received: list[int] = []
        self.sent_at: list[float] = []
        self.received_at: list[float] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        self._producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
        self._threads = [
            threading.Thread(target=self._guarded, args=(each,), daemon=True) for each in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            self.errors.append(error)

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.send(b"%d" % number)
            self.sent.append(number)
            self.sent_at.append(time.monotonic())
            number += 1

    def _receive(self) -> None:
        sending = self._threads[0]
        heard_at = time.monotonic()
        while sending.is_alive() or len(set(self.received)) < len(self.sent):
            try:
                message = self._consumer.receive(200)
            except pulsar.Timeout:
                if sending.is_alive():
                    heard_at = time.monotonic()
                missing = f"{len(set(self.received))} of {len(self.sent)} received"
                assert time.monotonic() - heard_at < 10, missing
                continue
            self._consumer.acknowledge(message)
            self.received.append(int(message.data()))
            self.received_at.append(time.monotonic())
            heard_at = time.monotonic()

    def wait_for_more(self, count: int = 20, seconds: float = 20) -> None:
        sent, received = len(self.sent) + count, len(self.received) + count

        def goes_on() -> bool:
            assert not self.errors, self.errors
            return len(self.sent) >= sent and len(self.received) >= received

        wait_until(goes_on, "it goes on", seconds)

    def finish(self) -> None:
        """Stop, and see that nothing that was acknowledged is missing, and that first deliveries are in order."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in self._threads), "a client hangs"
        assert set(self.sent) <= set(self.received), sorted(set(self.sent) - set(self.received))[:10]
        first = list(dict.fromkeys(self.received))
        assert first == sorted(first)

    def longest_gaps(self, since: float) -> tuple[float, float]:
        """Return the longest gaps of receipts and of deliveries, in seconds."""

        def longest(times: list[float]) -> float:
            after = [at for at in times if at >= since - 0.5]
            return max((b - a for a, b in itertools.pairwise(after)), default=float("inf"))

        return longest(self.sent_at), longest(self.received_at)


@contextmanager
def traffic(client: pulsar.Client, topic: str) -> Iterator[Traffic]:
    made = Traffic(client, topic)
    try:
        made.wait_for_more()
        yield made
        made.wait_for_more()
    finally:
        made._stop.set()
    made.finish()
