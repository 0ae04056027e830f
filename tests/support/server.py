"""`quire standalone` as a process that can be killed and started again on the same data and ports."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.support import web
from tests.support.process import ServerProcess
from tools.local_cluster.ports import free_ports


def free_port() -> int:
    """Return a free port that no connection and no other test run is given before its server binds it."""
    while True:
        [found] = free_ports(1, _given)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0quire-test-port-{found}")  # in no folder, and gone with this process
        except OSError:
            name.close()
            continue  # of a run beside this one
        _given[found] = name
        return found


_given: dict[int, socket.socket] = {}


class StandaloneProcess(ServerProcess):
    """One data directory, one pair of ports."""

    def __init__(self, folder: Path, conf: dict[str, object] | None = None) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self.web_port = free_port()
        super().__init__("standalone", folder, conf or {})

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def web(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    def options(self) -> list[str]:
        address = ["--bind-address", "127.0.0.1", "--broker-port", str(self.port), "--web-port", str(self.web_port)]
        return ["--data-dir", str(self.data), *super().options(), *address]

    def ready_line(self) -> str:
        return "ready broker="

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its label sets."""
        text = web.get(f"{self.web}/metrics", timeout=10).text
        values = re.findall(rf"^{name}(?:_total)?(?:{{[^}}]*}})? ([0-9.e+-]+)$", text, re.MULTILINE)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    def rss_mb(self) -> float:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@contextlib.contextmanager
def standalone(folder: Path, conf: dict[str, object] | None = None) -> Iterator[StandaloneProcess]:
    """Run a server; at the end check its log and stop it."""
    server = StandaloneProcess(folder, conf)
    try:
        server.start()
        yield server
        if server.process is not None:
            assert server.process.poll() is None, f"the server died:\n{server.log()}"
    finally:
        server.kill()
    server.check_log()
