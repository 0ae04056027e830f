"""Common actions of the Spark tests on topics and queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pulsar

from quire.spark.trace import read_trace
from tests.support import web
from tests.support.server import StandaloneProcess

DEADLINE_S = 120.0
QUERY_S = 300
"""Seconds in which a query of a test ends, on a busy machine."""


def publish(client: pulsar.Client, topic: str, values: Iterable[bytes], **options: Any) -> None:
    """Publish and wait for the receipts; one entry per message unless batching is asked for."""
    options.setdefault("batching_enabled", False)
    producer = client.create_producer(topic, block_if_queue_full=True, **options)
    try:
        for value in values:
            producer.send_async(value, None)
        producer.flush()
    finally:
        producer.close()


def numbered(first: int, stop: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, stop)]


def make_partitions(server: StandaloneProcess, topic: str, count: int, *, grow: bool = False) -> None:
    url = f"{server.web}/admin/v2/{topic.replace('://', '/')}/partitions"
    answer = web.request("POST" if grow else "PUT", url, json=count)
    assert answer.status_code == 204, answer.text


def internal_stats(server: StandaloneProcess, topic: str) -> dict[str, Any]:
    answer = web.get(f"{server.web}/admin/v2/{topic.replace('://', '/')}/internalStats")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def mark_delete(server: StandaloneProcess, topic: str, subscription: str) -> tuple[int, int]:
    ledger, entry = internal_stats(server, topic)["cursors"][subscription]["markDeletePosition"].split(":")
    return int(ledger), int(entry)


def wait_for(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_S) -> Any:
    """Poll until the condition is true; return its result."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come to pass in {seconds:g} s"
        time.sleep(0.02)
    return found


def events(trace: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in read_trace(str(trace)) if event["event"] == name]


class Stream:
    """One streaming query that appends its rows, as lists of columns, to `rows`.

    It can be run again from the same checkpoint.
    """

    def __init__(self, spark: Any, options: dict[str, str], folder: Path, columns: Sequence[str] = ("value",)) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.batches: list[int] = []
        self.trace = folder / "trace.jsonl"
        self._spark = spark
        self._options = {**options, "trace": str(self.trace)}
        self._checkpoint = folder / "checkpoint"
        self._columns = list(columns)

    def start(self, **more: str) -> Any:
        """Run until stopped."""
        return self._writer(more).start()

    def drain(self, **more: str) -> Any:
        """Run with availableNow to its end."""
        query = self._writer(more).trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_S), "the query did not end"
        return query

    def values(self) -> list[bytes]:
        return [row[self._columns.index("value")] for row in self.rows]

    def _writer(self, more: dict[str, str]) -> Any:
        frame = self._spark.readStream.format("quire").options(**{**self._options, **more}).load()
        sink = frame.select(*self._columns).writeStream.foreachBatch(self._take)
        return sink.option("checkpointLocation", str(self._checkpoint))

    def _take(self, frame: Any, number: int) -> None:
        found = [tuple(row) for row in frame.collect()]
        self.batches.append(len(found))
        self.rows += found
