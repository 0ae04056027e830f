"""One subscription of a non-persistent topic: its consumers, and what each of them gets of a run of messages."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from broker import replies
from broker.context import Context
from broker.dispatch.consumer import Consumer
from broker.dispatch.counts import Counts
from broker.dispatch.entries import key_of
from broker.dispatch.policies.failover import FailoverChoice
from broker.dispatch.shared_subscription import chunk_key
from broker.ends import CONSUMER, Do, End, Life, after
from broker.errors import ConsumerBusyError, ServiceNotReadyError
from broker.topics.non_persistent.choosing import ByKey, Choosing, Offer, OneActive, RoundRobin
from broker.topics.non_persistent.drops import Drops
from broker.topics.non_persistent.ports import SubscriptionHome
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import Buffer


class NonPersistentSubscription:
    """Subscription without a position. Its methods do not wait.

    It gets what is published while it has consumers with permits. Acknowledgements, redelivery and seek have no
    meaning here. Source: Pulsar's NonPersistentSubscription."""

    def __init__(
        self, topic: SubscriptionHome[NonPersistentSubscription], name: str, kind: int, *, durable: bool
    ) -> None:
        """`durable`: it stays when its last consumer leaves, as long as the topic is loaded."""
        self.topic = topic
        self.name = name
        self.durable = durable
        self.kind = kind
        self.consumers: dict[Consumer[NonPersistentSubscription], None] = {}
        self.stopped = False
        self.messages_out = 0
        self.counts = Counts()
        self.dropped = Drops(trio.current_time())
        self._choosing = self._made()
        self._paused = False

    def follow_options(self) -> None:
        """Notice that the broker's options have changed."""
        if isinstance(self._choosing, RoundRobin):
            self._choosing.at_most(self._context.options.round_robin_batch_max)

    @property
    def _context(self) -> Context:
        return self.topic.context

    def _made(self) -> Choosing[Consumer[NonPersistentSubscription]]:
        options = self._context.options
        if self.kind == pb.CommandSubscribe.Shared:
            return RoundRobin(options.round_robin_batch_max)
        if self.kind == pb.CommandSubscribe.Key_Shared:
            return ByKey(options.key_shared_replica_points)
        if self.kind != pb.CommandSubscribe.Failover:
            return OneActive(None)
        name, hashing = self.topic.name, options.failover_consistent_hashing
        return OneActive(FailoverChoice(name.full, name.partition, consistent_hashing=hashing))

    @property
    def entry_cost(self) -> int:
        """Return the cost of an entry in the work of a pass."""
        return 10 if self.kind == pb.CommandSubscribe.Key_Shared else 5

    # Consumers

    def add_consumer(self, consumer: Consumer[NonPersistentSubscription], kind: int) -> None:
        """Add a consumer of a type; that of the subscription is the type of its first consumer.

        Raises ConsumerBusyError, ConsumerAssignError, ServiceNotReadyError."""
        if self.stopped:
            raise ServiceNotReadyError("Subscription is fenced")
        if kind != self.kind:
            if self.consumers:
                raise ConsumerBusyError(f"subscription {self.name!r} has consumers of another type")
            self.kind = kind
            self._choosing = self._made()
        self.topic.check_consumers(self.name, len(self.consumers))
        self._choosing.add(consumer, consumer.name, consumer.priority, consumer.key_shared)
        self.consumers[consumer] = None

    @property
    def active(self) -> Consumer[NonPersistentSubscription] | None:
        """Return the active consumer of an Exclusive or Failover subscription."""
        return self._choosing.active if isinstance(self._choosing, OneActive) else None

    def sole_holder(self) -> Consumer[NonPersistentSubscription] | None:
        """Return the consumer that keeps others out, if there is one."""
        return next(iter(self.consumers), None) if self.kind == pb.CommandSubscribe.Exclusive else None

    def announce(self) -> None:
        """Notify the Failover consumers of the active one. Called after a SUBSCRIBE was answered, and when one
        leaves."""
        if self.kind != pb.CommandSubscribe.Failover:
            return
        active = self.active
        for consumer in self.consumers:
            if consumer.life is Life.OPEN:
                told = replies.active_consumer_change(consumer.consumer_id, consumer is active)
                consumer.connection.write((told,))

    def end_consumer(self, consumer: Consumer[NonPersistentSubscription], end: End) -> None:
        """Do what the end of a consumer is, as far as it is not done yet: see `broker.ends`."""
        consumer.life, todo = after(CONSUMER, consumer.life, end)
        if Do.FORGET in todo:
            consumer.connection.consumer_closed(consumer.consumer_id)
        if Do.TELL in todo:
            consumer.connection.write((replies.close_consumer(consumer.consumer_id, self.topic.next_owner),))
        if Do.RELEASE in todo and consumer in self.consumers:
            was_active = self.active is consumer
            del self.consumers[consumer]
            self._choosing.remove(consumer)
            if was_active:
                self.announce()
            self.abandoned()

    def disconnect(self, consumer: Consumer[NonPersistentSubscription]) -> None:
        """Send CLOSE_CONSUMER to one consumer."""
        self.end_consumer(consumer, End.CUT)
        self.end_consumer(consumer, End.LOST)

    def disconnect_all(self) -> None:
        """Send CLOSE_CONSUMER to all consumers; they subscribe again."""
        consumers = list(self.consumers)
        for consumer in consumers:
            self.end_consumer(consumer, End.CUT)
        for consumer in consumers:
            self.end_consumer(consumer, End.LOST)

    def abandoned(self) -> None:
        """Remove a subscription that is not durable, if it has no consumer."""
        if not self.consumers and not self.durable:
            self.stopped = True
            self.topic.forget(self)

    def delete(self) -> None:
        """Disconnect the consumers, and remove the subscription from its topic."""
        self.stopped = True
        self.disconnect_all()
        self.topic.forget(self)

    # Dispatch

    def flow(self, consumer: Consumer[NonPersistentSubscription], permits: int) -> None:
        """Add permits, for what is published from now on."""
        if permits > 0 and consumer in self.consumers:
            self._choosing.flow(consumer, permits, self._context.options.permits_max)

    def permits_of(self, consumer: Consumer[NonPersistentSubscription]) -> int:
        """Return the messages it may still be sent."""
        return self._choosing.permits(consumer)

    def resume(self) -> None:
        """Give to consumers again that did not take what was sent to them."""
        if self._paused:
            self._paused = False
            for consumer in self.consumers:
                self._choosing.pause(consumer, False)

    def deliver(self, payloads: Sequence[Buffer], counts: Sequence[int], *, chunks: bool) -> None:
        """Send a run of entries to the consumers that have permits; drop the rest. `chunks`: some are chunks."""
        total = sum(counts)
        sent = 0
        if self.consumers:
            keyed = [chunk_key(payload) for payload in payloads] if chunks and self._is_shared else None
            offer = Offer(counts, lambda index: key_of(payloads[index]), keyed)
            for consumer, indexes in self._choosing.assign(offer).items():
                whole = len(indexes) == len(payloads)
                messages = total if whole else sum([counts[index] for index in indexes])
                if not consumer.writable:
                    self._paused = True
                    self._choosing.pause(consumer, True)
                    # Its client gives permits for what it received only.
                    self._choosing.flow(consumer, messages, self._context.options.permits_max)
                    continue
                given = payloads if whole else [payloads[index] for index in indexes]
                consumer.deliver(0, 0, given, entry_ids=[0] * len(given))
                consumer.messages_out += messages
                sent += messages
        self.messages_out += sent
        if sent < total:
            self.dropped.add(total - sent, trio.current_time())

    @property
    def _is_shared(self) -> bool:
        return self.kind == pb.CommandSubscribe.Shared
