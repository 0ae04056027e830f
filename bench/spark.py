"""`scripts/bench spark`: the Spark source and sink beside the official Python client, in one interleaved run.

Messages of 1 KB with a key and a property, local[2]. Each round, for batched and unbatched messages in turn:

    on a standalone server   the official client produces, reads, consumes and acknowledges; the source reads them
                             through the broker, and the same source code from a file; the sinks write as many
    on a cluster of three bookies, a broker and ZooKeeper
                             the client consumes, the source reads through the broker and past it, and Spark reads
                             the same rows from local Parquet

Medians of the rounds. Start of the session, and the first job of each kind, are left out. Then once: a micro-batch of
one row, a planning step over many partitions, the memory of a task with messages of 5 MB, and throughput by batch size.
With --docs the figures and pictures become the section "Spark" of docs/measurements.md.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.servers import listens, quire
from bench.spark_feed import dump
from bench.spark_rows import report
from bench.spark_rows.load import Load, make_session
from bench.spark_rows.report import Results
from bench.spark_rows.small import batch_s, plan_s, task_mb
from bench.waiting import poll_until
from bench.yardstick import factor, measure
from quire.service.programs.command_line import run_command
from quire.spark.checks import require_java
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan

console = Console()
NAMESPACE = "public/bench-exact"
"""Namespace with deduplication."""
KINDS = ("batched", "unbatched")
SIZES = (1, 10, 100, 1000)
"""Messages of a batch, of the picture by batch size."""
LARGE = 5 * 1000 * 1000
"""Bytes of a large message; a broker takes 5 MiB with its metadata."""

WEB_S = 60.0
"""Time for the web port of a server to open, which comes after its other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Messages of one round, and of the single rows."""

    batched: int
    unbatched: int
    partitions: int
    large_mb: int

    def of(self, kind: str) -> int:
        return self.batched if kind == "batched" else self.unbatched


def on_server(load: Load, folder: Path, kind: str, count: int, tag: str) -> dict[str, float]:
    """Return the rows per second of everything on a standalone server, once."""
    batched = kind == "batched"
    topic = f"persistent://public/default/bench-{kind}-{tag}"
    exact = f"persistent://{NAMESPACE}/{kind}-{tag}"
    path = folder / f"{kind}-{tag}.entries"
    produce_s, last = load.produce(topic, count, in_batch=0 if batched else 1)
    dump(load.url, topic, last, path)
    taken = {
        "client produces": produce_s,
        "client reads": load.consume(topic, count, acknowledging=False),
        "source": load.read("quire", topic, count),
        "source from a file": load.read("quire_file", topic, count, file=str(path)),
        "sink": load.write(f"{topic}-sink", count, batched=batched),
        "sink, exactly once": load.write(exact, count, batched=batched, in_turns=not batched, exactlyOnce="true"),
        # Last: acknowledged messages may be deleted.
        "client consumes": load.consume(topic, count, acknowledging=True),
    }
    path.unlink()
    return {name: count / seconds for name, seconds in taken.items()}


def on_cluster(load: Load, folder: Path, kind: str, count: int, tag: str) -> dict[str, float]:
    """Return the rows per second of the ways to read a topic of a cluster, once."""
    topic = f"persistent://public/default/bench-{kind}-{tag}"
    load.produce(topic, count, in_batch=0 if kind == "batched" else 1)
    path = folder / f"parquet-{kind}-{tag}"
    load.save_parquet(topic, path)
    taken = {
        "cluster: source, broker": load.read("quire", topic, count, readVia="broker"),
        "cluster: source, bookies": load.read("quire", topic, count, readVia="bookies"),
        "local Parquet": load.read_parquet(path, count),
        "cluster: client consumes": load.consume(topic, count, acknowledging=True),
    }
    return {name: count / seconds for name, seconds in taken.items()}


def by_batch_size(load: Load, count: int, tag: str) -> dict[str, dict[int, float]]:
    """Return the rows per second by way of reading and by messages of a batch."""
    found: dict[str, dict[int, float]] = {}
    for in_batch in SIZES:
        topic = f"persistent://public/default/bench-of-{in_batch}-{tag}"
        load.produce(topic, count, in_batch=in_batch)
        seconds = {
            "source, through the broker": load.read("quire", topic, count, readVia="broker"),
            "source, from bookies": load.read("quire", topic, count, readVia="bookies"),
            "official client, a reader": load.consume(topic, count, acknowledging=False),
        }
        for name, taken in seconds.items():
            found.setdefault(name, {})[in_batch] = count / taken
    return found


def single_rows(load: Load, folder: Path, amounts: Amounts, tag: str) -> dict[str, float]:
    """Return the rows that are measured once, on the cluster."""
    base = "persistent://public/default"
    large = f"{base}/bench-large-{tag}"
    messages = max(1, amounts.large_mb * 1_000_000 // LARGE)
    load.produce(large, messages, in_batch=1, size=LARGE)
    return {
        report.BATCH: batch_s(load, f"{base}/bench-small-{tag}", folder / "small", None),
        report.EXACT_BATCH: batch_s(
            load, f"{base}/bench-small-exact-{tag}", folder / "small-exact", f"persistent://{NAMESPACE}/small-{tag}"
        ),
        report.PLAN: plan_s(load, f"{base}/bench-many-{tag}", amounts.partitions),
        report.MEMORY_BROKER: task_mb(load, large, messages=messages, size=LARGE, read_via="broker"),
        report.MEMORY: task_mb(load, large, messages=messages, size=LARGE, read_via="bookies"),
    }


def measure_all(spark: Any, folder: Path, amounts: Amounts, rounds: int) -> Results:
    plan = Plan(bookies=3, brokers=1, recoveries=0, conf={Kind.BROKER: {"brokerDeleteInactiveTopicsEnabled": "false"}})
    results = Results(rates={kind: [] for kind in KINDS})
    with quire(folder / "server") as server, closing(Cluster(folder / "cluster", plan)) as cluster:
        poll_until(lambda: listens(server.web_port), WEB_S)
        loads = {
            on_server: Load(spark, f"pulsar://127.0.0.1:{server.port}", f"http://127.0.0.1:{server.web_port}"),
            on_cluster: Load(spark, cluster.made.service_url, cluster.made.web_urls[0]),
        }
        for load in loads.values():
            load.ask("PUT", f"namespaces/{NAMESPACE}")
            load.ask("POST", f"namespaces/{NAMESPACE}/deduplication", True)
        for number in range(rounds + 1):
            for kind in KINDS:
                count = amounts.of(kind) if number else max(1000, amounts.of(kind) // 10)
                found: dict[str, float] = {}
                for timed, load in loads.items():
                    found |= timed(load, folder, kind, count, f"{number}-{time.time_ns()}")
                if number:
                    results.rates[kind].append(found)
                told = ", ".join(f"{what} {rate:,.0f}/s" for what, rate in found.items())
                console.print(f"{f'round {number}' if number else 'warm-up'}, {kind}: {told}", highlight=False)
        tag = str(time.time_ns())
        results.sizes = by_batch_size(loads[on_cluster], amounts.unbatched, tag)
        results.single = single_rows(loads[on_cluster], folder, amounts, tag)
    return results


class Cluster:
    """A cluster of processes, which ends with this one."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.made = LocalCluster.make(folder, plan, bound=True)
        self.made.up()

    def close(self) -> None:
        self.made.abandon()


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(rounds_of_spark, name="scripts/bench spark", text=__doc__)


def rounds_of_spark(
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    batched: Annotated[int, typer.Option(min=1000, help="Messages of a round, in batches.")] = 400_000,
    unbatched: Annotated[int, typer.Option(min=1000, help="Messages of a round, one by one.")] = 200_000,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the planning step.")] = 1000,
    large_mb: Annotated[int, typer.Option(min=5, help="Bytes of the range of large messages, in MB.")] = 1000,
    out: Annotated[Path, typer.Option(help="Folder of picture and figures.")] = Path("out"),
    docs: Annotated[
        bool, typer.Option("--docs", help="Write figures and pictures into docs/measurements.md and docs/measured.")
    ] = False,
) -> int:
    require_java()
    amounts = Amounts(batched=batched, unbatched=unbatched, partitions=partitions, large_mb=large_mb)
    before = measure()
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as name:
        spark = make_session(Path(name))
        try:
            results = measure_all(spark, Path(name), amounts, rounds)
        finally:
            spark.stop()
    results.slowness = max(factor(before), factor(measure()))
    report.show(results, out, console)
    if docs:
        report.write_docs(results, Path(__file__).resolve().parents[1] / "docs")
        console.print("docs/measurements.md, section Spark, and docs/measured/", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
