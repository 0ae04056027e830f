"""Clusters to measure: one ZooKeeper, bookies of Quire and of Apache BookKeeper as processes, both with fsync on."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from bench.procs import tree
from bench.servers import free_port, stop_process
from quire.metadata.clusters import init_new_cluster
from quire.metadata.zookeeper.store import ZooKeeperConfig, open_store
from quire.servers.zookeeper.process import find_java, start_server, write_conf
from quire.world.real import real_world

START_DEADLINE_S = 180.0
DIRECT_GB = 6
"""Bound of the memory of the original's caches."""
_ORIGINAL = {
    "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
    "dbStorage_writeCacheMaxSizeMb": 256,
    "dbStorage_readAheadCacheMaxSizeMb": 256,
    "dbStorage_rocksDB_blockCacheSize": 100 << 20,
}
"""Settings of the original: those of caches are its defaults with 1 GB of memory for them, whatever DIRECT_GB is."""
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookie:
    """A running bookie."""

    port: int
    http_port: int
    folder: Path
    process: subprocess.Popen[bytes]
    classes: str | None
    """Class path of the original; None: Quire's."""

    @property
    def pids(self) -> list[int]:
        return tree(self.process.pid)

    @property
    def id(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        stop_process(self.process)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> str:
        """Return the answer of a resource of the HTTP server."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def put(self, path: str, value: object) -> None:
        body = json.dumps(value).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.http_port}{path}", data=body, method="PUT")
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Bookies of one kind."""

    name: str
    uri: str
    bookies: list[Bookie]

    @property
    def pids(self) -> list[int]:
        return [pid for bookie in self.bookies for pid in bookie.pids]


def apache_classes() -> str | None:
    """Return the class path of the original, whose jars Maven fetches at the first use; None without Maven or Java."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        return None
    made = subprocess.run(
        [_ROOT / "scripts/interop_tester"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    return f"{made}/classes:{made}/lib/*"


@contextlib.contextmanager
def zookeeper(folder: Path) -> Iterator[int]:
    """Run a server; yield its port."""
    port = free_port()
    server = start_server(write_conf(folder, host="127.0.0.1", port=port))
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def cluster(
    name: str,
    folder: Path,
    zookeeper_port: int,
    count: int,
    *,
    classes: str | None = None,
    conf: Mapping[str, object] | None = None,
) -> Iterator[Cluster]:
    """Run `count` bookies, the original's if there is a class path."""
    root = f"/{name}"
    trio.run(_initialize, zookeeper_port, root)
    uri = f"zk+hierarchical://127.0.0.1:{zookeeper_port}{root}"
    bookies: list[Bookie] = []
    try:
        for number in range(count):
            bookies.append(_launch(folder / f"{name}-{number}", uri, classes, conf or {}))
        for bookie in bookies:
            _wait_ready(bookie)
        yield Cluster(name=name, uri=uri, bookies=bookies)
    finally:
        for bookie in bookies:
            bookie.stop()


async def _initialize(port: int, root: str) -> None:
    world = real_world()
    store = await open_store(world, ZooKeeperConfig(servers=(("127.0.0.1", port),)))
    try:
        await init_new_cluster(store, root, rng=world.rng)
    finally:
        await store.aclose()


def _launch(folder: Path, uri: str, classes: str | None, conf: Mapping[str, object]) -> Bookie:
    folder.mkdir(parents=True)
    port, http_port = free_port(), free_port()
    settings: dict[str, object] = {
        **({} if classes is None else _ORIGINAL),
        **conf,
        "bookiePort": port,
        "httpServerEnabled": "true",
        "httpServerPort": http_port,
        "prometheusStatsHttpEnable": "false",
        "advertisedAddress": "127.0.0.1",
        "listeningInterface": "lo",
        "allowLoopback": "true",
        "metadataServiceUri": uri,
        "journalDirectories": conf.get("journalDirectories", folder / "journal"),
        "ledgerDirectories": folder / "ledgers",
        "journalSyncData": "true",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.99,
    }
    (folder / "bookie.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return _start(folder, port, http_port, classes)


def _start(folder: Path, port: int, http_port: int, classes: str | None) -> Bookie:
    path = folder / "bookie.conf"
    if classes is None:
        command = [sys.executable, "-m", "quire.cli.main", "bookie", "--conf", str(path)]
    else:
        command = [
            find_java(),
            "-Xmx1g",
            f"-XX:MaxDirectMemorySize={DIRECT_GB}g",
            "--add-opens",
            "java.base/java.io=ALL-UNNAMED",
        ]
        command += ["-cp", classes, "-Dlog4j.configurationFile=log4j2-server.xml"]
        command += ["org.apache.bookkeeper.server.Main", "--conf", str(path)]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return Bookie(port=port, http_port=http_port, folder=folder, process=process, classes=classes)


def restart(group: Cluster, number: int, conf: Mapping[str, object] | None = None) -> Bookie:
    """Stop a bookie, unless it is killed already, and start it on the same data, with these values of keys."""
    old = group.bookies[number]
    old.stop()
    path = old.folder / "bookie.conf"
    lines = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in (conf or {})]
    path.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in (conf or {}).items())]) + "\n")
    group.bookies[number] = _start(old.folder, old.port, old.http_port, old.classes)
    _wait_ready(group.bookies[number])
    return group.bookies[number]


def _wait_ready(bookie: Bookie) -> None:
    end = time.monotonic() + START_DEADLINE_S
    while True:
        text = (bookie.folder / "log").read_text()
        if re.search(r"^ready bookie=|Started component bookie-server", text, re.MULTILINE):
            return
        if bookie.process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the bookie did not start:\n{text[-4000:]}")
        time.sleep(0.02)
