"""Streams with exactlyOnce on a standalone cluster of Spark with two workers, whose executors get Python with
`--archives`: as in the docs, with speculative attempts, and with executors that come and go.

With `--full` only: seven JVMs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from quire.spark.trace import read_trace
from tests.spark.exact import NAMESPACE, make_deduplicated, values
from tests.spark.own_cluster import OwnCluster, own_cluster, printed
from tests.spark.packed import pack
from tests.spark.peer import serve
from tests.spark.support import make_partitions
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.full

JOB = Path(__file__).with_name("cluster_job.py")
ROWS = 1000
TASKS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    with own_cluster(tmp_path_factory.mktemp("own-cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("packed")
    pack(folder / "quire-env.tar.gz", folder / "environment")
    yield folder / "quire-env.tar.gz"
    (folder / "quire-env.tar.gz").unlink()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with serve(tmp_path_factory.mktemp("server"), {"brokerDeleteInactiveTopicsEnabled": "false"}) as running:
        make_deduplicated(running)
        yield running


class Job:
    """One run of cluster_job.py, with topics of its own."""

    def __init__(self, server: StandaloneProcess, client: pulsar.Client, name: str, folder: Path) -> None:
        self.source, self.to = (f"persistent://{NAMESPACE}/{name}-{end}" for end in ("from", "to"))
        self.trace = folder / "trace"
        self._client = client
        for topic in (self.source, self.to):
            make_partitions(server, topic, TASKS)
        producer = client.create_producer(
            self.source,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            batching_enabled=False,
        )
        for number in range(ROWS):
            producer.send_async(b"%06d" % number, None)
        producer.flush()
        producer.close()
        given = (server.url, server.web, self.source, self.to, str(folder / "checkpoint"), str(self.trace))
        self.arguments = (*given, name)

    def check(self, rows: int = ROWS) -> None:
        found = values(self._client, *(f"{self.to}-partition-{number}" for number in range(TASKS)))
        assert Counter(found) == Counter(b"%06d" % number for number in range(rows))


def test_executors_have_python_and_this_package_from_the_archive(
    cluster: OwnCluster, archive: Path, server: StandaloneProcess, client: pulsar.Client, tmp_path: Path
) -> None:
    job = Job(server, client, "once", tmp_path)
    output = cluster.submit(JOB, *job.arguments, archive=archive)
    places = [line.split() for line in output.partition("places|")[2].splitlines()[0].split("|")]
    assert len(places) == 2, "one worker had no task"
    for prefix, module in places:
        assert prefix.endswith("/environment")
        assert prefix.startswith(str(cluster.folder))
        assert module.startswith(prefix)
    job.check()


def test_speculative_attempts_write_each_row_once(
    cluster: OwnCluster, archive: Path, server: StandaloneProcess, client: pulsar.Client, tmp_path: Path
) -> None:
    job = Job(server, client, "slow", tmp_path)
    conf = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.0",
        "spark.speculation.minTaskRuntime": "1s",
    }
    cluster.submit(JOB, *job.arguments, archive=archive, conf=conf)
    begun = Counter((e["batch"], e["task"]) for e in read_trace(str(job.trace)) if e["event"] == "writing")
    assert max(begun.values()) > 1, "no attempt was speculative"
    job.check()


def test_executors_that_come_and_go_write_each_row_once(
    cluster: OwnCluster, archive: Path, server: StandaloneProcess, client: pulsar.Client, tmp_path: Path
) -> None:
    job = Job(server, client, "apart", tmp_path)
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.initialExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
    }
    output = cluster.submit(JOB, *job.arguments, archive=archive, conf=conf)
    assert len(printed(output, "executors").split()) > 2, "no executor was new"
    job.check(ROWS + 200)
