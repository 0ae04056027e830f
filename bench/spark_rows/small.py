"""Rows that are no throughput: a micro-batch with next to nothing to do, a planning step, and the memory of a task."""

from __future__ import annotations

import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from bench.procs import tree
from bench.spark_rows.load import Load
from quire.spark.limits import Limits
from quire.spark.options.parse import Options
from quire.spark.planning.planner import Planner

BATCHES = 30
WARM_BATCHES = 10
POLL_S = 0.02


def batch_s(load: Load, topic: str, folder: Path, to: str | None) -> float:
    """Return the median seconds of a micro-batch of one row, without the first ones.

    `to`: a topic, written exactly once; None: the rows are dropped."""
    load.produce(topic, BATCHES, in_batch=1)
    stream = load.spark.readStream.format("quire")
    stream = stream.options(
        **load.options, topic=topic, subscription="bench", startingOffsets="earliest", maxMessagesPerTrigger="1"
    )
    writer = stream.load().select("__key", "value").writeStream.option("checkpointLocation", str(folder))
    writer = writer.format("noop" if to is None else "quire").trigger(availableNow=True)
    if to is not None:
        writer = writer.options(**load.options, topic=to, exactlyOnce="true")
    query = writer.start()
    query.awaitTermination()
    reports = [json.loads(each.json) for each in query.recentProgress]
    seconds = [float(each["durationMs"]["triggerExecution"]) / 1000 for each in reports if each["numInputRows"]]
    if len(seconds) != BATCHES:
        raise RuntimeError(f"{len(seconds)} micro-batches instead of {BATCHES}")
    return statistics.median(seconds[WARM_BATCHES:])


def plan_s(load: Load, topic: str, partitions: int, steps: int = 5) -> float:
    """Return the median seconds of the planning of a trigger over a topic of so many partitions, which has a message
    in each, without the start of the query."""
    load.ask("PUT", f"{topic.replace('://', '/')}/partitions", partitions)
    load.produce(topic, 2 * partitions, in_batch=1)
    options = {**load.options, "topic": topic, "subscription": "bench", "startingOffsets": "earliest"}
    planner = Planner(Options.parse(options, use="stream"))
    try:
        start = planner.initial()
        seconds = []
        for _ in range(steps + 1):
            begin = time.perf_counter()
            end = planner.latest(start, Limits())
            planner.report()
            tasks = planner.plan(start, end)
            seconds.append(time.perf_counter() - begin)
        if not tasks:
            raise RuntimeError("nothing was planned")
        return statistics.median(seconds[1:])
    finally:
        planner.close()


class WorkerMemory:
    """Highest memory of one Python process of Spark's that reads, while entered, in MB."""

    def __init__(self, spark: Any) -> None:
        self.peak_mb = 0.0
        self._jvm = spark.sparkContext._gateway.proc.pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            for pid in tree(self._jvm):
                if pid != self._jvm:
                    self.peak_mb = max(self.peak_mb, resident_mb(pid))


def resident_mb(pid: int) -> float:
    """Return the memory of a process in MB; 0 if it has ended, or is no Python."""
    try:
        if b"python" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
            return 0.0
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(found[0]) * 1024 / 1e6 if found else 0.0


def task_mb(load: Load, topic: str, *, messages: int, size: int, read_via: str) -> float:
    """Return the memory of the task that reads a range of large messages."""
    with WorkerMemory(load.spark) as memory:
        load.read("quire", topic, messages, readVia=read_via, minPartitions="1")
    return memory.peak_mb
