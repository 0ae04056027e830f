"""Batch reads in Spark of messages that the official client published."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.spark.support import events, internal_stats, make_partitions, numbered, publish
from tests.support import web
from tests.support.server import StandaloneProcess


def read(spark: Any, options: dict[str, str], **more: str) -> Any:
    return spark.read.format("quire").options(**{**options, **more}).load()


def test_every_column_of_every_kind_of_message(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [
        producer.send(b"one", partition_key="k", properties={"a": "1", "b": "2"}, event_timestamp=1_700_000_000_123),
        producer.send(b"two"),
    ]
    producer.close()
    rows = read(spark, options, topic=topic).orderBy("__entry").collect()
    assert [bytes(row["value"]) for row in rows] == [b"one", b"two"]
    assert [row["__key"] and bytes(row["__key"]) for row in rows] == [b"k", None]
    assert {row["__topic"] for row in rows} == {topic}
    assert {row["__partition"] for row in rows} == {None}
    assert [bytes(row["__messageId"]) for row in rows] == [message_id.serialize() for message_id in ids]
    assert [(row["__ledger"], row["__entry"]) for row in rows] == [(i.ledger_id(), i.entry_id()) for i in ids]
    assert [row["__batch"] for row in rows] == [None, None]
    assert [row["__properties"] for row in rows] == [{"a": "1", "b": "2"}, {}]
    event = datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_000)
    assert [row["__eventTime"] and row["__eventTime"].astimezone(UTC) for row in rows] == [event, None]
    ages = [abs((datetime.now(UTC) - row["__publishTime"].astimezone(UTC)).total_seconds()) for row in rows]
    assert max(ages) < 120


@pytest.mark.parametrize("compression", ["NoCompression", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_batches_are_opened_whatever_their_compression(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, compression: str
) -> None:
    kind = getattr(pulsar.CompressionType, "NONE" if compression == "NoCompression" else compression)
    publish(client, topic, numbered(0, 500), batching_enabled=True, compression_type=kind)
    rows = read(spark, options, topic=topic).select("value", "__batch", "__messageId").collect()
    assert sorted(bytes(row["value"]) for row in rows) == numbered(0, 500)
    assert min(row["__batch"] for row in rows) == 0
    assert len({bytes(row["__messageId"]) for row in rows}) == 500


def test_partitions_and_several_topics_are_read_together(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    make_partitions(server, f"{topic}-a", 3)
    publish(
        client, f"{topic}-a", numbered(0, 300), message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    publish(client, f"{topic}-b", numbered(300, 400))
    for asked in ({"topics": f"{topic}-a,{topic}-b"}, {"topicsPattern": f"{topic}-."}):
        rows = read(spark, options, **asked).collect()
        assert sorted(bytes(row["value"]) for row in rows) == numbered(0, 400)
        assert {(row["__topic"], row["__partition"]) for row in rows} == {
            (f"{topic}-a", 0), (f"{topic}-a", 1), (f"{topic}-a", 2), (f"{topic}-b", None)
        }  # fmt: skip


def test_an_empty_topic_has_no_rows(spark: Any, options: dict[str, str], client: pulsar.Client, topic: str) -> None:
    publish(client, topic, [])
    assert read(spark, options, topic=topic).collect() == []


def test_a_topic_that_does_not_exist_is_an_error_that_names_it(spark: Any, options: dict[str, str], topic: str) -> None:
    with pytest.raises(Exception, match=f"topic {topic} does not exist"):
        read(spark, options, topic=topic).collect()


def test_one_data_frame_is_one_snapshot_of_the_ends(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, numbered(0, 10))
    frame = read(spark, options, topic=topic)
    assert frame.count() == 10
    publish(client, topic, numbered(10, 15))
    assert frame.count() == 10
    assert read(spark, options, topic=topic).count() == 15


def test_offsets_say_where_to_begin_and_to_end(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, numbered(0, 10))
    ledger = internal_stats(server, topic)["ledgers"][0]["ledgerId"]
    frame = read(
        spark,
        options,
        topic=topic,
        startingOffsets=json.dumps({topic: f"{ledger}:3"}),
        endingOffsets=json.dumps({topic: f"{ledger}:7"}),
    )
    assert sorted(bytes(row["value"]) for row in frame.collect()) == numbered(3, 7)


def test_a_start_within_a_batch_leaves_out_what_is_before_it(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, numbered(0, 10), batching_enabled=True, batching_max_publish_delay_ms=1000)
    ledger = internal_stats(server, topic)["ledgers"][0]["ledgerId"]
    frame = read(spark, options, topic=topic, startingOffsets=json.dumps({topic: f"{ledger}:0:4"}))
    assert [bytes(row["value"]) for row in frame.orderBy("__batch").collect()] == numbered(4, 10)


def publish_apart(client: pulsar.Client, topic: str, values: list[bytes]) -> list[int]:
    """Publish values at different times; return a time, in ms, between each one and the next."""
    producer = client.create_producer(topic, batching_enabled=False)
    times = []
    for value in values:
        producer.send(value)
        times.append(int(datetime.now(UTC).timestamp() * 1000) + 1)
        while datetime.now(UTC).timestamp() * 1000 < times[-1] + 2:
            pass
    producer.close()
    return times


def test_times_say_where_to_begin_and_to_end(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    published = publish_apart(client, topic, numbered(0, 5))
    frame = read(spark, options, topic=topic, startingTimestamp=str(published[0]), endingTimestamp=str(published[2]))
    assert sorted(bytes(row["value"]) for row in frame.collect()) == numbered(1, 3)


def test_each_partition_begins_and_ends_at_a_time_of_its_own(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    make_partitions(server, topic, 2)
    first = publish_apart(client, f"{topic}-partition-0", numbered(0, 5))
    second = publish_apart(client, f"{topic}-partition-1", numbered(10, 15))
    bounds = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": first[1], "1": second[0]}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": first[3], "1": second[1]}}),
    }
    frame = read(spark, options, topic=topic, **bounds)
    assert sorted(bytes(row["value"]) for row in frame.collect()) == [*numbered(2, 4), *numbered(11, 12)]


def test_more_tasks_than_partitions_read_every_row_once(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, numbered(0, 1000))
    trace = tmp_path / "trace.jsonl"
    frame = read(spark, options, topic=topic, minPartitions="4", trace=str(trace))
    assert sorted(bytes(row["value"]) for row in frame.collect()) == numbered(0, 1000)
    assert [event["rows"] for event in events(trace, "read-done")] == [250] * 4


def test_columns_can_be_chosen_by_option_and_by_schema(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, numbered(0, 3))
    chosen = read(spark, options, topic=topic, columns="value,__ledger")
    assert chosen.columns == ["value", "__ledger"]
    assert sorted(bytes(row["value"]) for row in chosen.collect()) == numbered(0, 3)
    by_schema = spark.read.format("quire").options(**options, topic=topic).schema("__entry BIGINT, value BINARY").load()
    assert sorted((row["__entry"], bytes(row["value"])) for row in by_schema.collect()) == list(
        enumerate(numbered(0, 3))
    )
    with pytest.raises(Exception, match="column value has type BINARY: read it with that type"):
        spark.read.format("quire").options(**options, topic=topic).schema("value STRING").load().collect()


def test_a_wrong_option_is_named_in_one_line(spark: Any, options: dict[str, str], topic: str) -> None:
    with pytest.raises(
        Exception, match=r"option 'topick' is .*: there is no such option; did you mean 'topic'"
    ) as raised:
        read(spark, options, topick=topic).collect()
    assert "Traceback" not in str(raised.value)


def test_chunked_messages_stand_where_their_last_chunk_stands(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    large = bytes(range(256)) * (12 << 12)  # 12 MiB: three chunks
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    producer.send(b"before")
    producer.send(large)
    producer.send(b"after")
    producer.close()
    stats = internal_stats(server, topic)
    chunks = stats["numberOfEntries"] - 2
    ledger = stats["ledgers"][0]["ledgerId"]
    assert chunks == 3
    rows = read(spark, options, topic=topic).orderBy("__entry").collect()
    assert [len(row["value"]) for row in rows] == [6, len(large), 5]
    assert bytes(rows[1]["value"]) == large
    assert rows[1]["__entry"] == chunks
    # A range that begins at the last chunk looks back for the others, and one that ends before it has no such row.
    behind = read(spark, options, topic=topic, startingOffsets=json.dumps({topic: f"{ledger}:{chunks}"})).collect()
    assert sorted(len(row["value"]) for row in behind) == [5, len(large)]
    ahead = read(spark, options, topic=topic, endingOffsets=json.dumps({topic: f"{ledger}:{chunks}"})).collect()
    assert [bytes(row["value"]) for row in ahead] == [b"before"]


def test_a_batch_read_with_a_subscription_holds_from_its_start(
    spark: Any, options: dict[str, str], server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, numbered(0, 5))
    assert read(spark, options, topic=topic, subscription="kept").count() == 5
    assert web.get(f"{server.web}/admin/v2/{topic.replace('://', '/')}/subscriptions").json() == ["kept"]
    ledger, entry = internal_stats(server, topic)["cursors"]["kept"]["markDeletePosition"].split(":")
    assert int(entry) == -1
    assert int(ledger) >= 0


def test_a_trace_tells_what_was_read(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, numbered(0, 7))
    trace = tmp_path / "trace.jsonl"
    assert read(spark, options, topic=topic, trace=str(trace)).count() == 7
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [(line["event"], line.get("rows")) for line in lines] == [("batch", None), ("read", None), ("read-done", 7)]
