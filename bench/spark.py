"""`scripts/bench spark`: the Spark source and sink beside the official Python client, alone, in one interleaved run.

One server, local[2], messages of 1 KB with a key and a property. Each round, for batched and unbatched messages in
turn: the official client produces and then reads them, and consumes and acknowledges them (data, key and properties of
each), the sink writes as many, the source reads them, and the same source code reads them from a file. Medians of the
rounds. Start of the session, and the first job of each kind, are left out.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import pulsar
import typer
from rich.console import Console
from rich.table import Table

from bench.picture import draw
from bench.servers import quire
from bench.spark_feed import FileSource, dump
from quire.client.message_id import MessageId
from quire.service.programs.command_line import run_command
from quire.spark.checks import require_java

console = Console()
SIZE = 1024
PAYLOAD = b"x" * SIZE
EXPECTED = {
    ("batched", "source / client"): 0.5,
    ("unbatched", "source / client"): 0.8,
    ("batched", "source / file"): 0.4,
    ("unbatched", "source / file"): 0.4,
}


def session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    root = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master("local[2]")
        .appName("quire-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    made.dataSource.register(FileSource)
    return made


class Bench:
    """One server and one session, and the timed operations on them."""

    def __init__(self, spark: Any, port: int, web_port: int, folder: Path) -> None:
        self.spark = spark
        self.url = f"pulsar://127.0.0.1:{port}"
        self.options = {"service.url": self.url, "admin.url": f"http://127.0.0.1:{web_port}"}
        self.folder = folder

    def client(self) -> pulsar.Client:
        return pulsar.Client(self.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))

    def produce(self, topic: str, count: int, *, batched: bool) -> tuple[float, MessageId]:
        """Return the seconds to send `count` messages and have every receipt, and the last message's id."""
        client = self.client()
        producer = client.create_producer(
            topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=1000
        )
        failed: list[object] = []
        last: list[Any] = [None]

        def sent(result: object, message_id: Any) -> None:
            last[0] = message_id
            if result != pulsar.Result.Ok:
                failed.append(result)

        begin = time.perf_counter()
        for number in range(count):
            producer.send_async(PAYLOAD, sent, partition_key=str(number % 1000), properties={"n": str(number)})
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
        from pyspark.sql import Observation
        from pyspark.sql.functions import count as rows_of
        from pyspark.sql.functions import lit

        seen = Observation()
        begin = time.perf_counter()
        frame = self.spark.read.format(source).options(**self.options, topic=topic, minPartitions="2", **more).load()
        frame.observe(seen, rows_of(lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        taken = time.perf_counter() - begin
        if seen.get["rows"] != count:
            raise RuntimeError(f"{source} read {seen.get['rows']} rows of {count}")
        return taken

    def write(self, topic: str, count: int, *, batched: bool) -> float:
        """Return the seconds of a whole batch write; the rows are generated on the way."""
        frame = self.spark.range(0, count, 1, 2).selectExpr(
            f"cast(rpad('', {SIZE}, 'x') as binary) as value",
            "cast(id % 1000 as string) as __key",
            "map('n', cast(id as string)) as __properties",
        )
        begin = time.perf_counter()
        options = {**self.options, "topic": topic, "batching": str(batched).lower()}
        frame.write.format("quire").options(**options).mode("append").save()
        return time.perf_counter() - begin

    def round(self, kind: str, count: int, tag: str) -> dict[str, float]:
        """Return the rows per second of everything, once."""
        batched = kind == "batched"
        topic = f"persistent://public/default/bench-{kind}-{tag}"
        path = self.folder / f"{kind}-{tag}.entries"
        produce_s, last = self.produce(topic, count, batched=batched)
        dump(self.url, topic, last, path)
        taken = {
            "client produces": produce_s,
            "client reads": self.consume(topic, count, acknowledging=False),
            "source": self.read("quire", topic, count),
            "source from a file": self.read("quire_file", topic, count, file=str(path)),
            "sink": self.write(f"{topic}-sink", count, batched=batched),
            # Last: acknowledged messages may be deleted.
            "client consumes": self.consume(topic, count, acknowledging=True),
        }
        path.unlink()
        return {name: count / seconds for name, seconds in taken.items()}


def ratios(rates: dict[str, float]) -> dict[str, float]:
    return {
        "source / client": rates["source"] / rates["client consumes"],
        "source / client's reader": rates["source"] / rates["client reads"],
        "source / file": rates["source"] / rates["source from a file"],
        "sink / client": rates["sink"] / rates["client produces"],
    }


def report(results: dict[str, list[dict[str, float]]], folder: Path) -> None:
    table = Table("messages", "what", "rows/s", "MB/s", "ratio", "expected", title="1 KB messages, one run")
    bars: list[tuple[str, float, float, str]] = []
    for kind, rounds in results.items():
        rates = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        for name, rate in rates.items():
            table.add_row(kind, name, f"{rate:,.0f}", f"{rate * SIZE / 1e6:,.1f}", "", "")
        of_rounds = [ratios(each) for each in rounds]
        for name in of_rounds[0]:
            ratio = statistics.median(each[name] for each in of_rounds)
            expected = EXPECTED.get((kind, name))
            mark = "" if expected is None else f">= {expected} {'ok' if ratio >= expected else 'SHORT'}"
            table.add_row(kind, name, "", "", f"{ratio:.2f}", mark)
            bars.append((f"{kind}: {name}", ratio, expected or 1.0, "more"))
    console.print(table)
    draw(bars, folder / "spark.png", "the first of the two / the second (1.0 = equal; black mark: expected)")
    (folder / "spark.json").write_text(json.dumps(results, indent=1))
    console.print(f"picture and figures: {folder}/spark.png, spark.json", highlight=False)


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(rounds_of_spark, name="scripts/bench spark", text=__doc__)


def rounds_of_spark(
    rounds: Annotated[int, typer.Option()] = 3,
    batched: Annotated[int, typer.Option(help="Messages of a round, in batches.")] = 400_000,
    unbatched: Annotated[int, typer.Option(help="Messages of a round, one by one.")] = 200_000,
    out: Annotated[Path, typer.Option()] = Path("out"),
) -> int:
    require_java()
    counts = {"batched": batched, "unbatched": unbatched}
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in counts}
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as name:
        folder = Path(name)
        with quire(folder / "server") as server:
            spark = session(folder)
            bench = Bench(spark, server.port, server.web_port, folder)
            for number in range(rounds + 1):
                for kind, count in counts.items():
                    tag = f"{number}-{time.time_ns()}"
                    found = bench.round(kind, count if number else count // 10, tag)
                    if number:
                        results[kind].append(found)
                    told = ", ".join(f"{what} {rate:,.0f}/s" for what, rate in found.items())
                    console.print(f"{'round ' + str(number) if number else 'warm-up'}, {kind}: {told}", highlight=False)
            spark.stop()
    out.mkdir(parents=True, exist_ok=True)
    report(results, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
