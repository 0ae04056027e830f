"""The broker: its options, its connections, its topics, and its housekeeping tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING

import trio

from broker import replies
from broker.admin.administration import Administration
from broker.config import BrokerOptions
from broker.connections.connection import Connection
from broker.connections.creation import Creations
from broker.connections.handshake import refresh_expired
from broker.connections.lookup_counts import LookupCounts
from broker.connections.lookups import Lookups
from broker.connections.non_persistent import DirectCreations
from broker.connections.requests import request_table
from broker.connections.schemas import SchemaRequests
from broker.connections.topic_lists.namespaces import TopicListWatching
from broker.connections.topic_lists.watchers import Watchers
from broker.context import Context
from broker.counted import counted
from broker.errors import NoRoomError
from broker.explain.explain import Explain
from broker.ownership.bundles import Bundle
from broker.ownership.load_reports import TopicCounters
from broker.ownership.local import OwnEverything, Owning
from broker.security.authentication.authentication import Authentication
from broker.series.table import TopicSeries
from broker.slices import sliced
from broker.topics.compaction.due import compact_if_due
from broker.topics.exclusive import AnyTopic
from broker.topics.expiring import Expiring
from broker.topics.life.abandoned import AbandonedRestorations
from broker.topics.life.idle_topics import IdleTopics
from broker.topics.life.restorations import Restorations
from broker.topics.loaded_topics import Topics
from broker.topics.non_persistent.loaded import NonPersistentTopics
from broker.topics.policies import TopicPolicies
from broker.topics.quotas.checks import QuotaChecks
from broker.topics.topic import Topic
from broker.topics.topic_policies.change_events import ChangeEvents
from managed_ledger.config import LogConfig, ManagedLedgerConfig
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.writing.awaited import AwaitedAppend
from quire.metadata.store import MetadataStore
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import encode_entry
from quire.wire.pulsar.names import PERSISTENT, TopicName
from quire.world.doors import Stream, World
from quire.world.outbox import Turn

if TYPE_CHECKING:
    from broker.connections.permits.guard import Guard
    from broker.connections.permits.takeaway import Takeaway
    from broker.connections.transactions import TransactionRequests
    from broker.security.authorization.authorizer import Authorizer
    from broker.security.authorization.config import AuthorizationOptions
    from broker.transactions.service import TransactionService
    from broker.transactions.snapshots.store import Snapshots
    from broker.transactions.txn_id import TxnId

CONNECTIONS_IN_STEP = 500
TOPICS_IN_STEP = 200
"""Connections that a round of housekeeping looks at before other tasks run."""
HEALTH_ENTRY = encode_entry(b"healthcheck", producer_name="healthcheck")


def counters_of(topic: Topic) -> TopicCounters:
    """Return the counts of a loaded topic."""
    subscriptions = topic.subscriptions.values()
    return TopicCounters(
        topic.name,
        topic.messages_in,
        topic.bytes_in,
        sum(each.messages_out for each in subscriptions),
        len(topic.producers),
        sum(len(each.consumers) for each in subscriptions),
    )


class Broker:
    """Broker that serves topics; everything durable is in the managed ledgers and the metadata store."""

    def __init__(
        self,
        world: World,
        metadata: MetadataStore,
        factory: ManagedLedgerFactory,
        options: BrokerOptions,
        nursery: trio.Nursery,
        *,
        turn: Turn | None = None,
        service_url: str = "",
        incarnation: int = 0,
        ownership: Owning | None = None,
        policies: TopicPolicies | None = None,
        authorization: AuthorizationOptions | None = None,
        no_room: Callable[[], str] = str,
        authentication: Authentication | None = None,
    ) -> None:
        """Take the parts the broker uses.

        Args:
            no_room: returns why nothing can be published, "" otherwise.
            ownership: decides which topics are this broker's; the caller runs it. None: all topics are.
            authorization: None, or not enabled: every command is permitted.
            policies: the policies of topics, which the caller runs; None: they are read each time.
            authentication: check of clients' credentials; None: there is none.
        """
        self.context = Context(
            world,
            options,
            nursery,
            turn=turn,
            service_url=service_url,
            incarnation=incarnation,
            no_room=no_room,
            authentication=authentication,
            super_users=() if authorization is None else authorization.super_users,
        )
        self.metadata = metadata
        self._factory = factory
        self.caches, self.cursor_times = factory.budget, factory.cursor_times
        self.objects = factory.objects
        self.series: TopicSeries | None = None
        """Metrics of topics, which need rounds of their own; set by those who expose them."""
        self.ownership: Owning = ownership or OwnEverything(service_url)
        self.policies = policies or TopicPolicies(metadata, LogConfig.of(ManagedLedgerConfig()), options)
        self.topics = Topics(self.context, factory, metadata, self.ownership, self.policies)
        self.direct = NonPersistentTopics(
            self.context,
            self.ownership,
            self.policies,
            self.topics.first_use,
            self.topics.rates,
            self.topics.namespaces,
            self.topics.partitioned,
        )
        self.topics.following.also = self.direct.follow
        self.ownership.on_lost = self._lose
        self.ownership.on_unload = self._unload
        self.ownership.counters = self._counters
        self.change_events = ChangeEvents(self.context, metadata, self.topics)
        self.policies.source = self.change_events
        self.administration = Administration(self.topics, self.direct, metadata, nursery)
        self.explain = self.administration.explain = Explain(self.context)
        self.topics.partitioned.on_half_deleted = self.administration.finish_deletion
        self.expiring = Expiring(self.topics.loaded, self.policies, options)
        self.quotas = QuotaChecks(self.topics.loaded, options)
        self.administration.check_quotas = self.quotas.round
        delete = self.administration.delete_partitioned_topic
        wall_ms = world.clock.wall_ms
        abandoned = AbandonedRestorations(
            self.topics,
            self.ownership,
            Restorations(metadata, self.topics.partitioned, wall_ms),
            self.policies,
            options,
            wall_ms,
            delete_partitioned=delete,
            others=lambda: self.administration.others,
        )
        self.idle = IdleTopics(self.topics, self.policies, options, delete, abandoned)
        self.lookups = LookupCounts()
        self.topic_lists = TopicListWatching(self.context, metadata, self.topics.names)
        self._snapshots: Snapshots | None = None
        self.topics.keep_snapshots(self._snapshot_store)
        self.transactions: TransactionService | None = None
        requests: TransactionRequests | None = None
        if options.transactions:
            from broker.connections.transactions import TransactionRequests  # heavy, and off by default
            from broker.transactions.service import TransactionService

            snapshots = self._snapshot_store()
            self.transactions = TransactionService(
                self.context, self.topics, factory, metadata, self.ownership, snapshots
            )
            self.context.enable_transactions = self.transactions.enable
            self.topics.delete_acks = self.transactions.delete_acks
            self.administration.transactions = self.transactions
            requests = TransactionRequests(self.transactions)
        self.authorizer: Authorizer | None = None
        """Decisions about permissions; None: everything is permitted."""
        self.takeaway: Takeaway | None = None
        guard: Guard | None = None
        if authorization is not None and authorization.enabled:
            from broker.connections.permits.guard import Guard  # off by default
            from broker.connections.permits.takeaway import Takeaway
            from broker.security.authorization.authorizer import Authorizer

            self.authorizer = Authorizer(metadata, authorization)
            self.takeaway = Takeaway(self.authorizer)
            guard = Guard(self.authorizer, self._owner_of)
        self._requests = request_table(
            Lookups(self.topics, self.direct, self.ownership, self.lookups),
            Creations(
                self.topics,
                self.policies,
                DirectCreations(self.direct, self.topics.schemas),
                None if self.transactions is None else self.transactions.enable,
            ),
            SchemaRequests(self.topics, self.direct),
            Watchers(self.topic_lists),
            requests,
            guard,
        )
        self.health = -1
        """Result of the last health check: 1 healthy, 0 unhealthy, -1 none yet."""
        self.connections: dict[Connection, None] = {}
        self.closed = trio.Event()
        """Set when `begin_close` is done."""

    def _snapshot_store(self) -> Snapshots:
        """Return the store of snapshots of transactions, made at its first use."""
        if self._snapshots is None:
            from broker.transactions.snapshots.store import Snapshots  # imports the client

            self._snapshots = Snapshots(self.context, self.topics, self.metadata, self.ownership)
        return self._snapshots

    def _owner_of(self, txn: TxnId) -> str | None:
        return None if self.transactions is None else self.transactions.owner_of(txn)

    @property
    def service_url(self) -> str:
        """The broker's address, as given to clients."""
        return self.context.service_url

    @property
    def no_room(self) -> str:
        """Return why nothing can be published while the disk is full; "" otherwise."""
        return self.context.no_room()

    def start(self) -> None:
        """Start the housekeeping tasks in the broker's nursery."""
        self.context.nursery.start_soon(self.context.turn.run, name="end of turn")
        self.context.nursery.start_soon(self._keep_alive, name="keep alive")
        self.context.nursery.start_soon(self._compact, name="compaction monitor")
        if self.context.authentication is not None:
            self.context.nursery.start_soon(self._refresh, self.context.authentication, name="credentials")
        self.context.nursery.start_soon(self._measure, name="rates")
        if self.context.options.deduplication_check_interval_s:
            self.context.nursery.start_soon(self._keep_sequence_ids, name="deduplication snapshots")
        if self.transactions is not None:
            self.context.nursery.start_soon(self.transactions.run, name="transactions")
        if self.authorizer is not None and self.takeaway is not None:
            self.context.nursery.start_soon(self.authorizer.run, name="permissions")
            self.context.nursery.start_soon(self.takeaway.run, name="permissions taken away")

    async def handle(self, stream: Stream) -> None:
        """Serve one connection until it ends; the caller closes the stream."""
        connection = Connection(self.context, self._requests, stream)
        self.connections[connection] = None
        try:
            await connection.serve()
        finally:
            self.connections.pop(connection, None)

    async def client_partitions(self, name: TopicName) -> int:
        """Return the number of partitions that a client is to see, which may create the topic. Raises BrokerError."""
        topics = self.topics if name.domain == PERSISTENT else self.direct
        return await topics.partitions(name, create=True)

    def refuse(self, stream: Stream) -> None:
        """Send the reason to a connection above the limit, which the caller closes."""
        message = "the broker has reached its connection limit"
        stream.send_nowait((replies.error(replies.U64_MAX, pb.NotAllowedError, message),))

    async def _keep_alive(self) -> None:
        """Ping connections idle for one interval, and drop those idle for two or without a CONNECT in time.

        Also releases cache entries held for stalled subscriptions, logs why messages wait too long, refuses clients
        that wait too long for a topic to be loaded, and starts the checks for expired messages and subscriptions, and
        of backlogs."""
        interval = self.context.options.keep_alive_interval_s
        tick = min(interval, self.context.options.handshake_timeout_s) / 2
        while True:
            await trio.sleep(tick)
            async for connection in sliced(list(self.connections), CONNECTIONS_IN_STEP):
                if connection.closed:
                    continue
                silent = connection.silent_s()
                if not connection.connected:
                    # Counted from its opening: bytes that are no CONNECT do not extend the time.
                    if trio.current_time() - connection.opened_at >= self.context.options.handshake_timeout_s:
                        connection.abort("no CONNECT in time")
                elif silent >= 2 * interval:
                    connection.log.warning("connection dropped: silent", silent_s=round(silent, 1))
                    connection.abort("silent")
                elif silent >= interval and not connection.pinged:
                    connection.pinged = True
                    connection.ping()
                elif silent >= tick:
                    connection.rest()
            self.context.rare_lines.settle()
            if self.context.neighbours is not None:
                self.context.neighbours.sweep()
            self.explain.watch.begin()
            async for topic in sliced(self.topics.loaded(), TOPICS_IN_STEP):
                for subscription in topic.subscriptions.values():
                    subscription.release_tail()
                self.explain.watch.look(topic)
            self.explain.watch.end()
            self.topics.refuse_late()
            await self.direct.forget_unused()
            if self.expiring.is_due():
                self.context.nursery.start_soon(self.expiring.round, name="expiry")
            if self.quotas.is_due():
                self.context.nursery.start_soon(self.quotas.round, name="backlog quotas")
            if self.idle.is_due():
                self.context.nursery.start_soon(self.idle.round, name="idle topics")
            self.context.turn.flush()

    async def _refresh(self, authentication: Authentication) -> None:
        """Ask for newer credentials where they have expired, or end the connection."""
        while True:
            await trio.sleep(authentication.refresh_check_s)
            async for connection in sliced(list(self.connections), CONNECTIONS_IN_STEP):
                refresh_expired(connection)
            self.context.turn.flush()

    async def _keep_sequence_ids(self) -> None:
        """Take snapshots of deduplication that are due."""
        while True:
            await trio.sleep(self.context.options.deduplication_check_interval_s)
            async for topic in sliced(self.topics.loaded(), TOPICS_IN_STEP):
                if topic.deduplication is not None and not topic.closing:
                    topic.deduplication.tick(topic.ledger.last_confirmed)

    async def _measure(self) -> None:
        """Take the rates of everything that is loaded."""
        while True:
            await trio.sleep(self.context.options.stats_interval_s)
            topics: Iterable[AnyTopic] = chain(self.topics.loaded(), self.direct.loaded())
            for _ in self.context.measures.round(trio.current_time(), counted(topics)):
                await trio.lowlevel.checkpoint()
            async for topic in sliced(self.topics.loaded(), TOPICS_IN_STEP):
                if topic.published is not None:
                    topic.published.end_round()
                if topic.rates is not None:
                    topic.rates.measured(self.context.measures.of(topic), trio.current_time())
            if self.series is not None:
                for _ in self.series.round():
                    await trio.lowlevel.checkpoint()
                await self.series.ages.round(self.topics.loaded())

    async def _compact(self) -> None:
        """Compact the topics to which enough was added."""
        while True:
            await trio.sleep(self.context.options.compaction_check_interval_s)
            async for topic in sliced(self.topics.loaded(), TOPICS_IN_STEP):
                compact_if_due(topic)

    def options_changed(self, logs: ManagedLedgerConfig) -> None:
        """Obey the options as they are now, where something was made of them. `logs`: those of managed ledgers."""
        self.context.follow_options()
        self.topics.rates.follow()
        self.topics.partitioned.partitions_max = max(self.context.options.partitions_per_topic_max, 0)
        self._factory.options_changed(logs)
        self.policies.options_changed(LogConfig.of(logs))
        self.topics.following.everything()
        if self.authorizer is not None and self.takeaway is not None and self.authorizer.options_changed():
            self.takeaway.check_all(list(self.connections))

    def begin_close(self) -> None:
        """Begin to stop: close topics in the background, so that clients are notified before their connections are
        cut."""
        self.context.nursery.start_soon(self._close, name="close topics")

    def _counters(self) -> Iterable[TopicCounters]:
        return chain(map(counters_of, self.topics.loaded()), self.direct.counters())

    def _lose(self, bundle: Bundle) -> None:
        self.topics.lose(bundle)
        self.direct.lose(bundle)
        if self.transactions is not None:
            self.transactions.lose(bundle)

    async def _unload(self, bundle: Bundle, next_owner: str | None) -> None:
        if self.transactions is not None:
            await self.transactions.unload(bundle)
        await self.direct.unload(bundle, next_owner or "")
        await self.topics.unload(bundle, next_owner or "")
        self.context.turn.flush()

    async def _close(self) -> None:
        if self.transactions is not None:
            await self.transactions.close()
        await self.ownership.release_all()
        await self.direct.close_all()
        await self.topics.close_all()
        self.context.turn.flush()
        for connection in list(self.connections):
            connection.abort("the broker is stopping")
        self.closed.set()

    async def check_health(self) -> None:
        """Publish one message to this broker's own health topic and wait for its confirmation. Raises the failure."""
        try:
            await self._publish_health_entry()
        except BaseException:  # even if the caller's deadline has passed
            self.health = 0
            raise
        self.health = 1

    async def _publish_health_entry(self) -> None:
        if why := self.context.no_room():
            raise NoRoomError(why)
        name = TopicName.parse(self.ownership.health_topic)
        await self.ownership.lookup(name, authoritative=True)  # takes its bundle if it has no owner
        topic = await self.topics.get(name)
        sink = AwaitedAppend()
        topic.ledger.append([HEALTH_ENTRY], sink)
        await sink.done.wait()
        if sink.error is not None:
            raise sink.error
