"""Topics of Apache Pulsar, in a real ZooKeeper and in Quire's bookies under their own ledger ids, served to official
clients by `quire broker`: same messages, same subscriptions, same positions. Requests that are not supported yet are
refused with the reason.

"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest

from quire.ledger import open_client
from quire.world.real import real_world
from tests.cluster.pulsar_load import load
from tests.golden.pulsar_files import MOMENTS, manifest
from tests.support.bookies import BookieCluster, cluster
from tests.support.broker_process import BrokerProcess, client_of
from tests.support.zookeeper import opened

pytestmark = pytest.mark.cluster

DEFAULT = "persistent://public/default"
ORDERS = f"{DEFAULT}/orders"
ONCE = "persistent://public/dedup/once"
LEDGERS_OF_ORDERS = (2, 3, 4)
PATIENCE_MS = 20_000

Place = tuple[int, int, int]
"""Ledger, entry, index in the batch; -1: not in a batch."""


def place(text: str) -> Place:
    """
    >>> place("(2,0,-1,3)")
    (2, 0, 3)
    """
    ledger_id, entry_id, _, index = (int(part) for part in text.strip("()").split(","))
    return ledger_id, entry_id, index


def published() -> list[Place]:
    """Return the places of the messages of `orders`, in order."""
    steps: list[dict[str, Any]] = manifest()["workload"]
    told = [place(each) for step in steps for each in (*step.get("ids", ()), *([step["id"]] if "id" in step else []))]
    return sorted({each for each in told if each[0] in LEDGERS_OF_ORDERS})


def acknowledged() -> set[Place]:
    """Return the places acknowledged on the subscription `holes`."""
    step = next(each for each in manifest()["workload"] if each["what"].startswith("holes: individual acks"))
    return {place(text) for _, text in step["acked"]}


def place_of(message: pulsar.Message) -> Place:
    found = message.message_id()
    return found.ledger_id(), found.entry_id(), found.batch_index()


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieCluster]:
    with cluster(tmp_path, 2) as made:
        yield made


@contextmanager
def broker_on(bookies: BookieCluster, folder: Path) -> Iterator[BrokerProcess]:
    chroot = bookies.root.removesuffix("/ledgers")
    quorums = [f"managedLedgerDefault{each}" for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")]
    broker = BrokerProcess(
        folder,
        f"zk:127.0.0.1:{bookies.zookeeper.port}{chroot}",
        clusterName="golden",
        defaultRetentionTimeInMinutes=-1,
        defaultRetentionSizeInMB=-1,
        metadataStoreSessionTimeoutMillis=3000,
        quireAcceptUnsupportedPolicies="true",  # Pulsar left policies of single topics
        **dict.fromkeys(quorums, 2),
    )
    try:
        yield broker.start()
    finally:
        broker.kill()
    broker.check_log()


def drained(client: pulsar.Client, topic: str, subscription: str, kind: pulsar.ConsumerType, count: int) -> list[Place]:
    """Return the places of the next messages, which must be `count`. None is acknowledged."""
    consumer = client.subscribe(topic, subscription, kind)
    found = [place_of(consumer.receive(PATIENCE_MS)) for _ in range(count)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    consumer.close()
    return found


def read_all(client: pulsar.Client, topic: str) -> list[Place]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(place_of(reader.read_next(PATIENCE_MS)))
    reader.close()
    return found


@pytest.mark.real_clock
@pytest.mark.parametrize("moment", MOMENTS)
async def test_official_clients_go_on_with_what_the_original_served(
    moment: str, bookies: BookieCluster, tmp_path: Path
) -> None:
    chroot = bookies.root.removesuffix("/ledgers")
    async with opened(bookies.zookeeper.config(chroot)) as store, open_client(real_world(), bookies.uri) as ledgers:
        await load(moment, store, ledgers)
    everything = published()
    wanted = {
        "holes": [each for each in everything if each not in acknowledged()],
        "cumulative": [each for each in everything if each[:2] > (2, 7)],
        "idle": everything,
    }
    assert len(everything) == 49
    kinds = {"holes": pulsar.ConsumerType.Shared, "idle": pulsar.ConsumerType.Shared}
    for turn in range(2):  # the second on what our broker stored when it stopped
        with broker_on(bookies, tmp_path / f"broker{turn}") as broker, client_of(broker) as client:
            for subscription, left in wanted.items():
                kind = kinds.get(subscription, pulsar.ConsumerType.Exclusive)
                assert sorted(drained(client, ORDERS, subscription, kind, len(left))) == left
            assert read_all(client, ORDERS) == wanted["idle"]
            # Its namespace asks for duplicates to be dropped; a producer without a name of before begins anew.
            once = client.create_producer(ONCE)
            assert once.last_sequence_id() == -1
            once.close()
            assert len(read_all(client, ONCE)) > 0
            with pytest.raises(pulsar.PulsarException, match="TopicTerminated"):
                client.create_producer(f"{DEFAULT}/ended")
            producer = client.create_producer(ORDERS, batching_enabled=False)
            sent = producer.send(b"ours %d" % turn)
            for left in wanted.values():
                left.append((sent.ledger_id(), sent.entry_id(), -1))
            assert broker.stop() == 0
