"""`quire daemon` and BOOKIE_LOG_CONF with a real bookie on a real ZooKeeper."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.cli.daemon.__main__ import run
from quire.cli.daemon.processes import is_alive, serving_pid
from quire.metadata.clusters import init_new_cluster
from quire.world.real import real_world
from tests.support.server import free_port
from tests.support.zookeeper import ask, own_root, shared_server

LOGGING = """\
version = 1
[formatters.line]
format = "%(levelname)s %(name)s %(message)s"
[handlers.file]
class = "logging.handlers.RotatingFileHandler"
filename = "FILE"
maxBytes = 1000000
backupCount = 3
formatter = "line"
[root]
level = "INFO"
handlers = ["file"]
"""


class Background:
    """A bookie in the background."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        server = shared_server()
        root = own_root()
        ask(server.config(root), lambda store: init_new_cluster(store, "/ledgers", rng=real_world().rng))
        conf = folder / "bk_server.conf"
        conf.write_text(
            f"bookiePort={free_port()}\nadvertisedAddress=127.0.0.1\njournalPreAllocSizeMB=1\n"
            f"metadataServiceUri=zk+hierarchical://127.0.0.1:{server.port}{root}/ledgers\n"
            f"journalDirectories={folder}/journal\nledgerDirectories={folder}/ledgers\n"
        )
        self.pid_file = folder / "logs/bookkeeper-bookie.pid"
        for key in [key for key in os.environ if key.startswith("BOOKIE_")]:
            monkeypatch.delenv(key)
        monkeypatch.setenv("BOOKIE_CONF", str(conf))
        monkeypatch.setenv("BOOKIE_LOG_DIR", str(folder / "logs"))
        monkeypatch.setenv("BOOKIE_STOP_TIMEOUT", "60")
        monkeypatch.setenv("BOOKIE_START_TIMEOUT", "60")

    def run(self, *arguments: str) -> tuple[int, str]:
        told = io.StringIO()
        return run(arguments, os.environ, told, told), told.getvalue()


@pytest.fixture
def background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Background]:
    made = Background(tmp_path, monkeypatch)
    yield made
    pid = serving_pid(made.pid_file)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def test_a_bookie_starts_in_the_background_survives_a_kill_and_stops(
    background: Background, tmp_path: Path, monkeypatch
) -> None:
    log = tmp_path / "bookie.log"
    (tmp_path / "logging.toml").write_text(LOGGING.replace("FILE", str(log)))
    monkeypatch.setenv("BOOKIE_LOG_CONF", str(tmp_path / "logging.toml"))
    code, told = background.run("start", "bookie")
    assert (code, "ready bookie=127.0.0.1:" in told) == (0, True), told
    assert background.run("status")[0] == 0
    assert background.run("start")[0] == 1
    pid = serving_pid(background.pid_file)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while is_alive(pid):
        time.sleep(0.01)
    assert background.run("status")[0] == 1
    code, told = background.run("start")
    assert (code, "is stale" in told) == (0, True), told
    code, told = background.run("stop")
    assert (code, "stopped" in told) == (0, True), told
    assert background.run("status")[0] == 3
    lines = log.read_text()
    assert "INFO quire.servers.bookie.process event=ready bookie=127.0.0.1:" in lines
    assert "event=stopped" in lines, "the last lines are written before the process ends"


def test_a_log4j_file_is_refused_with_the_remedy(background: Background, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "log4j2.xml").write_text("<Configuration status='INFO'/>")
    monkeypatch.setenv("BOOKIE_LOG_CONF", str(tmp_path / "log4j2.xml"))
    code, told = background.run("start")
    assert code == 1
    assert "ended with exit code 1" in told
    assert "log4j2.xml is a log4j configuration" in told
