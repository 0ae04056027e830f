"""The pipelines from topics to a topic are exact if a worker of Spark or the server is killed in the middle of a task,
and if a batch is repeated as if the driver had been killed between the sink's commit and Spark's. Without exactlyOnce
the repeated batch comes twice.

test_topic_kills.py kills drivers too, with many more rows. It runs with `--full` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest

from quire.spark.pipelines.copy_topic import copy_topic
from quire.spark.pipelines.window import count_windows
from tests.spark.exact import NAMESPACE, make_deduplicated
from tests.spark.peer import options_of, quiet_client, serve
from tests.spark.pipelines.events import WATERMARK, WINDOW, events, recomputed, send
from tests.spark.pipelines.placed import PlacedKill, commits_of, kill_worker, last_batch, take_commit_back
from tests.spark.pipelines.topics import contents, order_of_keys, partitions, windows
from tests.spark.support import make_partitions
from tests.support.server import StandaloneProcess

ROWS = 4000
SOURCE = f"persistent://{NAMESPACE}/events"
COUNTS = f"persistent://{NAMESPACE}/counts"
COPIES = f"persistent://{NAMESPACE}/copies"


@dataclass(frozen=True)
class World:
    """A server of these tests' own, as it is killed, with the events in a topic."""

    server: StandaloneProcess
    client: pulsar.Client
    sent: int

    @property
    def options(self) -> dict[str, str]:
        return options_of(self.server)

    def source(self, name: str, trace: Path, **more: str) -> dict[str, str]:
        held = {"topic": SOURCE, "subscription": name, "startingOffsets": "earliest", "trace": str(trace)}
        return {**self.options, **held, **more}

    def sink(self, topic: str, trace: Path, exactly_once: str = "true") -> dict[str, str]:
        return {**self.options, "topic": topic, "trace": str(trace), "exactlyOnce": exactly_once}

    def kill_server(self, worker: int) -> None:
        self.server.kill()
        self.server.start()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serve(tmp_path_factory.mktemp("pipelines")) as server:
        make_deduplicated(server)
        for topic in (SOURCE, COUNTS, COPIES):
            make_partitions(server, topic, 2)
        client = quiet_client(server.url)
        try:
            yield World(server, client, send(client, SOURCE, events(ROWS)))
        finally:
            client.close()


def repeat(trace: Path, checkpoint: Path, run: Callable[[], Any]) -> None:
    """Run the last batch once more."""
    batch = last_batch(checkpoint)
    take_commit_back(checkpoint, batch)
    run()
    assert commits_of(trace, batch) == 2, "the last batch was not repeated"


def test_windows_equal_a_batch_row_for_row_and_late_messages_are_counted(spark, world: World, tmp_path: Path):
    trace, checkpoint = tmp_path / "trace", tmp_path / "checkpoint"
    source = world.source("windows", trace, maxMessagesPerTrigger="1500")

    def run() -> Any:
        sink = world.sink(COUNTS, trace)
        return count_windows(spark, source, sink, checkpoint, window=WINDOW, watermark=WATERMARK)

    with PlacedKill(trace, 1, world.kill_server) as kill:
        totals = run()
    assert kill.hit is not None, "the server was not killed: no task was met while it wrote"
    repeat(trace, checkpoint, run)
    expected = recomputed(spark, world.options, SOURCE)
    assert windows(world.client, *partitions(COUNTS)) == expected
    late = sum(event.late for event in events(ROWS))
    assert (totals.rows, totals.late, totals.timeless, totals.exact) == (world.sent, late, 0, True)
    # the windows of the last message of each partition are open
    assert sum(row[3] for row in expected) + late + 2 == world.sent


def test_a_copy_has_every_message_once_with_all_that_it_carries(spark, world: World, tmp_path: Path):
    trace, checkpoint = tmp_path / "trace", tmp_path / "checkpoint"

    def run(exactly_once: str) -> Any:
        return copy_topic(spark, world.source("copies", trace), world.sink(COPIES, trace, exactly_once), checkpoint)

    with PlacedKill(trace, 0, kill_worker) as kill:
        totals = run("true")
    assert len(set(kill.attempts())) == 2, "the task of the killed worker was not repeated by another one"
    expected = contents(world.client, *partitions(SOURCE))
    assert contents(world.client, *partitions(COPIES)) == expected
    assert (totals.rows, sum(expected.values())) == (world.sent, world.sent)
    assert {"o1", None} <= {row[-1] or None for row in expected}
    assert order_of_keys(world.client, COPIES) == order_of_keys(world.client, SOURCE)

    repeat(trace, checkpoint, lambda: run("false"))
    assert contents(world.client, *partitions(COPIES)) == expected + expected, "without exactlyOnce each comes twice"
