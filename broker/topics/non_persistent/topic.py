"""One non-persistent topic: its producers and its subscriptions, and the way of a message from the ones to the others.

A message is confirmed when it was given to the subscriptions, with the message id 0:0; one that is dropped because its
connection has too many under way, with -1:-1. Consumers get all of them under the id 0:0.

Source: Pulsar's NonPersistentTopic (publishMessage), ServerCnx.handleSend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import trio

from broker import replies
from broker.context import Context
from broker.ends import PRODUCER, Do, End, after
from broker.errors import NotAllowedError, ProducerBusyError, ServiceNotReadyError
from broker.topics import limits
from broker.topics.delayed_delivery import DelayedDelivery
from broker.topics.entry_screen import BATCH, CHUNK, REFUSED
from broker.topics.non_persistent.drops import Drops
from broker.topics.non_persistent.handling import Handling
from broker.topics.non_persistent.subscription import NonPersistentSubscription
from broker.topics.policies import Held
from broker.topics.ports import ProducerClient
from broker.topics.producer import NOT_SERVED, Producer, SendRules
from broker.topics.producer_access import Access, Claim
from broker.topics.rates.following import TopicRates
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import batch_counts
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.receive_buffer import KEPT_MIN
from quire.wire.pulsar.splitter import SendRun
from quire.world.doors import Buffer

NO_DELAY = DelayedDelivery(False, 1000, 0)
"""A delivery time has no meaning: there is nothing to deliver later."""
ENTRIES_IN_STEP = 256
"""Entries that are given to the subscriptions at a time."""
RUN_COST = 16
"""Cost of a run for one subscription in the work of a pass, beside its entries."""


class NonPersistentTopic:
    """A non-persistent topic of this broker. Its methods do not wait."""

    def __init__(self, context: Context, name: TopicName, handling: Handling, policies: Held | None = None) -> None:
        self.context = context
        self.name = name
        self.producers: dict[str, Producer] = {}
        self.access: Access | None = None
        """Set from the first producer on that wants the topic for itself."""
        self.deduplication: None = None
        """Nothing is stored that could be there twice."""
        self.epoch: int | None = None
        """The topic epoch, of exclusive producers: it lasts as long as the topic is loaded."""
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        self.closing = False
        self.policies = policies
        """None: the limits of broker.conf hold."""
        self.rates: TopicRates | None = None
        """The rates that hold; None: none."""
        self.sends: SendRules | None = None
        """Demands of its policies on messages; None: there are none."""
        self.next_owner = ""
        """While it is closed: the URL of the next broker, if known, which clients are sent to."""
        self.unused_since: float | None = trio.current_time()
        """Time since when it has no producer and no subscription; None: it has one."""
        self.bytes_in = self.messages_in = self.chunks_in = self.entries_in = 0
        self.published_at = 0.0
        self.published: None = None  # nothing is stored
        self.dropped = Drops(trio.current_time())
        """Messages of producers that were dropped because too many were under way."""
        self.dropped_of: dict[Producer, Drops] = {}
        """The same by producer."""
        self._handling = handling

    # Producers

    def check_open(self) -> None:
        """Raise ServiceNotReadyError if it is being closed."""
        if self.closing:
            raise ServiceNotReadyError(f"topic {self.name.full} is being closed; look it up again")

    def check_takes_producers(self) -> None:
        """Raise ServiceNotReadyError if it is being closed."""
        self.check_open()

    def add_producer(
        self, connection: ProducerClient[Producer], producer_id: int, name: str, epoch: int, claim: Claim | None = None
    ) -> Producer:
        """Add a producer, as `Topic.add_producer` does."""
        self.check_open()
        if claim is None and self.access is not None:
            self.access.check_shared()
        limits.check_producers(self, name, self.producers)
        if (holder := self.producers.get(name)) is not None:
            if not holder.is_replaced_by(connection, producer_id, epoch):
                raise ProducerBusyError(f"producer {name!r} is already connected to {self.name.full}")
            self.end_producer(holder, End.LOST)
        producer = self.producers[name] = Producer(connection, self, producer_id, name, epoch)
        if claim is not None:
            claim.producer = producer
        self._note_use()
        return producer

    def end_producer(self, producer: Producer, end: End) -> None:
        """Do what the end of a producer is, as far as it is not done yet: see `broker.ends`."""
        producer.life, todo = after(PRODUCER, producer.life, end)
        if Do.FORGET in todo:
            producer.connection.producer_closed(producer)
        if Do.TELL in todo:
            producer.connection.write((replies.close_producer(producer.producer_id, self.next_owner),))
        if Do.RELEASE in todo and self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            self.dropped_of.pop(producer, None)
            if self.access is not None:
                self.access.left(producer, self.producers)
            self._note_use()
        if Do.DRAIN in todo:
            producer.drain()

    def delayed_delivery(self) -> DelayedDelivery:
        return NO_DELAY

    def publish_failed(self, error: Exception) -> None:
        """Do nothing: there is no append that could fail."""

    def drop_rate(self, producer: Producer, now: float) -> float:
        """Return the messages of a producer that are dropped, per second."""
        found = self.dropped_of.get(producer)
        return 0.0 if found is None else found.rate(now)

    # Messages

    def publish(self, producer: Producer, run: SendRun) -> None:
        """Give a run of messages to the subscriptions. Those that cannot be taken are answered with SEND_ERROR."""
        payloads = run.payloads
        features = (producer.features or producer.made_features()).union(payloads)
        size, sends = sum(map(len, payloads)), self.sends
        special = size > self.context.options.message_size_max or (sends is not None and sends.concerns(size))
        if features & REFUSED or run.flags & NOT_SERVED or special:
            for part, has in producer.accepted(run):
                self._take(producer, part, has)
        else:
            self._take(producer, run, features)

    def _take(self, producer: Producer, run: SendRun, features: int) -> None:
        count = len(run.sequence_ids)
        room = self._handling.room(producer.connection)
        if room is not None and room < count:
            if room:
                self._handle(producer, run.part(0, room), features)
            self._drop(producer, run.part(room, count))
        else:
            self._handle(producer, run, features)

    def _drop(self, producer: Producer, run: SendRun) -> None:
        messages, now = sum(run.counts), trio.current_time()
        self.dropped.add(messages, now)
        if self.producers.get(producer.name) is producer:
            self.dropped_of.setdefault(producer, Drops(now)).add(messages, now)
        producer.answer_duplicates(run)

    def _handle(self, producer: Producer, run: SendRun, features: int) -> None:
        size = sum(map(len, run.payloads))
        messages = producer.count(run, size)
        self.entries_in += len(run.payloads)
        if self.rates is not None:
            self.rates.published(producer.connection, messages, size)
        producer.sent += len(run.payloads)
        producer.budget.take(size)
        # Small payloads lie in the buffer of the connection, which is written again.
        kept = [bytes(each) if len(each) < KEPT_MIN else each for each in run.payloads] if self.subscriptions else []
        counts = batch_counts(run.payloads) if features & BATCH else [1] * len(run.payloads)
        work = self._work(producer, run, kept, counts, size, chunks=bool(features & CHUNK))
        self._handling.start(producer.connection, len(run.sequence_ids), work)

    def _work(
        self,
        producer: Producer,
        run: SendRun,
        payloads: Sequence[Buffer],
        counts: Sequence[int],
        size: int,
        *,
        chunks: bool,
    ) -> Iterator[None]:
        """Give the entries to each subscription, one per element, then confirm them."""
        turn = self.context.turn
        for start in range(0, len(payloads), ENTRIES_IN_STEP):
            part, part_counts = payloads, counts
            if len(payloads) > ENTRIES_IN_STEP:
                part, part_counts = payloads[start : start + ENTRIES_IN_STEP], counts[start : start + ENTRIES_IN_STEP]
            for subscription in list(self.subscriptions.values()):
                subscription.deliver(part, part_counts, chunks=chunks)
                turn.left -= RUN_COST + subscription.entry_cost * len(part)
                yield
        turn.left -= len(run.sequence_ids) // 4
        producer.budget.give(size)
        producer.confirm_unstored(run)

    # Subscriptions

    def subscription(self, subscribe: pb.CommandSubscribe) -> NonPersistentSubscription:
        """Return the subscription that a SUBSCRIBE names, made if it is new. It has no consumer in that step, so the
        caller adds one, or calls its `abandoned`.

        Raises NotAllowedError, ServiceNotReadyError."""
        self.check_open()
        if subscribe.read_compacted:
            raise NotAllowedError("readCompacted only valid on persistent topics")
        found = self.subscriptions.get(subscribe.subscription)
        if found is None:
            limits.check_subscriptions(self, len(self.subscriptions))
            name, kind = subscribe.subscription, subscribe.subType
            found = NonPersistentSubscription(self, name, kind, durable=subscribe.durable)
            self.subscriptions[name] = found
            self._note_use()
        return found

    def check_consumers(self, subscription: str, count: int) -> None:
        """Raise ConsumerBusyError if one more consumer of a subscription, which has `count`, is too many."""
        limits.check_consumers(self, subscription, count, self.subscriptions.values())

    @property
    def consumer_count(self) -> int:
        return sum(len(each.consumers) for each in self.subscriptions.values())

    def forget(self, subscription: NonPersistentSubscription) -> None:
        """Remove a subscription."""
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            self._note_use()

    # Life

    def check_unused(self) -> None:
        """Raise TopicBusyError if producers or consumers are connected."""
        limits.check_unused(self, len(self.producers), self.subscriptions.values())

    def _note_use(self) -> None:
        if self.producers or self.subscriptions:
            self.unused_since = None
        elif self.unused_since is None:
            self.unused_since = trio.current_time()

    def close(self, next_owner: str = "") -> None:
        """Disconnect all clients; a producer behind the receipts of what it sent."""
        if self.rates is not None and self.rates.publish is not None:
            self.rates.publish.end()
        self.next_owner = next_owner
        self.closing = True
        if self.access is not None:
            self.access.close()
        for producer in list(self.producers.values()):
            self.end_producer(producer, End.UNLOADED)
        for subscription in list(self.subscriptions.values()):
            subscription.delete()
