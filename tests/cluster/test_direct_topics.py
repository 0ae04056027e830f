"""Non-persistent topics and watched topic lists on a cluster: two brokers, a real ZooKeeper, the official client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pulsar
import pytest

from quire.metadata.zookeeper.store import ZooKeeperStore
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.bad_links import FAR, BadLink, bad_links
from tests.support.broker_process import ADMIN, BrokerCluster, BrokerProcess, client_of
from tests.support.process import start_all, wait_until
from tests.support.pulsar_frames import C
from tests.support.raw import RawClient
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = pytest.mark.cluster

NEWS = "non-persistent://public/default/news"
RECEIVE_MS = 20_000


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerCluster, BadLink]]:
    """A cluster, and the link of its first broker to the metadata."""
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=500).start()
    cluster = BrokerCluster(tmp_path_factory.mktemp("cluster"), server)
    with bad_links(server.port) as (link,):
        try:
            cluster.start_bookies()
            far = f"zk:{FAR}:{server.port}{cluster.chroot}"
            start_all(cluster.broker(metadataStoreUrl=far, metadataStoreSessionTimeoutMillis=20_000), cluster.broker())
            yield cluster, link
        finally:
            link.heal()
            cluster.end()
            server.kill()
    for broker in cluster.brokers:
        broker.check_log()


@pytest.fixture
def cluster(linked: tuple[BrokerCluster, BadLink]) -> BrokerCluster:
    return linked[0]


def exchange(producer: pulsar.Producer, consumer: pulsar.Consumer, payload: bytes) -> None:
    """Publish until a message arrives: what has no consumer with permits is dropped."""

    def arrives() -> bool:
        producer.send(payload)
        try:
            return bool(consumer.receive(200).data() == payload)
        except pulsar.Timeout:
            return False

    wait_until(arrives, "a message", 40.0)


def topics(broker: BrokerProcess, path: str = f"{ADMIN}/non-persistent/public/default") -> list[str]:
    answer = broker.ask("GET", path)
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def test_a_topic_moves_between_brokers_and_survives_the_death_of_its_owner(cluster: BrokerCluster) -> None:
    with client_of(*cluster.brokers) as client:
        consumer, producer = client.subscribe(NEWS, "s"), client.create_producer(NEWS)
        exchange(producer, consumer, b"first")
        owner = cluster.owner_of(NEWS)
        rest = cluster.other(owner)
        for broker in cluster.brokers:
            assert topics(broker) == [NEWS]
            assert topics(broker, f"{ADMIN}/namespaces/public/default/topics?mode=ALL") == [NEWS]
        assert rest.ask("GET", f"{ADMIN}/non-persistent/public/default/news/stats").status_code == 307
        cluster.move(NEWS, rest)
        exchange(producer, consumer, b"moved")
        assert rest.ask("GET", f"{ADMIN}/non-persistent/public/default/news/stats").json()["msgInCounter"] > 0
        rest.kill()
        exchange(producer, consumer, b"failed over")
        assert owner.ask("GET", f"{ADMIN}/non-persistent/public/default/news/stats").status_code == 200
        rest.start()


def test_partitions_are_spread_and_any_broker_answers_for_the_topic(cluster: BrokerCluster) -> None:
    first, other = cluster.brokers
    path = f"{ADMIN}/non-persistent/public/default/wide"
    assert first.ask("PUT", f"{path}/partitions", json=6).status_code == 204
    names = [f"non-persistent://public/default/wide-partition-{number}" for number in range(6)]
    cluster.move(names[0], cluster.other(cluster.owner_of(names[1])))
    with client_of(*cluster.brokers) as client:
        consumer = client.subscribe("non-persistent://public/default/wide", "s")
        for broker in cluster.brokers:
            assert set(names) <= set(topics(broker))
            assert sorted(broker.ask("GET", f"{path}/partitioned-stats").json()["partitions"]) == names
            assert broker.ask("GET", f"{path}/subscriptions").json() == ["s"]
        assert other.ask("DELETE", f"{path}/partitions").status_code == 412
        consumer.close()
    assert other.ask("DELETE", f"{path}/partitions?force=true").status_code == 204
    assert not set(names) & set(topics(first))


async def created(name: str, store: ZooKeeperStore) -> str:
    return await store.create(f"/managed-ledgers/public/default/persistent/{name}")


def update(raw: RawClient) -> tuple[list[str], list[str]]:
    found = raw.expect(C.WATCH_TOPIC_UPDATE).watchTopicUpdate
    return list(found.new_topics), list(found.deleted_topics)


def test_topics_of_any_broker_reach_watchers_and_pattern_subscriptions(
    linked: tuple[BrokerCluster, BadLink],
) -> None:
    """The official client asks for the list once a minute, whatever period it is given."""
    cluster, link = linked
    first, other = cluster.brokers
    path = f"{ADMIN}/persistent/public/default"
    pattern = "persistent://public/default/(red|blue).*"
    with client_of(*cluster.brokers) as client, RawClient(first.port) as raw:
        assert other.ask("PUT", f"{path}/red", follow_redirects=True).status_code == 204
        consumer = client.subscribe(
            re.compile(pattern), "s", initial_position=pulsar.InitialPosition.Earliest, consumer_name="c"
        )
        body = pb.CommandWatchTopicList(request_id=1, watcher_id=2, namespace="public/default", topics_pattern=pattern)
        raw.send(C(type=C.WATCH_TOPIC_LIST, watchTopicList=body))
        found = raw.expect(C.WATCH_TOPIC_LIST_SUCCESS).watchTopicListSuccess
        assert list(found.topic) == ["persistent://public/default/red"]
        assert other.ask("PUT", f"{path}/green", follow_redirects=True).status_code == 204
        client.create_producer("persistent://public/default/blue").send(b"later")
        assert update(raw) == (["persistent://public/default/blue"], [])
        link.cut()
        for name in ("red2", "red3"):
            cluster.ask(partial(created, name))
        link.reset()
        link.heal()
        new: list[str] = []
        while len(new) < 2:
            new += update(raw)[0]
        assert sorted(new) == [f"persistent://public/default/{name}" for name in ("red2", "red3")]
        assert other.ask("DELETE", f"{path}/red2?force=true", follow_redirects=True).status_code == 204
        assert update(raw) == ([], ["persistent://public/default/red2"])
        assert consumer.receive(80_000).data() == b"later"
