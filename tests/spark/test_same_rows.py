"""In every way of running, a stream has the rows of one batch read of its offsets: all columns, each row as often."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.spark.generator import value_of
from tests.spark.peer import options_of, quiet_client
from tests.spark.support import Stream, make_partitions, publish, wait_for
from tests.support.server import StandaloneProcess

COLUMNS = (
    "__key",
    "value",
    "__topic",
    "__partition",
    "__messageId",
    "__ledger",
    "__entry",
    "__batch",
    "__publishTime",
    "__eventTime",
)
"""All columns except the properties, which cannot be counted."""
PLAIN = "persistent://public/default/same-plain"
PARTITIONED = "persistent://public/default/same-parts"
ROWS = 1200
"""Messages of each of the four producers."""


class Ways(Stream):
    """A stream with an idempotent sink: a repeated batch must have the same rows in the same order, and counts once."""

    def __init__(self, spark: Any, options: dict[str, str], folder: Path) -> None:
        super().__init__(spark, options, folder, COLUMNS)
        self.by_number: dict[int, list[tuple[Any, ...]]] = {}
        self.repeated: list[int] = []

    def _take(self, frame: Any, number: int) -> None:
        found = [tuple(row) for row in frame.collect()]
        if number in self.by_number:
            assert found == self.by_number[number], f"batch {number} came again with other rows"
            self.repeated.append(number)
            return
        self.by_number[number] = found
        self.batches.append(len(found))
        self.rows += found


class Topics:
    """A topic and a partitioned one, filled step by step by two producers each, one batched and one not."""

    def __init__(self, server: StandaloneProcess, client: pulsar.Client) -> None:
        self._client = client
        self.sent = 0
        make_partitions(server, PARTITIONED, 2)

    def fill(self, rows: int) -> None:
        """Publish this number of rows more from each producer."""
        for number, (topic, batched) in enumerate((t, b) for t in (PLAIN, PARTITIONED) for b in (False, True)):
            values = [value_of(number, sequence) for sequence in range(self.sent, self.sent + rows)]
            publish(self._client, topic, values, batching_enabled=batched, compression_type=pulsar.CompressionType.LZ4)
        self.sent += rows

    @property
    def rows(self) -> int:
        return 4 * self.sent


@pytest.fixture(scope="module")
def streams(
    spark: Any, server: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Ways]]:
    """Read the same topics in three ways; the last rows are published after all of them have ended."""
    client = quiet_client(server.url)
    topics = Topics(server, client)

    def stream(name: str, **more: str) -> Ways:
        options = {**options_of(server), "topics": f"{PLAIN},{PARTITIONED}"}
        options |= {"subscription": f"same-{name}", "startingOffsets": "earliest", **more}
        return Ways(spark, options, tmp_path_factory.mktemp(name))

    made = {
        "restarted": stream("restarted", maxMessagesPerTrigger="900"),
        "twice": stream("twice"),
        "limited": stream("limited", maxMessagesPerTrigger="1500", maxBytesPerTrigger="100k", minPartitions="6"),
    }
    topics.fill(ROWS // 2)
    made["twice"].drain()
    # As a crash leaves it that comes between the sink and the commit: the last batch again.
    forget_last_commit(made["twice"])
    # Running, stopped, and running again, while rows come.
    run_until(made["restarted"], lambda: len(made["restarted"].rows) >= 900)
    topics.fill(ROWS // 2)
    run_until(made["restarted"], lambda: len(made["restarted"].rows) >= topics.rows)
    made["twice"].drain()
    made["limited"].drain()
    topics.fill(10)
    yield made
    client.close()


def run_until(stream: Stream, condition: Callable[[], bool]) -> None:
    query = stream.start()
    try:
        wait_for(condition, "the rows")
    finally:
        query.stop()


def checkpoint_of(stream: Stream) -> Path:
    return stream.trace.parent / "checkpoint"


def forget_last_commit(stream: Stream) -> None:
    commits = checkpoint_of(stream) / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def end_of(stream: Stream) -> dict[str, str]:
    """Return the end of the stream's checkpoint in the form of endingOffsets."""
    offsets = checkpoint_of(stream) / "offsets"
    last = max(int(path.name) for path in offsets.iterdir() if path.name.isdigit())
    places = json.loads((offsets / str(last)).read_text().splitlines()[-1])["p"]
    return {name: ":".join(map(str, place)) for name, place in places.items()}


@pytest.mark.parametrize("name", ["restarted", "twice", "limited"])
def test_a_stream_has_the_rows_of_one_batch_read(
    spark: Any, server: StandaloneProcess, streams: dict[str, Ways], name: str
) -> None:
    stream = streams[name]
    options = {**options_of(server), "topics": f"{PLAIN},{PARTITIONED}"}
    options |= {"startingOffsets": "earliest", "endingOffsets": json.dumps(end_of(stream))}
    read = spark.read.format("quire").options(**options).load().select(*COLUMNS).collect()
    expected = Counter(tuple(row) for row in read)
    assert Counter(stream.rows) == expected
    assert len(stream.rows) == 4 * ROWS
    assert max(expected.values()) == 1


def test_the_ways_were_different(streams: dict[str, Ways]) -> None:
    assert streams["twice"].repeated == [0]
    assert len(streams["twice"].batches) == 2
    assert len(streams["restarted"].batches) > 2
    assert len(streams["limited"].batches) > 3
    assert len({json.dumps(end_of(stream), sort_keys=True) for stream in streams.values()}) == 1
