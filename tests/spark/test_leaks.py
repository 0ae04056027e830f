"""When a Spark program stops its session, nothing of Quire's is left: no process and no connection. In the broker only
the subscriptions that the user named remain, which hold the data for the next run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.spark import leaks_run
from tests.spark.peer import options_of, quiet_client
from tests.spark.processes import Process, of_session, signal_all, sockets_to
from tests.spark.support import internal_stats, numbered, publish
from tests.support import web
from tests.support.server import StandaloneProcess

# (25 s of processor: a Spark program of its own)
pytestmark = pytest.mark.full

CHECKOUT = Path(__file__).parents[2]
TOPIC = "persistent://public/default/leaks"
SINK = f"{TOPIC}-out"
HOLDS = {"hold-drained", "hold-stopped"}
SETTLE_S = 10.0
"""Seconds, much less than a client keeps an unused connection (30 s), or Spark an unused worker (60 s)."""


@dataclass(slots=True)
class Seen:
    """Processes and connections while the program worked, after its session was stopped, and after it ended."""

    working: dict[str, Any] = field(default_factory=dict)
    python_working: list[Process] = field(default_factory=list)
    sockets_working: list[str] = field(default_factory=list)
    python_stopped: list[Process] = field(default_factory=list)
    sockets_stopped: list[str] = field(default_factory=list)
    ended: list[Process] = field(default_factory=list)


def settle(condition: Callable[[], bool]) -> None:
    """Wait until it is true, or should have been; the tests report what is left then."""
    deadline = time.monotonic() + SETTLE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.fixture(scope="module")
def program(server: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    client = quiet_client(server.url)
    options = options_of(server)
    publish(client, TOPIC, numbered(0, 100))
    client.close()
    folder = tmp_path_factory.mktemp("leaks")
    command = [sys.executable, "-m", leaks_run.__name__, str(folder), json.dumps(options), TOPIC]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            # (a short life: the time that Java's better compiler takes does not come back)
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    ports = {int(options[name].rpartition(":")[2]) for name in ("service.url", "admin.url")}

    def said(event: str) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the program ended:\n{(folder / 'log').read_text()[-4000:]}"
        found: dict[str, Any] = json.loads(line)
        assert found["event"] == event
        return found

    def go_on() -> None:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()

    def python() -> list[Process]:
        """Return the child processes of the program without Spark's JVM."""
        return [each for each in of_session(process.pid) if each.pid != process.pid and "java" not in each.command]

    def sockets() -> list[str]:
        return sockets_to(ports, [each.pid for each in of_session(process.pid)])

    seen = Seen()
    try:
        seen.working = said("working")
        seen.python_working, seen.sockets_working = python(), sockets()
        go_on()
        said("stopped")
        # (Spark does not wait for its workers, they notice: but within a moment, not when something runs out)
        settle(lambda: not python() and not sockets())
        seen.python_stopped, seen.sockets_stopped = python(), sockets()
        go_on()
        process.wait(30)
        settle(lambda: not of_session(process.pid))
        seen.ended = of_session(process.pid)
        yield seen
    finally:
        signal_all([each.pid for each in of_session(process.pid)], signal.SIGKILL)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def url_of(server: StandaloneProcess, topic: str) -> str:
    return f"{server.web}/admin/v2/{topic.replace('://', '/')}"


def test_the_program_worked_and_its_work_can_be_seen(program: Seen) -> None:
    assert program.working == {"event": "working", "read": 100, "drained": 100}
    commands = " ".join(process.command for process in program.python_working)
    assert "pyspark.daemon" in commands
    assert "python_streaming_source_runner" in commands
    assert program.sockets_working


def test_a_stopped_session_leaves_no_worker_daemon_or_planner(program: Seen) -> None:
    assert program.python_stopped == []


def test_a_stopped_session_leaves_no_connection_to_the_broker(program: Seen) -> None:
    assert program.sockets_stopped == []


def test_a_program_that_ended_leaves_no_process(program: Seen) -> None:
    assert program.ended == []


def test_the_broker_keeps_the_named_holds_and_nobody_who_uses_them(program: Seen, server: StandaloneProcess) -> None:
    assert set(web.get(f"{url_of(server, TOPIC)}/subscriptions").json()) == HOLDS
    assert set(internal_stats(server, TOPIC)["cursors"]) == HOLDS
    assert web.get(f"{url_of(server, SINK)}/subscriptions").json() == []
    assert internal_stats(server, SINK)["cursors"] == {}
    # Without force, a subscription or a topic goes only if nobody is attached: no consumer, no reader, no producer.
    for name in sorted(HOLDS):
        assert web.request("DELETE", f"{url_of(server, TOPIC)}/subscription/{name}").status_code == 204
    for topic in (TOPIC, SINK):
        assert web.request("DELETE", url_of(server, topic)).status_code == 204
