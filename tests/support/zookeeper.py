"""A real ZooKeeper, the one in the pyspark wheel, as `quire zookeeper` runs it: one for all tests of a session, and
more for those that stop or kill it. Each test takes a node of its own as its root."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from quire.metadata.zookeeper.store import SessionExpiredPolicy, ZooKeeperConfig, ZooKeeperStore, open_store
from quire.servers.zookeeper.process import java_command, write_conf
from quire.world.real import real_world
from tests.support import waiting
from tests.support.process import wait_until_stopped
from tests.support.server import free_port

T = TypeVar("T")

START_DEADLINE_S = 60.0
TICK_MS = 200
EXPIRE_TRIES = 10
PATIENCE_S = 20.0
"""For what must come to pass."""


class ZooKeeperProcess:
    """One data directory, one port, one process at a time; sessions last 2 to 20 ticks, 0.4 to 4 s."""

    def __init__(self, folder: Path, *, tick_ms: int = TICK_MS, settings: str = "", number: int | None = None) -> None:
        """`number`: of a member of an ensemble, which `settings` tell."""
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.conf = write_conf(folder / "data", host="127.0.0.1", port=self.port, tick_ms=tick_ms)
        self.conf.write_text(self.conf.read_text() + settings)
        if number is not None:
            (folder / "data/myid").write_text(f"{number}\n")

    def start(self) -> ZooKeeperProcess:
        assert self.process is None
        with open(self.folder / "zookeeper.log", "ab") as log:
            command = java_command(self.conf, options=("-Xmx128m",))
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_DEADLINE_S
        while not self.answers():
            assert self.process.poll() is None, f"ZooKeeper ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"ZooKeeper does not answer:\n{self.log()}"
            time.sleep(0.02)
        return self

    def answers(self) -> bool:
        return self.mode() != ""

    def mode(self) -> str:
        """standalone, leader, follower or observer; empty while it serves nobody."""
        try:
            text = self._command(b"srvr")
        except OSError:
            return ""
        return text.partition("Mode: ")[2].partition("\n")[0]

    def monitor(self, key: str) -> int:
        """A figure of its `mntr` command."""
        text = self._command(b"mntr")
        return int(next(line.split("\t")[1] for line in text.splitlines() if line.startswith(f"{key}\t")))

    def _command(self, word: bytes) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
            probe.sendall(word)
            return b"".join(iter(lambda: probe.recv(65536), b"")).decode()

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        wait_until_stopped(self.process.pid)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log(self) -> str:
        return (self.folder / "zookeeper.log").read_text()

    def config(
        self,
        chroot: str,
        *,
        session_timeout_s: float = 4.0,
        call_timeout_s: float = 20.0,
        policy: SessionExpiredPolicy = SessionExpiredPolicy.SHUTDOWN,
    ) -> ZooKeeperConfig:
        return ZooKeeperConfig(
            servers=(("127.0.0.1", self.port),),
            chroot=chroot,
            make_chroot=True,
            session_timeout_s=session_timeout_s,
            call_timeout_s=call_timeout_s,
            retry_first_s=0.02,
            retry_max_s=0.1,
            session_expired_policy=policy,
        )


@asynccontextmanager
async def opened(config: ZooKeeperConfig) -> AsyncIterator[ZooKeeperStore]:
    store = await open_store(real_world(), config)
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


async def expire(store: ZooKeeperStore, port: int) -> None:
    """End its session, as the server would: another connection with the same session closes it. The store connects
    again as soon as that connection takes its place, and may be first: then it is tried again. Whoever connects with
    an ended session gets a new one."""
    session = store._session.link._client.client_id

    def close_session() -> None:
        for left in reversed(range(EXPIRE_TRIES)):
            twin = KazooClient(hosts=f"127.0.0.1:{port}", client_id=session)
            try:
                twin.start()
                is_over = twin.client_id[0] != session[0]
                twin.stop()
                if is_over:
                    return
            except KazooTimeoutError:
                if not left:
                    raise
            finally:
                twin.close()
        raise AssertionError("the session did not end")

    await trio.to_thread.run_sync(close_session)


def ask(config: ZooKeeperConfig, call: Callable[[ZooKeeperStore], Awaitable[T]]) -> T:
    """Return the answer of `call(store)`, on a session of its own."""

    async def main() -> T:
        async with opened(config) as store:
            return await call(store)

    return trio.run(main)


def run(story: Callable[[], Awaitable[None]], seconds: float = 60.0) -> None:
    async def main() -> None:
        with trio.fail_after(seconds):
            await story()

    trio.run(main)


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = PATIENCE_S) -> None:
    await waiting.until(condition, what, seconds)


_roots = itertools.count()


def own_root() -> str:
    """A chroot that no other test has."""
    return f"/test-{os.getpid()}-{next(_roots)}"


@functools.cache
def shared_server() -> ZooKeeperProcess:
    """The server of this test session, started by the first who asks. It ends with us, and its data too."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="quire-zookeeper-"))
    server = ZooKeeperProcess(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    return server.start()
