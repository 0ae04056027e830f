"""Brokers as processes under operators, supervisors and a network: two brokers, three bookies, a real ZooKeeper and
official clients. Any server may end, and clients continue. docs/faults.md has the list, testdata/brokers.txt most
stories.

"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import new_class

import httpx2
import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from quire.metadata.ledgers import BlockLedgerIds, LedgerManager
from quire.metadata.zookeeper.store import ZooKeeperStore
from quire.world.real import real_world
from tests.support.admin_commands import admin
from tests.support.bad_links import FAR, BadLink, bad_links
from tests.support.broker_process import ADMIN, BrokerCluster, BrokerProcess, client_of
from tests.support.process import start_all, wait_until
from tests.support.refusals import refuses
from tests.support.stories.broker_verbs import play
from tests.support.stories.text import Story, stories_of
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = pytest.mark.cluster

TICK_MS = 500
RECEIVE_MS = 60_000
"""Patience with a client that lost its connection: it waits for up to half a minute before it connects again."""
ALLOWED = {"forceDeleteNamespaceAllowed": "true"}


class Scene:
    def __init__(self, cluster: BrokerCluster, link: BadLink) -> None:
        self.cluster = cluster
        self.link = link
        """Link between the first broker and the metadata."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS).start()
    cluster = BrokerCluster(tmp_path_factory.mktemp("cluster"), server)
    for bookie in cluster.bookies:
        bookie.settings["zkTimeout"] = 1000  # one that was killed is waited for by the next for so long
    with bad_links(server.port) as (link,):
        try:
            cluster.start_bookies()
            far = cluster.broker(metadataStoreUrl=f"zk:{FAR}:{server.port}{cluster.chroot}", **ALLOWED)
            start_all(far, cluster.broker(**ALLOWED))
            yield Scene(cluster, link)
        finally:
            link.heal()
            cluster.end()
            server.kill()
    for broker in cluster.brokers:
        broker.check_log()


@pytest.fixture
def scene(shared: Scene) -> Iterator[Scene]:
    """Return the shared scene. Afterwards all processes run and can be reached, whatever the test did."""
    yield shared
    shared.link.heal()
    for each in (*shared.cluster.bookies, *shared.cluster.brokers):
        if each.process is not None:
            each.resume()
        else:
            each.start()


@pytest.fixture
def cluster(scene: Scene) -> BrokerCluster:
    return scene.cluster


@pytest.mark.real_clock(seconds=180)
@stories_of(Path(__file__).parent / "testdata" / "brokers.txt")
async def test_story(story: Story, scene: Scene) -> None:
    await play(story, scene.cluster, scene.link)


def test_topics_are_shared_and_any_broker_is_asked_for_all(cluster: BrokerCluster) -> None:
    topics = [f"persistent://public/default/shared-{number}" for number in range(12)]
    with client_of(cluster.brokers[0]) as client:
        for topic in topics:
            consumer = client.subscribe(topic, "s")
            producer = client.create_producer(topic)
            producer.send(topic.encode())
            assert consumer.receive(10_000).data() == topic.encode()
            producer.close()
            consumer.close()
    owners = {cluster.owner_of(topic).id for topic in topics}
    assert owners == {broker.id for broker in cluster.brokers}
    for broker in cluster.brokers:
        assert sorted(broker.ask("GET", f"{ADMIN}/brokers").json()) == sorted(each.id for each in cluster.brokers)
        assert set(topics) <= set(broker.ask("GET", f"{ADMIN}/persistent/public/default").json())
        assert broker.ask("GET", f"{ADMIN}/brokers/leaderBroker").json()["brokerId"] in {b.id for b in cluster.brokers}
        assert broker.ask("GET", f"{ADMIN}/brokers/health").text == "ok"
        for each in cluster.brokers:
            code, _, err = admin(f"brokers healthcheck --broker-id {each.id} --url {broker.web}")
            assert (code, err) == (0, "")
            answer = broker.ask("GET", f"{ADMIN}/brokers/health?brokerId={each.id}")
            assert (answer.status_code, answer.headers.get("location")) == (
                (200, None) if each is broker else (307, f"{each.web}{ADMIN}/brokers/health?brokerId={each.id}")
            )
        code, _, err = admin(f"brokers healthcheck --broker-id nobody:1 --url {broker.web}")
        assert (code, "404: there is no broker 'nobody:1'" in err) == (1, True), err
        assert len(broker.ask("GET", f"{ADMIN}/bookies/all").json()["bookies"]) == 3
        owned = broker.ask("GET", f"{ADMIN}/brokers/test/{broker.id}/ownedNamespaces").json()
        text = broker.ask("GET", "/metrics").text
        assert f"quire_bundles_owned {float(len(owned))}" in text


def test_a_call_about_a_topic_is_sent_to_its_owner_and_a_partitioned_topic_is_done_by_any(
    cluster: BrokerCluster,
) -> None:
    topic = "persistent://public/default/asked"
    with client_of(*cluster.brokers) as client:
        client.create_producer(topic).close()
    owner = cluster.owner_of(topic)
    path = f"{ADMIN}/persistent/public/default/asked/internalStats?metadata=true"
    answer = cluster.other(owner).ask("GET", path)
    assert (answer.status_code, answer.headers["location"]) == (307, f"{owner.web}{path}")
    assert owner.ask("GET", path).status_code == 200
    parts = f"{ADMIN}/persistent/public/default/parts"
    asked = cluster.brokers[1]
    assert asked.ask("PUT", f"{parts}/partitions", json=8).status_code == 204
    assert asked.ask("PUT", f"{parts}/subscription/s", json="earliest").status_code == 204
    first = "persistent://public/default/parts-partition-0"
    cluster.move(first, cluster.other(cluster.owner_of(f"{first[:-1]}1")))
    owners = {cluster.owner_of(f"{first[:-1]}{number}").id for number in range(8)}
    assert owners == {broker.id for broker in cluster.brokers}
    inside = asked.ask("GET", f"{parts}/partitioned-internalStats").json()["partitions"]
    assert [list(each["cursors"]) for each in inside.values()] == [["s"]] * 8
    with client_of(*cluster.brokers) as client:
        consumer = client.subscribe("persistent://public/default/parts", "t")
        assert cluster.brokers[0].ask("DELETE", f"{parts}/partitions").status_code == 412
        consumer.close()
    assert asked.ask("DELETE", f"{parts}/subscription/s").status_code == 204
    assert cluster.brokers[0].ask("DELETE", f"{parts}/partitions?force=true").status_code == 204
    assert cluster.brokers[0].ask("GET", f"{parts}/partitions").status_code == 404


def test_the_schema_of_a_topic_is_what_its_next_owner_checks_when_the_first_is_killed(cluster: BrokerCluster) -> None:
    topic = "persistent://public/default/typed"
    path = f"{ADMIN}/schemas/public/default/typed/schema"
    order = new_class("Order", (Record,), exec_body=lambda body: body.update(id=Integer()))
    other = new_class("Other", (Record,), exec_body=lambda body: body.update(name=String()))
    with client_of(*cluster.brokers) as client:
        client.create_producer(topic, schema=JsonSchema(order)).send(order(id=7))
    owner = cluster.owner_of(topic)
    rest = cluster.other(owner)
    stored = owner.ask("GET", path).json()
    owner.kill()
    assert rest.ask("GET", path).json() == stored
    assert rest.ask("GET", f"{path}/0").json() == stored
    with client_of(rest) as client:
        refuses(pulsar.IncompatibleSchema, lambda: client.create_producer(topic, schema=JsonSchema(other)))
        consumer = client.subscribe(
            topic, "s", schema=JsonSchema(order), initial_position=pulsar.InitialPosition.Earliest
        )
        assert consumer.receive(20_000).value().id == 7
        assert client.create_producer(topic, schema=JsonSchema(order)).send(order(id=8))
    assert rest.ask("DELETE", f"{ADMIN}/persistent/public/default/typed?force=true").status_code == 204
    assert rest.ask("GET", path).status_code == 404


@pytest.mark.parametrize("batching", [False, True])
def test_with_deduplication_each_message_is_there_once_when_owners_are_killed_and_topics_move(
    cluster: BrokerCluster, batching: bool
) -> None:
    """The official producer goes on over a move and two kills, and sends again what it has no receipt for."""
    topic = f"persistent://public/default/once-{batching}"
    path = f"{ADMIN}/persistent/public/default/once-{batching}"
    with client_of(*cluster.brokers) as client:
        client.subscribe(topic, "s").close()
        assert (
            cluster.brokers[0].ask("POST", f"{path}/deduplicationEnabled", json=True, follow_redirects=True).status_code
            == 204
        )
        producer = client.create_producer(
            topic, producer_name="once", batching_enabled=batching, block_if_queue_full=True, send_timeout_millis=0
        )
        failed: list[object] = []
        answered = 0

        def told(result: pulsar.Result, _: object) -> None:
            nonlocal answered
            answered += 1
            if result != pulsar.Result.Ok:
                failed.append(result)

        def is_answered(count: int) -> bool:
            return answered >= count

        def send(first: int, last: int) -> None:
            for number in range(first, last):
                producer.send_async(b"%d" % number, told)

        send(0, 3000)
        cluster.move(topic, cluster.other(cluster.owner_of(topic)))
        for turn in (1, 2):
            send(3000 * turn, 3000 * turn + 1500)
            owner = cluster.owner_of(topic)
            owner.kill()
            send(3000 * turn + 1500, 3000 * turn + 3000)
            all_sent = 3000 * turn + 3000
            wait_until(partial(is_answered, all_sent), "all are answered", 90)
            owner.start()
        assert not failed
        consumer = client.subscribe(topic, "s")
        try:
            received = [int(consumer.receive(RECEIVE_MS).data()) for _ in range(9000)]
        except pulsar.Timeout:
            asked = cluster.brokers[0].ask("GET", f"{path}/subscription/s/explain", follow_redirects=True)
            pytest.fail(f"nothing came: {asked.text}")
        assert received == list(range(9000))
        refuses(pulsar.Timeout, lambda: consumer.receive(500))


def test_a_position_is_moved_through_any_broker_and_stays_when_its_owner_is_killed(cluster: BrokerCluster) -> None:
    topic, path = "persistent://public/default/moved", f"{ADMIN}/persistent/public/default/moved"
    parts = f"{ADMIN}/persistent/public/default/moved-parts"
    assert cluster.brokers[0].ask("PUT", f"{parts}/partitions", json=4).status_code == 204
    first = "persistent://public/default/moved-parts-partition-0"
    cluster.move(first, cluster.other(cluster.owner_of(f"{first[:-1]}1")))
    assert len({cluster.owner_of(f"{first[:-1]}{number}").id for number in range(4)}) == 2
    with client_of(*cluster.brokers) as client:
        for name in (topic, "persistent://public/default/moved-parts"):
            client.subscribe(name, "s").close()
            producer = client.create_producer(name, batching_enabled=False)
            for number in range(8):
                producer.send(b"m%d" % number)
            producer.close()

        # One broker does it for all partitions.
        asked = cluster.brokers[1]
        stats = asked.ask("GET", f"{parts}/partitioned-stats").json()
        assert (stats["msgInCounter"], stats["subscriptions"]["s"]["msgBacklog"]) == (8, 8)
        assert asked.ask("PUT", f"{parts}/subscription/s/properties", json={"k": "v"}).status_code == 204
        assert asked.ask("GET", f"{parts}/subscription/s/properties").json() == {"k": "v"}
        assert asked.ask("POST", f"{parts}/subscription/s/skip_all").status_code == 204
        assert asked.ask("POST", f"{parts}/subscription/none/skip_all").status_code == 404
        stats = asked.ask("GET", f"{parts}/partitioned-stats?getPreciseBacklog=true").json()
        assert stats["subscriptions"]["s"]["msgBacklog"] == 0
        assert asked.ask("POST", f"{parts}/subscription/s/resetcursor/0").status_code == 204
        assert asked.ask("POST", f"{ADMIN}/namespaces/public/default/clearBacklog/none").status_code == 204
        assert sorted(asked.ask("POST", f"{parts}/terminate/partitions").json()) == ["0", "1", "2", "3"]

        # The owner does it for one topic, and dies.
        owner = cluster.owner_of(topic)
        wrong = cluster.other(owner)
        answer = wrong.ask("POST", f"{path}/subscription/s/skip/3")
        assert (answer.status_code, answer.headers["location"]) == (307, f"{owner.web}{path}/subscription/s/skip/3")
        assert wrong.ask("POST", f"{path}/subscription/s/skip/3", follow_redirects=True).status_code == 204
        owner.kill()
        wait_until(lambda: cluster.owner_of(topic) is wrong, "the other broker has the topic", 60)
        consumer = client.subscribe(topic, "s")
        assert consumer.receive(30_000).data() == b"m3"
        consumer.close()
        consumer = client.subscribe("persistent://public/default/moved-parts", "s")
        assert sorted(consumer.receive(30_000).data() for _ in range(8)) == [b"m%d" % number for number in range(8)]
        refuses(pulsar.PulsarException, lambda: client.create_producer("persistent://public/default/moved-parts"))


def test_the_next_ledger_of_a_topic_has_the_copies_that_were_asked_for(cluster: BrokerCluster) -> None:
    name = "copies"
    topic = f"persistent://public/default/{name}"
    path = f"{ADMIN}/persistent/public/default/{name}"

    with client_of(*cluster.brokers) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        producer.send(b"a")
        # Asked of a broker that need not be the owner, which hears of it.
        value = {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}
        asked = cluster.other(cluster.owner_of(topic))
        assert asked.ask("POST", f"{path}/persistence", json=value, follow_redirects=True).status_code == 204
        keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        assert asked.ask("POST", f"{path}/retention", json=keep, follow_redirects=True).is_success
        assert asked.ask("PUT", f"{path}/unload", follow_redirects=True).status_code == 204
        producer.send(b"b")
        found = cluster.owner_of(topic).ask("GET", f"{path}/internalStats?metadata=true").json()
    metadata = [each["metadata"] for each in found["ledgers"]]
    assert len(metadata) >= 2, found
    assert "ensembleSize=3" in metadata[0]
    assert "ensembleSize=2" in metadata[-1]


def test_o7_a_namespace_that_is_deleted_under_its_producers_is_gone_with_its_ledgers_and_they_are_told(
    cluster: BrokerCluster,
) -> None:
    namespace = f"{ADMIN}/namespaces/public/doomed"

    def ask(method: str, path: str = namespace) -> httpx2.Response:
        return cluster.brokers[1].ask(method, path, follow_redirects=True)

    assert ask("PUT").status_code == 204
    topics = [f"persistent://public/doomed/t{number}" for number in range(2)]
    with client_of(cluster.brokers[1], timeout_s=5) as client:
        producers = [
            client.create_producer(topic, batching_enabled=False, send_timeout_millis=2000) for topic in topics
        ]
        for producer in producers:
            producer.send(b"x")
        assert len(ledgers(cluster, "public/doomed/")) >= 2
        # Not by mistake...
        refused = ask("DELETE")
        assert refused.status_code == 409, refused.text
        producers[0].send(b"y")
        # ...but by force.
        done = ask("DELETE", f"{namespace}?force=true")
        assert done.status_code == 204, done.text
        for producer in producers:
            with pytest.raises(pulsar.PulsarException):
                producer.send(b"z")
        refuses(pulsar.PulsarException, lambda: client.create_producer(topics[0]))
    assert ask("GET").status_code == 404
    wait_until(lambda: not ledgers(cluster, "public/doomed/"), "no ledger of it is left")


def ledgers(cluster: BrokerCluster, namespace: str) -> set[int]:
    """Return the ledgers that belong to logs of this namespace by their own metadata, ledgers of cursors included."""

    async def call(store: ZooKeeperStore) -> set[int]:
        manager = LedgerManager(store, ids=BlockLedgerIds(store), rng=real_world().rng)
        found: set[int] = set()
        async for ledger_id in manager.ledger_ids():
            stored = await manager.read(ledger_id)
            words = {} if stored is None else dict(stored.value.custom_metadata)
            if words.get("pulsar/managed-ledger", b"").startswith(namespace.encode()):
                found.add(ledger_id)
        return found

    return cluster.ask(call)


def test_a_configuration_that_cannot_be_served_is_told_in_a_line(cluster: BrokerCluster) -> None:
    wrong = BrokerProcess(cluster.folder / "wrong", cluster.metadata_url, managedLedgerDigestType="MAC")
    code, said = wrong.refused()
    assert (code, said.count("\n")) == (2, 1)
    assert "managedLedgerDigestType=MAC: entries are written with CRC32C" in said
    insecure = BrokerProcess(cluster.folder / "insecure", cluster.metadata_url, authenticationEnabled="true")
    code, said = insecure.refused()
    assert (code, said.count("\n")) == (2, 1)
    assert "authenticationProviders: must name a provider" in said
    stranger = BrokerProcess(cluster.folder / "stranger", cluster.metadata_url, clusterName="nobody")
    code, said = stranger.refused()
    assert code == 1
    assert "there is no such cluster; make it with `quire initialize-cluster-metadata`" in said
    lost = BrokerProcess(cluster.folder / "lost", f"{cluster.metadata_url}x")
    code, said = lost.refused()
    assert code == 1
    assert "has no node" in said


def test_a_broker_waits_for_zookeeper_and_says_so(tmp_path: Path) -> None:
    server = ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=TICK_MS)
    broker = BrokerProcess(tmp_path / "broker", f"zk:127.0.0.1:{server.port}/nowhere")
    broker.launch()
    try:
        wait_until(lambda: "waiting for ZooKeeper" in broker.log(), "it says so")
        assert broker.stop() == 0
    finally:
        broker.kill()


def test_policies_of_a_topic_are_known_to_every_broker_and_outlive_a_kill_of_the_one_that_wrote_them(
    cluster: BrokerCluster,
) -> None:
    topic, path = "persistent://public/default/policed", f"{ADMIN}/persistent/public/default/policed"
    kept = {"retentionTimeInMinutes": 90, "retentionSizeInMB": 50}
    assert cluster.brokers[0].ask("PUT", path, follow_redirects=True).status_code == 204
    for broker in cluster.brokers:  # whichever has the log
        url = f"{path}/messageTTL?messageTTL={60 + cluster.brokers.index(broker)}"
        assert broker.ask("POST", url, follow_redirects=True).status_code == 204
        assert [each.ask("GET", f"{path}/messageTTL").json() for each in cluster.brokers] == [int(url[-2:])] * 2
    events = "persistent://public/default/__change_events"
    owner = cluster.owner_of(events)
    rest = cluster.other(owner)
    assert rest.ask("POST", f"{path}/retention", json=kept).status_code == 307
    assert rest.ask("POST", f"{path}/retention", json=kept, follow_redirects=True).status_code == 204
    owner.kill()
    with client_of(rest) as client:  # loads the topic, wherever it was
        client.create_producer(topic).send(b"m")
    wait_until(lambda: cluster.owner_of(events) is rest, "the other broker has the log", 60)
    assert rest.ask("GET", f"{path}/retention?applied=true").json() == kept
    assert rest.ask("DELETE", f"{path}/messageTTL", follow_redirects=True).status_code == 204
    assert rest.ask("GET", f"{path}/messageTTL").status_code == 200
    owner.start()
    assert owner.ask("GET", f"{path}/retention").json() == kept
    there = cluster.owner_of(topic)
    assert there.ask("DELETE", f"{path}?force=true").status_code == 204
    assert cluster.brokers[0].ask("PUT", path, follow_redirects=True).status_code == 204
    assert [each.ask("GET", f"{path}/retention").status_code for each in cluster.brokers] == [200, 200]
