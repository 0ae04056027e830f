"""Each key that can be changed while a broker runs: what is done changes with it, in a broker that runs already.

A probe finds the broker doing one thing, changes a key, and finds it doing another. The last test says that each
dynamic key has a probe."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing

from broker.dynamic.conf import DynamicConf
from broker.entry_filters import EntryFilter, FilteredEntry, FilterResult
from broker.entry_filters.loading import EntryFilters
from broker.errors import PartitionCountError
from broker.ownership.affinity.rules import PlacementRules
from broker.ownership.affinity.spread import Spread
from broker.ownership.affinity.store import GROUP, Affinity, FailureDomains
from broker.ownership.balance import Balancer, Reporter
from broker.ownership.config import OwnershipOptions
from broker.ownership.isolation import Isolation
from broker.ownership.isolation_store import IsolationStore
from broker.ownership.load import to_split
from broker.ownership.load_reports import should_report
from broker.ownership.namespaces import Namespaces
from broker.ownership.values import BrokerReport, BundleLoad, LocalBroker
from broker.security.authorization.config import AuthorizationOptions
from broker.topics.rates.group_following import GroupFollowing
from broker.topics.rates.groups import ResourceGroup, ResourceGroups
from managed_ledger.managed_ledger import ManagedLedger
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.broker.config import BROKER, BrokerConfig
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.admin.cluster_fakes import on_cluster
from tests.unit.broker.ownership.cluster import TOPIC as OWNED
from tests.unit.broker.ownership.cluster import Host, in_cluster
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker
from tests.unit.managed_ledger.fake_ledgers import fake_world

NAME = TopicName.parse(TOPIC)
PLACE = "persistent://public/default"
EARLIEST: dict[str, Any] = {"initialPosition": pb.CommandSubscribe.Earliest}


class Live:
    """A configuration that changes, and the broker that has it, if there is one."""

    def __init__(self, **values: Any) -> None:
        self.conf: DynamicConf[BrokerConfig] = DynamicConf(BROKER, BROKER.build({"clusterName": "c", **values}))
        self.room: Room
        self.changed: Callable[[], None] = lambda: None
        self._stored: dict[str, str] = {}

    @property
    def ownership(self) -> OwnershipOptions:
        return self.conf.config.ownership

    async def set(self, key: str, text: str) -> None:
        """Change a value, as the watch of a broker does."""
        self._stored[key] = text
        found = self.conf.obey(self._stored)
        assert not found.problems, found.problems
        assert found.changed == {key}
        self.changed()
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def served(authorization: bool = False, log: dict[str, Any] | None = None, **values: Any) -> AsyncIterator[Live]:
    live = Live(**values)
    config = live.conf.config
    roles: AuthorizationOptions | None = config.authorization if authorization else None
    async with in_broker(live=config.broker, authorization=roles, log=log or {}) as live.room:
        live.room.factory.options_changed(config.logs)
        live.changed = partial(live.room.broker.options_changed, config.logs)
        yield live


Probe = Callable[[str], Awaitable[None]]
PROBES: dict[str, Probe] = {}


def probe(*keys: str) -> Callable[[Probe], Probe]:
    def add(function: Probe) -> Probe:
        for key in keys:
            assert key not in PROBES, key
            PROBES[key] = function
        return function

    return add


# Topics and their clients


@probe("allowAutoTopicCreation")
async def first_use_makes_a_topic(key: str) -> None:
    async with served() as live:
        peer = await live.room.connect()
        await peer.producer(f"{PLACE}/one")
        await live.set(key, "false")
        assert await peer.refused_producer(f"{PLACE}/two", 2) == pb.TopicNotFound


@probe("allowAutoTopicCreationType", "defaultNumPartitions")
async def first_use_makes_partitions(key: str) -> None:
    of_type = key == "allowAutoTopicCreationType"
    values: dict[str, Any] = {} if of_type else {"allowAutoTopicCreationType": "partitioned"}
    async with served(**values) as live:
        count = live.room.broker.client_partitions
        before = await count(TopicName.parse(f"{PLACE}/one"))
        await live.set(key, "partitioned" if of_type else "3")
        assert (before, await count(TopicName.parse(f"{PLACE}/two"))) == ((0, 1) if of_type else (1, 3))


@probe("maxTopicsPerNamespace")
async def a_namespace_is_full(key: str) -> None:
    async with served() as live:
        peer = await live.room.connect()
        await peer.producer(f"{PLACE}/one")
        await live.set(key, "1")
        assert await peer.refused_producer(f"{PLACE}/two", 2) == pb.NotAllowedError
        await live.set(key, "2")
        await peer.producer(f"{PLACE}/two", 3)


@probe("maxNumPartitionsPerPartitionedTopic")
async def partitions_are_too_many(key: str) -> None:
    async with served() as live:
        create = live.room.broker.administration.create_partitioned_topic
        await create(TopicName.parse(f"{PLACE}/one"), 5)
        await live.set(key, "4")
        with pytest.raises(PartitionCountError):
            await create(TopicName.parse(f"{PLACE}/two"), 5)


@probe("allowAutoSubscriptionCreation", "subscriptionTypesEnabled", "subscriptionKeySharedEnable")
async def a_subscription_is_refused(key: str) -> None:
    text = "Exclusive" if key == "subscriptionTypesEnabled" else "false"
    kind: dict[str, Any] = {"subType": SUB.Key_Shared}
    async with served() as live:
        peer = await live.room.connect()
        await peer.subscribe(**kind)
        await live.set(key, text)
        refused = await peer.refused_consumer(name="t", consumer_id=2, **kind)
        assert refused in (pb.NotAllowedError, pb.SubscriptionNotFound)


@probe("isAllowAutoUpdateSchemaEnabled")
async def a_schema_is_refused(key: str) -> None:
    schema = pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)
    async with served() as live:
        peer = await live.room.connect()
        await peer.producer(f"{PLACE}/one", schema=schema)
        await live.set(key, "false")
        assert await peer.refused_producer(f"{PLACE}/two", 2, schema=schema) == pb.IncompatibleSchema


@probe("subscribeThrottlingRatePerConsumer", "subscribeRatePeriodPerConsumerInSecond")
async def attempts_to_subscribe_are_counted(key: str) -> None:
    of_rate = key == "subscribeThrottlingRatePerConsumer"
    values: dict[str, Any] = {} if of_rate else {"subscribeThrottlingRatePerConsumer": 1}
    async with served(**values) as live:
        peer = await live.room.connect()
        await peer.subscribe()
        await live.set(key, "1" if of_rate else "5")
        codes = []
        for wait_s in (0, 0, 6):
            await trio.sleep(wait_s)
            await peer.end_consumer()
            peer.ask_subscribe()
            command, _ = await peer.receive()
            codes.append(command.type)
            if command.type == C.ERROR:
                peer.ask_subscribe(name="other", consumer_id=9)  # so that there is one to end
                await peer.receive()
                peer.close_consumer(9)
                await peer.receive()
        assert codes[:2] == [C.SUCCESS, C.ERROR]
        assert codes[2] == (C.ERROR if of_rate else C.SUCCESS)


async def seconds(action: Awaitable[object]) -> float:
    began = trio.current_time()
    await action
    return trio.current_time() - began


async def publish_slowly(peer: Peer, first: int) -> None:
    for number in range(4):
        await peer.publish(b"x" * 10, first=first + number)


@probe(
    "maxPublishRatePerTopicInMessages",
    "maxPublishRatePerTopicInBytes",
    "brokerPublisherThrottlingMaxMessageRate",
    "brokerPublisherThrottlingMaxByteRate",
)
async def publishers_are_held(key: str) -> None:
    async with served() as live:
        peer = await live.room.connect()
        await peer.producer()
        assert await seconds(publish_slowly(peer, 0)) < 0.5
        await live.set(key, "10" if "Byte" in key else "1")
        assert await seconds(publish_slowly(peer, 10)) > 1.5
        await live.set(key, "0")
        assert await seconds(publish_slowly(peer, 20)) < 0.5


@probe(
    "dispatchThrottlingRateInMsg",
    "dispatchThrottlingRateInByte",
    "dispatchThrottlingRatePerTopicInMsg",
    "dispatchThrottlingRatePerTopicInByte",
    "dispatchThrottlingRatePerSubscriptionInMsg",
    "dispatchThrottlingRatePerSubscriptionInByte",
)
async def delivery_is_held(key: str) -> None:
    async with served() as live:
        peer = await live.room.connect()
        await peer.subscribe()
        await peer.producer()
        await peer.publish(*[b"x" * 10] * 10)
        peer.flow(5)
        assert await seconds(peer.payloads(5)) < 0.5
        await live.set(key, "10" if "Byte" in key else "1")
        peer.flow(5)
        assert await seconds(peer.payloads(5)) > 2


@probe("dispatchThrottlingOnNonBacklogConsumerEnabled", "dispatchThrottlingOnBatchMessageEnabled")
async def what_counts_in_rates_of_delivery(key: str) -> None:
    batched = key == "dispatchThrottlingOnBatchMessageEnabled"
    fields = {"num_messages_in_batch": 5} if batched else {}
    async with served(dispatchThrottlingRatePerTopicInMsg=1) as live:
        peer = await live.room.connect()
        await peer.subscribe(permits=1000)
        await peer.producer()

        async def deliver(first: int) -> float:
            for number in range(4):
                peer.send_message(b"x", first + number, **fields)
            got, began, last = 0, trio.current_time(), 0.0
            for _ in range(8):
                command, _ = await peer.receive()
                if command.type == C.MESSAGE:
                    got, last = got + 1, trio.current_time()
            assert got == 4
            return last - began

        before = await deliver(0)
        await peer.silent(60)
        await live.set(key, "true" if batched else "false")
        after = await deliver(10)
        assert before > (10 if batched else 2)
        assert after < (6 if batched else 0.5)


async def left_alone(room: Room, name: str, *, subscription: bool = False) -> None:
    """Use a topic, and leave it."""
    peer = await room.connect()
    topic = f"{PLACE}/{name}"
    if subscription:
        await peer.subscribe(topic)
        await peer.end_consumer()
    await peer.producer(topic)
    await peer.end_producer()


def exists(room: Room, name: str) -> bool:
    return room.broker.topics.find(TopicName.parse(f"{PLACE}/{name}")) is not None


@probe("brokerDeleteInactiveTopicsEnabled")
async def unused_topics_stay(key: str) -> None:
    async with served() as live:
        await left_alone(live.room, "one")
        await live.set(key, "false")
        await trio.sleep(300)
        assert exists(live.room, "one")
        await live.set(key, "true")
        await trio.sleep(300)
        assert not exists(live.room, "one")


@probe("brokerDeleteInactiveTopicsMode")
async def topics_with_a_subscription_go(key: str) -> None:
    async with served() as live:
        await left_alone(live.room, "one")
        await left_alone(live.room, "two", subscription=True)
        await trio.sleep(300)
        assert (exists(live.room, "one"), exists(live.room, "two")) == (False, True)
        await live.set(key, "delete_when_subscriptions_caught_up")
        await trio.sleep(300)
        assert not exists(live.room, "two")


@probe("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "brokerDeleteInactiveTopicsFrequencySeconds")
async def unused_topics_stay_longer(key: str) -> None:
    async with served() as live:
        await left_alone(live.room, "one")
        await live.set(key, "1000")
        await trio.sleep(300)
        assert exists(live.room, "one")
        await live.set(key, "10")
        await trio.sleep(100)
        assert not exists(live.room, "one")


@probe("brokerDeleteInactivePartitionedTopicMetadataEnabled")
async def a_partitioned_topic_goes_with_its_partitions(key: str) -> None:
    async with served() as live:
        for name, count in (("one", 1), ("two", 0)):
            whole = TopicName.parse(f"{PLACE}/{name}")
            await live.room.broker.administration.create_partitioned_topic(whole, 1)
            await left_alone(live.room, f"{name}-partition-0")
            await trio.sleep(300)
            assert not exists(live.room, f"{name}-partition-0")
            assert await live.room.broker.administration.partitions(whole) == count
            if count:
                await live.set(key, "true")


# Delivery


@probe("dispatcherMaxReadBatchSize", "dispatcherMaxReadSizeBytes")
async def reads_are_smaller(key: str) -> None:
    asked: list[tuple[int, int]] = []
    read = ManagedLedger.read_cached

    def noted(self: ManagedLedger, position: Any, entries: int, size: int, **options: Any) -> Any:
        asked.append((entries, size))
        return read(self, position, entries, size, **options)

    async with served() as live:
        peer = await live.room.connect()
        await peer.subscribe(permits=1000)
        await peer.producer()
        with patch.object(ManagedLedger, "read_cached", noted):
            await peer.publish(b"1")
            await live.set(key, "3")
            before = asked.pop()
            peer.send_message(b"2", 1)
            await until(lambda: len(asked) > 1)
        index = int(key.endswith("Bytes"))
        assert before[index] > 3
        assert asked[-1][index] == 3


@probe("dispatcherMaxRoundRobinBatchSize")
async def turns_are_shorter(key: str) -> None:
    for place in (PLACE, "non-persistent://public/default"):
        async with served() as live:
            peer = await live.room.connect()
            topic = f"{place}/one"
            for number in (1, 2):
                await peer.subscribe(topic, consumer_id=number, permits=100, subType=SUB.Shared)
            await peer.producer(topic)
            shares = []
            for first in (0, 10):
                for number in range(4):
                    peer.send_message(b"x", first + number)
                frames = [(await peer.receive())[0] for _ in range(8)]
                got = [each.message.consumer_id for each in frames if each.type == C.MESSAGE]
                shares.append(sorted(got.count(each) for each in (1, 2)))
                await live.set(key, "1" if first == 0 else "2")
            assert shares == [[0, 4], [2, 2]], place


class Later(EntryFilter):
    """Offers each entry twice."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def filter_entry(self, entry: FilteredEntry) -> FilterResult:
        if entry.entry_id in self.seen:
            return FilterResult.ACCEPT
        self.seen.add(entry.entry_id)
        return FilterResult.RESCHEDULE


@probe("dispatcherEntryFilterRescheduledMessageDelay")
async def rescheduled_entries_wait_longer(key: str) -> None:
    async with served() as live:
        live.room.broker.context.filters = EntryFilters((Later(),))
        live.changed()
        peer = await live.room.connect()
        await peer.subscribe(permits=10)
        await peer.producer()
        await peer.publish(b"1")
        assert await seconds(peer.payloads(1)) < 1.5
        await live.set(key, "5000")
        await peer.publish(b"2", first=1)
        assert await seconds(peer.payloads(1)) > 4.5


@probe("keySharedLookAheadMsgInReplayThresholdPerConsumer", "keySharedLookAheadMsgInReplayThresholdPerSubscription")
async def fewer_messages_are_looked_at(key: str) -> None:
    async with served() as live:
        peer = await live.room.connect()
        await peer.subscribe(subType=SUB.Key_Shared)
        subscription = (await live.room.topic()).subscriptions["s"]
        before = subscription.lookahead()
        await live.set(key, "7")
        assert (before, subscription.lookahead()) == (2000, 7)


@probe("dispatcherPauseOnAckStatePersistentEnabled")
async def nothing_new_is_delivered_above_the_ranges_that_are_stored(key: str) -> None:
    async with served(log={"cursors": {"ranges_max": 1}}, managedLedgerMaxUnackedRangesToPersist="1") as live:
        peer = await live.room.connect()
        await peer.subscribe(subType=SUB.Shared, permits=100)
        await peer.producer()
        await peer.publish(b"1", b"2", b"3", b"4")
        ids = [(await peer.message())[0].message_id for _ in range(4)]
        peer.ack(ids[1], ids[3])
        await peer.publish(b"5", first=10)
        assert (await peer.message())[1] == b"5"
        await live.set(key, "true")
        await peer.publish(b"6", first=20)
        await peer.silent()


@probe("maxMessagePublishBufferSizeInMB")
async def more_may_be_published_at_once(key: str) -> None:
    async with served() as live:
        publishing, event = live.room.broker.context.publishing, trio.Event()
        publishing.take(40 << 20)
        publishing.tell(event)
        assert not publishing.is_low
        await live.set(key, "128")
        assert event.is_set(), "connections read on"


@asynccontextmanager
async def cached(size_mb: int) -> AsyncIterator[tuple[Live, Peer]]:
    """Serve a topic whose subscription has read nothing, so that the cache keeps what is published."""
    aged: dict[str, Any] = {"managedLedgerCacheEvictionTimeThresholdMillis": 10**9}
    async with served(managedLedgerCacheSizeMB=size_mb, maxMessageSize=1 << 20, **aged) as live:
        peer = await live.room.connect()
        await peer.subscribe()
        await peer.producer()
        for number in range(2):
            await peer.publish(b"x" * 500_000, first=number)
        assert live.room.factory.budget.used > 900_000
        yield live, peer


@probe("managedLedgerCacheSizeMB")
async def the_cache_is_smaller(key: str) -> None:
    async with cached(9) as (live, peer):
        await peer.publish(b"x" * 500_000, first=2)
        assert live.room.factory.budget.used > 1 << 20
        await live.set(key, "1")
        assert live.room.factory.budget.used < 1 << 20


@probe("managedLedgerCacheEvictionWatermark")
async def more_is_evicted_at_once(key: str) -> None:
    async with cached(1) as (live, peer):
        await live.set(key, "0.1")
        await peer.publish(b"x" * 500_000, first=2)
        assert live.room.factory.budget.used < 200_000


@probe("managedLedgerCacheEvictionTimeThresholdMillis")
async def the_cache_forgets_sooner(key: str) -> None:
    async with cached(9) as (live, peer):
        assert await peer.silent(30)
        assert live.room.factory.budget.used
        await live.set(key, "1")
        await trio.sleep(10)
        assert not live.room.factory.budget.used


# Permissions


@probe("superUserRoles")
async def a_role_is_a_super_user(key: str) -> None:
    async with served(authorization=True, authorizationEnabled=True, authenticationEnabled=True) as live:
        peer = await live.room.connect(role="app")
        assert await peer.refused_producer() == pb.AuthorizationError
        await live.set(key, "admin,app")
        await peer.producer(producer_id=2)
        await live.set(key, "admin")
        with trio.fail_after(1):
            await peer.expect(C.CLOSE_PRODUCER)


# The admin REST


@probe("forceDeleteNamespaceAllowed", "forceDeleteTenantAllowed")
async def deletion_by_force_is_allowed(key: str) -> None:
    live = Live()
    deletion = live.conf.config.deletion
    async with on_cluster(
        force_delete_namespace=lambda: deletion.force_namespace, force_delete_tenant=lambda: deletion.force_tenant
    ) as rest:
        rest.administration.partitioned_names = []
        path = "namespaces/public/default" if "Namespace" in key else "tenants/public"
        assert await rest.status("DELETE", f"/admin/v2/{path}?force=true") == 405
        await live.set(key, "true")
        assert await rest.status("DELETE", f"/admin/v2/{path}?force=true") == 204


# Bundles


def report(name: str, **loads: BundleLoad) -> BrokerReport:
    broker = LocalBroker(id=name, broker_url=f"pulsar://{name}:1", web_url=f"http://{name}:2")
    return BrokerReport(broker=broker, bundles=loads)


class Led:
    """Two brokers, of which one has all the load, as a balancer sees them."""

    def __init__(self, options: OwnershipOptions, load: BundleLoad) -> None:
        names = [f"public/default/0x{each:08x}_0x{each + 1:08x}" for each in range(4)]
        self.options = options
        self.brokers = self.affinity = self.namespaces = self.peers = self
        self.is_leader = True
        self.reports = {"a": report("a", **dict.fromkeys(names, load)), "b": report("b")}
        self.me = self.reports["a"].broker
        self.done: list[tuple[float, str]] = []

    async def rules(self, placed: object) -> PlacementRules:
        await trio.lowlevel.checkpoint()
        return PlacementRules(Isolation(), Spread({}))

    async def bundles(self, namespace: NamespaceName) -> list[int]:
        await trio.lowlevel.checkpoint()
        return [0] * 4

    async def unload(self, bundle: object, *, destination: str | None = None) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append((trio.current_time(), "move"))

    async def split(self, bundle: object, **options: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append((trio.current_time(), "split"))


@asynccontextmanager
async def leading(load: BundleLoad, **values: Any) -> AsyncIterator[tuple[Live, Led]]:
    live = Live(**values)
    led = Led(live.ownership, load)
    made: Any = led
    balancer = Balancer(made)
    live.changed = balancer.options_changed
    async with trio.open_nursery() as nursery:
        nursery.start_soon(balancer.run)
        yield live, led
        nursery.cancel_scope.cancel()


BUSY, LARGE = BundleLoad(topics=2, messages_in=100.0), BundleLoad(topics=5000)


@probe("loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled")
async def bundles_stay(key: str) -> None:
    async with leading(BUSY if "Shedding" in key else LARGE) as (live, led):
        await live.set(key, "false")
        await trio.sleep(300)
        assert not led.done
        await live.set(key, "true")
        await trio.sleep(300)
        assert led.done


@probe("loadBalancerSheddingIntervalMinutes")
async def the_leader_looks_sooner(key: str) -> None:
    async with leading(BUSY, **{key: 500}) as (live, led):
        await trio.sleep(300)
        assert not led.done
        await live.set(key, "1")
        await trio.sleep(61)
        assert led.done


@probe("loadBalancerSheddingGracePeriodMinutes")
async def moved_bundles_rest(key: str) -> None:
    async with leading(BUSY, **{key: 600}) as (live, led):
        await trio.sleep(600)
        count = len(led.done)
        assert count
        await live.set(key, "1")
        await trio.sleep(600)
        assert len(led.done) > count


@probe("loadBalancerBrokerThresholdShedderPercentage")
async def more_load_is_borne(key: str) -> None:
    async with leading(BUSY, **{key: 1000}) as (live, led):
        await trio.sleep(300)
        assert not led.done
        await live.set(key, "10")
        await trio.sleep(300)
        assert led.done


@probe(
    "loadBalancerNamespaceBundleMaxTopics",
    "loadBalancerNamespaceBundleMaxSessions",
    "loadBalancerNamespaceBundleMaxMsgRate",
    "loadBalancerNamespaceBundleMaxBandwidthMbytes",
)
async def smaller_bundles_are_too_large(key: str) -> None:
    live = Live()
    load = BundleLoad(topics=10, producers=10, messages_in=10.0, bytes_in=10 << 20)
    brokers = {"a": report("a", **{"public/default/x": load})}
    assert to_split(brokers, {"public/default": 1}, live.ownership) == []
    await live.set(key, "9")
    assert to_split(brokers, {"public/default": 1}, live.ownership) == [("public/default/x", "a")]


@probe("loadBalancerNamespaceMaximumBundles")
async def a_namespace_has_enough_bundles(key: str) -> None:
    live = Live()
    brokers = {"a": report("a", **{"public/default/x": LARGE})}
    assert to_split(brokers, {"public/default": 4}, live.ownership)
    await live.set(key, "4")
    assert not to_split(brokers, {"public/default": 4}, live.ownership)


@probe("loadBalancerReportUpdateMaxIntervalMinutes", "loadBalancerReportUpdateThresholdPercentage")
async def changes_are_reported_sooner(key: str) -> None:
    live = Live()
    before, now = {"x": BundleLoad(messages_in=1000.0)}, {"x": BundleLoad(messages_in=1050.0)}
    assert not should_report(before, now, 120.0, live.ownership)
    await live.set(key, "1")
    assert should_report(before, now, 120.0, live.ownership)


@probe("loadBalancerReportUpdateMinIntervalMillis")
async def load_is_measured_more_often(key: str) -> None:
    live = Live(**{key: 1_000_000})
    reporter = Reporter(LocalBroker("a:1", "pulsar://a:1", "http://a:1"), live.ownership, fake_world().clock)
    live.changed = reporter.changed
    measured: list[float] = []

    def counters() -> list[Any]:
        measured.append(trio.current_time())
        return []

    brokers: Any = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reporter.run, brokers, counters, lambda name: None, list)
        await trio.sleep(500)
        assert not measured
        await live.set(key, "1000")
        await trio.sleep(10)
        assert len(measured) > 5
        nursery.cancel_scope.cancel()


@probe("defaultNumberOfNamespaceBundles")
async def new_namespaces_have_more_bundles(key: str) -> None:
    live, store = Live(), MemoryStore(MemoryTree())
    await store.create("/admin/policies/public", b"{}", make_parents=True)
    namespaces = Namespaces(store, live.ownership)
    counts = []
    for name, text in (("one", "7"), ("two", "8")):
        namespace = NamespaceName("public", name)
        await namespaces.create(namespace)
        counts.append(len(await namespaces.bundles(namespace)))
        await live.set(key, text)
    assert counts == [4, 7]


@probe("namespaceBundleUnloadingTimeoutMs")
async def unloading_gives_up_sooner(key: str) -> None:
    live = Live()
    async with in_cluster() as cluster:
        host = Host(cluster, "a", replace(live.ownership))
        object.__setattr__(live.conf, "config", replace(live.conf.config, ownership=host.ownership.options))
        cluster.network.hosts[host.me.broker_url] = cluster.network.hosts[host.me.web_url] = host
        await cluster.nursery.start(host.run)
        host.closing_s = 1000.0
        taken = []
        for text in ("5000", "6000"):
            await host.lookup(OWNED)
            [bundle] = host.ownership.owned()
            taken.append(await seconds(host.ownership.unload(bundle)))
            await live.set(key, text)
        assert taken[0] > 50
        assert taken[1] < 10


@probe("resourceUsageTransportPublishIntervalInSecs")
async def resource_groups_are_shared_more_often(key: str) -> None:
    live, looks = Live(), list[float]()

    class Groups(ResourceGroups):
        def limited(self) -> list[ResourceGroup]:
            looks.append(trio.current_time())
            return []

    async with trio.open_nursery() as nursery:
        following = GroupFollowing(MemoryStore(MemoryTree()), Groups(nursery), lambda: None)
        interval_s = lambda: live.ownership.resource_usage_interval_s  # noqa: E731 - as the process has it
        nursery.start_soon(following.share, "a:1", dict, interval_s)
        await until(lambda: len(looks) == 2, within=200)
        await live.set(key, "5")
        await until(lambda: len(looks) == 4, within=200)
        nursery.cancel_scope.cancel()
    assert [round(after - before) for before, after in itertools.pairwise(looks)] == [60, 60, 5]


@probe("failureDomainsEnabled")
async def domains_count(key: str) -> None:
    live, store = Live(), MemoryStore(MemoryTree())
    await store.create("/admin/policies/public", b"{}", make_parents=True)
    namespaces = Namespaces(store, live.ownership)
    for name in ("one", "two"):
        namespace = NamespaceName("public", name)
        await namespaces.create(namespace)
        await namespaces.update_local(namespace, lambda fields: {**fields, GROUP: "g"})
    options = live.ownership
    object.__setattr__(options, "cluster_name", "c")
    affinity = Affinity(store, namespaces, IsolationStore(store), options)
    await FailureDomains(store).put("c", "east", {"brokers": ["a:1", "b:1"]})
    placed = {"a:1": {"public/one/x"}, "b:1": set(), "c:1": set()}
    found = []
    for text in ("true", "false"):
        rules = await affinity.rules_for(NamespaceName("public", "two"), placed)
        found.append(rules.allowed("public/two/x", placed))
        await live.set(key, text)
    assert found == [{"b:1", "c:1"}, {"c:1"}]


@pytest.mark.parametrize("key", sorted(PROBES))
async def test_a_key_has_its_effect_while_the_broker_runs(key: str) -> None:
    await PROBES[key](key)


def test_each_key_that_can_be_changed_has_a_probe() -> None:
    assert sorted(PROBES) == Live().conf.names()
