"""Brokers of one cluster: their answers to lookups, the bundles they take, and the end of a broker."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import trio

from broker.errors import MetadataUnavailableError, TopicNotFoundError
from broker.ownership.bundles import even
from broker.ownership.errors import (
    BeingUnloadedError,
    BundlesChangedError,
    BundleSplitError,
    NoBrokerError,
    NoSuchBundleError,
    NotOwnerError,
)
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.namespaces import heartbeat_namespace
from broker.ownership.peers import topic_in
from broker.ownership.values import decode_owner
from quire.metadata.store import Changed, Watch
from quire.service.log import Event
from quire.wire.pulsar.names import TopicName
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.broker.ownership.cluster import (
    NAMESPACE,
    OPTIONS,
    SESSION_S,
    TOPIC,
    Cluster,
    Host,
    counters,
)

BUNDLE = even(NAMESPACE, 4).find(TOPIC)


async def owned_by(host: Host, name: TopicName = TOPIC) -> None:
    """Give the topic's bundle to `host`."""
    assert (await host.lookup(name, authoritative=True)).mine


async def test_a_broker_alone_takes_what_it_is_asked_for_and_answers_at_once_from_then_on(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a")
    assert not a.ownership.owns(TOPIC)
    assert await a.lookup() == Connect(a.me.broker_url, a.me.web_url, mine=True)
    assert a.ownership.owns(TOPIC)
    assert a.ownership.owned() == [BUNDLE]
    assert a.ownership.bundle_of(TOPIC) == BUNDLE
    await a.ownership.check(TOPIC)
    await raises(TopicNotFoundError, a.lookup(TopicName.parse("public/none/t")))


async def test_every_broker_answers_with_the_owner(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(b)
    for authoritative in (False, True):
        assert await a.lookup(authoritative=authoritative) == Connect(b.me.broker_url, b.me.web_url, mine=False)
    await raises(NotOwnerError, a.ownership.check(TOPIC), match=r"not served by this instance.*redo the lookup")


async def test_a_free_bundle_leads_to_the_leader_who_leads_to_the_least_loaded_who_takes_it(cluster: Cluster) -> None:
    a, b, c = await cluster.start_many("a", "b", "c")
    assert await c.lookup() == Redirect(a.me.broker_url, a.me.web_url, authoritative=False)
    others = [topic_in(bundle) for bundle in even(NAMESPACE, 4).all()]
    answers = [await a.lookup(name) for name in others[:3]]
    assert answers[0] == Connect(a.me.broker_url, a.me.web_url, mine=True)
    assert answers[1] == Redirect(b.me.broker_url, b.me.web_url, authoritative=True)
    assert answers[2] == Redirect(c.me.broker_url, c.me.web_url, authoritative=True)
    assert (await b.lookup(others[1], authoritative=True)).mine


async def test_bundles_asked_for_by_many_at_once_have_one_owner_each(cluster: Cluster) -> None:
    hosts = await cluster.start_many("a", "b", "c")
    names = [TopicName.parse(f"t{number}") for number in range(30)]
    found: dict[str, set[str]] = {}

    async def ask(host: Host, name: TopicName) -> None:
        answer = await host.lookup(name, authoritative=True)
        assert isinstance(answer, Connect)
        found.setdefault(name.full, set()).add(answer.broker_url)

    async with trio.open_nursery() as nursery:
        for name in names:
            for host in hosts:
                nursery.start_soon(ask, host, name)
    assert all(len(owners) == 1 for owners in found.values())
    assert sum(len(host.ownership.owned()) for host in hosts) == 4


async def test_a_lookup_waits_for_the_session_of_a_killed_owner_and_then_has_the_next_one(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    assert (await b.lookup()).broker_url == a.me.broker_url
    a.kill()
    await trio.sleep(1.5)  # the answer of a moment ago is no longer used
    killed_at = trio.current_time() - 1.5
    assert await b.lookup() == Connect(b.me.broker_url, b.me.web_url, mine=True)
    assert SESSION_S - 0.1 < trio.current_time() - killed_at < SESSION_S + 0.5
    await until(lambda: b.ownership.brokers.is_leader, within=1)


async def test_a_lookup_that_comes_before_the_owner_s_death_is_known_waits_too(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    a.kill()
    assert (await b.lookup()).mine
    assert cluster.network.connections < 40


async def test_an_owner_that_hangs_is_not_sent_clients_to_but_is_if_it_goes_on(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    cluster.network.hangs.add(a.me.broker_url)
    found: list[object] = []

    async def ask() -> None:
        found.append(await b.lookup())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(5)
        assert found == []
        cluster.network.hangs.clear()
    assert found == [Connect(a.me.broker_url, a.me.web_url, mine=False)]


async def test_a_lookup_does_not_wait_for_a_hanging_owner_any_longer_than_it_is_the_owner(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b", probe_timeout_s=100.0)
    await owned_by(a)
    cluster.network.hangs.add(a.me.broker_url)
    a.metadata.disconnect()
    cut_at = trio.current_time()
    assert (await b.lookup(authoritative=True)).mine
    assert trio.current_time() - cut_at < SESSION_S + 0.5


async def test_an_unload_is_ended_though_whoever_asked_for_it_goes_away(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a")
    await owned_by(a)
    a.closing_s = 1.0
    with trio.move_on_after(0.1):
        await a.ownership.unload(BUNDLE)
    await until(lambda: a.ownership.owned() == [], within=2)
    await trio.sleep(0.1)
    assert await cluster.owner(BUNDLE) is None


async def test_a_lookup_is_given_up_when_its_time_is_over(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b", lookup_timeout_s=5.0)
    await owned_by(a)
    a.closing_s = 50.0
    cluster.nursery.start_soon(a.ownership.unload, BUNDLE)
    await trio.sleep(0.1)
    for host in (a, b):
        await raises(BeingUnloadedError, host.lookup(), match="being unloaded")


async def test_what_is_held_is_served_without_the_metadata_service_and_nothing_is_taken(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    a.metadata.disconnect()
    b.metadata.disconnect()
    await trio.sleep(60)
    assert (await a.lookup()).mine
    assert a.ownership.owns(TOPIC)
    free = topic_in(even(NAMESPACE, 4).all()[0])
    await raises(MetadataUnavailableError, a.lookup(free, authoritative=True))
    await raises(MetadataUnavailableError, a.ownership.check(TOPIC))
    a.metadata.reconnect()
    b.metadata.reconnect()
    await trio.sleep(2)
    await a.ownership.check(TOPIC)
    assert a.lost == []
    assert (await b.lookup()).broker_url == a.me.broker_url


async def test_an_owner_that_was_cut_off_and_replaced_drops_the_bundle_when_it_sees_so(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    a.metadata.disconnect()
    cluster.network.refuses.add(a.me.broker_url)
    assert (await b.lookup()).mine
    assert a.ownership.owns(TOPIC)
    assert a.lost == []
    a.metadata.reconnect()
    await until(lambda: a.lost == [BUNDLE], within=1)
    assert not a.ownership.owns(TOPIC)
    assert (await a.lookup()).broker_url == b.me.broker_url
    owner = await cluster.owner(BUNDLE)
    assert owner is not None
    assert decode_owner(owner).is_at(b.me.broker_url)


async def test_a_load_is_refused_by_an_owner_that_slept_while_it_was_replaced(cluster: Cluster) -> None:
    """The test does not wait for a watch event."""
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    a.metadata.disconnect()
    cluster.network.refuses.add(a.me.broker_url)
    assert (await b.lookup()).mine
    a.metadata.reconnect()
    await raises((NotOwnerError, MetadataUnavailableError), a.ownership.check(TOPIC))


async def test_a_bundle_is_unloaded_topics_first_then_the_node_and_can_be_taken_again(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    a.closing_s = 2.0
    began = trio.current_time()
    cluster.nursery.start_soon(a.ownership.unload, BUNDLE)
    await until(lambda: not a.ownership.owns(TOPIC), within=1)
    await raises(NotOwnerError, a.ownership.check(TOPIC))
    answer = await b.lookup(authoritative=True)
    assert answer.mine
    assert 2.0 <= trio.current_time() - began < 3.0
    assert a.unloaded == [(BUNDLE, None)]
    assert a.lost == []
    await raises(NotOwnerError, a.ownership.unload(BUNDLE))


async def test_a_bundle_is_handed_to_the_broker_that_was_named(cluster: Cluster) -> None:
    a, b, c = await cluster.start_many("a", "b", "c")
    await owned_by(a)
    await a.ownership.unload(BUNDLE, destination=c.me.id)
    assert a.unloaded == [(BUNDLE, c.me.broker_url)]
    assert c.ownership.owned() == [BUNDLE]
    assert (await b.lookup()).broker_url == c.me.broker_url
    await raises(NoBrokerError, c.ownership.unload(BUNDLE, destination="d:8080"))
    assert c.ownership.owned() == [BUNDLE]


class LateWatch:
    """Watch whose first events arrive some seconds late."""

    def __init__(self, watch: Watch, delays: list[float]) -> None:
        self._watch = watch
        self._delays = delays

    async def next(self) -> Changed:
        changed = await self._watch.next()
        await trio.sleep(self._delays.pop(0) if self._delays else 0.0)
        return changed

    def close(self) -> None:
        self._watch.close()


def watch_late(host: Host, delays: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the host see the next changes of the bundle's node late; it must not have looked at it before."""
    watch = host.metadata.watch

    def late(path: str) -> Watch:
        return LateWatch(watch(path), delays) if path == BUNDLE.path else watch(path)

    monkeypatch.setattr(host.metadata, "watch", late)


@pytest.mark.parametrize("delays", [[3.0], [0.0, 3.0]], ids=["unaware", "aware of the unloading"])
async def test_a_bundle_is_offered_again_to_a_broker_that_sees_its_release_late(
    cluster: Cluster, delays: list[float], log_events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, c = await cluster.start_many("a", "b", "c")
    await owned_by(a)
    watch_late(c, delays, monkeypatch)
    assert (await c.lookup()).broker_url == a.me.broker_url
    a.closing_s = 0.5
    await a.ownership.unload(BUNDLE, destination=c.me.id)
    assert delays == []
    assert (a.ownership.owned(), c.ownership.owned()) == ([], [BUNDLE])
    assert not [event for event in log_events if "not taken" in event["event"]]


async def test_a_bundle_is_offered_no_more_when_another_has_it_or_the_destination_is_gone_or_the_time_is_up(
    cluster: Cluster, log_events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = await cluster.start_many("a", "b", "c", unload_timeout_s=5.0)
    await owned_by(a)
    watch_late(c, [20.0] * 5, monkeypatch)
    assert (await c.lookup()).broker_url == a.me.broker_url

    async def seconds() -> float:
        log_events.clear()
        began = trio.current_time()
        await a.ownership.unload(BUNDLE, destination=c.me.id)
        assert [event["event"] for event in log_events if event["level"] == "warning"] == [
            "bundle not taken by its destination"
        ]
        return trio.current_time() - began

    assert 3.0 < await seconds() < 6.0, "the time is up"
    await owned_by(a)
    cluster.nursery.start_soon(_take_soon, b)
    assert await seconds() < 3.0, "another has it"
    await b.ownership.unload(BUNDLE)
    await owned_by(a)
    cluster.network.hangs.add(c.me.broker_url)
    await trio.sleep(1)
    assert await seconds() < 3.0, "it is gone"


async def _take_soon(host: Host) -> None:
    await trio.sleep(0.5)
    await owned_by(host)


async def test_topics_that_do_not_close_in_time_are_dropped_and_the_bundle_goes_on(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b", unload_timeout_s=3.0)
    await owned_by(a)
    a.closing_s = 1000.0
    await a.ownership.unload(BUNDLE)
    assert a.lost == [BUNDLE]
    assert (await b.lookup(authoritative=True)).mine


async def test_a_broker_that_stops_gives_everything_up_and_sends_its_clients_on(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    names = [topic_in(bundle) for bundle in even(NAMESPACE, 4).all()]
    for name in names:
        await owned_by(a, name)
    a.closing_s = 1.0
    began = trio.current_time()
    cluster.nursery.start_soon(a.ownership.release_all)
    await until(lambda: not a.ownership.owns(names[0]), within=1)
    answers = [await a.lookup(names[0]), await b.lookup(names[0])]
    assert answers[0] == Redirect(b.me.broker_url, b.me.web_url, authoritative=False)
    assert answers[1].mine
    assert sorted(bundle for bundle, _ in a.unloaded) == list(even(NAMESPACE, 4).all())
    assert trio.current_time() - began < 1.5, "all together"
    assert a.ownership.owned() == []
    assert b.ownership.brokers.is_leader
    assert list(b.ownership.brokers.reports) == [b.me.id]
    assert [(await b.lookup(name)).mine for name in names] == [True] * 4


async def test_the_last_broker_that_stops_sends_nobody_anywhere(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a")
    await owned_by(a)
    await a.ownership.release_all()
    begun = trio.current_time()
    await raises(NoBrokerError, a.lookup(authoritative=True))
    assert trio.current_time() - begun < 0.1, "there is nothing to wait for"
    assert await cluster.owner(BUNDLE) is None


async def test_a_split_bundle_stays_with_its_owner_without_a_gap(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    assert (await b.lookup()).broker_url == a.me.broker_url
    gaps: list[float] = []

    async def watch() -> None:
        while True:
            if not a.ownership.owns(TOPIC):
                gaps.append(trio.current_time())
            answer = await b.lookup(authoritative=True)
            assert answer == Connect(a.me.broker_url, a.me.web_url, mine=False)
            await trio.sleep(0.0005)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await a.ownership.split(BUNDLE)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert gaps == []
    assert a.unloaded == []
    assert len(a.ownership.owned()) == 2
    assert await cluster.owner(BUNDLE) is None
    assert b.ownership.bundle_of(TOPIC) in a.ownership.owned()


async def test_a_broker_with_old_boundaries_cannot_take_a_bundle_that_was_split(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    await b.ownership.namespaces.bundles(NAMESPACE)
    stale = await b.ownership.leases.get(BUNDLE)
    checks = await b.ownership.namespaces.boundaries_check(even(NAMESPACE, 4))
    await a.ownership.split(BUNDLE)
    await raises(BundlesChangedError, stale.acquire(checks))
    assert await cluster.owner(BUNDLE) is None
    assert (await b.lookup(authoritative=True)).broker_url == a.me.broker_url


async def test_a_split_by_topics_and_with_unload_leaves_its_parts_to_whoever_comes(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    names = [name for number in range(40) if BUNDLE.has(name := TopicName.parse(f"t{number}"))]
    a.topics = [counters(name) for name in names]
    await a.ownership.split(BUNDLE, algorithm="topic_count_equally_divide", unload=True)
    parts = [bundle for bundle in (await a.ownership.namespaces.bundles(NAMESPACE)).all() if bundle.low in BUNDLE]
    held = [sum(part.has(name) for name in names) for part in parts if part.high <= BUNDLE.high]
    assert len(held) == 2
    assert abs(held[0] - held[1]) <= 1
    assert a.ownership.owned() == []
    assert (await b.lookup(authoritative=True)).mine


async def test_a_split_that_cannot_be_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    await raises(NotOwnerError, b.ownership.split(BUNDLE))
    await raises(BundleSplitError, a.ownership.split(BUNDLE, algorithm="specified_positions_divide", positions=[0]))
    await cluster.store.create("/namespace/public/default/other", b"", make_parents=True)
    part = even(NAMESPACE, 8).find(TOPIC)
    await cluster.store.create(part.path, b'{"nativeUrl":"pulsar://z:1","httpUrl":"http://z:2"}')
    await raises(BundleSplitError, a.ownership.split(BUNDLE))
    assert a.ownership.owned() == [BUNDLE]
    with pytest.raises(NoSuchBundleError):
        (await a.ownership.namespaces.bundles(NAMESPACE)).bundle(part.range)


async def test_a_bundle_that_is_being_split_is_not_split_by_another_request(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a")
    await owned_by(a)
    outcomes: list[str] = []

    async def split() -> None:
        try:
            await a.ownership.split(BUNDLE)
            outcomes.append("done")
        except BundleSplitError:
            outcomes.append("refused")

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(split)
    assert outcomes == ["refused", "done"]
    assert len(a.ownership.owned()) == 2


async def test_a_deleted_namespace_is_given_up_by_its_owners(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    await b.ownership.namespaces.delete(NAMESPACE)
    await until(lambda: a.ownership.owned() == [], within=1)
    assert a.unloaded == [(BUNDLE, None)]
    await raises(TopicNotFoundError, a.lookup())


async def test_a_heartbeat_topic_belongs_to_its_broker_and_to_nobody_else(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    name = TopicName.parse(b.ownership.health_topic)
    assert name.namespace_name == heartbeat_namespace(b.me.id)
    for authoritative in (False, True):
        answer = await a.lookup(name, authoritative=authoritative)
        assert answer == Redirect(b.me.broker_url, b.me.web_url, authoritative=True)
    assert (await b.lookup(name)).mine
    b.kill()
    await until(lambda: b.me.id not in a.ownership.brokers.reports)
    await raises(NoBrokerError, a.lookup(name))


async def test_brokers_report_their_bundles_soon_and_the_leader_places_by_that(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    a.topics = [counters(TOPIC, messages_in=100_000, bytes_in=1_000_000, producers=1, consumers=2)]
    await until(lambda: bool(b.ownership.brokers.reports[a.me.id].bundles), within=10)
    await until(lambda: b.ownership.brokers.reports[a.me.id].message_rate > 100, within=10)
    assert a.ownership.reporter.loads[str(BUNDLE)].consumers == 2, "metrics show what was measured"
    node = await node_at(cluster.store, f"/loadbalance/brokers/{a.me.id}")
    stats = json.loads(node.value)["lastStats"][str(BUNDLE)]
    assert (stats["producerCount"], stats["consumerCount"], stats["topics"]) == (1, 2, 1)
    answer = await a.lookup(topic_in(even(NAMESPACE, 4).all()[0]))
    assert answer == Redirect(b.me.broker_url, b.me.web_url, authoritative=True)


async def keep_busy(host: Host, done: Callable[[], bool]) -> None:
    """Report traffic on every bundle, in shares of 1, 2, 3 and 4, until the test is done."""
    names = [topic_in(bundle) for bundle in even(NAMESPACE, 4).all()]
    for name in names:
        await owned_by(host, name)
    sent = 0
    with trio.fail_after(60):
        while not done():
            sent += 1000
            host.topics = [counters(name, messages_in=sent * share) for share, name in enumerate(names, 1)]
            await trio.sleep(1)


async def test_the_leader_moves_a_busy_bundle_to_an_idle_broker(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b", shed_interval_s=20.0)
    await keep_busy(a, lambda: bool(b.ownership.owned()))
    await until(lambda: len(a.ownership.owned()) + len(b.ownership.owned()) == 4, within=1)
    names = [topic_in(bundle) for bundle in even(NAMESPACE, 4).all()]
    shares = [share for share, name in enumerate(names, 1) if b.ownership.owns(name)]
    assert 0 < sum(shares) <= 5, "no more than half"
    balancer = a.ownership.balancer
    assert (balancer.bundles_moved, balancer.brokers_relieved) == (len(shares), 1)


async def test_the_leader_has_another_s_busy_bundle_moved_by_its_owner(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b", shed_interval_s=20.0)
    await keep_busy(b, lambda: len(b.requests) > 2)
    assert b.requests[0].startswith(b"PUT /admin/v2/namespaces/public/default/0x")
    assert b"/unload?destinationBroker=a%3A8080 HTTP/1.1\r\n" in b.requests[0]
    assert len({*b.requests}) == len(b.requests), "what was moved a moment ago stays"
    assert a.requests == []
    assert b.unloaded == [], "who does not lead moves nothing"


async def test_the_bundle_of_a_heartbeat_stays_however_busy_it_is(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b", shed_interval_s=20.0)
    heartbeat = TopicName.parse(a.ownership.health_topic)
    for name in (heartbeat, TOPIC):
        await owned_by(a, name)
    for second in range(25):
        a.topics = [
            counters(heartbeat, messages_in=3000 * second),
            counters(TOPIC, messages_in=1000 * second),
        ]
        await trio.sleep(1)
    assert (a.ownership.owns(heartbeat), b.ownership.owned()) == (True, [BUNDLE])


async def test_the_leader_splits_a_bundle_with_too_many_topics(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a", bundle_topics_max=10, shed_interval_s=20.0)
    names = [name for number in range(80) if BUNDLE.has(name := TopicName.parse(f"t{number}"))]
    await owned_by(a)
    a.topics = [counters(name) for name in names]
    await until(lambda: len(a.ownership.owned()) == 2, within=60)
    assert a.ownership.owns(TOPIC)
    await until(lambda: a.ownership.balancer.bundles_split == 1)


@pytest.mark.parametrize("switch", ["load_balancing", "auto_split"])
async def test_no_bundle_is_split_where_that_is_switched_off(switch: str, cluster: Cluster) -> None:
    [a] = await cluster.start_many("a", bundle_topics_max=1, shed_interval_s=20.0, **{switch: False})
    names = [name for number in range(80) if BUNDLE.has(name := TopicName.parse(f"t{number}"))]
    await owned_by(a)
    a.topics = [counters(name) for name in names]
    await trio.sleep(60)
    assert a.ownership.owned() == [BUNDLE]


async def test_a_client_sent_to_a_restarted_broker_finds_it_the_owner_while_the_node_of_its_former_session_is_there(
    cluster: Cluster,
) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(b)
    b.kill()
    cluster.network.refuses.clear()
    again = await cluster.start("b")
    begun = trio.current_time()
    found = await a.lookup()
    assert found == Connect(again.me.broker_url, again.me.web_url, mine=False)
    await again.ownership.check(TOPIC)
    assert again.ownership.owns(TOPIC)
    assert trio.current_time() - begun < SESSION_S / 2, "not only when the former session is over"


async def test_a_restarted_broker_takes_over_the_nodes_of_the_process_before_it(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    await owned_by(a)
    a.kill()
    cluster.network.refuses.clear()
    before = trio.current_time()
    again = await cluster.start("a")
    assert (await b.lookup()).broker_url == a.me.broker_url, "its node is still there"
    assert (await again.lookup()).mine
    assert trio.current_time() - before < 1
    await trio.sleep(10)
    assert [again.ownership.brokers.is_leader, b.ownership.brokers.is_leader].count(True) == 1
    assert (await b.lookup()).broker_url == a.me.broker_url
    assert again.lost == []


async def test_a_lookup_is_held_while_the_metadata_service_is_away_for_a_moment(cluster: Cluster) -> None:
    [a] = await cluster.start_many("a")
    a.metadata.disconnect()

    async def come_back() -> None:
        await trio.sleep(2)
        a.metadata.reconnect()

    cluster.nursery.start_soon(come_back)
    begun = trio.current_time()
    assert (await a.lookup()).mine
    assert 2 <= trio.current_time() - begun < 3
    a.metadata.disconnect()
    begun = trio.current_time()
    with pytest.raises(MetadataUnavailableError):
        await a.lookup(topic_in(next(each for each in even(NAMESPACE, 4).all() if each != BUNDLE)))
    assert trio.current_time() - begun < OPTIONS.metadata_hold_s + 1, "then the client may ask another broker"


async def test_a_lookup_is_held_while_no_broker_is_registered_for_all_sessions_have_ended(cluster: Cluster) -> None:
    a, b = await cluster.start_many("a", "b")
    b.kill()
    a.metadata.disconnect()
    await trio.sleep(SESSION_S + 1)
    refused: list[Exception] = []

    async def ask() -> None:
        try:
            assert (await a.lookup()).mine
        except (MetadataUnavailableError, NoBrokerError) as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(ask)
            await trio.sleep(0.001)
        a.metadata.reconnect()
        for _ in range(1000):
            nursery.start_soon(ask)
            await trio.sleep(0.001)
    assert not refused
