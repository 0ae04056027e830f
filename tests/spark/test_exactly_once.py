"""The sink with exactlyOnce: batches, tasks, drivers and servers are repeated, and each row is written once.

K4 is the point between the sink's commit and Spark's: the tests take the commit of a batch out of the checkpoint, and
start the query again. test_exactly_once_kills.py kills drivers at all points. With `--full` also the rarer refusals.
"""

from __future__ import annotations

import os
import shutil
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from quire.spark.trace import read_trace
from tests.spark.exact import NAMESPACE, make_deduplicated, values
from tests.spark.peer import headers, options_of, quiet_client, serve
from tests.spark.support import QUERY_S, make_partitions, wait_for
from tests.support import web
from tests.support.server import StandaloneProcess

ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
ROWS = 30_000
"""Rows of a killed task: Spark hands over 10,000 at a time."""


@pytest.fixture(autouse=True)
def settings(spark: Any) -> Iterator[None]:
    spark.conf.set(ADAPTIVE, "false")
    yield
    spark.conf.unset(ADAPTIVE)


@pytest.fixture(scope="module")
def deduplicated(server: StandaloneProcess) -> str:
    """Return a namespace whose topics have deduplication."""
    make_deduplicated(server)
    return NAMESPACE


@pytest.fixture
def exact(deduplicated: str, topic: str) -> str:
    return topic.replace("public/default", deduplicated)


class Query:
    """A query from text files to a topic, a file a batch, run to the end of its files each time."""

    def __init__(self, spark: Any, options: dict[str, str], topic: str, folder: Path) -> None:
        self.source, self.checkpoint, self.trace = folder / "source", folder / "checkpoint", folder / "trace"
        self.source.mkdir()
        self._spark = spark
        self._options = {**options, "topic": topic, "trace": str(self.trace), "exactlyOnce": "true"}

    def add(self, name: str, rows: range) -> None:
        """Make a file of rows, which appears whole."""
        (self.source / f".{name}").write_text("".join(f"{row:06}\n" for row in rows))
        (self.source / f".{name}").rename(self.source / name)

    def start(self, function: Any = None, **options: str) -> Any:
        frame = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.source))
        if function is not None:
            frame = frame.select(udf(function, "string", useArrow=False)("value").alias("value"))
        frame = frame.selectExpr("value", "concat('key', cast(value as int) % 7) as __key")
        writer = frame.writeStream.format("quire").options(**{**self._options, **options})
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def run(self, function: Any = None, **options: str) -> None:
        query = self.start(function, **options)
        assert query.awaitTermination(QUERY_S), "the query did not end"

    def repeat(self, batch: int) -> None:
        """Take the commit of the last batch back, as if the driver had been killed before it (K4)."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def writes_of(self, batch: int) -> int:
        """Return how often tasks have written rows of a batch to their end."""
        return sum(
            event["event"] == "written" and event["batch"] == batch and event["rows"] != 0
            for event in read_trace(str(self.trace))
        )


def rows(*numbers: range) -> Counter[bytes]:
    return Counter(b"%06d" % number for part in numbers for number in part)


def entries(server: StandaloneProcess, topic: str) -> int:
    answer = web.get(f"{server.web}/admin/v2/{topic.replace('://', '/')}/internalStats")
    return int(answer.json()["entriesAddedCounter"]) if answer.status_code == 200 else 0


def test_a_repeated_batch_is_written_once_and_without_deduplication_twice(
    spark, options, server, client, exact, topic, tmp_path: Path
):
    make_partitions(server, exact, 2)
    query = Query(spark, options, exact, tmp_path)
    query.add("a", range(5000))
    query.run()
    query.add("b", range(5000, 6000))
    query.run()
    query.repeat(1)
    query.run(batching="false", compression="zstd")
    assert query.writes_of(1) == 2, "the batch was not repeated"
    partitions = [f"{exact}-partition-{number}" for number in range(2)]
    assert Counter(values(client, *partitions)) == rows(range(6000))

    (tmp_path / "control").mkdir()
    control = Query(spark, options, topic, tmp_path / "control")
    control.add("a", range(1000))
    control.run(exactlyOnce="false")
    control.repeat(0)
    control.run(exactlyOnce="false")
    assert Counter(values(client, topic)) == rows(range(1000), range(1000)), "the first half proves nothing"


def test_a_task_that_is_killed_in_the_middle_of_its_rows_writes_each_once(
    spark, options, server, client, exact, tmp_path: Path
):
    query = Query(spark, options, exact, tmp_path)
    query.add("a", range(ROWS))
    trace, killed, stats = str(query.trace), str(tmp_path / "killed"), f"{server.web}/admin/v2/{exact}/internalStats"
    asked = urllib.request.Request(stats.replace("persistent://", "persistent/"), headers=headers())

    def kill_writer(value: str) -> str:
        """Kill the worker that writes, when the topic has some of its rows, and the last ones are not there yet."""
        import json
        import signal
        import urllib.error

        if int(value) == 2 * ROWS // 3 and not os.path.exists(killed):
            for _ in range(500):
                try:
                    with urllib.request.urlopen(asked) as answer:
                        stored = json.load(answer)["entriesAddedCounter"]
                except urllib.error.HTTPError:  # the topic is not there yet
                    stored = 0
                if stored:
                    break
                time.sleep(0.02)
            Path(killed).write_text(str(stored))
            [writer] = [event["pid"] for event in read_trace(trace) if event["event"] == "writing"]
            os.kill(int(str(writer)), signal.SIGKILL)
            time.sleep(5)  # until Spark notices, no row follows
        return value

    query.run(kill_writer)
    assert int(Path(killed).read_text()) > 0, "the task was killed before it wrote anything"
    begun = [event for event in read_trace(trace) if event["event"] == "writing"]
    assert [event["batch"] for event in begun] == [0, 0], "the task was not repeated"
    assert Counter(values(client, exact)) == rows(range(ROWS))


def test_a_server_that_is_killed_while_a_task_writes_has_each_row_once(spark, tmp_path: Path):
    topic = f"persistent://{NAMESPACE}/killed"
    with serve(tmp_path / "server") as server:
        make_deduplicated(server)
        query = Query(spark, options_of(server), topic, tmp_path)
        query.add("a", range(ROWS))
        running = query.start(batching="false")
        wait_for(lambda: entries(server, topic) > 1000, "the first entries")
        server.kill()
        assert query.writes_of(0) == 0, "the server was killed after the last row"
        server.start()
        assert running.awaitTermination(QUERY_S)
        query.repeat(0)
        query.run()
        assert query.writes_of(0) == 2
        client = quiet_client(server.url)
        try:
            assert Counter(values(client, topic)) == rows(range(ROWS))
        finally:
            client.close()


@pytest.mark.full
def test_a_repetition_with_other_rows_is_refused_and_loses_none(spark, options, client, exact, tmp_path: Path):
    query = Query(spark, options, exact, tmp_path)
    query.add("a", range(100))
    query.run(sortRows="true")
    query.repeat(0)
    (query.source / "a").write_text("".join(f"{row:06}\n" for row in range(50, 150)))
    with pytest.raises(PySparkException, match="has other rows of batch 0 than this repetition"):
        query.run(sortRows="true")
    assert Counter(values(client, exact)) == rows(range(100))


@pytest.mark.full
def test_sorted_rows_may_come_in_any_order(spark, options, client, exact, tmp_path: Path):
    query = Query(spark, options, exact, tmp_path)
    query.add("a", range(200))
    query.run(sortRows="true")
    query.repeat(0)
    (query.source / "a").write_text("".join(f"{row:06}\n" for row in reversed(range(200))))
    query.run(sortRows="true")
    assert query.writes_of(0) == 2
    assert Counter(values(client, exact)) == rows(range(200))


@pytest.mark.full
def test_a_checkpoint_that_is_older_than_the_topic_is_refused(spark, options, client, exact, tmp_path: Path):
    query = Query(spark, options, exact, tmp_path)
    query.add("a", range(10))
    query.run()
    shutil.copytree(query.checkpoint, tmp_path / "backup")
    for name in ("b", "c"):
        query.add(name, range(10, 20))
        query.run()
    shutil.rmtree(query.checkpoint)
    (tmp_path / "backup").rename(query.checkpoint)
    with pytest.raises(PySparkException, match=r"has rows of batch 2 of this writer, and this is batch 1"):
        query.run()
    assert Counter(values(client, exact)) == rows(range(10), range(10, 20), range(10, 20))


def test_a_topic_without_deduplication_is_refused_before_a_row_is_written(spark, options, client, topic, tmp_path):
    query = Query(spark, options, topic, tmp_path)
    query.add("a", range(10))
    with pytest.raises(PySparkException, match="needs deduplication, which is off for persistent://public/default"):
        query.run()
    assert values(client, topic) == []


@pytest.mark.full
def test_what_else_cannot_keep_the_promise_is_refused(spark, options, client, exact, tmp_path):
    query = Query(spark, options, exact, tmp_path)
    query.add("a", range(10))
    for setting in ("true", None):
        spark.conf.unset(ADAPTIVE) if setting is None else spark.conf.set(ADAPTIVE, setting)
        with pytest.raises(PySparkException, match=f"spark.conf.set.'{ADAPTIVE}', 'false'"):
            query.run()
    spark.conf.set(ADAPTIVE, "false")
    long_ago = time.time() - 360 * 60
    os.utime(query.checkpoint / "offsets" / "0", (long_ago, long_ago))
    with pytest.raises(PySparkException, match=r"was begun 360 minutes ago, and brokers forget"):
        query.run()


def test_a_batch_write_with_the_version_of_one_before_writes_nothing_again(spark, options, client, exact):
    frame = spark.range(500).selectExpr("format_string('%06d', id) as value").coalesce(1)
    of_one = {**options, "topic": exact, "exactlyOnce": "true", "txnAppId": "orders", "txnVersion": "7"}
    for version in ("7", "7", "8"):
        frame.write.format("quire").mode("append").options(**{**of_one, "txnVersion": version}).save()
    assert Counter(values(client, exact)) == rows(range(500), range(500))


@pytest.mark.parametrize("sort", [pytest.param("false", marks=pytest.mark.full), "true"])
def test_a_failed_task_of_a_batch_write_writes_each_row_once(spark, options, client, exact, tmp_path: Path, sort):
    marker = str(tmp_path / "failed")

    def fail_once(value: str) -> str:
        if int(value) == ROWS - 1 and not os.path.exists(marker):
            Path(marker).write_text("")
            raise RuntimeError("once")
        return value

    frame = spark.range(ROWS).selectExpr("format_string('%06d', id) as value").coalesce(1)
    frame = frame.select(udf(fail_once, "string", useArrow=False)("value").alias("value"))
    options = {**options, "topic": exact, "exactlyOnce": "true", "sortRows": sort, "trace": str(tmp_path / "trace")}
    frame.write.format("quire").mode("append").options(**options).save()
    done = [event["rows"] for event in read_trace(str(tmp_path / "trace")) if event["event"] == "written"]
    assert done == [ROWS], "an attempt whose rows ended early did not notice it"
    assert Path(marker).exists()
    assert Counter(values(client, exact)) == rows(range(ROWS))
