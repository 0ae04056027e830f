"""`quire standalone` as a child process that can be killed and started again on the same ports and data."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.servers import free_port

READY_S = 60.0
STOP_S = 30.0


class DemoError(Exception):
    """The demo cannot continue; the message has the reason."""


class Server:
    """Successive servers on one pair of ports and one data directory in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.web_port = free_port()
        self.start_s: list[float] = []
        """Seconds from each start to the ready line."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def web(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    def command(self) -> list[str]:
        """Return the command line, run in `folder`."""
        command = [sys.executable, "-m", "quire.cli.main", "standalone", "--bind-address", "127.0.0.1"]
        command += ["--data-dir", str(self.folder / "data")]
        return [*command, "--port", str(self.port), "--web-port", str(self.web_port)]

    def start(self) -> None:
        """Start and wait for the ready line."""
        assert self._process is None, "the server runs already"
        started = time.perf_counter()
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self._wait_until_ready(self._process, started + READY_S)
        self.start_s.append(time.perf_counter() - started)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        text = b""
        while b"\n" not in text.partition(b"ready ")[2]:
            left = deadline - time.perf_counter()
            if left <= 0:
                raise DemoError(f"the server was not ready after {READY_S:g} s{self.log_tail()}")
            if select.select([descriptor], [], [], min(left, 0.2))[0]:
                piece = os.read(descriptor, 4096)
                if not piece:
                    raise DemoError(f"the server ended with {process.wait()} while starting{self.log_tail()}")
                text += piece

    def kill(self) -> None:
        """Send SIGKILL. Raises DemoError if it had ended by itself before."""
        process = self._running()
        if process.poll() is not None:
            raise DemoError(f"the server ended by itself with {process.returncode}{self.log_tail()}")
        process.kill()
        code = process.wait()
        self._forget(process)
        if code != -signal.SIGKILL:
            raise DemoError(f"the server ended with {code} before SIGKILL reached it{self.log_tail()}")

    def stop(self) -> None:
        """Send SIGTERM, and wait for a clean end."""
        process = self._running()
        process.terminate()
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise DemoError(f"the server did not stop within {STOP_S:g} s of SIGTERM{self.log_tail()}") from None
        finally:
            self._forget(process)
        if code != 0:
            raise DemoError(f"the server ended with {code} on SIGTERM{self.log_tail()}")

    def abandon(self) -> None:
        """Make sure that nothing is left running, whatever happened."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget(self._process)

    def errors(self) -> list[str]:
        """Return the lines of the server's log at level ERROR."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return [line for line in text.splitlines() if " level=error " in line or line.startswith("Traceback")]

    def log_tail(self) -> str:
        """Return the end of the log, for a message."""
        if not self.log_path.exists():
            return ""
        lines = self.log_path.read_text(errors="replace").splitlines()[-15:]
        return "".join(f"\n    {line}" for line in lines)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server does not run"
        return self._process

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
