"""`quire bookie` as a process, on a real ZooKeeper: killed, restarted, given other folders, cut off from its cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from quire.metadata import bookies
from quire.metadata.clusters import init_new_cluster
from quire.metadata.zookeeper import ZooKeeperStore
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess, entry
from tests.support.server import free_port
from tests.support.zookeeper import ZooKeeperProcess, opened, own_root, shared_server

PATIENCE_S = 30.0


class Cluster:
    """A cluster of its own on the shared ZooKeeper."""

    def __init__(self, folder: Path, server: ZooKeeperProcess) -> None:
        self.folder = folder
        self.server = server
        self.chroot = own_root()
        self.root = f"{self.chroot}/ledgers"
        self.uri = f"zk+hierarchical://127.0.0.1:{server.port}{self.root}"
        self.made: list[BookieProcess] = []
        self.ask(self._init)

    async def _init(self, store: ZooKeeperStore) -> None:
        await init_new_cluster(store, "/ledgers", rng=real_world().rng)

    def ask(self, call: Callable[[ZooKeeperStore], object]) -> object:
        """What `call(store)` answers."""

        async def main() -> object:
            async with opened(self.server.config(self.chroot)) as store:
                return await call(store)  # type: ignore[misc]

        return trio.run(main)

    def bookie(self, name: str = "bookie", **settings: object) -> BookieProcess:
        made = BookieProcess(self.folder / name, self.uri, **settings)
        self.made.append(made)
        return made

    def available(self) -> object:
        return self.ask(lambda store: bookies.available(store))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"it never came to pass: {what}"
            time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, shared_server())
    yield made
    for bookie in made.made:
        bookie.kill()


def test_acknowledged_entries_and_fences_survive_kill_minus_nine(cluster: Cluster) -> None:
    bookie = cluster.bookie().start()
    wire = bookie.connect()
    assert [wire.add(7, i) for i in range(50)] == [0] * 50
    assert wire.add(8, 0) == 0
    assert wire.read(8, -1, fence=True) == (0, entry(8, 0))
    bookie.kill()
    assert (bookie.folder / "ledgers/current/DIRTY").exists()
    bookie.start()
    wire = bookie.connect()
    assert [wire.read(7, i) for i in range(50)] == [(0, entry(7, i)) for i in range(50)]
    assert wire.add(8, 1) == 104
    assert wire.add(7, 50) == 0
    assert "journal replayed" in bookie.log()


def test_a_stopped_bookie_is_unregistered_flushed_and_clean(cluster: Cluster) -> None:
    bookie = cluster.bookie().start()
    assert cluster.available() == [bookie.id]
    bookie.connect().add(7, 0)
    assert bookie.stop() == 0
    assert cluster.available() == []
    assert not (bookie.folder / "ledgers/current/DIRTY").exists()
    bookie.start()
    assert bookie.connect().read(7, 0) == (0, entry(7, 0))


def test_a_bookie_killed_and_started_at_once_takes_its_own_name_over(cluster: Cluster) -> None:
    bookie = cluster.bookie().start()
    bookie.kill()
    bookie.start()
    assert cluster.available() == [bookie.id]


def test_a_wiped_a_foreign_and_a_moved_folder_are_refused_with_the_remedy(cluster: Cluster) -> None:
    first, second = cluster.bookie("first").start(), cluster.bookie("second").start()
    first.connect().add(7, 0)
    first.stop()
    second.stop()
    kept = cluster.folder / "kept"
    shutil.copytree(first.folder, kept)

    shutil.rmtree(first.folder / "ledgers")
    code, said = first.refused()
    assert code == 5
    assert "was wiped, or is not mounted" in said
    assert "delete the bookie's cookie" in said

    shutil.rmtree(first.folder / "journal")
    shutil.copytree(second.folder / "journal", first.folder / "journal")
    shutil.copytree(second.folder / "ledgers", first.folder / "ledgers", dirs_exist_ok=True)
    code, said = first.refused()
    assert code == 5
    assert "is for another bookie" in said

    for name in ("journal", "ledgers"):
        shutil.rmtree(first.folder / name)
        shutil.copytree(kept / name, first.folder / name)
    first.settings["ledgerDirectories"] = first.folder / "moved"
    shutil.move(first.folder / "ledgers", first.folder / "moved")
    code, said = first.refused()
    assert code == 5
    assert "ledger_directories" in said

    shutil.move(first.folder / "moved", first.folder / "ledgers")
    first.settings["ledgerDirectories"] = first.folder / "ledgers"
    assert first.start().connect().read(7, 0) == (0, entry(7, 0))


def test_the_folders_of_another_cluster_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    bookie = cluster.bookie().start()
    bookie.connect().add(7, 0)
    bookie.stop()
    other = Cluster(tmp_path / "other", cluster.server)
    bookie.settings["metadataServiceUri"] = other.uri
    code, said = bookie.refused()
    assert code == 5
    assert "instance_id" in said


def test_two_bookies_on_the_same_folders_or_of_the_same_name_are_refused(cluster: Cluster) -> None:
    first = cluster.bookie("first").start()
    second = cluster.bookie("second")
    second.settings |= {"journalDirectories": first.folder / "journal", "ledgerDirectories": first.folder / "ledgers"}
    code, said = second.refused()
    assert code == 5
    assert "another process serves" in said
    third = cluster.bookie("third", bookieId=first.id, zkTimeout=1000)
    code, said = third.refused()
    assert code == 5, "its folders are empty, and the cluster knows the name"
    assert "cookie" in said


def test_a_cluster_that_was_never_made_is_told_with_the_remedy(cluster: Cluster) -> None:
    bookie = cluster.bookie()
    bookie.settings["metadataServiceUri"] = cluster.uri.replace(cluster.root, f"{cluster.chroot}/nothing")
    code, said = bookie.refused()
    assert code == 5
    assert "initnewcluster" in said


def test_a_wrong_configuration_ends_with_exit_code_1_and_every_problem(cluster: Cluster) -> None:
    bookie = cluster.bookie(journalWriteData="false", flushIntervall=1, numReadWorkerThreads="many")
    code, said = bookie.refused()
    assert code == 1
    for name in ("journalWriteData", "flushIntervall", "numReadWorkerThreads"):
        assert name in said


def test_a_read_only_bookie_is_registered_as_one_and_can_be_switched(cluster: Cluster) -> None:
    web = free_port()
    bookie = cluster.bookie(httpServerEnabled="true", httpServerPort=web).start()

    def ask(path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{web}{path}", data, method="PUT" if data else "GET")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def read_only() -> object:
        return cluster.ask(lambda store: bookies.readonly(store))

    assert ask("/api/v1/bookie/state/readonly") == {"readOnly": False}
    assert ask("/api/v1/bookie/state/readonly", {"readOnly": True}) == {"readOnly": True}
    cluster.until(lambda: read_only() == [bookie.id] and cluster.available() == [], "read-only")
    assert bookie.connect().add(7, 0) == 105
    assert ask("/api/v1/bookie/state/readonly", {"readOnly": False}) == {"readOnly": False}
    cluster.until(lambda: cluster.available() == [bookie.id] and read_only() == [], "writable")
    assert bookie.connect().add(7, 0) == 0
    bookie.stop()
    bookie.settings["forceReadOnlyBookie"] = "true"
    bookie.start()
    assert read_only() == [bookie.id]
    assert bookie.connect().read(7, 0) == (0, entry(7, 0))


def test_a_bookie_whose_session_expired_registers_again_or_ends_as_it_is_told(cluster: Cluster) -> None:
    patient = cluster.bookie("patient", zkTimeout=1000).start()
    strict = cluster.bookie("strict", zkTimeout=1000, zookeeperSessionExpiredPolicy="shutdown").start()
    patient.connect().add(7, 0)
    for bookie in (patient, strict):
        bookie.pause()
    cluster.until(lambda: cluster.available() == [], "both sessions expired")
    for bookie in (patient, strict):
        bookie.resume()
    assert strict.wait_ended() == 3
    cluster.until(lambda: cluster.available() == [patient.id], "registered anew")
    assert patient.connect().read(7, 0) == (0, entry(7, 0))


def consecutive_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        with ExitStack() as probes:
            first = free_port()
            try:
                for port in range(first, first + count):
                    probes.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first


def test_a_local_cluster_comes_and_goes_with_one_command(tmp_path: Path) -> None:
    ports = [consecutive_ports(2), free_port()]
    command = [sys.executable, "-m", "quire.cli.main", "localbookie", "2", "--data-dir", str(tmp_path / "data")]
    command += ["--port", str(ports[0]), "--zookeeper-port", str(ports[1])]
    output = tmp_path / "out"
    for _ in range(2):
        with open(output, "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while b"\nready metadata=" not in b"\n" + output.read_bytes():
                assert process.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.05)
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(60) == 0, output.read_text()
        finally:
            process.kill()
            process.wait()
