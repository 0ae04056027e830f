"""`quire bookie` as processes on a real ZooKeeper, each to be killed, paused and started again on its folders and its port."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quire.metadata.clusters import init_new_cluster
from quire.metadata.zookeeper import ZooKeeperConfig, open_store
from quire.world.real import real_world
from tests.support.server import free_port
from tests.support.zookeeper import ZooKeeperProcess, own_root, run, shared_server

START_DEADLINE_S = 60.0
SESSION_TIMEOUT_MS = 4000
"""Of bookies: so long is one that died still registered, and so long does its successor wait to register."""


class BookieProcess:
    """One folder, one port, one process at a time. `bookie_id` None: 127.0.0.1:port."""

    def __init__(
        self, folder: Path, metadata_uri: str, *, bookie_id: str | None = None, conf: Mapping[str, object] | None = None
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.id = bookie_id or f"127.0.0.1:{self.port}"
        self.log_path = folder / "bookie.log"
        self.announced: list[str] = []
        """Regular expressions of the ERROR lines that the test expects."""
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "bookiePort": self.port,
            "bookieId": self.id,
            "advertisedAddress": "127.0.0.1",
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "metadataServiceUri": metadata_uri,
            "journalDirectories": folder / "journal",
            "ledgerDirectories": folder / "ledgers",
            "journalPreAllocSizeMB": 1,
            "zkTimeout": SESSION_TIMEOUT_MS,
            **(conf or {}),
        }
        self.conf = folder / "bookie.conf"
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "quire.cli.main", "bookie", "--conf", str(self.conf)]

    def start(self) -> BookieProcess:
        """Start, and wait until it serves; fails with its log if it does not."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        assert self.process is None
        self._offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder.parent
            )

    def wait_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_DEADLINE_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the bookie did not become ready:\n{self.log()}")
            time.sleep(0.01)

    def is_ready(self) -> bool:
        return b"\nready bookie=" in b"\n" + self.log_path.read_bytes()[self._offset :]

    def wait_ended(self, seconds: float = START_DEADLINE_S) -> int:
        """The exit code of one that ends by itself."""
        assert self.process is not None
        code = self.process.wait(seconds)
        self.process = None
        return code

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait_ended(seconds)

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def check_log(self) -> None:
        """Any ERROR or traceback that the test did not announce fails it."""
        bad = [
            line
            for line in self.log().splitlines()
            if re.search(r"level=error|Traceback|\[error\]", line)
            and not any(re.search(each, line) for each in self.announced)
        ]
        assert not bad, f"unannounced errors of {self.id}:\n" + "\n".join(bad) + "\n" + self.log()[-4000:]


class BookieCluster:
    """A cluster with a root of its own on a ZooKeeper, and bookies of ours."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess, *, root: str | None = None) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.root = root or f"{own_root()}/ledgers"
        self.bookies: list[BookieProcess] = []

    @property
    def uri(self) -> str:
        return f"zk+hierarchical://127.0.0.1:{self.zookeeper.port}{self.root}"

    def initialize(self) -> BookieCluster:
        """What `initnewcluster` does, parents included."""

        async def main() -> None:
            world = real_world(1)
            store = await open_store(world, ZooKeeperConfig(servers=(("127.0.0.1", self.zookeeper.port),)))
            try:
                parent = self.root.rpartition("/")[0]
                if parent and await store.get(parent) is None:
                    await store.create(parent, b"", make_parents=True)
                await init_new_cluster(store, self.root, rng=world.rng)
            finally:
                await store.aclose()

        run(main)
        return self

    def add(self, count: int = 1, conf: Mapping[str, object] | None = None) -> list[BookieProcess]:
        """Bookies that serve, started at once."""
        first = len(self.bookies)
        self.bookies += [
            BookieProcess(self.folder / f"bookie-{number}", self.uri, conf=conf)
            for number in range(first, first + count)
        ]
        self.start(*self.bookies[first:])
        return self.bookies[first:]

    def start(self, *bookies: BookieProcess) -> None:
        for bookie in bookies:
            bookie.launch()
        for bookie in bookies:
            bookie.wait_ready()

    def by_id(self, bookie_id: str) -> BookieProcess:
        return next(bookie for bookie in self.bookies if bookie.id == bookie_id)

    def close(self) -> None:
        for bookie in self.bookies:
            bookie.kill()


@contextmanager
def cluster(
    folder: Path, count: int = 3, conf: Mapping[str, object] | None = None, zookeeper: ZooKeeperProcess | None = None
) -> Iterator[BookieCluster]:
    """A cluster of started bookies; their logs are checked and they are gone at the end."""
    made = BookieCluster(folder, zookeeper or shared_server()).initialize()
    try:
        made.add(count, conf)
        yield made
    finally:
        made.close()
    for bookie in made.bookies:
        bookie.check_log()
