"""A command of Quire as a process that can be killed, paused and started again with its folder and configuration."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from tests.support import waiting
from tests.support.forking import Process, fork

START_DEADLINE_S = 60.0
QUIRE = [sys.executable, "-m", "quire.cli.main"]


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    waiting.wait_until(condition, what, seconds)


def wait_until_stopped(pid: int, seconds: float = 10.0) -> None:
    """Wait after SIGSTOP until no thread of the process runs."""
    deadline = time.monotonic() + seconds
    tasks = Path(f"/proc/{pid}/task")

    def state(task: Path) -> str:
        try:
            return task.read_text().rsplit(")", 1)[1].split()[0]
        except OSError:  # it ended as we looked
            return "T"

    while any(state(task) != "T" for task in tasks.glob("*/stat")):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


class ServerProcess(ABC):
    """`quire COMMAND --conf FILE`, one process at a time.

    `settings` are written to the file at every start, so they may be changed between two. `name` is the name of its
    files in `folder`.
    """

    def __init__(self, command: str, folder: Path, settings: Mapping[str, object], *, name: str | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings)
        self.conf = folder / f"{name or command}.conf"
        self.log_path = folder / f"{name or command}.log"
        self.command = [*QUIRE, command]
        self.announced: list[str] = []
        """Regular expressions of the ERROR lines that the test expects."""
        self.process: Process | None = None
        self._offset = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._write_conf()

    def _write_conf(self) -> None:
        """Write the configuration file with the present `settings`."""
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def options(self) -> list[str]:
        """Return the options behind the command."""
        return ["--conf", str(self.conf)]

    @abstractmethod
    def ready_line(self) -> str:
        """Return a regular expression of the line that the command prints when it serves."""

    def launch(self) -> Process:
        """Start the process without waiting."""
        assert self.process is None
        self._write_conf()
        self._offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.process = self._started([*self.command, *self.options()], self.folder.parent)
        return self.process

    def _started(self, command: list[str], cwd: Path) -> Process:
        """Start a command in that folder; an unchanged command of Quire is forked."""
        if command[: len(QUIRE)] == QUIRE:
            return fork(command[len(QUIRE) :], self.log_path, cwd)
        with open(self.log_path, "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=cwd)

    def is_ready(self) -> bool:
        return re.search(rf"(?m)^{self.ready_line()}", self.said()) is not None

    def wait_ready(self) -> Self:
        """Wait until it serves; fails with its log if it does not."""
        assert self.process is not None
        deadline = time.monotonic() + START_DEADLINE_S
        while not self.is_ready():
            code = self.process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"it is not ready (exit code {code}):\n{self.said()}")
            time.sleep(0.01)
        return self

    def start(self) -> Self:
        """Start the process and wait until it serves."""
        self.launch()
        return self.wait_ready()

    def wait_ended(self, seconds: float = START_DEADLINE_S) -> int:
        """Wait until it has ended by itself; the exit code."""
        assert self.process is not None
        code = self.process.wait(seconds)
        self.gone()
        return code

    def refused(self) -> tuple[int, str]:
        """Start the process and wait until it has ended by itself; return the exit code and the log since the start."""
        self.launch()
        return self.wait_ended(), self.said()

    def stop(self, seconds: float = 30) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait_ended(seconds)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.gone()

    def pause(self) -> None:
        """Stop the process, and wait until all its threads have stopped: on another core one may run for a moment."""
        self.send_signal(signal.SIGSTOP)
        assert self.process is not None
        wait_until_stopped(self.process.pid)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def gone(self) -> None:
        """Forget the process, which has ended."""
        self.process = None

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def said(self) -> str:
        """Return the log since the last start."""
        if not self.log_path.exists():
            return ""
        with open(self.log_path, "rb") as log:
            log.seek(self._offset)
            return log.read().decode()

    def check_log(self) -> None:
        """Fail the test if the log has an ERROR or traceback that the test did not announce."""
        bad = [
            line
            for line in self.log().splitlines()
            if re.search(r"level=error|Traceback|\[error\]", line)
            and not any(re.search(each, line) for each in self.announced)
        ]
        assert not bad, f"unannounced errors in {self.log_path}:\n" + "\n".join(bad) + "\n" + self.log()[-4000:]


def start_all(*processes: ServerProcess) -> None:
    """Start all processes at the same time, and wait until all serve."""
    for process in processes:
        process.launch()
    for process in processes:
        process.wait_ready()
