"""The archive is exact, whatever is killed and when.

In one story eight producers publish to four topics, one of them partitioned. Nothing is retained, and another
subscription reads and acknowledges everything. Meanwhile scripts/pipelines/archive runs. Its driver is killed with
SIGKILL in the middle of a task (K2), then between the record of a batch and Spark's commit of it (K4). Then a worker is
killed while its task reads, and the server. A second archive runs in the same way without a hold, and must lose rows:
otherwise the first one proves nothing.
With `--full` only: four Spark drivers, each with a JVM of its own, take three minutes of processor time.
test_pipelines.py fails the same pipeline at the same points in the process of the tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from quire.spark.pipelines.archive import archive
from quire.spark.pipelines.reader import read_archive
from tests.spark.archive_run import ArchiveRun
from tests.spark.generator import Drain, Generator, Load, Row, parse, value_of
from tests.spark.peer import options_of, quiet_client, serve
from tests.spark.processes import Process, sockets_to
from tests.spark.support import internal_stats, make_partitions, mark_delete, publish, wait_for
from tests.support import web
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.full

ROWS = 100_000
PLAIN = [f"persistent://public/default/archived-{name}" for name in ("a", "b", "c")]
PARTITIONED = "persistent://public/default/archived-p"
LOGS = [*PLAIN, *(f"{PARTITIONED}-partition-{number}" for number in range(2))]
CONTROL = "persistent://public/default/control"
CONTROL_ROWS = 6000

CONF: dict[str, object] = {
    "managedLedgerMaxEntriesPerLedger": 500,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": 0,
    "defaultRetentionSizeInMB": 0,
    "retentionCheckIntervalInSeconds": 1,
}

KEYS = ["__topic", "__partition", "__ledger", "__entry", "__batch"]
"""TaskIdentity of a message."""


@dataclass(slots=True)
class Story:
    """Outcome of a run."""

    run: ArchiveRun
    server: StandaloneProcess
    loads: list[Load]
    table: pa.Table
    hits: dict[str, int] = field(default_factory=dict)
    """Batch that was hit, by crash point."""
    sent: list[int] = field(default_factory=list)
    """Numbers of rows sent at each kill, and at the end."""
    workers: set[int] = field(default_factory=set)
    """Workers that began to read what the killed one read."""
    marks: list[tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]] = field(default_factory=list)
    """Positions of the hold and ends of the committed batches, at each kill of the driver."""
    trimmed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """First ledger at the beginning and at the end, by log."""
    left: list[Process] = field(default_factory=list)
    """Remaining processes of drivers that had ended."""
    sockets: list[str] = field(default_factory=list)
    exit_code: int = -1
    control_first: set[Row] = field(default_factory=set)
    control: list[Row] = field(default_factory=list)


@pytest.fixture(scope="module")
def story(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("archive")
    run = ArchiveRun(folder / "archive", {})
    with serve(folder / "server", CONF) as server:
        try:
            yield tell(spark, server, run, folder)
        finally:
            run.abandon()


def tell(spark: Any, server: StandaloneProcess, run: ArchiveRun, folder: Path) -> Story:
    arguments = {
        "topics": ",".join([*PLAIN, PARTITIONED]),
        "trigger": "200ms",
        "max-messages-per-trigger": "6000",
    }
    # A server that is a JVM starts slowly on a busy machine.
    settings = {**options_of(server), "chunkedMessageHold": "20", "operationTimeoutMs": "300000"}
    run = ArchiveRun(run.folder, arguments, settings)
    make_partitions(server, PARTITIONED, 2)
    for topic in (*PLAIN, PARTITIONED):
        hold(server, topic, run.subscription)
    loads = [
        Load(number, topic, batched, ROWS // 8)
        for number, (topic, batched) in enumerate(
            (topic, batched) for topic in (*PLAIN, PARTITIONED) for batched in (False, True)
        )
    ]
    story = Story(run, server, loads, pa.table({}))
    first = {log: first_ledger(server, log) for log in LOGS}
    generator = Generator(server.url, loads)
    drain = Drain(server.url, LOGS)
    try:
        run.start()
        generator.start(0.3)
        control = Control(spark, server, folder / "control")
        story.control_first = control.first()

        story.hits["K2"] = run.freeze_at(run.in_mid_task, 2)
        note_kill(story, generator)
        run.kill()
        generator.release(0.6)
        story.left += run.left()

        control.let_go()
        run.start()
        story.control = control.second()
        story.hits["K4"] = run.freeze_at(run.between_commits, story.hits["K2"] + 1)
        note_kill(story, generator)
        run.kill()
        generator.release(0.9)
        story.left += run.left()

        run.start()
        run.wait_for(lambda: run.last("commits") > story.hits["K4"], "a batch after the second kill")
        batch = story.hits["worker"] = run.freeze_at(run.in_mid_task, story.hits["K4"] + 2)
        worker, part = run.tail.reader(batch)
        story.sent.append(generator.sent)
        run.kill_one(worker)
        run.thaw()
        run.wait_for(partial(run.has, "commits", batch), "the commit of the batch whose worker was killed")
        run.tail.poll()
        story.workers = run.tail.readers(batch, part)
        generator.pause()
        story.sent.append(generator.sent)
        story.hits["server"] = run.freeze_at(run.in_mid_task, batch + 1)
        server.kill()
        run.thaw()
        server.start()
        generator.resume()
        run.must_run()
        generator.finish()
        story.sent.append(generator.sent)
        run.wait_for(lambda: run.rows() >= ROWS, f"{ROWS} rows in the archive")
        run.wait_for(lambda: run.has("commits", run.last("offsets")), "the last commit")
        story.exit_code = run.stop()
        story.left += run.left()
        story.sockets = sockets_to({server.port, server.web_port}, [process.pid for process in story.left])
        wait_for(lambda: drain.messages >= ROWS, "the other subscription's end")

        def trimmed(log: str) -> bool:
            return first_ledger(server, log) > first[log]

        for log in LOGS:
            wait_for(partial(trimmed, log), f"the deletion of a ledger of {log}")
            story.trimmed[log] = (first[log], first_ledger(server, log))
    finally:
        generator.close()
        drain.close()
        run.abandon()
    story.table = read_archive(run.out).dataset().to_table()
    return story


class Control:
    """The same run without a hold: archive, pause while others read everything, archive again."""

    def __init__(self, spark: Any, server: StandaloneProcess, folder: Path) -> None:
        self._spark = spark
        self._server = server
        self._folder = folder
        self._client = quiet_client(server.url)
        hold(server, CONTROL, "drain")

    def first(self) -> set[Row]:
        self._publish(0, CONTROL_ROWS // 3)
        self._archive()
        return set(self.rows())

    def let_go(self) -> None:
        """Publish more, and let the other subscription read and acknowledge it."""
        self._publish(CONTROL_ROWS // 3, 2 * CONTROL_ROWS // 3)
        ledgers = [ledger["ledgerId"] for ledger in internal_stats(self._server, CONTROL)["ledgers"]]
        drain = Drain(self._server.url, [CONTROL])
        try:
            wait_for(
                lambda: first_ledger(self._server, CONTROL) >= ledgers[-1], "the deletion of the control's ledgers"
            )
        finally:
            drain.close()

    def second(self) -> list[Row]:
        self._publish(2 * CONTROL_ROWS // 3, CONTROL_ROWS)
        self._archive()
        self._client.close()
        return self.rows()

    def rows(self) -> list[Row]:
        table = read_archive(self._folder / "out").dataset().to_table(columns=["value"])
        return [parse(value) for value in table["value"].to_pylist()]

    def _publish(self, first: int, stop: int) -> None:
        publish(self._client, CONTROL, [value_of(99, sequence) for sequence in range(first, stop)])

    def _archive(self) -> None:
        source = {**options_of(self._server), "topic": CONTROL}
        source |= {"startingOffsets": "earliest", "hold": "none", "failOnDataLoss": "false"}
        archive(self._spark, source, self._folder / "out", self._folder / "checkpoint")


def note_kill(story: Story, generator: Generator) -> None:
    """Record the positions of the hold and of the checkpoint, while the driver is frozen."""
    story.sent.append(generator.sent)
    wait_for(lambda: generator.sent > story.sent[-1], "a row that is sent while the driver is away")
    run = story.run
    run_marks = {log: mark_delete(story.server, log, run.subscription) for log in LOGS}
    story.marks.append((run_marks, run.end_of(run.last("commits"))))


def hold(server: StandaloneProcess, topic: str, name: str) -> None:
    url = f"{server.web}/admin/v2/{topic.replace('://', '/')}/subscription/{name}"
    answer = web.request("PUT", url, json={"ledgerId": -1, "entryId": -1})
    assert answer.status_code == 204, answer.text


def first_ledger(server: StandaloneProcess, log: str) -> int:
    found: int = internal_stats(server, log)["ledgers"][0]["ledgerId"]
    return found


def test_every_row_is_archived_once_whatever_was_killed(story: Story) -> None:
    rows = [parse(value) for value in story.table["value"].to_pylist()]
    assert len(rows) == ROWS
    assert len(set(rows)) == ROWS
    by_producer = Counter(row.producer for row in rows)
    assert by_producer == {load.number: load.rows for load in story.loads}
    for load in story.loads:
        assert {row.sequence for row in rows if row.producer == load.number} == set(range(load.rows))


def test_each_kill_hit_its_point(story: Story) -> None:
    run = story.run
    assert 2 <= story.hits["K2"] < story.hits["K4"] < story.hits["worker"] < story.hits["server"]
    assert run.runs == 3
    assert len(story.workers) == 2, "the task of the killed worker was not repeated by another one"
    assert story.exit_code == 0, run.log()[-4000:]
    # Rows were still to come at each kill.
    assert sorted(story.sent) == story.sent
    assert story.sent[-2] < story.sent[-1] == ROWS
    # Each batch is recorded once, those that were hit too; a repeated one kept its offsets and its number.
    recorded = run.recorded()
    assert set(story.hits.values()) <= set(recorded)
    assert sum(recorded.values()) == ROWS


def test_spark_and_pyarrow_see_the_same_archive(story: Story, spark: Any) -> None:
    found = read_archive(story.run.out)
    assert found.rows == ROWS
    seen = spark.read.option("basePath", str(found.folder)).parquet(*found.paths)
    columns = [*KEYS, "value", "__key"]
    ours = story.table.select(columns)
    theirs = seen.select(*columns).toArrow().cast(ours.schema)
    order = [(name, "ascending") for name in KEYS]
    assert theirs.sort_by(order).combine_chunks().equals(ours.sort_by(order).combine_chunks())


def test_no_message_is_archived_at_two_places_and_batches_follow_one_another(story: Story) -> None:
    positions = story.table.group_by(KEYS, use_threads=False).aggregate([([], "count_all")])
    assert positions.num_rows == ROWS
    ends: dict[str, tuple[int, int]] = {}
    for record in read_archive(story.run.out).manifest.batches:
        for log, span in record.positions.items():
            assert ends.get(log, (-1, -1)) < span.first <= span.last, f"batch {record.batch} of {log}"
            ends[log] = span.last
    assert set(ends) == set(LOGS)


def test_files_are_under_the_day_their_rows_were_published(story: Story) -> None:
    published = pc.cast(story.table["__publishTime"], pa.date32())
    assert pc.all(pc.equal(published, story.table["dt"])).as_py()


def test_the_hold_is_never_ahead_of_the_checkpoint(story: Story) -> None:
    assert len(story.marks) == 2
    for marks, ends in story.marks:
        for log, mark in marks.items():
            assert mark < ends[log], f"{log}: {mark} is released, and only what is before {ends[log]} is committed"
    assert any(mark[1] >= 0 for mark in story.marks[-1][0].values()), "the hold never moved"


def test_what_was_read_is_really_deleted(story: Story) -> None:
    assert set(story.trimmed) == set(LOGS)
    assert all(before < after for before, after in story.trimmed.values())


def test_without_the_hold_the_same_way_loses_rows(story: Story) -> None:
    assert story.control_first == {Row(99, sequence) for sequence in range(CONTROL_ROWS // 3)}
    rows = set(story.control)
    assert len(rows) == len(story.control), "lost, but not doubled"
    assert Row(99, CONTROL_ROWS - 1) in rows, "the second run went on"
    missing = CONTROL_ROWS - len(rows)
    assert 0 < missing <= CONTROL_ROWS // 3, "a control that loses nothing proves nothing"


def test_a_driver_that_was_killed_or_stopped_leaves_no_process(story: Story) -> None:
    assert story.left == []
    assert story.sockets == []
