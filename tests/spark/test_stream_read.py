"""Streams in Spark: offsets, restarts, limits, the hold, and the order of Spark's calls that all of it rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions

from quire.spark.trace import read_trace
from tests.spark.support import (
    QUERY_S,
    Stream,
    events,
    internal_stats,
    make_partitions,
    mark_delete,
    numbered,
    publish,
    wait_for,
)
from tests.support import web
from tests.support.server import StandaloneProcess


def stream_options(options: dict[str, str], topic: str, **more: str) -> dict[str, str]:
    return {**options, "topic": topic, "subscription": "hold", "startingOffsets": "earliest", **more}


def offsets_of(folder: Path) -> list[dict[str, Any]]:
    """Return the offsets in Spark's checkpoint, batch by batch."""
    files = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def test_restarts_from_the_checkpoint_read_every_row_once(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, stream_options(options, topic), tmp_path)
    publish(client, topic, numbered(0, 100))
    stream.drain()
    assert stream.values() == numbered(0, 100)
    stream.drain()  # nothing new: no batch, no row
    assert stream.batches == [100]
    publish(client, topic, numbered(100, 150))
    stream.drain()
    assert stream.values() == numbered(0, 150)
    assert stream.batches == [100, 50]


def test_offsets_are_text_that_a_person_reads_and_that_stays_the_same(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, numbered(0, 10))
    ledger = internal_stats(server, topic)["ledgers"][0]["ledgerId"]
    Stream(spark, stream_options(options, topic), tmp_path).drain()
    assert offsets_of(tmp_path) == [{"v": 1, "p": {topic: [ledger, 10]}}]


def test_the_order_of_sparks_calls_is_the_one_that_the_source_is_made_for(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, stream_options(options, topic, maxMessagesPerTrigger="4"), tmp_path)
    publish(client, topic, numbered(0, 10))
    stream.drain()
    assert stream.batches == [4, 4, 2]
    planner = events(stream.trace, "initialOffset")[0]["pid"]
    calls = [str(event["event"]) for event in read_trace(str(stream.trace)) if event["pid"] == planner]
    mine = [call for call in calls if not call.startswith("hold-")]
    assert mine[:3] == ["prepareForTriggerAvailableNow", "getDefaultReadLimit", "initialOffset"]
    assert mine.count("initialOffset") == 2
    assert mine.count("commit") == 2, "the end of the last batch is not committed"
    assert "stop" not in mine
    reads = events(stream.trace, "read")
    assert [event["batch"] for event in reads] == [0, 1, 2], "a task knows its batch"
    assert planner not in {event["pid"] for event in reads}
    restart = len(read_trace(str(stream.trace)))
    publish(client, topic, numbered(10, 12))
    stream.drain()
    calls = [str(event["event"]) for event in read_trace(str(stream.trace))[restart:]]
    assert "initialOffset" not in calls
    assert "commit" in calls


@pytest.mark.parametrize("limit", [{"maxMessagesPerTrigger": "50"}, {"maxBytesPerTrigger": "2k"}])
def test_limited_batches_add_up_to_one_batch_read_of_the_same_offsets(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path, limit: dict[str, str]
) -> None:
    publish(client, topic, numbered(0, 230))
    stream = Stream(spark, stream_options(options, topic, **limit), tmp_path)
    stream.drain()
    assert len(stream.batches) > 3
    if "maxMessagesPerTrigger" in limit:
        assert stream.batches == [50, 50, 50, 50, 30]
    (end,) = offsets_of(tmp_path)[-1]["p"].values()
    ending = json.dumps({topic: f"{end[0]}:{end[1]}"})
    whole = spark.read.format("quire").options(**options, topic=topic, endingOffsets=ending).load().collect()
    assert sorted(stream.values()) == sorted(bytes(row["value"]) for row in whole) == numbered(0, 230)


def test_partitions_of_different_length_lose_no_row_behind_a_watermark(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    make_partitions(server, topic, 4)
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for number in range(600):  # one a tenth of a second, three quarters of them in one partition
        key = "hot" if number % 4 else f"key {number}"
        producer.send_async(b"", None, partition_key=key, event_timestamp=1_700_000_000_000 + number * 100)
    producer.flush()
    producer.close()
    asked = stream_options(options, topic, maxMessagesPerTrigger="100")
    rows = spark.readStream.format("quire").options(**asked).load().withWatermark("__eventTime", "10 seconds")
    counts = rows.groupBy(functions.window("__eventTime", "5 seconds")).count()
    sink = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(QUERY_S), "the query did not end"
    progress = query.recentProgress
    assert sum(each["numInputRows"] for each in progress) == 600
    assert len([each for each in progress if each["numInputRows"]]) == 6
    assert sum(state["numRowsDroppedByWatermark"] for each in progress for state in each["stateOperators"]) == 0


@pytest.mark.parametrize(
    "trigger", [{"availableNow": True}, {"processingTime": "1 second"}], ids=["available now", "processing time"]
)
def test_a_wrong_option_of_a_stream_is_named(
    spark: Any, options: dict[str, str], topic: str, tmp_path: Path, trigger: dict[str, Any]
) -> None:
    frame = spark.readStream.format("quire").options(**stream_options(options, topic, endingOffsets="latest")).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="option 'endingOffsets' is 'latest': a stream has no end"):
        query.trigger(**trigger).start().awaitTermination(QUERY_S)


def test_limits_count_the_messages_of_batches(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    for first in range(0, 100, 10):
        publish(client, topic, numbered(first, first + 10), batching_enabled=True, batching_max_publish_delay_ms=1000)
    stream = Stream(spark, stream_options(options, topic, maxMessagesPerTrigger="30"), tmp_path)
    stream.drain()
    assert stream.batches == [30, 30, 30, 10]


def test_available_now_ends_at_what_was_there_when_it_began(
    spark: Any,
    options: dict[str, str],
    client: pulsar.Client,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(client, topic, numbered(0, 10))
    stream = Stream(spark, stream_options(options, topic, maxMessagesPerTrigger="5"), tmp_path)
    taken = stream._take

    def publish_more(frame: Any, number: int) -> None:
        taken(frame, number)
        publish(client, topic, numbered(100, 110))

    monkeypatch.setattr(stream, "_take", publish_more)
    stream.drain()
    assert stream.values() == numbered(0, 10)


def test_a_running_stream_sees_new_rows_and_new_partitions(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    make_partitions(server, topic, 1)
    stream = Stream(spark, stream_options(options, topic, topicsRefreshMs="100"), tmp_path, ("value", "__partition"))
    query = stream.start()
    try:
        publish(client, f"{topic}-partition-0", numbered(0, 10))
        wait_for(lambda: len(stream.rows) == 10, "the first rows")
        make_partitions(server, topic, 2, grow=True)
        publish(client, f"{topic}-partition-1", numbered(10, 20))
        wait_for(lambda: len(stream.rows) == 20, "the rows of the new partition")
        assert sorted(stream.rows) == [(b"%06d" % number, number // 10) for number in range(20)]

        def reported() -> Any:
            progress = query.lastProgress
            found = progress["sources"][0]["latestOffset"] if progress else None
            found = json.loads(found) if isinstance(found, str) else found
            return found if found and len(found["p"]) == 2 else None

        latest = wait_for(reported, "a progress line with the new partition")
        assert set(latest) == {"v", "p", "behind"}
        assert set(latest["p"]) == {f"{topic}-partition-0", f"{topic}-partition-1"}
        assert latest["behind"] == 0
    finally:
        query.stop()


def test_a_stream_starts_at_the_latest_entry_unless_told_otherwise(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, numbered(0, 10))
    asked = stream_options(options, topic)
    del asked["startingOffsets"]
    stream = Stream(spark, asked, tmp_path)
    stream.drain()
    assert stream.rows == []
    publish(client, topic, numbered(10, 13))
    query = stream.start()
    try:
        wait_for(lambda: stream.rows, "rows")
    finally:
        query.stop()
    assert stream.values() == numbered(10, 13)


def test_the_hold_is_made_at_the_first_offset_and_moves_only_behind_the_checkpoint(
    spark: Any,
    options: dict[str, str],
    server: StandaloneProcess,
    client: pulsar.Client,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(client, topic, numbered(0, 10))
    asked = stream_options(options, topic, maxMessagesPerTrigger="5", chunkedMessageHold="1")
    stream = Stream(spark, asked, tmp_path)
    stands: list[tuple[int, int]] = []
    taken = stream._take

    def look(frame: Any, number: int) -> None:
        taken(frame, number)
        stands.append(mark_delete(server, topic, "hold"))

    monkeypatch.setattr(stream, "_take", look)
    stream.drain()
    ledger = internal_stats(server, topic)["ledgers"][0]["ledgerId"]
    # Batch 0 ends at 5, which is committed when batch 1 is planned; one entry behind it is kept for chunked messages.
    assert [entry for _, entry in stands] == [-1, 3]
    assert mark_delete(server, topic, "hold") == (ledger, 3)
    publish(client, topic, numbered(10, 11))
    stream.drain()
    wait_for(lambda: mark_delete(server, topic, "hold") == (ledger, 8), "the commit of batch 1")


def test_a_second_query_on_the_same_subscription_is_refused(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, numbered(0, 3))
    asked = stream_options(options, topic, operationTimeoutMs="1500")
    first, second = Stream(spark, asked, tmp_path / "one"), Stream(spark, asked, tmp_path / "two")
    for stream in (first, second):
        stream.trace.parent.mkdir()
    query = first.start()
    try:
        wait_for(lambda: first.rows, "rows")
        with pytest.raises(Exception, match=f"subscription 'hold' of {topic} is in use by another query"):
            second.drain()
    finally:
        query.stop()


def test_a_query_that_ends_leaves_its_subscription_and_nothing_else(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, numbered(0, 30))
    stream = Stream(spark, stream_options(options, topic, maxMessagesPerTrigger="10"), tmp_path)
    stream.drain()
    planner = events(stream.trace, "initialOffset")[0]["pid"]
    wait_for(lambda: not Path(f"/proc/{planner}").exists(), "the end of the planner's process")

    def consumers() -> int:
        found: int = internal_stats(server, topic)["waitingCursorsCount"]
        return found

    wait_for(lambda: consumers() == 0, "the end of all readers")
    assert set(internal_stats(server, topic)["cursors"]) == {"hold"}
    answer = web.request("DELETE", f"{server.web}/admin/v2/{topic.replace('://', '/')}/subscription/hold")
    assert answer.status_code == 204, "somebody is attached"
