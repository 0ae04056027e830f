"""Interfaces that producers need: the topic they publish to, and their client's connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from broker.context import Context
from broker.dispatch.ports import Peer
from broker.dispatch.subscription import Subscription
from broker.ends import End
from broker.publish_budget import Budget
from broker.series.published import Published
from broker.topics.delayed_delivery import DelayedDelivery
from managed_ledger.managed_ledger import AppendSink
from quire.service.log import Logger
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.splitter import SendRun
from quire.world.doors import Buffer

P = TypeVar("P", contravariant=True)
"""The producers of a topic, or of a connection."""


class TopicTransactions(Protocol):
    """Transactions of a topic and of its subscriptions, as the topic uses them."""

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of transactions that are open, and that were committed and aborted since it was loaded."""

    @property
    def takes_messages(self) -> bool:
        """Return whether messages of transactions are taken: there is a snapshot."""

    def refusal(self, entry: Buffer) -> str:
        """Return why a message sent in a transaction is not taken, "" if it is."""

    def sink(self, payloads: Sequence[Buffer], inner: AppendSink) -> AppendSink:
        """Return the sink of messages of transactions that are given to the log now."""

    def first_open(self) -> tuple[int, int] | None:
        """Return the transaction that holds messages back: its coordinator, and its number there."""

    def follow(self, subscription: Subscription) -> None:
        """Note that a subscription was made, or made anew for another type."""

    async def delete(self, subscription: str) -> None:
        """Delete what a deleted subscription acknowledged in transactions. Raises ServiceNotReadyError."""

    async def close(self) -> None:
        """Store what is known, and close the logs of acknowledgements."""

    def abandon(self) -> None:
        """Write nothing more, because another broker has the topic."""


class MessageRules(Protocol):
    """Demands of the policies of a topic on messages."""

    def refusal(self, entry: Buffer, *, chunk: bool) -> str:
        """Return why an entry is not taken, "" if it is."""


class ProducerHome(Protocol[P]):
    """Topic as used by its producers and their connections."""

    context: Context
    name: TopicName
    next_owner: str
    messages_in: int
    bytes_in: int
    chunks_in: int
    """Counts since it was loaded."""
    published_at: float
    """Time of the event loop of the last message; 0.0: there was none."""

    @property
    def sends(self) -> MessageRules | None:
        """Return the demands of the topic's policies on messages; None: there are none."""

    def delayed_delivery(self) -> DelayedDelivery:
        """Return the current rules for delayed messages."""

    def publish(self, producer: P, run: SendRun) -> None:
        """Store a run of entries; receipts follow when they are durable."""

    def publish_failed(self, error: Exception) -> None:
        """An append failed: producers have to connect again."""

    def end_producer(self, producer: P, end: End) -> None:
        """End a producer, as `broker.ends` has it."""


class StoringHome(ProducerHome[P], Protocol[P]):
    """Topic that stores what is published."""

    published: Published | None
    """None: nothing was."""


class ProducerClient(Protocol[P]):
    """Client connection as used by its producers."""

    requests_in_flight: int
    sends_in_flight: int
    client_version: str

    @property
    def stream(self) -> Peer:
        """Return the connection's transport."""

    @property
    def log(self) -> Logger:
        """A logger with `connection=` bound."""

    @property
    def closed(self) -> bool: ...

    @property
    def publishing(self) -> Budget:
        """Return what counts the bytes of its sends."""

    def write(self, parts: Sequence[Buffer]) -> None:
        """Queue output; it leaves when the pass ends."""

    def sends_answered(self, count: int) -> None:
        """Count so many SENDs as answered."""

    def request_done(self) -> None:
        """Count a request as answered."""

    def producer_closed(self, producer: P) -> None:
        """Ignore what the producer still has on its way."""

    async def alive(self) -> bool:
        """Return whether the peer gives a sign of life."""
