"""`quire bookie` as a process, on a real ZooKeeper: killed, restarted, with other folders, cut off from its cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from quire.metadata import bookies
from quire.metadata.clusters import init_new_cluster
from quire.metadata.errors import NotAllowedError
from quire.metadata.zookeeper.store import SessionExpiredPolicy, ZooKeeperStore, open_store
from quire.servers.bookie.config import BOOKIE, BookieServerConfig
from quire.servers.bookie.process import exit_code, serve
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess, Wire, entry
from tests.support.certificates import Authority, Pair
from tests.support.server import free_port
from tests.support.zookeeper import ZooKeeperProcess, ask, expire, own_root, shared_server, until

T = TypeVar("T")


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

    def ask(self, call: Callable[[ZooKeeperStore], Awaitable[T]]) -> T:
        """Return the result of `call(store)`."""
        return ask(self.server.config(self.chroot), call)

    def bookie(self, name: str = "bookie", **settings: object) -> BookieProcess:
        made = BookieProcess(self.folder / name, self.uri, **settings)
        self.made.append(made)
        return made

    def available(self) -> list[str]:
        return self.ask(lambda store: bookies.available(store))

    def wait_until_registered(self, *, writable: list[str], read_only: list[str], what: str) -> None:
        """Wait until exactly these bookie ids are registered.

        One session asks: one session per question would load ZooKeeper.
        """

        async def watch(store: ZooKeeperStore) -> None:
            async def are_registered() -> bool:
                return await bookies.available(store) == writable and await bookies.readonly(store) == read_only

            await until(are_registered, what)

        self.ask(watch)


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
    assert f"scripts/replace-disk {first.id}" in said

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
    bookie = cluster.bookie(journalFormatVersionToWrite="4", flushIntervall=1, numReadWorkerThreads="many")
    code, said = bookie.refused()
    assert code == 1
    for name in ("journalFormatVersionToWrite", "flushIntervall", "numReadWorkerThreads"):
        assert name in said


def test_a_read_only_bookie_is_registered_as_one_and_can_be_switched(cluster: Cluster) -> None:
    web = free_port()
    bookie = cluster.bookie(httpServerEnabled="true", httpServerPort=web).start()

    def ask(path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{web}{path}", data, method="PUT" if data else "GET")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    assert ask("/api/v1/bookie/state/readonly") == {"readOnly": False}
    assert ask("/api/v1/bookie/state/readonly", {"readOnly": True}) == {"readOnly": True}
    cluster.wait_until_registered(writable=[], read_only=[bookie.id], what="read-only")
    assert bookie.connect().add(7, 0) == 105
    assert ask("/api/v1/bookie/state/readonly", {"readOnly": False}) == {"readOnly": False}
    cluster.wait_until_registered(writable=[bookie.id], read_only=[], what="writable")
    assert bookie.connect().add(7, 0) == 0
    bookie.stop()
    bookie.settings["forceReadOnlyBookie"] = "true"
    bookie.start()
    cluster.wait_until_registered(writable=[], read_only=[bookie.id], what="read-only from the start")
    assert bookie.connect().read(7, 0) == (0, entry(7, 0))


def test_a_bookie_above_its_disk_threshold_is_registered_read_only_or_ends_with_5_as_it_is_told(
    cluster: Cluster,
) -> None:
    """Any disk is more than a millionth full."""
    bookie = cluster.bookie().start()
    assert bookie.connect().add(7, 0) == 0
    bookie.stop()
    bookie.settings |= {"diskUsageThreshold": 0.000001, "diskUsageWarnThreshold": 0.000001}
    bookie.start()
    cluster.wait_until_registered(writable=[], read_only=[bookie.id], what="read-only for its disk")
    wire = bookie.connect()
    assert wire.add(7, 1) == 105
    assert wire.read(7, 0) == (0, entry(7, 0))
    bookie.stop()
    bookie.settings["readOnlyModeEnabled"] = "false"
    code, said = bookie.refused()
    assert code == 5
    assert "above diskUsageThreshold=" in said
    assert "readOnlyModeEnabled=false" in said
    cluster.wait_until_registered(writable=[], read_only=[], what="not registered")


def test_a_bookie_whose_session_expired_registers_again_or_ends_as_it_is_told(cluster: Cluster) -> None:
    # Longer than a busy machine stops a process for: the new session is not to expire before it is registered.
    patient = cluster.bookie("patient", zkTimeout=3000).start()
    strict = cluster.bookie("strict", zkTimeout=1000, zookeeperSessionExpiredPolicy="shutdown").start()
    patient.connect().add(7, 0)
    for bookie in (patient, strict):
        bookie.pause()
    cluster.wait_until_registered(writable=[], read_only=[], what="both sessions expired")
    for bookie in (patient, strict):
        bookie.resume()
    assert strict.wait_ended() == 3
    cluster.wait_until_registered(writable=[patient.id], read_only=[], what="registered anew")
    assert patient.connect().read(7, 0) == (0, entry(7, 0))


@asynccontextmanager
async def served(
    cluster: Cluster,
    policy: SessionExpiredPolicy = SessionExpiredPolicy.RECONNECT,
    settings: dict[str, Any] | None = None,
) -> AsyncIterator[tuple[BookieServerConfig, ZooKeeperStore]]:
    """Run the server of `quire bookie` in this process, so that the test reaches its session and its disk.

    Its final error is raised.
    """
    folder = cluster.folder / "here"
    config = BOOKIE.build(
        {
            "advertisedAddress": "127.0.0.1",
            "bookiePort": free_port(),
            "journalDirectories": (str(folder / "journal"),),
            "ledgerDirectories": (str(folder / "ledgers"),),
            "journalPreAllocSizeMB": 1,
            **(settings or {}),
        }
    )
    store = await open_store(
        real_world(), replace(cluster.server.config(cluster.chroot), session_expired_policy=policy)
    )
    ready, stop = trio.Event(), trio.Event()
    try:
        async with trio.open_nursery() as nursery:
            serving = partial(serve, real_world(), config, store, ready=lambda _: ready.set(), stop=stop)
            nursery.start_soon(serving, name="bookie")
            await ready.wait()
            yield config, store
            stop.set()
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


@pytest.mark.real_clock
@pytest.mark.parametrize("read_only", [False, True])
async def test_under_reconnect_a_new_session_registers_the_bookie_anew_and_it_serves_on(
    cluster: Cluster, read_only: bool
) -> None:
    async with served(cluster, settings={"forceReadOnlyBookie": read_only}) as (config, store):
        with closing(Wire(config.bookie.port)) as wire:
            add = partial(wire.add, flags=v2.HIGH_PRIORITY)
            assert await trio.to_thread.run_sync(add, 7, 0) == 0
            path = bookies.registration_path(config.id, read_only=read_only)
            former = store.session
            await expire(store, cluster.server.port)

            async def is_back() -> bool:
                if store.session in (0, former):
                    return False
                node = await store.get(path)
                return node is not None and node.mine

            await until(is_back, "registered by the new session")
            assert await store.get(bookies.registration_path(config.id, read_only=not read_only)) is None
            assert not store.expired.is_set()
            assert await trio.to_thread.run_sync(add, 7, 1) == 0


@pytest.mark.real_clock
async def test_under_shutdown_the_end_of_the_session_is_the_end_of_the_bookie(cluster: Cluster) -> None:
    async def until_it_ends() -> None:
        async with served(cluster, SessionExpiredPolicy.SHUTDOWN) as (_, store):
            await expire(store, cluster.server.port)
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as found:
        await until_it_ends()
    assert exit_code(found.value) == 3


BREAKABLE = """
import errno, os, pathlib, sys

flag = pathlib.Path(sys.argv.pop(1))
real_write, real_sync = os.pwritev, os.fdatasync

def fail_once():
    if flag.exists():
        flag.unlink()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

def pwritev(file, parts, offset, flags=0):
    if flags & os.RWF_DSYNC:
        fail_once()
    return real_write(file, parts, offset, flags)

def fdatasync(file):
    fail_once()
    real_sync(file)

os.pwritev, os.fdatasync = pwritev, fdatasync
from quire.cli.main import main
sys.exit(main())
"""


def test_d9_a_sync_that_fails_once_ends_the_bookie_and_the_next_start_tells_what_there_is(cluster: Cluster) -> None:
    flag = cluster.folder / "fail once"
    bookie = cluster.bookie(zkTimeout=1000)
    bookie.command = [sys.executable, "-c", BREAKABLE, str(flag), "bookie"]
    wire = bookie.start().connect()
    assert [wire.add(7, each) for each in range(2)] == [0, 0]
    flag.touch()
    with suppress(ConnectionError):  # it may end before it has answered
        assert wire.add(7, 2) == Rc.IO
    assert bookie.wait_ended() == 5
    assert not flag.exists()
    assert "journal failed, acknowledging nothing more; restart the bookie" in bookie.log()
    wire = bookie.start().connect()
    assert [wire.read(7, each) for each in range(2)] == [(0, entry(7, each)) for each in range(2)]
    assert wire.add(7, 2) == 0


async def refused_write(path: str, store: ZooKeeperStore) -> None:
    """Check that the node exists and that the store may not write it."""
    node = await store.get(path)
    assert node is not None
    with pytest.raises(NotAllowedError):
        await store.put(path, node.value, node.version)


def test_a_bookie_with_credentials_makes_nodes_that_others_may_only_read(cluster: Cluster) -> None:
    bookie = cluster.bookie(zkEnableSecurity="true", quireZooKeeperAuth="digest:bookie:se:cret").start()

    cluster.ask(partial(refused_write, f"/ledgers/cookies/{bookie.id}"))
    assert bookie.stop() == 0
    bookie.start()


def consecutive_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
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


def test_the_web_port_of_a_bookie_with_tls_serves_clients_with_a_trusted_certificate_only(cluster: Cluster) -> None:
    authority, other = Authority(cluster.folder), Authority(cluster.folder, "other")
    own, client = authority.issue("127.0.0.1"), authority.issue("a-client", file="client")
    foreign = other.issue("a-client", file="foreign")
    store = cluster.folder / "web.pem"
    store.write_bytes(own.certificate.read_bytes() + own.key.read_bytes())
    port = free_port()
    cluster.bookie(
        httpServerEnabled="true",
        httpServerPort=port,
        httpServerTlsEnable="true",
        httpServerKeyStorePath=store,
        httpServerTrustStorePath=authority.trust,
    ).start()

    def status(pair: Pair | None) -> int:
        context = ssl.create_default_context(cafile=str(authority.trust))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", timeout=10, context=context) as answer:
            return int(answer.status)

    assert status(client) == 200
    for refused in (None, foreign):
        with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|unknown ca|alert"):
            status(refused)
    with pytest.raises(OSError, match=r".*"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
