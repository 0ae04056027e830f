"""A metadata service of three nodes that loses its leader under a running cluster. docs/faults.md has the list."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from quire.metadata.errors import BadVersionError, MetadataUnavailableError
from quire.metadata.zookeeper.store import SessionExpiredPolicy, ZooKeeperConfig
from tests.support.broker_process import BrokerCluster, client_of
from tests.support.process import wait_until
from tests.support.server import free_port
from tests.support.traffic import traffic
from tests.support.zookeeper import ZooKeeperProcess, opened, own_root

pytestmark = pytest.mark.cluster

TICK_MS = 500
NODES = 3
PAUSE_MAX_S = 10.0
"""Longest pause that docs/faults.md allows, in seconds."""


class Service:
    """A metadata service of three nodes."""

    def __init__(self, folder: Path) -> None:
        ports = [(free_port(), free_port()) for _ in range(NODES)]
        peers = "".join(f"server.{n}=127.0.0.1:{peer}:{vote}\n" for n, (peer, vote) in enumerate(ports, 1))
        settings = f"initLimit=20\nsyncLimit=4\n{peers}"
        self.voters = [
            ZooKeeperProcess(folder / f"zk{number}", tick_ms=TICK_MS, settings=settings, number=number)
            for number in range(1, NODES + 1)
        ]

    def start(self) -> None:
        """Start all nodes and wait until they serve: each waits for a quorum."""
        threads = [threading.Thread(target=voter.start, daemon=True) for voter in self.voters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def kill(self) -> None:
        for voter in self.voters:
            voter.kill()

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{voter.port}" for voter in self.voters)

    def config(self, chroot: str) -> ZooKeeperConfig:
        any_of = self.voters[0].config(chroot, session_timeout_s=4.0, policy=SessionExpiredPolicy.RECONNECT)
        return replace(any_of, servers=tuple(("127.0.0.1", voter.port) for voter in self.voters))

    @property
    def leader(self) -> ZooKeeperProcess:
        found: list[ZooKeeperProcess] = []

        def leads() -> bool:
            found[:] = [voter for voter in self.voters if voter.mode() == "leader"]
            return found != []

        wait_until(leads, "somebody leads")
        return found[0]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("zookeepers"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


class Counting:
    """A task that counts upwards by compare-and-set until it is cancelled."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        self.confirmed: list[int] = []
        """Values whose write was answered, in order."""
        self.answered_at: list[float] = []
        self.unknown = 0
        """Number of writes with an unknown outcome."""
        self.last = -1
        self.errors: list[BaseException] = []
        self._config = config
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            trio.run(self._count)
        except BaseException as error:
            self.errors.append(error)

    async def _count(self) -> None:
        async with opened(self._config) as store:
            await store.create("/count", b"0")
            value, version = 0, 0
            while not self._stop.is_set():
                try:
                    version = await store.put("/count", b"%d" % (value + 1), version)
                    value += 1
                except (MetadataUnavailableError, BadVersionError) as error:
                    # Done or not: the next read tells. Only a write of unknown outcome can have moved the version.
                    if isinstance(error, BadVersionError):
                        assert self.unknown, "somebody else has written, and there is nobody else"
                    else:
                        self.unknown += 1
                    try:
                        node = await store.get("/count")
                    except MetadataUnavailableError:
                        continue
                    assert node is not None
                    assert int(node.value) in (value, value + 1), "a confirmed write is gone"
                    value, version = int(node.value), node.version
                    continue
                self.confirmed.append(value)
                self.answered_at.append(time.monotonic())
                await trio.sleep(0.005)
            node = await store.get("/count")
            assert node is not None
            self.last = int(node.value)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self.errors, self.errors
        assert self.confirmed == sorted(set(self.confirmed))
        assert self.last == self.confirmed[-1]

    def longest_gap(self, since: float) -> float:
        times = [at for at in self.answered_at if at >= since - 0.5]
        return max(b - a for a, b in itertools.pairwise(times))


@pytest.mark.full
def test_m4_when_the_leader_of_the_metadata_is_killed_publishing_goes_on_and_no_write_of_it_is_lost(
    service: Service, tmp_path: Path
) -> None:
    """Metadata pauses for less than ten seconds, which does not affect open ledgers.

    New topics are created as soon as it is back.
    """
    cluster = BrokerCluster(tmp_path, service.voters[0])
    cluster.metadata_url = f"zk:{service.addresses}{cluster.chroot}"
    for bookie in cluster.bookies:
        bookie.settings["metadataServiceUri"] = (
            f"zk+hierarchical://{service.addresses.replace(',', ';')}{cluster.chroot}/ledgers"
        )
    broker = cluster.broker()
    counting = Counting(service.config(own_root()))
    try:
        cluster.start_bookies()
        broker.start()
        topic = "persistent://public/default/without-a-leader"
        with client_of(broker) as client, traffic(client, topic) as running:
            leader = service.leader
            killed_at = time.monotonic()
            leader.kill()
            # A new topic needs its bundle, its list and a ledger.
            producer = client.create_producer(f"persistent://public/default/new-{killed_at}")
            producer.send(b"new")
            made_s = time.monotonic() - killed_at
            assert made_s < PAUSE_MAX_S
            producer.close()
            assert max(running.longest_gaps(killed_at)) < 2.0, "publishing waits for nobody"
            count = len(counting.confirmed)
            wait_until(lambda: len(counting.confirmed) > count + 10, "it is counted on")
            assert counting.longest_gap(killed_at) < PAUSE_MAX_S
            print(f"a new topic after {made_s:.2f} s, metadata after {counting.longest_gap(killed_at):.2f} s")
    finally:
        cluster.end()
        counting.finish()
    broker.check_log()
