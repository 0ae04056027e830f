"""One consumer: its permits, its unacknowledged entries, its place in a connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Generic, TypeVar

import trio

from broker import replies
from broker.connections.client_versions import understands_end_of_topic
from broker.dispatch.ports import Outlet, Source
from broker.ends import Life
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.entry_features import without_broker_metadata
from quire.wire.pulsar.frames import MessageEncoder

Buffer = bytes | bytearray | memoryview

S = TypeVar("S", bound=Source)

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class Consumer(Generic[S]):
    """Object registered under a consumer id of a connection."""

    __slots__ = (
        "_encoder",
        "acked",
        "acked_at",
        "blocked",
        "bytes_out",
        "connection",
        "consumed_at",
        "consumer_id",
        "epoch",
        "flowed_at",
        "key_shared",
        "life",
        "messages_out",
        "name",
        "priority",
        "properties",
        "read_compacted",
        "redelivered",
        "role",
        "since",
        "subscription",
        "takes_any_schema",
        "told_end",
    )

    def __init__(
        self,
        connection: Outlet,
        subscription: S,
        consumer_id: int,
        name: str,
        priority: int,
        epoch: int | None,
        key_shared: pb.KeySharedMeta | None = None,
    ) -> None:
        self.connection = connection
        self.subscription = subscription
        self.consumer_id = consumer_id
        self.name = name
        self.priority = priority
        self.epoch = epoch
        self.key_shared = key_shared
        self.life = Life.OPEN
        self.blocked = False
        """True while it holds too many unacknowledged messages. It then receives none until it holds half as many."""
        self.properties: Mapping[str, str] = NO_PROPERTIES
        """Properties that the client gave it."""
        self.role = ""
        """Role of the client; "" without authentication."""
        self.messages_out = self.bytes_out = self.redelivered = self.acked = 0
        self.since = trio.current_time()
        self.flowed_at = self.consumed_at = self.acked_at = 0.0
        """Times of the event loop of its making, its last FLOW, delivery and ACK; 0.0: there was none."""
        self.read_compacted = False
        """True if it reads the newest message of each key only, as far as the topic is compacted."""
        self.takes_any_schema = False
        """True if it reads with the schema that each message was written with."""
        self.told_end = False
        """True once it was notified that the topic is terminated and fully read."""
        self._encoder: MessageEncoder | None = None
        """Set from the first delivery on."""

    @property
    def writable(self) -> bool:
        """Return whether the connection still takes output below its bound.

        A dead one takes none, because its entries would count as delivered once more when they are taken back."""
        return self.life is Life.OPEN and not self.connection.closed and self.connection.output_below_bound

    def deliver(
        self,
        ledger_id: int,
        first_entry_id: int,
        payloads: Sequence[Buffer],
        *,
        entry_ids: Sequence[int] | None = None,
        redelivery_counts: Sequence[int] | None = None,
        ack_sets: Sequence[Sequence[int] | None] | None = None,
    ) -> None:
        """Queue MESSAGE frames for entries of one ledger; they leave when the pass ends."""
        size, counts = sum(map(len, payloads)), self.subscription.counts
        self.bytes_out += size
        counts.bytes_out += size
        now = self.consumed_at = counts.consumed_at = trio.current_time()
        topic = self.subscription.topic
        published = topic.published
        if (
            published is not None
            and published.last_entry_id == (first_entry_id + len(payloads) - 1 if entry_ids is None else entry_ids[-1])
            and published.last_ledger_id == ledger_id
            and (not redelivery_counts or not redelivery_counts[-1])
        ):
            topic.context.times.dispatch.observe(1000 * (now - published.last_arrived_at), len(payloads))
        if (tracing := topic.context.tracing) is not None:
            given = range(first_entry_id, first_entry_id + len(payloads)) if entry_ids is None else entry_ids
            tracing.delivered(topic.name, self.subscription.name, ledger_id, given, payloads)
        out: list[Buffer] = []
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = MessageEncoder(self.consumer_id, self.subscription.topic.name.partition)
        encoder.frames(
            out,
            ledger_id,
            first_entry_id,
            payloads,
            redelivery_counts,
            ack_sets=ack_sets,
            entry_ids=entry_ids,
            consumer_epoch=self.epoch,
        )
        self.connection.write(out)

    def flowed(self) -> None:
        """Note a FLOW of it."""
        self.flowed_at = self.subscription.counts.flowed_at = trio.current_time()

    def has_acked(self, messages: int) -> None:
        """Count messages that it acknowledged."""
        counts = self.subscription.counts
        self.acked += messages
        counts.acked += messages
        self.acked_at = counts.acked_at = trio.current_time()

    def tell_end(self) -> None:
        """Send REACHED_END_OF_TOPIC once, to a client that understands it."""
        if not self.told_end and self.life is Life.OPEN and understands_end_of_topic(self.connection.client_version):
            self.told_end = True
            self.connection.write((replies.reached_end_of_topic(self.consumer_id),))


class PlainConsumer(Consumer[S]):
    """Consumer of a client that does not understand metadata of brokers, where others get it."""

    __slots__ = ()

    def deliver(
        self,
        ledger_id: int,
        first_entry_id: int,
        payloads: Sequence[Buffer],
        *,
        entry_ids: Sequence[int] | None = None,
        redelivery_counts: Sequence[int] | None = None,
        ack_sets: Sequence[Sequence[int] | None] | None = None,
    ) -> None:
        super().deliver(
            ledger_id,
            first_entry_id,
            list(map(without_broker_metadata, payloads)),
            entry_ids=entry_ids,
            redelivery_counts=redelivery_counts,
            ack_sets=ack_sets,
        )
