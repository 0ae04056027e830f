"""A stream with exactlyOnce whose driver is killed with SIGKILL at the four points of a batch, and whose server is
killed in the middle of a task. Each row is in the topic once, by its position in the source, without a reader's help.
A second stream without exactlyOnce is killed between the sink's commit and Spark's, and must write rows twice.

With `--full` only: six Spark drivers. test_exactly_once.py repeats batches in the process of the tests.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pulsar
import pytest

from tests.spark.exact import NAMESPACE, make_deduplicated, values
from tests.spark.peer import options_of, quiet_client, serve
from tests.spark.sink_run import SinkRun
from tests.spark.support import make_partitions, publish, wait_for
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.full

DRIVER = Path(__file__).with_name("exact_driver.py")
ROWS = 40_000
SOURCE = f"persistent://{NAMESPACE}/source"
TO = f"persistent://{NAMESPACE}/to"
CONTROL = "persistent://public/default/to"


class ExactRun(SinkRun):
    """The stream of exact_driver.py."""

    def __init__(self, folder: Path, server: StandaloneProcess, to: str, exactly_once: str) -> None:
        super().__init__(folder, {})
        self._arguments_of_driver = [str(folder), json.dumps(options_of(server)), SOURCE, to]
        self._exactly_once = exactly_once

    def command(self) -> list[str]:
        trace = str(self.tail.path)
        return [sys.executable, str(DRIVER), *self._arguments_of_driver, trace, self._exactly_once]


def found(client: pulsar.Client, to: str) -> Counter[bytes]:
    return Counter(values(client, *(f"{to}-partition-{number}" for number in range(2))))


def test_each_row_is_written_once_whatever_is_killed_and_when(tmp_path: Path):
    with serve(tmp_path / "server") as server:
        make_deduplicated(server)
        for topic in (SOURCE, TO, CONTROL):
            make_partitions(server, topic, 2)
        client = quiet_client(server.url)
        rows = [b"%06d" % number for number in range(ROWS)]
        publish(client, SOURCE, rows)
        run = ExactRun(tmp_path / "exact", server, TO, "true")
        control = ExactRun(tmp_path / "control", server, CONTROL, "false")
        hits: dict[str, int] = {}
        try:
            points = (run.before_tasks, run.in_mid_write, run.before_sink_commit, run.between_sink_and_spark)
            for number, point in enumerate(points):
                run.start()
                hits[point.__name__] = run.freeze_at(point, max(hits.values(), default=0) + 1 + number % 2)
                run.kill()
                run.left()
            run.start()
            server_hit = run.freeze_at(run.in_mid_write, max(hits.values()) + 2)
            server.kill()
            run.thaw()
            server.start()
            wait_for(lambda: run.last("commits") > server_hit, "a batch after the server's end", 300)
            run.wait_for(lambda: sum(found(client, TO).values()) >= ROWS, "all rows", 300)
            run.wait_for(lambda: run.has("commits", run.last("offsets")), "the last commit")
            assert found(client, TO) == Counter(rows)
            assert len(set(hits.values())) == len(points), f"points of one batch: {hits}"
        finally:
            run.abandon()
        try:
            control.start()
            batch = control.freeze_at(control.between_sink_and_spark, 1)
            control.kill()
            control.left()
            control.start()
            control.wait_for(lambda: control.last("commits") > batch, "a batch after the kill", 300)
            assert max(found(client, CONTROL).values()) > 1, "without exactlyOnce nothing came twice: it proves nothing"
        finally:
            control.abandon()
            client.close()
