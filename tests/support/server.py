"""`quire standalone` as a process of its own, to be killed and started again on the same data and ports."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

START_DEADLINE_S = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StandaloneProcess:
    """One data directory, one pair of ports, one process at a time."""

    def __init__(self, folder: Path, conf: dict[str, object] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log_path = folder / "server.log"
        self.port = free_port()
        self.web_port = free_port()
        self.announced: list[str] = []
        """Regular expressions of the ERROR lines that the test expects."""
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.conf = folder / "standalone.conf"
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in (conf or {}).items()))

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def web(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    def start(self) -> StandaloneProcess:
        """Start and wait until it is ready; fails with its log if it is not."""
        assert self.process is None
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        command = [sys.executable, "-m", "quire.cli.main", "standalone", "--data-dir", str(self.data)]
        command += ["--conf", str(self.conf), "--bind-address", "127.0.0.1"]
        command += ["--broker-port", str(self.port), "--web-port", str(self.web_port)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            if b"\nready broker=" in b"\n" + self.log_path.read_bytes()[offset:]:
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        self.kill()
        raise AssertionError(f"the server did not become ready:\n{self.log()}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self, seconds: float = 20) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        self.process = None
        return code

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def metric(self, name: str) -> float:
        """The sum of a metric over its label sets."""
        import httpx

        text = httpx.get(f"{self.web}/metrics", timeout=10).text
        values = re.findall(rf"^{name}(?:_total)?(?:{{[^}}]*}})? ([0-9.e+-]+)$", text, re.MULTILINE)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    def rss_mb(self) -> float:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def check_log(self) -> None:
        """Any ERROR or traceback that the test did not announce fails it."""
        bad = [
            line
            for line in self.log().splitlines()
            if re.search(r"level=error|Traceback|\[error\]", line)
            and not any(re.search(each, line) for each in self.announced)
        ]
        assert not bad, "unannounced errors in the server's log:\n" + "\n".join(bad) + "\n" + self.log()[-4000:]


@contextlib.contextmanager
def standalone(folder: Path, conf: dict[str, object] | None = None) -> Iterator[StandaloneProcess]:
    """A started server; its log is checked and it is gone at the end."""
    server = StandaloneProcess(folder, conf)
    try:
        server.start()
        yield server
        if server.process is not None:
            assert server.process.poll() is None, f"the server died:\n{server.log()}"
    finally:
        server.kill()
    server.check_log()
