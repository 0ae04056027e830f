"""The pipelines with Spark and a real server. Crash points are placed: the query fails exactly there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pulsar
import pytest

from quire.spark.pipelines.archive import archive
from quire.spark.pipelines.errors import CheckpointError, PipelineError
from quire.spark.pipelines.manifest import read_manifest
from quire.spark.pipelines.reader import read_archive
from quire.spark.pipelines.wordcount import wordcount
from tests.support import web
from tests.support.refusals import refuses
from tests.support.server import StandaloneProcess

CHECKOUT = Path(__file__).resolve().parents[2]


def publish(client: pulsar.Client, topic: str, numbers: range) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=20, block_if_queue_full=True)
    for number in numbers:
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 17}", properties={"n": str(number)})
    producer.flush()
    producer.close()


def numbers(out: Path) -> list[int]:
    """Return the rows of the manifest, read through pyarrow alone."""
    return sorted(int(value) for value in read_archive(out).dataset().to_table(columns=["value"])["value"].to_pylist())


@pytest.fixture
def source(options: dict[str, str], server: StandaloneProcess, topic: str) -> dict[str, str]:
    path = topic.replace("://", "/")
    web.request("PUT", f"{server.web}/admin/v2/{path}/partitions", json=2).raise_for_status()
    return {
        **options,
        "topic": topic,
        "subscription": "archive",
        "startingOffsets": "earliest",
        "maxMessagesPerTrigger": "1000",
    }


def test_an_archive_has_each_row_once_wherever_it_failed(spark, source, client, topic, tmp_path: Path):
    out, checkpoint = tmp_path / "out put", tmp_path / "check point"
    publish(client, topic, range(3000))
    failed: list[tuple[str, int]] = []

    def fail(point: str, batch: int) -> None:
        """Fail once before the manifest has the batch, once behind it, and once before anything is written."""
        if (point, batch) in {("written", 0), ("recorded", 1), ("begun", 2)} and (point, batch) not in failed:
            failed.append((point, batch))
            raise RuntimeError(f"failed where {point}")

    for _ in range(3):
        refuses(PipelineError, lambda: archive(spark, source, out, checkpoint, observe=fail), "failed where")
    archive(spark, source, out, checkpoint, observe=fail)
    assert failed == [("written", 0), ("recorded", 1), ("begun", 2)]
    assert numbers(out) == list(range(3000))

    manifest = read_manifest(out)
    assert [record.batch for record in manifest.batches] == list(range(len(manifest.batches)))
    ends: dict[str, tuple[int, int]] = {}
    for record in manifest.batches:
        for partition, span in record.positions.items():
            assert ends.get(partition, (-1, -1)) < span.first <= span.last
            ends[partition] = span.last
    assert set(ends) == {f"{topic}-partition-0", f"{topic}-partition-1"}
    table = read_archive(out).dataset().to_table()
    assert table["dt"].to_pylist() == [at.date() for at in table["__publishTime"].to_pylist()]
    assert table["__properties"].to_pylist() == [[("n", value.decode())] for value in table["value"].to_pylist()]

    before = (out / "_manifest.jsonl").read_bytes()
    assert archive(spark, source, out, checkpoint).rows == 0
    assert (out / "_manifest.jsonl").read_bytes() == before, "without data nothing is written"
    publish(client, topic, range(3000, 3500))
    assert archive(spark, source, out, checkpoint).rows == 500
    assert numbers(out) == list(range(3500))


def test_a_lost_checkpoint_is_refused_and_resumed_without_loss_or_repetition(
    spark, source, client, topic, tmp_path: Path
):
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    publish(client, topic, range(1500))
    archive(spark, source, out, checkpoint)
    shutil.rmtree(checkpoint)
    publish(client, topic, range(1500, 2000))
    refuses(CheckpointError, lambda: archive(spark, source, out, checkpoint), "--resume")
    assert archive(spark, source, out, checkpoint, resume=True).rows == 500
    publish(client, topic, range(2000, 2100))
    assert archive(spark, source, out, checkpoint).rows == 100
    assert numbers(out) == list(range(2100))


@pytest.mark.full
def test_words_are_counted_by_window_of_event_time(spark, options, client, topic, tmp_path: Path):
    minute = 60_000
    start = 1_700_000_040_000 // minute * minute
    texts = [("Café au lait, don't", 0), ("café AU", 59_999), ("au 7", 60_000), ("late but counted", 120_000)]
    producer = client.create_producer(topic)
    for text, at in texts:
        producer.send(text.encode(), event_timestamp=start + at)
    source = {**options, "topic": topic, "subscription": "words", "startingOffsets": "earliest"}
    sink = {name: text for name, text in options.items() if name != "admin.url"} | {"topic": f"{topic}-counts"}

    def run() -> None:
        checkpoint = tmp_path / "checkpoint"
        wordcount(spark, source, sink, checkpoint, window="1 minute", watermark="2 minutes")

    run()
    producer.send(b"end", event_timestamp=start + 10 * minute)
    producer.close()
    run()
    found: dict[tuple[str, str], int] = {}
    reader = client.create_reader(f"{topic}-counts", pulsar.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(120_000)
        value = json.loads(message.data())
        assert message.partition_key() == value["word"]
        assert message.event_timestamp() in (start + minute, start + 2 * minute)
        assert (value["start"], value["word"]) not in found
        found[value["start"], value["word"]] = value["count"]
    reader.close()
    first, second = time.gmtime(start // 1000), time.gmtime((start + minute) // 1000)
    expected: Counter[tuple[str, str]] = Counter()
    for window, text in ((first, "café au lait don't café au late but counted"), (second, "au 7")):
        for word in text.split(" "):
            expected[time.strftime("%Y-%m-%dT%H:%M:%S.000Z", window), word] += 1
    assert found == dict(expected)


def wait_for(condition: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.full
def test_the_script_runs_by_itself_shows_progress_and_ends_cleanly_on_sigterm(source, client, topic, tmp_path: Path):
    out, log = tmp_path / "out", tmp_path / "log"
    publish(client, topic, range(100))
    command = [sys.executable, str(CHECKOUT / "scripts" / "pipelines" / "archive.py"), "--out", str(out)]
    command += ["--checkpoint", str(tmp_path / "checkpoint"), "--topic", topic, "--trigger", "200ms"]
    command += ["--service-url", source["service.url"], "--admin-url", source["admin.url"], "--master", "local[1]"]
    command += [f"--set={name}={text}" for name, text in source.items() if name.startswith(("auth", "tls"))]
    # Spark as it is installed, with its archive of pyspark: see use_installed_pyspark.
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment["PYTHONPATH"] = str(CHECKOUT)
    with open(log, "wb") as file:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        # (the manifest has the rows before Spark tells of the batch)
        wait_for(lambda: process.poll() is not None or "entries behind" in log.read_text())
        assert read_archive(out).rows == 100
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    text = log.read_text()
    assert re.search(r"^batch 0: 100 rows in .* rows/s, 0 entries behind$", text, re.MULTILINE), text
    assert re.search(r"^archived 100 rows in \d+ files, \d+ bytes, 1 batches$", text, re.MULTILINE), text
    assert numbers(out) == list(range(100))
