"""One topic: its managed ledger, its producers, its subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from broker import replies
from broker.background import see_through
from broker.context import Context
from broker.dispatch.subscription import Subscription
from broker.ends import PRODUCER, Do, End, after
from broker.errors import (
    NoRoomError,
    NotAllowedError,
    ProducerBusyError,
    ServiceNotReadyError,
    SubscriptionBusyError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
    TopicTerminatedError,
)
from broker.series.published import Published, arrived
from broker.topics import limits
from broker.topics.compaction.compaction import Compaction
from broker.topics.deduplication.guard import Deduplication
from broker.topics.delayed_delivery import DelayedDelivery, of_broker
from broker.topics.entry_screen import DELAYED, REFUSED, EntryScreen
from broker.topics.life.being_restored import check_restored
from broker.topics.life.making import being_made, making
from broker.topics.policies import Held
from broker.topics.ports import ProducerClient, TopicTransactions
from broker.topics.producer import NOT_SERVED, Producer, PublishSink, SendRules, cut_in_next_step, cut_later
from broker.topics.producer_access import Access, Claim
from broker.topics.quotas.backlog import check_producer
from broker.topics.rates.dispatching import DispatchLimit
from broker.topics.rates.following import TopicRates, limit_of
from broker.topics.subscription_cursors import Pairs, delete_cursor, open_durable, open_subscribed, position_before
from broker.topics.subscription_kinds import make_subscription, serves, stop_for_another_kind
from broker.topics.system_names import is_system_cursor
from broker.transactions.first_message import waits_for_snapshot
from managed_ledger.errors import ManagedLedgerFencedError
from managed_ledger.managed_ledger import AppendSink, ManagedLedger
from managed_ledger.writing.state import State
from quire.ledger.position import Position
from quire.service.log import Logger, get_logger
from quire.service.shared_maps import EMPTY, with_item, with_rare_item, without_item
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.splitter import TRANSACTION, SendRun

log = get_logger(__name__)

RECEIPTS_GRACE_S = 5.0
"""Time that producers of a topic being closed wait for receipts of pending sends."""


class Topic:
    """A loaded topic. Methods run on the event loop without waiting, except those that await."""

    __slots__ = (
        "_close_soon",
        "access",
        "bytes_in",
        "chunks_in",
        "closing",
        "compaction",
        "context",
        "creating",
        "deduplication",
        "entries_in",
        "ledger",
        "messages_in",
        "name",
        "next_owner",
        "nursery",
        "policies",
        "producers",
        "published",
        "published_at",
        "rates",
        "read_bound",
        "screen",
        "sends",
        "subscriptions",
        "too_old",
        "transactions",
        "used_at",
    )

    def __init__(
        self,
        context: Context,
        name: TopicName,
        ledger: ManagedLedger,
        close_soon: Callable[[Topic], None],
        policies: Held | None = None,
    ) -> None:
        """Take the topic's parts. `close_soon` closes the topic in the background; the next lookup reloads it.
        `policies`: those of its namespace and its own; None: broker.conf's alone hold."""
        self.context = context
        self.name = name
        self.ledger = ledger
        self.nursery = context.nursery
        self.producers: Mapping[str, Producer] = EMPTY
        self.access: Access | None = None  # from the first producer on that wants the topic for itself
        self.deduplication: Deduplication | None = None  # set by the loader, if duplicates are dropped
        self.compaction: Compaction | None = None  # from the first one on
        self.read_bound: Position | None = None
        self.transactions: TopicTransactions | None = None
        self.subscriptions: Mapping[str, Subscription] = EMPTY
        self.closing = False
        self.next_owner = ""  # while it is closed: the URL of the next broker, if known, to which clients are sent
        self.screen = EntryScreen(name, ledger.last_confirmed, context.passed_over)
        self.policies = policies
        self.rates: TopicRates | None = None  # those that it is held to, if there are any
        self.sends: SendRules | None = None
        self._close_soon = close_soon
        self.used_at = trio.current_time()
        self.creating: dict[str, trio.Event] | None = None  # subscriptions that are being created, if there are any
        self.bytes_in = self.messages_in = self.chunks_in = self.entries_in = 0
        self.published_at = 0.0
        self.published: Published | None = None  # from the first entry on
        self.too_old: Position | None = None  # an entry that was too old when the backlog's quota was last checked
        ledger.owner = self

    @property
    def log(self) -> Logger:
        """A logger with the topic bound. Not kept: there are many topics, which hardly write a line."""
        return log.bind(topic=self.name.full)

    # Publishing

    def add_producer(
        self, connection: ProducerClient[Producer], producer_id: int, name: str, epoch: int, claim: Claim | None = None
    ) -> Producer:
        """Add a producer. `claim`: the one that was granted to it; None: it shares the topic.

        Raises TopicTerminatedError; ProducerBusyError if a connected producer has the name, or the topic for itself."""
        self.check_takes_producers()
        if claim is None and self.access is not None:
            self.access.check_shared()
        limits.check_producers(self, name, self.producers)
        if (holder := self.producers.get(name)) is not None:
            if not holder.is_replaced_by(connection, producer_id, epoch):
                raise ProducerBusyError(f"producer {name!r} is already connected to {self.name.full}")
            self.end_producer(holder, End.LOST)
        producer = Producer(connection, self, producer_id, name, epoch)
        self.producers = with_rare_item(self.producers, name, producer)
        if claim is not None:
            claim.producer = producer
        if self.deduplication is not None:
            self.deduplication.sequences.joined(name)
        return producer

    def check_takes_producers(self) -> None:
        self.check_open()
        if why := self.context.no_room():
            raise NoRoomError(why)
        check_restored(self)
        check_producer(self)
        if self.ledger.state is State.TERMINATED:
            raise TopicTerminatedError(f"{self.name.full} was terminated: it takes no more messages")

    def end_producer(self, producer: Producer, end: End) -> None:
        """Do what the end of a producer is, as far as it is not done yet: see `broker.ends`."""
        producer.life, todo = after(PRODUCER, producer.life, end)
        if Do.FORGET in todo:
            producer.connection.producer_closed(producer)
        if Do.TELL in todo:
            producer.connection.write((replies.close_producer(producer.producer_id, self.next_owner),))
        if Do.RELEASE in todo and self.producers.get(producer.name) is producer:
            self.producers = without_item(self.producers, producer.name)
            self.context.measures.forget(producer)
            self.used_at = trio.current_time()
            if self.deduplication is not None:
                self.deduplication.sequences.left(producer.name, trio.current_time())
            if self.access is not None:
                self.access.left(producer, self.producers)
        if Do.DRAIN in todo:
            producer.drain()

    def publish(self, producer: Producer, run: SendRun) -> None:
        """Give a run of entries to the managed ledger; receipts follow when they are durable.

        Entries that must not be stored are answered with SEND_ERROR."""
        if why := self.context.no_room():
            self._refuse(producer, run, NoRoomError(why))
            return
        payloads = run.payloads
        size, features = sum(map(len, payloads)), (producer.features or producer.made_features()).union(payloads)
        if (
            features & REFUSED
            or run.flags & NOT_SERVED
            or size > self.context.options.message_size_max
            or (self.sends is not None and self.sends.concerns(size))
            or (features & DELAYED and self.delayed_delivery().max_delay_ms)
        ):
            if waits_for_snapshot(self, producer, run, features):
                return
            for part, has in producer.accepted(run, None if self.transactions is None else self.transactions.refusal):
                # an append failed: nothing may be stored behind the gap
                if self.producers.get(producer.name) is not producer:
                    producer.connection.sends_answered(len(part.sequence_ids))
                    continue
                self.screen.features |= has
                self.append(producer, part, sum(map(len, part.payloads)))
        else:
            self.screen.features |= features
            self.append(producer, run, size)

    def delayed_delivery(self) -> DelayedDelivery:
        """Return the current rules for delayed messages."""
        held = self.policies
        return of_broker(self.context.options) if held is None else held.delayed_delivery()

    def append(self, producer: Producer, run: SendRun, size: int, sink: AppendSink | None = None) -> None:
        """Give a run to the log. `sink`: of deduplication, which knows that the run is new."""
        if sink is None and self.deduplication is not None:
            self.deduplication.publish(self, producer, run, size)
            return
        payloads = run.payloads
        self.entries_in += len(payloads)
        messages = producer.count(run, size)
        if self.rates is not None:
            self.rates.published(producer.connection, messages, size)
        producer.budget.take(size)
        producer.sent += len(payloads)
        self.published = arrived(self.published, payloads, size)
        sink = sink or PublishSink(producer, run, self, size)
        if (tracing := self.context.tracing) is not None:
            sink = tracing.sink(self.name, payloads, sink)
        if run.flags & TRANSACTION and self.transactions is not None:
            sink = self.transactions.sink(payloads, sink)
        self.ledger.append(payloads, sink)

    def _refuse(self, producer: Producer, run: SendRun, error: Exception) -> None:
        """Store nothing of a run, and make the producers reconnect, which returns the reason to them."""
        producer.sent += len(run.sequence_ids)
        self.publish_failed(error)
        producer.failed(run, 0, str(error))

    def fenced(self) -> None:
        """See `LogOwner`."""
        self.log.warning("topic lost its ledgers to another owner")
        self._close_soon(self)

    def publish_failed(self, error: Exception) -> None:
        """Handle a failed append: producers reconnect and send again. A topic with a fenced log is closed."""
        if self.closing or isinstance(error, ManagedLedgerFencedError) or not self.producers:
            return
        self.log.warning("append failed; producers have to connect again", reason=str(error))
        producers = list(self.producers.values())
        for producer in producers:
            # Their sends are ignored from here on: nothing may be stored behind a gap before these are repeated.
            self.end_producer(producer, End.FAILED)
        self.nursery.start_soon(cut_in_next_step, producers, name="disconnect producers")

    def reload(self) -> None:
        """Close the topic in the background; its next use opens it."""
        self._close_soon(self)

    async def subscription(self, subscribe: pb.CommandSubscribe) -> Subscription:
        """Return the subscription a SUBSCRIBE names, created (durably) if it is new.

        It has no consumer in that step, so the caller adds one, or calls its `abandoned`. Raises ConsumerBusyError,
        NotAllowedError, ServiceNotReadyError."""
        name = subscribe.subscription
        while (creating := being_made(self, name)) is not None:
            self.check_open()
            await creating.wait()
        if (found := self.known_subscription(subscribe)) is not None:
            return found
        self.check_subscriptions()
        with making(self, name):
            cursor = await open_subscribed(self.ledger, self.name.full, subscribe, self.context.world.clock.wall_ms())
            self.check_open()
            found = make_subscription(self, name, cursor, subscribe)
            self._keep(found)
            return found

    def known_subscription(self, subscribe: pb.CommandSubscribe) -> Subscription | None:
        """Return `subscription` from memory; None: it is new. Raises as `subscription`."""
        self.check_open()
        name = subscribe.subscription
        found = self.subscriptions.get(name)
        if found is None:
            return None
        if found.durable != subscribe.durable:
            raise NotAllowedError(f"subscription {name!r} exists with another durability")
        if not serves(found, subscribe):
            found = self._change_kind(found, subscribe)
        return found

    def _change_kind(self, found: Subscription, subscribe: pb.CommandSubscribe) -> Subscription:
        stop_for_another_kind(found)
        changed = make_subscription(self, found.name, found.cursor, subscribe)
        self._keep(changed)
        if self.transactions is not None:
            self.transactions.follow(changed)
        return changed

    def restore_subscriptions(self) -> None:
        """Restore subscriptions from stored cursors, which retain entries before any consumer connects."""
        for name, cursor in self.ledger.cursors.items():
            if not is_system_cursor(name):
                subscribe = pb.CommandSubscribe(subscription=name, subType=pb.CommandSubscribe.Exclusive, durable=True)
                self._keep(make_subscription(self, name, cursor, subscribe))

    async def create_subscription(self, name: str, position: Position, properties: Pairs = ()) -> None:
        """Create a durable subscription that delivers the entry at `position` next, or the one after it. Durable on
        return.

        EARLIEST, or a position before the first entry, means the first; LATEST, or one beyond the end, the next to
        come. Raises SubscriptionExistsError, ServiceNotReadyError."""
        self.check_open()
        while (creating := being_made(self, name)) is not None:
            await creating.wait()
        if name in self.subscriptions:
            raise SubscriptionExistsError(f"subscription {name!r} of {self.name.full} exists")
        self.check_open()
        self.check_subscriptions()
        with making(self, name):
            subscribe = pb.CommandSubscribe(subscription=name, subType=pb.CommandSubscribe.Exclusive, durable=True)
            cursor = await open_durable(self.ledger, name, position_before(self.ledger, position), properties)
            self.check_open()
            made = make_subscription(self, name, cursor, subscribe)
            self._keep(made)
            made.abandoned()

    async def delete_subscription_by_name(self, name: str, *, force: bool) -> None:
        """Delete a subscription by name. Raises SubscriptionNotFoundError, SubscriptionBusyError (it has consumers,
        without `force`), and as `delete_subscription`."""
        self.check_open()
        found = self.subscriptions.get(name)
        if found is None:
            raise SubscriptionNotFoundError(f"{self.name.full} has no subscription {name!r}")
        if found.consumers and not force:
            raise SubscriptionBusyError(f"subscription {name!r} of {self.name.full} has consumers")
        found.stop()
        found.disconnect_all()
        if self.subscriptions.get(name) is found:  # a non-durable one was removed with its consumers
            await self.delete_subscription(found)

    async def delete_subscription(self, subscription: Subscription) -> None:
        """Delete the subscription and its cursor durably.

        After ServiceNotReadyError the outcome is unknown, and the topic is loaded again to find out."""
        subscription.stop()

        async def delete() -> None:
            try:
                await delete_cursor(self.ledger, subscription)
            except ServiceNotReadyError:
                # Its cursor has stopped permanently; a new one has to be read from the store.
                self._close_soon(self)
                raise
            self._forget(subscription)
            self.used_at = trio.current_time()
            if self.transactions is not None:
                await self.transactions.delete(subscription.name)

        # Not in a task of the connection: if it breaks meanwhile, the deletion must still be completed.
        await see_through(self.nursery, delete, name=f"delete subscription {subscription.name}")

    def drop_if_unused(self, subscription: Subscription) -> None:
        """Remove a non-durable subscription after its last consumer, unless a seek disconnected it."""
        if not subscription.durable and not subscription.consumers and not subscription.seeking:
            subscription.stop()
            self.ledger.drop_reader_cursor(subscription.cursor)
            self.used_at = trio.current_time()
            self._forget(subscription)

    def _keep(self, subscription: Subscription) -> None:
        """Have the subscription, from the first of which on confirmed entries matter."""
        self.subscriptions = with_item(self.subscriptions, subscription.name, subscription)
        if not self.closing:
            self.ledger.add_waiter(self._entries_confirmed)

    def _forget(self, subscription: Subscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            self.subscriptions = without_item(self.subscriptions, subscription.name)

    def dispatch_limit(self, subscription: Subscription) -> DispatchLimit | None:
        """Return the rates that hold for a subscription; None: there are none."""
        return limit_of(self, subscription)

    def _entries_confirmed(self) -> None:
        for subscription in self.subscriptions.values():
            if subscription.hungry:
                subscription.pump()

    def check_unused(self) -> None:
        """Raise TopicBusyError if producers or consumers are connected."""
        limits.check_unused(self, len(self.producers), self.subscriptions.values())

    def check_subscriptions(self) -> None:
        """Raise NotAllowedError at the limit of subscriptions, with those being created."""
        limits.check_subscriptions(self, len(self.subscriptions) + len(self.creating or ()))

    def check_consumers(self, subscription: str, count: int) -> None:
        """Raise ConsumerBusyError at a limit of consumers (the subscription has `count`), or as `check_restored`."""
        check_restored(self)
        limits.check_consumers(self, subscription, count, self.subscriptions.values())

    def check_open(self) -> None:
        if self.closing:
            raise ServiceNotReadyError(f"topic {self.name.full} is being closed; look it up again")

    async def close(self) -> None:
        """Disconnect all clients, then close the managed ledger (which writes nothing if it has another owner).

        A producer gets its pending receipts first; what has no receipt, it sends again."""
        leaving = list(self.producers.values())
        for producer in leaving:
            self.end_producer(producer, End.UNLOADED)
        self.disconnect_all()
        waiting = trio.CancelScope()
        if leaving:  # skipped for thousands of silent topics
            self.nursery.start_soon(cut_later, waiting, leaving, RECEIPTS_GRACE_S, name=f"cut off {self.name.full}")
        try:
            if self.transactions is not None:
                await self.transactions.close()
            if self.deduplication is not None:
                self.deduplication.leave(self.ledger.last_confirmed)
            await self.ledger.close()
        finally:
            waiting.cancel()
            for producer in leaving:
                self.end_producer(producer, End.CUT)

    def abandon(self) -> None:
        """Disconnect all clients at once, because another broker has the topic. Nothing more is written."""
        self.disconnect_all()
        if self.transactions is not None:
            self.transactions.abandon()
        self.ledger.abandon()

    def disconnect_all(self) -> None:
        self.closing = True
        if self.access is not None:
            self.access.close()
        for producer in list(self.producers.values()):
            self.end_producer(producer, End.CUT)
        for subscription in list(self.subscriptions.values()):
            subscription.stop()
            subscription.disconnect_all()
        self.context.turn.flush()
        self.ledger.remove_waiter(self._entries_confirmed)
