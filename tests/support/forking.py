"""Servers as processes that are forked from one that has imported their modules.

A start then has the cost of the server's own work, without its imports, which are most of it. Everything else is the
same as with `python -m quire.cli.main`: arguments, environment, folder, output, signals and exit code.

`python -m tests.support.forking` is the process that forks. It reads requests, one JSON value a line, answers each with
one line, and ends with its standard input:

    {"start": [ARGUMENT, ...], "log": PATH, "cwd": PATH, "environment": {...}}    -> PID
    {"reap": PID}    of a process that has ended                                  -> EXIT CODE

A process stays a zombie until it is reaped, so its id means no other one until then.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

CHECKOUT = Path(__file__).parents[2]
LOADED = (
    "quire.cli.doctor",
    "quire.cli.main",
    "quire.metadata.zookeeper.store",
    "quire.servers.autorecovery.process",
    "quire.servers.autorecovery.web",
    "quire.servers.bookie.process",
    "quire.servers.bookie.web",
    "quire.servers.broker.process",
    "quire.servers.broker.web",
    "quire.servers.standalone.process",
    "quire.servers.standalone.web",
    "quire.service.http",
    "quire.world.real",
    "quire.world.rocksdb_files",
    "structlog.dev",
)
"""Modules that are imported before the first fork, with all that they import; some of them servers import later."""


def load() -> None:
    """Import all modules; exclude existing objects from garbage collection, so that their pages stay shared."""
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


class Process(Protocol):
    """The part of `subprocess.Popen` that tests of servers need."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...
    def send_signal(self, sig: int) -> None: ...


class Forked:
    """A process that was forked; its methods are those of Popen."""

    def __init__(self, server: ForkServer, arguments: Sequence[str], log: Path, cwd: Path) -> None:
        self._server = server
        self._arguments = list(arguments)
        self._returncode: int | None = None
        self.pid: int = server.ask(
            {"start": self._arguments, "log": str(log), "cwd": str(cwd), "environment": dict(os.environ)}
        )
        self._fd = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit code, or None if the process has not ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and return the exit code; TimeoutExpired after `timeout` seconds."""
        if self._returncode is None:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0)
            self._returncode = self._server.reap(self)
        return self._returncode

    def close(self) -> int:
        """Reap the process, once; the server's lock is held."""
        if self._returncode is None:
            self._returncode = self._server.ask_locked({"reap": self.pid})
            os.close(self._fd)
        return self._returncode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, sig: int) -> None:
        if self._returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, sig)


class ForkServer:
    """The process that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=CHECKOUT,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> int:
        with self._lock:
            return self.ask_locked(request)

    def reap(self, process: Forked) -> int:
        """Return the exit code of a process that has ended, whichever thread is first to ask."""
        with self._lock:
            return process.close()

    def ask_locked(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that forks has ended"
        return int(answer)

    def close(self) -> None:
        with self._process:
            pass


@functools.cache
def _server() -> ForkServer:
    """Return the fork server of this test session, with which it ends."""
    made = ForkServer()
    atexit.register(made.close)
    return made


def fork(arguments: Sequence[str], log: Path, cwd: Path) -> Process:
    """Start `quire ARGUMENTS`; its output is appended to `log`."""
    return Forked(_server(), arguments, log, cwd)


def _become(request: dict[str, Any]) -> None:
    """Turn this process, which was just forked, into the requested one."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    sys.argv = [sys.modules["quire.cli.main"].__file__ or "", *request["start"]]


def _serve() -> bool:
    """Answer requests; True in each process that was forked, False at the end of the input."""
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "start" in request:
            answer = os.fork()
            if answer == 0:
                _become(request)
                return True
        else:
            _, status = os.waitpid(request["reap"], 0)
            answer = os.waitstatus_to_exitcode(status)
        print(answer, flush=True)
    return False


if __name__ == "__main__":
    load()
    if _serve():
        from quire.cli.main import main

        main()
