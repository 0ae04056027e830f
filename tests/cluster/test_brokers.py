"""Brokers as processes: two of them, three bookies, a real ZooKeeper, official clients.

Any of them ends, and clients go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.broker_process import ADMIN, BrokerCluster, BrokerProcess, client_of
from tests.support.process import start_all, wait_until
from tests.support.traffic import traffic
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = pytest.mark.cluster

SESSION_S = 3.0
TICK_MS = 500
DEFAULT = f"{ADMIN}/namespaces/public/default"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """With two brokers; a test that ends one starts it again."""
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS).start()
    made = BrokerCluster(tmp_path_factory.mktemp("cluster"), server)
    try:
        made.start_bookies()
        start_all(made.broker(), made.broker())
        yield made
    finally:
        made.end()
        server.kill()
    for broker in made.brokers:
        broker.check_log()


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
    assert cluster.brokers[0].ask("GET", f"{parts}/partitions").json()["partitions"] == 0


def test_an_unloaded_bundle_goes_where_it_is_told_and_nobody_notices(cluster: BrokerCluster) -> None:
    topic = "persistent://public/default/moved"
    with client_of(*cluster.brokers) as client, traffic(client, topic) as running:
        for _ in range(2):
            cluster.move(topic, cluster.other(cluster.owner_of(topic)))
            running.wait_for_more()


def test_a_bundle_is_split_under_running_clients(cluster: BrokerCluster) -> None:
    topic = "persistent://public/default/split"
    with client_of(*cluster.brokers) as client, traffic(client, topic):
        before = cluster.brokers[0].ask("GET", f"{DEFAULT}/bundles").json()["numBundles"]
        bundle = cluster.brokers[0].ask("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle").text
        answer = cluster.brokers[0].ask("PUT", f"{DEFAULT}/{bundle}/split?unload=true", follow_redirects=True)
        assert answer.status_code == 204, answer.text

        def counts() -> set[int]:
            return {broker.ask("GET", f"{DEFAULT}/bundles").json()["numBundles"] for broker in cluster.brokers}

        # By their watches: the other one hears of it a moment later.
        wait_until(lambda: counts() == {before + 1}, "both see one bundle more")


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
        assert asked.ask("POST", f"{path}/persistence", json=value).status_code == 204
        keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        assert asked.ask("POST", f"{path}/retention", json=keep).is_success
        assert asked.ask("PUT", f"{path}/unload", follow_redirects=True).status_code == 204
        producer.send(b"b")
        found = cluster.owner_of(topic).ask("GET", f"{path}/internalStats?metadata=true").json()
    metadata = [each["metadata"] for each in found["ledgers"]]
    assert len(metadata) >= 2, found
    assert "ensembleSize=3" in metadata[0]
    assert "ensembleSize=2" in metadata[-1]


def test_after_sigkill_of_the_owner_official_clients_go_on_within_the_session_and_a_second(
    cluster: BrokerCluster,
) -> None:
    topic = "persistent://public/default/killed"
    with client_of(*cluster.brokers) as client, traffic(client, topic) as running:
        owner = cluster.owner_of(topic)
        killed_at = time.monotonic()
        owner.kill()
        running.wait_for_more(seconds=30)
        sending, receiving = running.longest_gaps(killed_at)
        print(f"gaps after SIGKILL: {sending:.2f} s sending, {receiving:.2f} s receiving")
        assert max(sending, receiving) <= SESSION_S + 1.0
        assert cluster.owner_of(topic) is not owner
    owner.start()


def test_a_stopped_broker_hands_its_topics_over_at_once(cluster: BrokerCluster) -> None:
    topic = "persistent://public/default/stopped"
    with client_of(*cluster.brokers) as client, traffic(client, topic) as running:
        owner = cluster.owner_of(topic)
        stopped_at = time.monotonic()
        assert owner.stop() == 0
        running.wait_for_more(seconds=30)
        assert max(running.longest_gaps(stopped_at)) < 2.5
        assert owner.id not in cluster.other(owner).ask("GET", f"{ADMIN}/brokers").json()
    owner.start()


@pytest.mark.parametrize("pause_s", [pytest.param(6.0), pytest.param(60.0, marks=pytest.mark.full)])
def test_nothing_that_a_paused_owner_writes_late_is_acknowledged(cluster: BrokerCluster, pause_s: float) -> None:
    topic = f"persistent://public/default/paused-{pause_s:g}"
    owner = cluster.owner_of(topic)
    with client_of(owner) as before, client_of(cluster.other(owner)) as after:
        late = before.create_producer(topic, "late", batching_enabled=False, send_timeout_millis=0)
        fenced = late.send(b"before").ledger_id()
        owner.pause()
        paused_at = time.monotonic()
        answers: list[tuple[str, int]] = []
        for number in range(20):
            late.send_async(b"late-%d" % number, lambda result, at: answers.append((str(result), at.ledger_id())))
        # A client that was sent to it a moment before would wait for it itself: the official one gives up after 10 s.
        wait_until(lambda: owner.id not in cluster.other(owner).ask("GET", f"{ADMIN}/brokers").json(), "it is given up")
        producer = after.create_producer(topic, "new", batching_enabled=False)
        taken_over_s = time.monotonic() - paused_at
        taken = producer.send(b"after").ledger_id()
        assert taken != fenced
        time.sleep(max(0.0, paused_at + pause_s - time.monotonic()))
        assert answers == []
        owner.resume()
        wait_until(lambda: len(answers) == 20, "the late messages are answered")
        # By the owner of now: whatever the one before it wrote on waking up was refused, and sent again by the client.
        assert {result for result, _ in answers} == {"Result.Ok"}
        assert fenced not in {ledger_id for _, ledger_id in answers}
        print(f"taken over {taken_over_s:.2f} s after SIGSTOP")
        assert taken_over_s <= SESSION_S + 1.0
        assert cluster.owner_of(topic) is cluster.other(owner)
        consumer = after.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
        wanted = [b"before", b"after", *(b"late-%d" % number for number in range(20))]
        found = [consumer.receive(10_000).data() for _ in wanted]
        assert sorted(found) == sorted(wanted)


def test_a_configuration_that_cannot_be_served_is_told_in_a_line(cluster: BrokerCluster) -> None:
    wrong = BrokerProcess(cluster.folder / "wrong", cluster.metadata_url, authenticationEnabled="true")
    code, said = wrong.refused()
    assert (code, said.count("\n")) == (2, 1)
    assert "authenticationEnabled=true: brokers do not authenticate clients" in said
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
