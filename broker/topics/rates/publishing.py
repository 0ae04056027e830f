"""Publishers that are held to a rate: their connections are not read while the rate is used up.

What is received is stored, and its receipts follow; so the rate is exceeded by at most what one read of a connection
brings, which is paid for with a longer pause. Connections go on in the order in which they were held, each a moment
after the one before, so that they do not use the rate up in the same step. Everything else on the connection waits, as
in the original: acknowledgements of consumers, too.

Source: Pulsar's PublishRateLimiterImpl and ServerCnxThrottleTracker.
"""

from __future__ import annotations

from typing import Final

import trio

from broker.topics.ports import ProducerClient
from broker.topics.producer import Producer
from broker.topics.rates.bucket import Rate, RateBucket

HELD: Final = 1 << 20
"""Requests that a held connection has under way beside its own: more than any bound of them."""
PACE_S: Final = 0.001
"""Time between two connections that go on."""

Client = ProducerClient[Producer]


class PublishThrottle:
    """One rate, and the connections that are held for it."""

    __slots__ = ("_bucket", "_held", "_nursery", "_running", "name", "times")

    def __init__(self, rate: Rate, nursery: trio.Nursery, name: str) -> None:
        self._bucket = RateBucket(rate, trio.current_time())
        self._held: dict[Client, None] = {}
        self._nursery = nursery
        self._running: trio.CancelScope | None = None
        self.name = name
        self.times = 0
        """Times that a connection was held."""

    @property
    def rate(self) -> Rate:
        return self._bucket.rate

    def holds(self, connection: Client) -> bool:
        """Return whether a connection is held."""
        return connection in self._held

    def wait_s(self) -> float:
        """Return the time until the first held connection may go on."""
        return self._bucket.wait_s(trio.current_time())

    def spent(self, connection: Client, messages: int, size: int) -> None:
        """Count what a connection has published, and hold it if that was more than the rate allows."""
        now = trio.current_time()
        self._bucket.take(messages, size, now)
        if connection not in self._held and self._bucket.wait_s(now) > 0:
            self.times += 1
            self._held[connection] = None
            connection.requests_in_flight += HELD
            if self._running is None:
                self._start()

    def change(self, rate: Rate) -> None:
        """Hold to another rate from now on. Connections that are held wait for that one."""
        self._bucket.change(rate, trio.current_time())
        if self._running is not None:
            self._running.cancel()  # it may sleep for as long as the former rate asked
            self._start()

    def end(self) -> None:
        """Let all connections go on: the rate does not hold any more."""
        if self._running is not None:
            self._running.cancel()
        self._release(len(self._held))

    def _start(self) -> None:
        self._running = trio.CancelScope()
        self._nursery.start_soon(self._let_go, self._running, name=f"publish rate of {self.name}")

    async def _let_go(self, scope: trio.CancelScope) -> None:
        """Let connections go on as the rate allows, until none is held."""
        with scope:
            while self._held:
                wait_s = self._bucket.wait_s(trio.current_time())
                if wait_s > 0:
                    await trio.sleep(wait_s)
                else:
                    self._release(1)
                    await trio.sleep(PACE_S)
        if self._running is scope:
            self._running = None

    def _release(self, count: int) -> None:
        for connection in list(self._held)[:count]:
            del self._held[connection]
            connection.requests_in_flight -= HELD - 1
            connection.request_done()
