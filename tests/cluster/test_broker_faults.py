"""Brokers and bookies as an operator, a supervisor and a network treat them, with official clients. docs/faults.md has
the list.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import httpx
import pulsar
import pytest

from quire.metadata.ledgers import BlockLedgerIds, LedgerManager
from quire.metadata.zookeeper.store import ZooKeeperStore
from quire.world.real import real_world
from tests.support.bad_links import FAR, BadLink, bad_links
from tests.support.broker_process import ADMIN, BrokerCluster, BrokerProcess, client_of
from tests.support.process import start_all, wait_until
from tests.support.traffic import traffic
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = pytest.mark.cluster

SESSION_S = 3.0
TICK_MS = 500
ALLOWED = {"forceDeleteNamespaceAllowed": "true"}
CRASHES_S = (0.4, 1.0, 1.7)
"""After so long a process that was just started is killed."""


class Scene:
    def __init__(self, cluster: BrokerCluster, link: BadLink) -> None:
        self.cluster = cluster
        self.far, self.near = cluster.brokers
        self.link = link
        """Between `far` and the metadata."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two brokers, three bookies; each test leaves all of them running."""
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


def brokers_known_by(broker: BrokerProcess) -> list[str]:
    found: list[str] = broker.ask("GET", f"{ADMIN}/brokers").json()
    return sorted(found)


def test_m1_m6_an_owner_cut_off_from_the_metadata_serves_on_until_it_is_replaced_and_then_acknowledges_nothing(
    scene: Scene,
) -> None:
    """Its bookies and its clients are near all the time.

    Who wins is decided by fencing, not by the time of anything.
    """
    cluster, far, near = scene.cluster, scene.far, scene.near
    topic = "persistent://public/default/cut-off"
    if cluster.owner_of(topic) is not far:
        cluster.move(topic, far)
    with client_of(far) as before, client_of(near) as after:
        producer = before.create_producer(topic, "far", batching_enabled=False, send_timeout_millis=0)
        fenced = producer.send(b"0").ledger_id()
        scene.link.cut()
        cut_at = time.monotonic()
        sent = 1
        while time.monotonic() < cut_at + 0.5 * SESSION_S:  # M1
            producer.send(b"%d" % sent)
            sent += 1
        assert sent > 2
        # Nobody but its session says that it is there: in the end it is replaced, by whoever is asked.
        wait_until(lambda: brokers_known_by(near) == [near.id], "its session is over")
        producer.send(b"%d" % sent)  # it cannot know, and nobody has taken the topic
        sent += 1
        new = after.create_producer(topic, "near", batching_enabled=False)
        taken = new.send(b"near").ledger_id()
        assert taken != fenced
        answers: list[tuple[str, int]] = []
        for number in range(sent, sent + 20):
            producer.send_async(b"%d" % number, lambda result, at: answers.append((str(result), at.ledger_id())))
        # A client of the cut off one goes on by itself, as soon as that one knows: its bookies tell.
        time.sleep(1.0)
        assert fenced not in {ledger_id for _, ledger_id in answers}
        scene.link.heal()
        wait_until(lambda: len(answers) == 20, "the late messages are answered", 60)
        assert {result for result, _ in answers} == {"Result.Ok"}
        assert fenced not in {ledger_id for _, ledger_id in answers}
        wait_until(lambda: brokers_known_by(far) == sorted([far.id, near.id]), "it is back")
        assert cluster.owner_of(topic) is near
        consumer = after.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
        wanted = {b"near", *(b"%d" % number for number in range(sent + 20))}
        found: list[bytes] = []
        while wanted - set(found):
            found.append(consumer.receive(10_000).data())
        of_far = list(dict.fromkeys(each for each in found if each != b"near"))
        assert of_far == [b"%d" % number for number in range(sent + 20)]


@pytest.mark.parametrize("count", [2, pytest.param(12, marks=pytest.mark.full)])
def test_k16_bookies_are_restarted_one_after_the_other_under_load_and_nobody_notices(scene: Scene, count: int) -> None:
    """By SIGTERM and by SIGKILL, each as soon as the one before is back. More of it does `scripts/chaos`."""
    cluster = scene.cluster
    with client_of(scene.near) as client, traffic(client, f"persistent://public/default/rolling-{count}") as running:
        for number, bookie in enumerate(itertools.islice(itertools.cycle(cluster.bookies), count)):
            if number % 2:
                bookie.kill()
            else:
                assert bookie.stop() == 0
            bookie.start()
            running.wait_for_more(20, seconds=60)


def test_o7_a_namespace_that_is_deleted_under_its_producers_is_gone_with_its_ledgers_and_they_are_told(
    scene: Scene,
) -> None:
    cluster = scene.cluster
    namespace = f"{ADMIN}/namespaces/public/doomed"

    def ask(method: str, path: str = namespace) -> httpx.Response:
        return scene.near.ask(method, path, follow_redirects=True)

    assert ask("PUT").status_code == 204
    topics = [f"persistent://public/doomed/t{number}" for number in range(2)]
    with client_of(scene.near, timeout_s=5) as client:
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
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(topics[0])
    assert ask("GET").status_code == 404
    wait_until(lambda: not ledgers(cluster, "public/doomed/"), "no ledger of it is left")


def ledgers(cluster: BrokerCluster, namespace: str) -> set[int]:
    """That exist, of logs whose names begin so, by the ledgers' own word: of cursors too."""

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


def test_o8_a_broker_and_a_bookie_that_are_killed_while_they_start_again_and_again_start_in_the_end(
    scene: Scene,
) -> None:
    """As by a supervisor that knows no mercy. Each start is like every other, and costs no message."""
    cluster = scene.cluster
    topic = "persistent://public/default/crash-loop"
    owner = cluster.owner_of(topic)
    bookie = cluster.bookies[0]
    with client_of(owner, cluster.other(owner)) as client, traffic(client, topic) as running:
        owner.kill()
        bookie.kill()
        for seconds in CRASHES_S:
            owner.launch()
            bookie.launch()
            time.sleep(seconds)  # wherever that finds them
            owner.kill()
            bookie.kill()
        owner.start()
        bookie.start()
        running.wait_for_more(20, seconds=60)
        wait_until(lambda: len(brokers_known_by(owner)) == 2, "both are known")
