"""Brokers as processes: two of them, three bookies, a real ZooKeeper, official clients. Any of them ends, and clients go on."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.support.broker_process import BrokerCluster, BrokerProcess
from tests.support.zookeeper import ZooKeeperProcess

SESSION_S = 3.0
TICK_MS = 500
ADMIN = "/admin/v2"
DEFAULT = f"{ADMIN}/namespaces/public/default"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """With two brokers; a test that ends one starts it again."""
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS).start()
    made = BrokerCluster(tmp_path_factory.mktemp("cluster"), server)
    try:
        made.start_bookies()
        for _ in range(2):
            made.broker().launch()
        for broker in made.brokers:
            broker.wait_ready()
        yield made
    finally:
        made.end()
        server.kill()
    for broker in made.brokers:
        broker.check_log()


@contextmanager
def client_of(*brokers: BrokerProcess, timeout_s: int = 30) -> Iterator[pulsar.Client]:
    url = "pulsar://" + ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)
    made = pulsar.Client(
        url, operation_timeout_seconds=timeout_s, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    yield made
    made.close()


def owner_of(cluster: BrokerCluster, topic: str) -> BrokerProcess:
    """By the lookup of a broker that lives."""
    path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
    for broker in cluster.brokers:
        if broker.process is not None:
            found = httpx.get(f"{broker.web}{path}", timeout=30, follow_redirects=True).json()["brokerUrl"]
            return next(each for each in cluster.brokers if each.url == found)
    raise AssertionError("no broker lives")


def other(cluster: BrokerCluster, broker: BrokerProcess) -> BrokerProcess:
    return next(each for each in cluster.brokers if each is not broker)


def move(cluster: BrokerCluster, topic: str, target: BrokerProcess) -> None:
    """Have the topic's bundle unloaded to that broker, whoever has it; wait until it is there."""
    bundle = target.ask("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle").text
    path = f"{DEFAULT}/{bundle}/unload?destinationBroker={target.id}"
    answer = httpx.put(f"{target.web}{path}", timeout=30, follow_redirects=True)
    assert answer.status_code == 204, answer.text
    cluster.until(lambda: owner_of(cluster, topic) is target, "the topic has moved")


class Traffic:
    """One producer and one consumer of a topic that go on whatever happens, each in its thread. An error that the application
    would see ends them and fails the test."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.sent: list[int] = []
        """Numbers for which a receipt came, in order."""
        self.received: list[int] = []
        self.sent_at: list[float] = []
        self.received_at: list[float] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        self._producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
        self._threads = [
            threading.Thread(target=self._guarded, args=(each,), daemon=True) for each in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            self.errors.append(error)

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.send(b"%d" % number)
            self.sent.append(number)
            self.sent_at.append(time.monotonic())
            number += 1

    def _receive(self) -> None:
        sending = self._threads[0]
        heard_at = time.monotonic()
        while sending.is_alive() or len(set(self.received)) < len(self.sent):
            try:
                message = self._consumer.receive(200)
            except pulsar.Timeout:
                if sending.is_alive():
                    heard_at = time.monotonic()
                missing = f"{len(set(self.received))} of {len(self.sent)} received"
                assert time.monotonic() - heard_at < 10, missing
                continue
            self._consumer.acknowledge(message)
            self.received.append(int(message.data()))
            self.received_at.append(time.monotonic())
            heard_at = time.monotonic()

    def wait_for_more(self, count: int = 20, seconds: float = 20) -> None:
        sent, received, deadline = len(self.sent), len(self.received), time.monotonic() + seconds
        while len(self.sent) < sent + count or len(self.received) < received + count:
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, "it does not go on"
            time.sleep(0.005)

    def finish(self) -> None:
        """Stop, and see that nothing that was acknowledged is missing, and that first deliveries are in order."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not self.errors, self.errors
        assert set(self.sent) <= set(self.received), sorted(set(self.sent) - set(self.received))[:10]
        first = list(dict.fromkeys(self.received))
        assert first == sorted(first)

    def longest_gaps(self, since: float) -> tuple[float, float]:
        """Of receipts and of deliveries, in seconds."""

        def longest(times: list[float]) -> float:
            after = [at for at in times if at >= since - 0.5]
            return max((b - a for a, b in itertools.pairwise(after)), default=float("inf"))

        return longest(self.sent_at), longest(self.received_at)


@contextmanager
def traffic(client: pulsar.Client, topic: str) -> Iterator[Traffic]:
    made = Traffic(client, topic)
    try:
        made.wait_for_more()
        yield made
        made.wait_for_more()
    except BaseException:
        made._stop.set()
        raise
    made.finish()


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
    owners = {owner_of(cluster, topic).id for topic in topics}
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
    topic = "persistent://public/default/shared-0"
    owner = owner_of(cluster, topic)
    path = f"{ADMIN}/persistent/public/default/shared-0/internalStats?metadata=true"
    answer = other(cluster, owner).ask("GET", path)
    assert (answer.status_code, answer.headers["location"]) == (307, f"{owner.web}{path}")
    assert owner.ask("GET", path).status_code == 200
    parts = f"{ADMIN}/persistent/public/default/parts"
    asked = cluster.brokers[1]
    assert asked.ask("PUT", f"{parts}/partitions", json=8).status_code == 204
    assert asked.ask("PUT", f"{parts}/subscription/s", json="earliest").status_code == 204
    first = "persistent://public/default/parts-partition-0"
    move(cluster, first, other(cluster, owner_of(cluster, f"{first[:-1]}1")))
    owners = {owner_of(cluster, f"{first[:-1]}{number}").id for number in range(8)}
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
            move(cluster, topic, other(cluster, owner_of(cluster, topic)))
            running.wait_for_more()


def test_a_bundle_is_split_under_running_clients(cluster: BrokerCluster) -> None:
    topic = "persistent://public/default/split"
    with client_of(*cluster.brokers) as client, traffic(client, topic):
        before = cluster.brokers[0].ask("GET", f"{DEFAULT}/bundles").json()["numBundles"]
        bundle = cluster.brokers[0].ask("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle").text
        path = f"{DEFAULT}/{bundle}/split?unload=true"
        answer = httpx.put(f"{cluster.brokers[0].web}{path}", timeout=30, follow_redirects=True)
        assert answer.status_code == 204, answer.text
        for broker in cluster.brokers:
            found = broker.ask("GET", f"{DEFAULT}/bundles").json()
            assert found["numBundles"] == before + 1


def test_the_next_ledger_of_a_topic_has_the_copies_that_were_asked_for(cluster: BrokerCluster) -> None:
    name = "copies"
    topic = f"persistent://public/default/{name}"
    path = f"{ADMIN}/persistent/public/default/{name}"

    def ledgers() -> list[dict[str, Any]]:
        found = httpx.get(f"{cluster.brokers[0].web}{path}/internalStats", timeout=30, follow_redirects=True).json()
        return list(found["ledgers"])

    with client_of(*cluster.brokers) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        producer.send(b"a")
        # Asked of a broker that need not be the owner, which hears of it.
        value = {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}
        asked = other(cluster, owner_of(cluster, topic))
        assert asked.ask("POST", f"{path}/persistence", json=value).status_code == 204
        assert asked.ask(
            "POST", f"{path}/retention", json={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        ).is_success
        assert httpx.put(f"{asked.web}{path}/unload", timeout=30, follow_redirects=True).status_code == 204
        producer.send(b"b")
        found = httpx.get(f"{owner_of(cluster, topic).web}{path}/internalStats?metadata=true", timeout=30).json()
    metadata = [each["metadata"] for each in found["ledgers"]]
    assert len(metadata) >= 2, found
    assert "ensembleSize=3" in metadata[0] or '"ensembleSize":3' in metadata[0].replace(" ", ""), metadata[0]
    assert "ensembleSize=2" in metadata[-1] or '"ensembleSize":2' in metadata[-1].replace(" ", ""), metadata[-1]


def test_after_sigkill_of_the_owner_official_clients_go_on_within_the_session_and_a_second(
    cluster: BrokerCluster,
) -> None:
    topic = "persistent://public/default/killed"
    with client_of(*cluster.brokers) as client, traffic(client, topic) as running:
        owner = owner_of(cluster, topic)
        killed_at = time.monotonic()
        owner.kill()
        running.wait_for_more(seconds=30)
        sending, receiving = running.longest_gaps(killed_at)
        print(f"gaps after SIGKILL: {sending:.2f} s sending, {receiving:.2f} s receiving")
        assert max(sending, receiving) <= SESSION_S + 1.0
        assert owner_of(cluster, topic) is not owner
    owner.start()


def test_a_stopped_broker_hands_its_topics_over_at_once(cluster: BrokerCluster) -> None:
    topic = "persistent://public/default/stopped"
    with client_of(*cluster.brokers) as client, traffic(client, topic) as running:
        owner = owner_of(cluster, topic)
        stopped_at = time.monotonic()
        assert owner.stop() == 0
        running.wait_for_more(seconds=30)
        assert max(running.longest_gaps(stopped_at)) < 2.5
        assert owner.id not in other(cluster, owner).ask("GET", f"{ADMIN}/brokers").json()
    owner.start()


@pytest.mark.parametrize("pause_s", [pytest.param(6.0), pytest.param(60.0, marks=pytest.mark.full)])
def test_nothing_that_a_paused_owner_writes_late_is_acknowledged(cluster: BrokerCluster, pause_s: float) -> None:
    topic = f"persistent://public/default/paused-{pause_s:g}"
    owner = owner_of(cluster, topic)
    with client_of(owner) as before, client_of(other(cluster, owner)) as after:
        late = before.create_producer(topic, "late", batching_enabled=False, send_timeout_millis=0)
        fenced = late.send(b"before").ledger_id()
        owner.pause()
        paused_at = time.monotonic()
        answers: list[tuple[str, int]] = []
        for number in range(20):
            late.send_async(b"late-%d" % number, lambda result, at: answers.append((str(result), at.ledger_id())))
        # A client that was sent to it a moment before would wait for it itself: the official one gives up after 10 s.
        cluster.until(
            lambda: owner.id not in other(cluster, owner).ask("GET", f"{ADMIN}/brokers").json(), "it is given up"
        )
        producer = after.create_producer(topic, "new", batching_enabled=False)
        taken_over_s = time.monotonic() - paused_at
        taken = producer.send(b"after").ledger_id()
        assert taken != fenced
        time.sleep(max(0.0, paused_at + pause_s - time.monotonic()))
        assert answers == []
        owner.resume()
        cluster.until(lambda: len(answers) == 20, "the late messages are answered")
        # By the owner of now: whatever the one before it wrote on waking up was refused, and sent again by the client.
        assert {result for result, _ in answers} == {"Result.Ok"}
        assert fenced not in {ledger_id for _, ledger_id in answers}
        print(f"taken over {taken_over_s:.2f} s after SIGSTOP")
        assert taken_over_s <= SESSION_S + 1.0
        assert owner_of(cluster, topic) is other(cluster, owner)
        consumer = after.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
        wanted = [b"before", b"after", *(b"late-%d" % number for number in range(20))]
        found = [consumer.receive(10_000).data() for _ in wanted]
        assert sorted(found) == sorted(wanted)


def test_a_configuration_that_cannot_be_served_is_told_in_a_line(cluster: BrokerCluster) -> None:
    wrong = BrokerProcess(cluster.folder / "wrong", cluster.metadata_url, authenticationEnabled="true")
    code, said = wrong.refused()
    assert (code, said.count("\n")) == (2, 1)
    assert "authenticationEnabled=true: brokers authenticate nobody" in said
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
    process = broker.launch()
    try:
        deadline = time.monotonic() + 30
        while "waiting for ZooKeeper" not in broker.log():
            assert time.monotonic() < deadline, broker.log()
            time.sleep(0.05)
        process.terminate()
        assert process.wait(20) == 0
    finally:
        broker.kill()
