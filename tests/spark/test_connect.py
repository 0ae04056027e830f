"""Spark Connect: a client without a JVM reads, streams and writes through a Connect server.

Its packages are not in .venv: `scripts/environment connect` installs them. With `--full` only."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pulsar
import pytest

from tests.spark.exact import NAMESPACE, make_deduplicated
from tests.spark.packages import ROOT, python_with_pandas
from tests.spark.support import publish
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.full

RUN_S = 600


def test_a_client_of_spark_connect_reads_streams_exactly_once_and_writes(
    server: StandaloneProcess, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    make_deduplicated(server)
    to = topic.replace("public/default", NAMESPACE)
    for each in (topic, to):
        client.subscribe(each, "kept").close()  # a server takes its time to start, and idle topics are deleted
    publish(client, topic, [b"%d" % number for number in range(5)])
    done = subprocess.run(
        [python_with_pandas(), "-m", "tests.spark.connect_run", server.url, server.web, topic, to, str(tmp_path)],
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
