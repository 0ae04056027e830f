"""scripts/pipelines/window and copy-topic are exact, whatever is killed and when.

The driver is killed with SIGKILL at the four points of a batch (K1 to K4), then a worker of Spark in the middle of a
task, then the server. A second run with `--at-least-once` is killed between the sink's commit and Spark's, and must
write rows twice: otherwise the first one proves nothing.

With `--full` only: sixteen Spark drivers, whose starts are nearly all of the time. test_topic_pipelines.py is the small
version.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest

from quire.spark.pipelines.copy_topic import copy_topic
from quire.spark.pipelines.window import count_windows
from tests.spark.exact import NAMESPACE, make_deduplicated
from tests.spark.peer import options_of, quiet_client, serve
from tests.spark.pipelines.events import WATERMARK, WINDOW, events, recomputed, send
from tests.spark.pipelines.topics import contents, order_of_keys, partitions, windows
from tests.spark.sink_run import CHECKOUT, SinkRun
from tests.spark.support import make_partitions
from tests.support.pages.walk import Walk
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.full

ROWS = 100_000
PER_TRIGGER = 8000
SOURCE = f"persistent://{NAMESPACE}/events"
END_S = 600.0
AWAY_MS = 300_000
"""Time for which a server may be away: a JVM on a busy machine starts slowly."""


class PipelineRun(SinkRun):
    """A pipeline of scripts/pipelines."""

    def __init__(self, folder: Path, server: StandaloneProcess, script: str, to: str, *more: str) -> None:
        super().__init__(folder, {})
        self.to = to
        self._script = CHECKOUT / "scripts" / "pipelines" / script
        self._server = server
        self._more = more

    def command(self) -> list[str]:
        command = [sys.executable, str(self._script), "--topic", SOURCE, "--to", self.to]
        command += ["--checkpoint", str(self.checkpoint), "--subscription", f"{self.folder.name}"]
        settings = {**options_of(self._server), "trace": str(self.tail.path), "operationTimeoutMs": str(AWAY_MS)}
        command += [f"--set={name}={text}" for name, text in settings.items()]
        command += ["--max-messages-per-trigger", str(PER_TRIGGER)]
        command += ["--master", "local[2,4]", "--conf", f"spark.local.dir={self.folder / 'local'}"]
        command += ["--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]
        return [*command, "--conf", "spark.sql.shuffle.partitions=2", *self._more]

    def kill_all_and_end(self) -> None:
        """Kill the driver at each point, then a worker and the server; run to the end. Each kill hits its point."""
        points = (self.before_tasks, self.in_mid_write, self.before_sink_commit, self.between_sink_and_spark)
        hits: list[int] = []
        for point in points:
            self.start()
            hits.append(self.freeze_at(point, max(hits, default=0) + 1))
            self.kill()
            assert self.left() == []
        assert sorted(set(hits)) == hits, f"points of one batch: {hits}"
        self.start()
        batch = self.freeze_at(self.in_mid_write, hits[-1] + 1)
        task, worker = self.writing(batch)
        os.kill(worker, signal.SIGKILL)
        self.thaw()
        self.wait_for(lambda: self.has("commits", batch), "the commit of the batch whose worker was killed")
        assert len(set(self.writers(batch)[task])) == 2, "the task of the killed worker was not repeated"
        self.freeze_at(self.in_mid_write, batch + 1)
        self._server.kill()
        self.thaw()
        self._server.start()
        assert self.end(END_S) == 0, self.log()[-4000:]

    def kill_once(self) -> None:
        """Kill the driver between the sink's commit and Spark's."""
        self.start()
        self.freeze_at(self.between_sink_and_spark, 2)
        self.kill()
        assert self.left() == []

    def end_here(self, spark: Any, run: Callable[..., Any]) -> None:
        """Run to the end in the session of the tests, which is there already."""
        here = options_of(self._server)
        held = {"topic": SOURCE, "subscription": self.folder.name, "startingOffsets": "earliest"}
        run(spark, {**here, **held}, {**here, "topic": self.to, "exactlyOnce": "false"}, self.checkpoint)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with serve(tmp_path_factory.mktemp("pipelines")) as running:
        make_deduplicated(running)
        yield running


@pytest.fixture(scope="module")
def client(server: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = quiet_client(server.url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def sent(server: StandaloneProcess, client: pulsar.Client) -> int:
    make_partitions(server, SOURCE, 2)
    return send(client, SOURCE, events(ROWS))


window_here = partial(count_windows, window=WINDOW, watermark=WATERMARK)
Read = Callable[..., "Counter[tuple[Any, ...]]"]


def killed(
    spark: Any,
    folder: Path,
    server: StandaloneProcess,
    client: pulsar.Client,
    script: str,
    here: Callable[..., Any],
    read: Read,
) -> PipelineRun:
    """Run a pipeline through all kills, and its control; return the run.

    Args:
        script: program of scripts/pipelines.
        here: runs the same pipeline in this process.
        read: returns the rows of topics.
    """
    name = script.removesuffix(".py")
    run = PipelineRun(folder / name, server, script, f"persistent://{NAMESPACE}/{name}")
    again = PipelineRun(
        folder / f"{name}-control", server, script, f"persistent://public/default/{name}", "--at-least-once"
    )
    for each in (run, again):
        make_partitions(server, each.to, 2)
    try:
        run.kill_all_and_end()
        again.kill_once()
        again.end_here(spark, here)
    finally:
        run.abandon()
        again.abandon()
    twice = read(client, *partitions(again.to))
    assert max(twice.values()) > 1, "with --at-least-once nothing came twice: it proves nothing"
    assert set(twice) == set(read(client, *partitions(run.to)))
    return run


def test_windows_equal_a_batch_row_for_row_whatever_was_killed(spark, server, client, sent, tmp_path: Path):
    run = killed(spark, tmp_path, server, client, "window.py", window_here, windows)
    options = options_of(server)
    expected = recomputed(spark, options, SOURCE)
    assert windows(client, *partitions(run.to)) == expected
    # late messages are in the last eighth, behind all kills of drivers
    late = sum(event.late for event in events(ROWS))
    told = re.findall(r"^counted \d+ of \d+ rows in \d+ batches; (\d+) late$", run.log(), re.MULTILINE)
    assert [int(each) for each in told] == [late], run.log()[-4000:]
    assert sum(row[3] for row in expected) + late + 2 == sent
    assert re.search(r"^batch \d+: \d+ rows in .* rows/s, \d+ entries behind, \d+ late$", run.log(), re.MULTILINE)


def test_a_copy_has_every_message_once_whatever_was_killed(spark, server, client, sent, tmp_path: Path):
    run = killed(spark, tmp_path, server, client, "copy_topic.py", copy_topic, contents)
    expected = contents(client, *partitions(SOURCE))
    assert sum(expected.values()) == sent
    assert contents(client, *partitions(run.to)) == expected
    assert order_of_keys(client, run.to) == order_of_keys(client, SOURCE)
    assert re.search(r"^read \d+ rows in \d+ batches$", run.log(), re.MULTILINE), run.log()[-4000:]


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path):
    with (
        serve(tmp_path / "server") as server,
        Walk("spark-pipelines.md", tmp_path / "walk", {}, web=server.web, service=server.url) as page,
    ):
        for section in ("Before the start", "Counts by window", "Copies"):
            page.section(section)
