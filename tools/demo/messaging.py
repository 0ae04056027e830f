"""Messaging interface of the demo, and its implementation with the official `pulsar-client`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tools.demo.files import Line

TOPIC = "persistent://public/default/demo"
SUBSCRIPTION = "rebuild"


class Received(NamedTuple):
    line: Line
    handle: Any
    """Token that acknowledges it."""


class Publisher(Protocol):
    def send(self, line: Line, done: Callable[[str | None], None]) -> None:
        """Send without waiting for the receipt; `done` gets None, or the error, in another thread.

        Blocks while as many messages as the publisher was made for are unanswered."""

    def close(self) -> None: ...


class Consumer(Protocol):
    def receive(self, timeout_ms: int) -> Received | None:
        """Return the next message; None if none came in time."""

    def acknowledge(self, received: Received) -> None:
        """Acknowledge this one message."""

    def close(self) -> None: ...


class Messaging(Protocol):
    def publisher(self, name: str, *, batched: bool, window: int) -> Publisher: ...

    def consumer(self, name: str) -> Consumer:
        """Return a new consumer of the subscription, which starts at the first message of the topic."""


class PulsarMessaging:
    """The official client. Each publisher and consumer has a connection of its own."""

    def __init__(self, url: str, log_path: Path) -> None:
        self.url = url
        self.log_path = log_path

    def publisher(self, name: str, *, batched: bool, window: int) -> Publisher:
        return _PulsarPublisher(self._client(), name, batched=batched, window=window)

    def consumer(self, name: str) -> Consumer:
        return _PulsarConsumer(self._client(), name)

    def _client(self) -> Any:
        import pulsar

        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self.log_path))
        return pulsar.Client(self.url, logger=logger, operation_timeout_seconds=60)


class _PulsarPublisher:
    def __init__(self, client: Any, name: str, *, batched: bool, window: int) -> None:
        import pulsar

        self._ok = pulsar.Result.Ok
        self._client = client
        self._producer = client.create_producer(
            TOPIC,
            producer_name=name,
            send_timeout_millis=0,  # a message is given up only with the demo
            max_pending_messages=window,
            block_if_queue_full=True,
            batching_enabled=batched,
            batching_type=pulsar.BatchingType.KeyBased if batched else pulsar.BatchingType.Default,
            batching_max_publish_delay_ms=5,
        )

    def send(self, line: Line, done: Callable[[str | None], None]) -> None:
        ok = self._ok
        self._producer.send_async(
            line.payload,
            lambda result, _: done(None if result == ok else str(result)),
            properties={"line": str(line.number)},
            partition_key=line.key,
        )

    def close(self) -> None:
        self._client.close()


class _PulsarConsumer:
    def __init__(self, client: Any, name: str) -> None:
        import pulsar

        self._timeout = pulsar.Timeout
        self._client = client
        self._consumer = client.subscribe(
            TOPIC,
            SUBSCRIPTION,
            consumer_type=pulsar.ConsumerType.KeyShared,
            consumer_name=name,
            initial_position=pulsar.InitialPosition.Earliest,
        )

    def receive(self, timeout_ms: int) -> Received | None:
        try:
            message = self._consumer.receive(timeout_millis=timeout_ms)
        except self._timeout:
            return None
        number = int(message.properties()["line"])
        return Received(Line(message.partition_key(), number, message.data()), message)

    def acknowledge(self, received: Received) -> None:
        self._consumer.acknowledge(received.handle)

    def close(self) -> None:
        self._client.close()
