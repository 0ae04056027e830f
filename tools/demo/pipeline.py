"""A pipeline of scripts/pipelines as a process of the demo, with this Python: its lines are shown while it runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

import httpx2

from tools.demo.run import Progress
from tools.demo.server import DemoError

RUN_S = 300.0
"""Deadline of a run, in seconds."""
HTTP_S = 30.0

_SUMMARY = re.compile(r"in ([\d.]+) s, (\d+) rows/s")


class WebServer(Protocol):
    """Parts of a server that the pipelines use."""

    @property
    def url(self) -> str: ...

    @property
    def web(self) -> str: ...


def script(name: str, server: WebServer) -> list[str]:
    """Return the begin of a pipeline's command line."""
    path = Path(__file__).resolve().parents[2] / "scripts" / "pipelines" / name
    command = [sys.executable, str(path), "--service-url", server.url, "--admin-url", server.web]
    # a short life: the time that a better compiler takes does not come back
    return [*command, "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]


Beside = Callable[[int], AbstractContextManager[object]]
"""Runs beside a process, whose pid it is given; it may kill the process's group."""


def run_pipeline(
    name: str,
    command: Sequence[str],
    folder: Path,
    progress: Progress,
    *,
    beside: Beside = lambda pid: nullcontext(),
) -> tuple[int, int | None]:
    """Run a pipeline in `folder`; return its exit code and the rows per second of its summary, None without one.

    Its log is `folder`/`name`.log. The group of the process, with Spark's JVM, is killed after RUN_S."""
    with open(folder / f"{name}.log", "ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # so that Spark's JVM goes with it
        )
    late = threading.Timer(RUN_S, kill_group, (process.pid,))
    late.start()
    rate: re.Match[str] | None = None
    try:
        assert process.stdout is not None
        with beside(process.pid):
            for line in process.stdout:
                progress.note(f"  {line.rstrip()}")
                rate = _SUMMARY.search(line) or rate
            code = process.wait()
    finally:
        late.cancel()
        kill_group(process.pid)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return code, None if rate is None else int(rate[2])


def must_have_ended(name: str, folder: Path, code: int, rate: int | None) -> int:
    """Return the rows per second of a run. Raises DemoError: it failed, or printed no summary."""
    if code != 0:
        raise DemoError(f"the {name} ended with {code}{_log_tail(folder / f'{name}.log')}")
    if rate is None:
        raise DemoError(f"the {name} printed no summary{_log_tail(folder / f'{name}.log')}")
    return rate


def ask(
    server: WebServer, method: str, path: str, value: object, what: str, transport: httpx2.BaseTransport | None
) -> None:
    """Make a request to the admin REST. Raises DemoError: `what` could not be made, or was refused."""
    try:
        with httpx2.Client(transport=transport, timeout=HTTP_S, follow_redirects=True) as client:
            answer = client.request(method, f"{server.web}/admin/v2/{path}", json=value)
    except httpx2.HTTPError as error:
        raise DemoError(f"{what} could not be made: {error!r}") from error
    if answer.status_code != 204:
        raise DemoError(f"{what} was refused: {answer.status_code} {answer.text}")


def hold(server: WebServer, topic: str, name: str, what: str, transport: httpx2.BaseTransport | None) -> None:
    """Create a subscription at the first entry, which creates the topic too. Raises DemoError."""
    path = f"{topic.replace('://', '/')}/subscription/{name}"
    ask(server, "PUT", path, {"ledgerId": -1, "entryId": -1}, what, transport)


def kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _log_tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()[-15:]
    return "".join(f"\n    {line}" for line in lines)
