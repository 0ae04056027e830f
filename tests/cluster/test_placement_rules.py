"""Rules of placement over processes: ledgers of a namespace on some groups of bookies, and configuration that all
brokers obey."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.metadata.ledgers import BlockLedgerIds, LedgerManager
from quire.metadata.zookeeper.store import ZooKeeperStore
from quire.world.real import real_world
from tests.support.broker_process import ADMIN, BrokerCluster, BrokerProcess, client_of
from tests.support.process import start_all, wait_until
from tests.support.zookeeper import shared_server

pytestmark = pytest.mark.cluster
TOPIC = "persistent://public/default/t"


def ensembles(cluster: BrokerCluster, broker: BrokerProcess) -> set[str]:
    """Return the bookies of all ledgers of the topic and of its subscription."""
    found = broker.ask("GET", f"{ADMIN}/persistent/public/default/t/internalStats", follow_redirects=True).json()
    ids = [each["ledgerId"] for each in found["ledgers"]]
    ids += [each["cursorLedger"] for each in found["cursors"].values() if each["cursorLedger"] >= 0]
    assert ids

    async def read(store: ZooKeeperStore) -> set[str]:
        rng = real_world().rng
        manager = LedgerManager(store, ids=BlockLedgerIds(store, "/ledgers"), rng=rng, root="/ledgers")
        bookies: set[str] = set()
        for each in ids:
            found = await manager.read(each)
            assert found is not None
            bookies.update(bookie for fragment in found.value.fragments for bookie in fragment.bookies)
        return bookies

    return cluster.ask(read)


def test_ledgers_stay_on_the_bookies_of_the_namespace_and_every_broker_obeys_a_changed_key(tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path, shared_server(), bookies=4)
    try:
        cluster.start_bookies()
        sizes = dict.fromkeys(
            ("managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum"), 2
        )
        first, second = cluster.broker(**sizes), cluster.broker(**sizes)
        start_all(first, second)
        groups = {"a": cluster.bookies[:2], "b": cluster.bookies[2:]}
        for group, bookies in groups.items():
            for bookie in bookies:
                path = f"{ADMIN}/bookies/racks-info/{bookie.id}?group={group}"
                assert first.ask("POST", path, json={"rack": f"/{group}"}).status_code == 204
        affinity = f"{ADMIN}/namespaces/public/default/persistence/bookieAffinity"
        assert first.ask("POST", affinity, json={"bookkeeperAffinityGroupPrimary": "b"}).status_code == 204
        with client_of(first, second) as client:
            consumer = client.subscribe(TOPIC, "s")
            producer = client.create_producer(TOPIC)
            for number in range(5):
                producer.send(b"%d" % number)
                consumer.acknowledge(consumer.receive(10_000))
            assert ensembles(cluster, first) == {each.id for each in groups["b"]}

            place = f"{ADMIN}/brokers/configuration"
            assert first.ask("POST", f"{place}/allowAutoTopicCreation/false").status_code == 200
            wait_until(
                lambda: second.ask("GET", f"{place}/runtime").json()["allowAutoTopicCreation"] == "false",
                "the other broker obeys",
                5,
            )
            assert second.ask("GET", f"{place}/values").json() == {"allowAutoTopicCreation": "false"}
            second.kill()
            second.start()
            assert second.ask("GET", f"{place}/runtime").json()["allowAutoTopicCreation"] == "false"
    finally:
        cluster.end()
