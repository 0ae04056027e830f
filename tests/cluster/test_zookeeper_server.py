"""`quire zookeeper` as a process, and the original's server over TLS."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from quire.metadata.errors import MetadataUnavailableError, NotAllowedError
from quire.metadata.store import Node
from quire.metadata.zookeeper.store import Tls, ZooKeeperConfig, ZooKeeperStore, open_store
from quire.servers.zookeeper.jars import JARS, file_name, find_jars, missing_from
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess
from tests.support.server import free_port
from tests.support.zookeeper import START_DEADLINE_S, ZooKeeperProcess, opened, until

pytestmark = pytest.mark.cluster


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def is_gone(pid: int) -> bool:
    """Return whether the process has ended, waited for or not."""
    try:
        stat = await trio.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


@asynccontextmanager
async def serving(tmp_path: Path, *options: str) -> AsyncIterator[tuple[ZooKeeperStore, subprocess.Popen[str], int]]:
    """Run `quire zookeeper` on data of the test; yield a store on it, its process, and the server's process id."""
    port = free_port()
    command = [sys.executable, "-m", "quire.cli.main", "zookeeper", "--data-dir", str(tmp_path / "data")]
    command += ["--host", "127.0.0.1", "--port", str(port), *options]
    with start(command) as process:
        assert process.stdout is not None
        line = await trio.to_thread.run_sync(process.stdout.readline)
        assert line.startswith(f"ready zookeeper=127.0.0.1:{port} ")
        async with opened(ZooKeeperConfig(servers=(("127.0.0.1", port),), retry_max_s=0.1)) as store:
            yield store, process, int(line.split("pid=")[1].split()[0])


async def ended(process: subprocess.Popen[str], server_pid: int, number: signal.Signals) -> int:
    """Send the signal, wait until the server has ended too, and return the exit code."""
    process.send_signal(number)
    code = await trio.to_thread.run_sync(process.wait)
    await until(partial(is_gone, server_pid), "the server has ended too")
    return code


@pytest.mark.real_clock(seconds=3 * START_DEADLINE_S)
async def test_the_server_ends_with_quire_zookeeper_keeps_its_data_and_needs_only_the_few_jars_that_are_fetched(
    tmp_path: Path,
) -> None:
    """The test uses the jars in pyspark. They lack the logger, without which the server prints nothing."""
    async with serving(tmp_path) as (store, process, pid):
        await store.create("/kept", b"x" * 10_000)
        assert await ended(process, pid, signal.SIGKILL) == -signal.SIGKILL
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in map(file_name, JARS):
        if (carried := find_jars() / name).exists():
            (folder / name).symlink_to(carried)
    assert [name for name in missing_from(folder) if not name.startswith("slf4j-simple")] == []
    async with serving(tmp_path, "--jars", str(folder)) as (store, process, pid):
        assert await store.get("/kept") == Node(b"x" * 10_000, 0)
        assert await store.put("/kept", b"y", 0) == 1
        assert await ended(process, pid, signal.SIGTERM) == 0
    async with serving(tmp_path) as (store, process, pid):
        assert await store.get("/kept") == Node(b"y", 1)
        assert await ended(process, pid, signal.SIGTERM) == 0


@pytest.mark.full
@pytest.mark.real_clock(seconds=3 * START_DEADLINE_S)
async def test_maven_fetches_the_jars_of_a_server(tmp_path: Path) -> None:
    async with serving(tmp_path, "--jars", str(tmp_path / "jars"), "--fetch-jars") as (store, process, pid):
        await store.create("/kept", b"x" * 10_000)
        assert await store.get("/kept") == Node(b"x" * 10_000, 0)
        assert await ended(process, pid, signal.SIGTERM) == 0
    assert missing_from(tmp_path / "jars") == []


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make ca.pem, and server.pem and client.pem signed by it for 127.0.0.1, each with its key in NAME.key."""
    folder = tmp_path_factory.mktemp("keys")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    for name in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    (folder / "both.pem").write_text((folder / "server.key").read_text() + (folder / "server.pem").read_text())
    return folder


@pytest.fixture(scope="module")
def over_tls(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[tuple[ZooKeeperProcess, int]]:
    """Run a server that requires certificates on another port; yield both."""
    port = free_port()
    settings = (
        f"secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n"
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={keys}/both.pem\nssl.trustStore.location={keys}/ca.pem\nssl.clientAuth=need\n"
        "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n"
    )
    server = ZooKeeperProcess(tmp_path_factory.mktemp("tls"), settings=settings).start()
    yield server, port
    server.kill()


@pytest.mark.real_clock
async def test_tls_with_and_without_a_client_certificate(over_tls: tuple[ZooKeeperProcess, int], keys: Path) -> None:
    server, port = over_tls
    tls = Tls(
        ca_file=str(keys / "ca.pem"), certificate_file=str(keys / "client.pem"), key_file=str(keys / "client.key")
    )
    config = replace(server.config("/tls"), servers=(("127.0.0.1", port),), tls=tls, secure=True)
    async with opened(config) as store, opened(server.config("/tls")) as other:
        await store.create("/a", b"x")
        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(store.create, f"/a/{number}", bytes(1000), name=f"{number}")
        assert len(await store.children("/a")) == 300
        with pytest.raises(NotAllowedError):
            await other.put("/a", b"y", 0)
    for wrong in (
        replace(tls, ca_file=None),
        replace(tls, certificate_file=None, key_file=None),
    ):
        with pytest.raises(MetadataUnavailableError, match="ZooKeeper does not answer"):
            await open_store(real_world(), replace(config, tls=wrong, secure=False, connect_timeout_s=1.0))


def test_a_bookie_and_the_shell_reach_a_zookeeper_over_tls(
    over_tls: tuple[ZooKeeperProcess, int], keys: Path, tmp_path: Path
) -> None:
    settings = {
        "quireZooKeeperTls": "true",
        "quireZooKeeperTlsCaFile": keys / "ca.pem",
        "quireZooKeeperTlsCertificateFile": keys / "client.pem",
        "quireZooKeeperTlsKeyFile": keys / "client.key",
        "zkEnableSecurity": "true",
    }
    bookie = BookieProcess(tmp_path, f"zk+hierarchical://127.0.0.1:{over_tls[1]}/ledgers", **settings)

    def shell(*command: str) -> str:
        words = [sys.executable, "-m", "quire.cli.main", "shell", "-conf", str(bookie.conf), *command]
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout

    shell("initnewcluster")
    bookie.start()
    try:
        assert bookie.connect().add(7, 0) == 0
        assert bookie.id in shell("listbookies", "-rw")
        assert bookie.stop() == 0
    finally:
        bookie.kill()
