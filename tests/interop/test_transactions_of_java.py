"""Transactions by Pulsar's own Java client: the stories of tests/interop/pulsar, on one server and over a kill."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from quire.servers.zookeeper.process import find_java
from tests.support.server import StandaloneProcess, standalone

DEADLINE_S = 240.0
ON = {"transactionCoordinatorEnabled": "true"}


def stories(server: StandaloneProcess, *arguments: str) -> str:
    """Return the lines of the program; it must have found nothing wrong."""
    assert "QUIRE_INTEROP_PULSAR" in os.environ, "run this by scripts/test --interop"
    made = os.environ["QUIRE_INTEROP_PULSAR"]
    classpath = f"{made}/classes:{made}/lib/*"
    fast = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    done = subprocess.run(
        [find_java(), *fast, "-cp", classpath, "Transactions", server.url, "persistent://public/default/t", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "all stories hold" in done.stdout, done.stdout
    return done.stdout


def test_every_type_of_subscription_takes_part(tmp_path: Path) -> None:
    with standalone(tmp_path, ON) as server:
        lines = stories(server)
    assert lines.count("consumed and produced") == 8  # four types, batched or not


def test_a_kill_leaves_what_was_committed_and_nothing_else(tmp_path: Path) -> None:
    with standalone(tmp_path, ON) as server:
        stories(server, "leave")
        server.kill()
        server.start()
        assert "found" in stories(server, "find")
