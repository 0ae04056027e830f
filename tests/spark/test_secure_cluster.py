"""A stream that reads from a secure cluster and writes to it, with TLS and a token in files, and a search for secrets
in everything that Spark shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.errors import PySparkException

from tests.spark.processes import processes
from tests.spark.support import events, numbered, publish
from tests.support.secrets import Secrets
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Plan
from tools.local_cluster.security import CLIENT, Security

ROWS = 50


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    plan = Plan(bookies=1, recoveries=0, secure=True)
    made = LocalCluster.make(tmp_path_factory.mktemp("secure") / "cluster", plan, bound=True)
    try:
        made.up()
        yield made
    finally:
        made.abandon()


@pytest.fixture
def security(cluster: LocalCluster) -> Security:
    assert cluster.security is not None
    return cluster.security


@pytest.fixture
def secured(cluster: LocalCluster, security: Security) -> dict[str, str]:
    """Return the options of every reader and writer: addresses, and paths of files."""
    return {
        "service.url": cluster.service_url,
        "admin.url": cluster.web_urls[0],
        "tlsTrustCertsFilePath": str(security.trust),
        "authTokenFile": str(security.token(CLIENT)),
    }


@pytest.fixture
def owner(cluster: LocalCluster, security: Security) -> Iterator[pulsar.Client]:
    """Open an official client of the same role."""
    client = pulsar.Client(
        cluster.service_url,
        authentication=pulsar.AuthenticationToken(security.token(CLIENT).read_text()),
        tls_trust_certs_file_path=str(security.trust),
        tls_validate_hostname=True,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )
    with closing(client):
        yield client


def copying(spark: Any, options: dict[str, str], source: str, target: str, folder: Path) -> Any:
    """Start a query that copies a topic to another one, and ends when it has all."""
    read = {**options, "topic": source, "subscription": "copying", "startingOffsets": "earliest"}
    frame = spark.readStream.format("quire").options(**read, trace=str(folder / "trace.jsonl")).load()
    sink = frame.select("value", "__key").writeStream.format("quire").options(**options, topic=target)
    return sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def plans(spark: Any) -> str:
    """Return what the pages of Spark's UI about queries show: descriptions and plans, of all queries so far."""
    store = spark._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    shown = [found.apply(number) for number in range(found.size())]
    assert shown
    return "\n".join(f"{each.description()} {each.details()} {each.physicalPlanDescription()}" for each in shown)


def test_a_stream_reads_and_writes_and_shows_no_secret(
    spark: Any,
    secured: dict[str, str],
    security: Security,
    owner: pulsar.Client,
    topic: str,
    tmp_path: Path,
) -> None:
    target = f"{topic}-copy"
    log = Path(f"/proc/{spark._jvm.ProcessHandle.current().pid()}/fd/2")
    assert log.is_file(), "the log of Spark has to be a file: run this test without -s"
    begin = log.stat().st_size
    publish(owner, topic, numbered(0, ROWS))
    spark.sparkContext.setLogLevel("DEBUG")
    try:
        query = copying(spark, secured, topic, target, tmp_path)
        running = "\n".join(each.command for each in processes())
        assert query.awaitTermination(90), "the query did not end"
    finally:
        spark.sparkContext.setLogLevel("WARN")
    with closing(owner.create_reader(target, pulsar.MessageId.earliest)) as reader:
        assert sorted(reader.read_next(10_000).data() for _ in range(ROWS)) == numbered(0, ROWS)
        assert not reader.has_message_available()
    # The error of a query without the token is what an operator sees first.
    without = {name: value for name, value in secured.items() if name != "authTokenFile"}
    batch = spark.read.format("quire").options(**without, topic=target, operationTimeoutMs="2000").load()
    with pytest.raises(PySparkException, match="Failed to authenticate") as refused:
        batch.collect()
    assert events(tmp_path / "trace.jsonl", "read")
    shown = {
        "log": log.read_bytes()[begin:].decode(errors="replace"),
        "plan of a batch": batch._jdf.queryExecution().toString(),
        "pages of the UI": plans(spark),
        "progress": json.dumps([json.loads(each.json) for each in query.recentProgress]),
        "trace": (tmp_path / "trace.jsonl").read_text(),
        "configuration": str(spark.sparkContext.getConf().getAll()),
        "command lines": running,
        "error": str(refused.value),
        "checkpoint": "\n".join(
            each.read_text(errors="replace") for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()
        ),
    }
    assert " DEBUG " in shown["log"]
    secrets = Secrets(security)
    assert {name: found for name, text in shown.items() if (found := secrets.found_in(text))} == {}
