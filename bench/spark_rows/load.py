"""A session of Spark, and the timed operations of Spark and of the official client on one server or cluster."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pulsar

from bench.spark_feed import FileSource
from quire.client.message_id import MessageId

SIZE = 1024
PAYLOAD = b"x" * SIZE
WORKERS = 2


def make_session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master(f"local[{WORKERS}]")
        .appName("quire-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.sql.adaptive.streaming.stateless.enabled", "false")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    made.dataSource.register(FileSource)
    return made


class Load:
    """One session, and one server or cluster."""

    def __init__(self, spark: Any, url: str, web: str) -> None:
        self.spark = spark
        self.url = url
        self.web = web
        self.options = {"service.url": url, "admin.url": web}

    def client(self) -> pulsar.Client:
        return pulsar.Client(self.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))

    def ask(self, method: str, path: str, value: object = None) -> None:
        """Make a request to the admin REST."""
        import httpx2

        answer = httpx2.request(method, f"{self.web}/admin/v2/{path}", json=value, follow_redirects=True, timeout=120)
        answer.raise_for_status()

    def produce(self, topic: str, count: int, *, in_batch: int = 0, size: int = SIZE) -> tuple[float, MessageId]:
        """Return the seconds to send `count` messages and have every receipt, and the last message's id.

        `in_batch`: messages of a batch; 1: each message is an entry; 0: as the client does it by default."""
        client = self.client()
        more: dict[str, Any] = {"max_pending_messages": 1000 if size == SIZE else 16}
        if in_batch > 1:
            more = {"batching_max_messages": in_batch, "max_pending_messages": max(1000, 2 * in_batch)}
            more |= {"batching_max_publish_delay_ms": 1000, "batching_max_allowed_size_in_bytes": 4 << 20}
        producer = client.create_producer(topic, batching_enabled=in_batch != 1, block_if_queue_full=True, **more)
        payload = PAYLOAD if size == SIZE else os.urandom(size)
        failed: list[object] = []
        last: list[Any] = [None]

        def sent(result: object, message_id: Any) -> None:
            last[0] = message_id
            if result != pulsar.Result.Ok:
                failed.append(result)

        begin = time.perf_counter()
        for number in range(count):
            producer.send_async(payload, sent, partition_key=str(number % 1000), properties={"n": str(number)})
        producer.flush()
        taken = time.perf_counter() - begin
        client.close()
        if failed:
            raise RuntimeError(f"{len(failed)} sends failed, first: {failed[0]}")
        return taken, MessageId(last[0].ledger_id(), last[0].entry_id())

    def consume(self, topic: str, count: int, *, acknowledging: bool) -> float:
        """Return the seconds to receive all of them, with a reader or, `acknowledging` each, with a consumer, without
        its opening."""
        client = self.client()
        if acknowledging:
            consumer = client.subscribe(
                topic, "bench", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=5000
            )
            receive = consumer.receive
        else:
            receive = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000).read_next
        size = 0
        begin = time.perf_counter()
        for _ in range(count):
            message = receive(30_000)
            size += len(message.data()) + len(message.partition_key()) + len(message.properties())
            if acknowledging:
                consumer.acknowledge(message)
        taken = time.perf_counter() - begin
        client.close()
        if size < count * SIZE:
            raise RuntimeError("messages came back shorter than they were sent")
        return taken

    def read(self, source: str, topic: str, count: int, **more: str) -> float:
        """Return the seconds of a whole batch read into nothing."""
        options = {**self.options, "topic": topic, "minPartitions": str(WORKERS), **more}
        reader = self.spark.read.format(source).options(**options)
        return self._drain(reader.load, count, source)

    def read_parquet(self, path: Path, count: int) -> float:
        """Return the seconds of the same job over local Parquet files."""
        return self._drain(lambda: self.spark.read.parquet(str(path)), count, "parquet")

    def _drain(self, load: Any, count: int, what: str) -> float:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count as rows_of
        from pyspark.sql.functions import lit

        seen = Observation()
        begin = time.perf_counter()
        load().observe(seen, rows_of(lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        taken = time.perf_counter() - begin
        if seen.get["rows"] != count:
            raise RuntimeError(f"{what} read {seen.get['rows']} rows of {count}")
        return taken

    def save_parquet(self, topic: str, path: Path) -> None:
        """Write the rows of a topic to Parquet files."""
        frame = self.spark.read.format("quire").options(**self.options, topic=topic, minPartitions=str(WORKERS)).load()
        frame.write.mode("overwrite").parquet(str(path))

    def write(self, topic: str, count: int, *, batched: bool, in_turns: bool = True, **more: str) -> float:
        """Return the seconds of a whole batch write; the rows are generated on the way.

        `in_turns`: consecutive rows have different keys; otherwise a hundred of them have the same."""
        key = "id % 1000" if in_turns else "(id div 100) % 1000"
        frame = self.spark.range(0, count, 1, WORKERS).selectExpr(
            f"cast(rpad('', {SIZE}, 'x') as binary) as value",
            f"cast({key} as string) as __key",
            "map('n', cast(id as string)) as __properties",
        )
        begin = time.perf_counter()
        options = {**self.options, "topic": topic, "batching": str(batched).lower(), **more}
        frame.write.format("quire").options(**options).mode("append").save()
        return time.perf_counter() - begin
