"""Queries over topics, continued from their checkpoints: a join of two streams, state of one's own, foreachBatch.

With `--full` only."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.exact import NAMESPACE, make_deduplicated, values
from tests.spark.packages import ROOT, python_with_pandas
from tests.spark.support import publish
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.full

RUN_S = 600


def test_two_streams_are_joined_within_a_watermark_and_over_a_restart(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    left, right, to = (f"{topic}-{end}" for end in ("left", "right", "to"))
    for each in (left, right, to):
        client.subscribe(each, "kept").close()

    def side(name: str) -> Any:
        reader = spark.readStream.format("quire").options(**options, topic=name, startingOffsets="earliest")
        loaded = reader.option("subscription", "join").load()
        return loaded.selectExpr("cast(value as string) as value", "__publishTime as at").withWatermark("at", "1 hour")

    def run() -> None:
        on = "a.value = b.value and a.at between b.at - interval 30 minutes and b.at + interval 30 minutes"
        joined = side(left).alias("a").join(side(right).alias("b"), _expression(on))
        query = (
            joined.selectExpr("a.value as value")
            .writeStream.format("quire")
            .options(**options, topic=to)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    publish(client, left, [b"a", b"b"])
    publish(client, right, [b"b", b"x"])
    run()
    assert values(client, to) == [b"b"]
    publish(client, left, [b"c"])
    publish(client, right, [b"c", b"a"])
    run()
    assert sorted(values(client, to)) == [b"a", b"b", b"c"]


def _expression(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def test_state_of_ones_own_goes_on_in_the_next_process_and_its_rows_are_written_once(
    server: StandaloneProcess, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    make_deduplicated(server)
    to = topic.replace("public/default", NAMESPACE)
    for each in (topic, to):
        client.subscribe(each, "kept").close()

    given = json.dumps(options)

    def run() -> None:
        done = subprocess.run(
            [python_with_pandas(), "-m", "tests.spark.stateful_run", given, topic, to, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    publish(client, topic, [b"a", b"a", b"b"])
    run()
    assert sorted(values(client, to)) == [b"a:2", b"b:1"]
    publish(client, topic, [b"a", b"c"])
    run()
    assert sorted(values(client, to)) == [b"a:2", b"a:3", b"b:1", b"c:1"]


@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_a_batch_that_failed_behind_its_write_is_in_the_topic_once_by_the_name_of_its_write(
    exactly_once: str,
    spark: Any,
    server: StandaloneProcess,
    options: dict[str, str],
    client: pulsar.Client,
    topic: str,
    tmp_path: Path,
) -> None:
    """Without `exactlyOnce`, the control, its rows are there twice."""
    make_deduplicated(server)
    to = topic.replace("public/default", NAMESPACE)
    named = {"txnAppId": "orders-to-once", "txnVersion": "{batch}"} if exactly_once == "true" else {}
    written: list[int] = []

    def write(frame: Any, batch: int) -> None:
        writer = frame.select("value").write.format("quire").mode("append").options(**options, topic=to)
        for name, value in named.items():
            writer = writer.option(name, value.format(batch=batch))
        writer.option("exactlyOnce", exactly_once).save()
        written.append(batch)
        if written == [0]:
            raise RuntimeError("the driver fails behind the write")

    def run() -> None:
        reader = spark.readStream.format("quire").options(**options, topic=topic, startingOffsets="earliest")
        stream = reader.option("subscription", "each").load().writeStream.foreachBatch(write)
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(RUN_S)

    client.subscribe(topic, "kept").close()
    publish(client, topic, [b"a", b"b"])
    with pytest.raises(StreamingQueryException, match="the driver fails behind the write"):
        run()
    run()
    publish(client, topic, [b"c"])
    run()
    assert written == [0, 0, 1], "the batch was not repeated"
    assert values(client, to) == ([b"a", b"b", b"c"] if exactly_once == "true" else [b"a", b"b", b"a", b"b", b"c"])
