"""Spark Connect: a client without a JVM reads, streams and writes through a Connect server.

Its packages are not in .venv: `scripts/environment connect` installs them. With `--full` only."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pulsar
import pytest

from tests.spark.exact import NAMESPACE, make_deduplicated
from tests.spark.support import publish
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
INSTALL_S = 900
RUN_S = 600


@pytest.fixture(scope="module")
def python_of_clients() -> str:
    """Return a Python that has what a client of Spark Connect needs: this one, or that of an environment of its own."""
    if importlib.util.find_spec("grpc_status") is not None:
        return sys.executable
    made = subprocess.run(
        [str(ROOT / "scripts" / "environment"), "connect"],
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip().splitlines()[-1]


def test_a_client_of_spark_connect_reads_streams_exactly_once_and_writes(
    python_of_clients: str, server: StandaloneProcess, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    make_deduplicated(server)
    to = topic.replace("public/default", NAMESPACE)
    for each in (topic, to):
        client.subscribe(each, "kept").close()  # a server takes its time to start, and idle topics are deleted
    publish(client, topic, [b"%d" % number for number in range(5)])
    done = subprocess.run(
        [python_of_clients, "-m", "tests.spark.connect_run", server.url, server.web, topic, to, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["client"].startswith("pyspark.sql.connect")
    assert found["read"] == ["0", "1", "2", "3", "4"]
    assert found["streamed"] == found["read"]
    assert found["written"] == [*found["read"], "written"]
    assert "topic persistent://public/default/misspelled does not exist" in found["refused"]
