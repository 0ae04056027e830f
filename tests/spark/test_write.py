"""The sink with Spark and a real server; the official client reads its messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from threading import Thread
from typing import Any

import pulsar
import pytest
from pyspark.errors import PySparkException

from quire.client.routing import partition_of
from quire.spark import activate
from quire.spark.sink.producers import OPEN_MAX
from quire.spark.trace import read_trace
from tests.spark.peer import options_of
from tests.spark.support import QUERY_S
from tests.support import web
from tests.support.server import StandaloneProcess

RECEIVE_MS = 120_000


@pytest.fixture
def sink(server: StandaloneProcess) -> dict[str, str]:
    return {name: text for name, text in options_of(server).items() if name != "admin.url"}


def save(frame: Any, sink: dict[str, str], **options: str) -> None:
    frame.write.format("quire").mode("append").options(**sink, **options).save()


def read(client: pulsar.Client, topic: str, count: int) -> list[Any]:
    """Return the messages of a topic without partitions; there must be exactly `count`."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(RECEIVE_MS) for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


def make_partitioned(server: StandaloneProcess, topic: str, partitions: int) -> None:
    path = topic.replace("://", "/")
    web.request("PUT", f"{server.web}/admin/v2/{path}/partitions", json=partitions).raise_for_status()


def test_rows_arrive_as_messages_with_everything_their_columns_say(spark, sink, client, topic):
    frame = spark.sql(
        "select decode(unhex('c3a4'), 'utf-8') as value, 'k' as __key, map('b', '1', 'a', '2') as __properties,"
        " timestamp_millis(1700000000123) as __eventTime"
        " union all select null, null, null, null"
    ).coalesce(1)
    save(frame, sink, topic=topic)
    first, second = read(client, topic, 2)
    assert (first.data(), first.partition_key(), first.event_timestamp()) == ("ä".encode(), "k", 1_700_000_000_123)
    assert first.properties() == {"b": "1", "a": "2"}
    assert (second.data(), second.partition_key(), second.event_timestamp(), second.properties()) == (b"", "", 0, {})


def test_a_row_may_have_a_time_of_delivery(spark, sink, server, client, topic):
    frame = spark.sql(
        "select 'later' as value, timestamp_millis(4102444800123) as __deliverAt union all select 'now', null"
    ).coalesce(1)
    save(frame, sink, topic=topic)
    messages = read(client, topic, 2)
    assert [each.data() for each in messages] == [b"later", b"now"]
    entries = [(each.message_id().ledger_id(), each.message_id().entry_id()) for each in messages]
    url = f"{server.web}/admin/v2/{topic.replace('://', '/')}"
    answers = [web.get(f"{url}/ledger/{ledger}/entry/{entry}").raise_for_status() for ledger, entry in entries]
    times = [answer.headers.get("X-Pulsar-deliver-at-time", "") for answer in answers]
    assert [time[:23] for time in times] == ["2100-01-01T00:00:00.123", ""]


def test_a_thread_writes_after_it_activated_the_session(spark, sink, client, topic):
    frame = spark.sql("select 'x' as value")
    failed: list[str] = []

    def write(*, activated: bool) -> None:
        if activated:
            activate(spark)
        try:
            save(frame, sink, topic=topic)
        except Exception as error:  # (py4j's own, and whatever else a thread would swallow)
            failed.append(str(error))

    for activated in (False, True):
        thread = Thread(target=write, kwargs={"activated": activated})
        thread.start()
        thread.join(60)
    assert len(failed) == 1, failed
    assert "DATA_SOURCE_NOT_FOUND" in failed[0], "Spark finds it by itself now: activate is not needed any more"
    assert [message.data() for message in read(client, topic, 1)] == [b"x"]


def test_a_key_goes_to_the_partition_that_the_official_client_chooses_by_default(spark, sink, server, client, topic):
    make_partitioned(server, topic, 16)
    save(
        spark.range(40).selectExpr("'' as value", "concat('key-', id) as __key"),
        sink,
        topic=topic,
        hashingScheme="BoostHash",
    )
    consumer = client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
    ours = {}
    for _ in range(40):
        message = consumer.receive(RECEIVE_MS)
        ours[message.partition_key()] = message.message_id().partition()
    consumer.close()
    producer = client.create_producer(topic, batching_enabled=False)
    assert ours == {key: producer.send(b"", partition_key=key).partition() for key in ours}
    producer.close()


@pytest.mark.parametrize(
    ("compression", "batching"),
    [("none", "true"), ("lz4", "true"), ("zlib", "true"), ("zstd", "true"), ("snappy", "true"), ("zstd", "false")],
)
def test_the_official_client_reads_every_row_of_every_form(spark, sink, client, topic, compression, batching):
    frame = spark.range(500).selectExpr("concat('some payload ', id) as value", "cast(id % 7 as string) as __key")
    save(frame, sink, topic=topic, compression=compression, batching=batching)
    found = read(client, topic, 500)
    assert Counter(each.data() for each in found) == Counter(b"some payload %d" % number for number in range(500))


def test_rows_of_a_key_stay_in_order_on_the_partition_of_the_official_clients(spark, sink, server, client, topic):
    make_partitioned(server, topic, 4)
    frame = spark.range(2000).selectExpr("cast(id as string) value", "concat('k', id % 13) __key").coalesce(1)
    save(frame, sink, topic=topic)
    where: dict[str, set[int]] = defaultdict(set)
    numbers: dict[str, list[int]] = defaultdict(list)
    for partition in range(4):
        reader = client.create_reader(f"{topic}-partition-{partition}", pulsar.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(RECEIVE_MS)
            where[message.partition_key()].add(partition)
            numbers[message.partition_key()].append(int(message.data()))
        reader.close()
    assert {key: next(iter(found)) for key, found in where.items()} == {
        f"k{number}": partition_of(f"k{number}", 4) for number in range(13)
    }
    assert all(len(found) == 1 for found in where.values())
    assert all(found == list(range(int(key[1:]), 2000, 13)) for key, found in numbers.items())


def test_a_row_goes_to_the_partition_that_its_column_names_and_else_in_turn(spark, sink, server, client, topic):
    make_partitioned(server, topic, 3)
    frame = spark.range(30).selectExpr("cast(id as string) value", "if(id < 20, 1, null) __partition").coalesce(1)
    save(frame, sink, topic=topic)
    counts = []
    for partition in range(3):
        reader = client.create_reader(f"{topic}-partition-{partition}", pulsar.MessageId.earliest)
        counts.append(0)
        while reader.has_message_available():
            reader.read_next(RECEIVE_MS)
            counts[-1] += 1
        reader.close()
    assert sorted(counts) == [3, 3, 24] or sorted(counts) == [3, 4, 23]
    assert counts.index(max(counts)) == 1


def test_more_topics_than_producers_may_be_open_get_all_their_rows(spark, sink, client, topic):
    many = OPEN_MAX + 6
    frame = spark.range(many * 4).selectExpr("cast(id as string) value", f"concat('{topic}-', id % {many}) __topic")
    save(frame.coalesce(1), sink)
    for number in (0, 1, many // 2, many - 1):
        found = [int(each.data()) for each in read(client, f"{topic}-{number}", 4)]
        assert found == list(range(number, many * 4, many))


def test_the_option_topic_wins_over_the_column(spark, sink, client, topic):
    save(spark.sql(f"select 'x' value, '{topic}-other' __topic"), sink, topic=topic)
    assert [each.data() for each in read(client, topic, 1)] == [b"x"]


def test_a_write_without_rows_makes_no_producer_and_no_topic(spark, sink, server, topic, tmp_path: Path):
    trace = tmp_path / "trace"
    save(spark.range(0).selectExpr("cast(id as string) value"), sink, topic=topic, trace=str(trace))
    events = read_trace(str(trace))
    assert [event["rows"] for event in events if event["event"] == "written"] in ([0], [0, 0])
    listed = web.get(f"{server.web}/admin/v2/persistent/public/default").raise_for_status().json()
    assert topic not in listed


def test_what_no_message_can_carry_fails_the_write_by_column_and_value(spark, sink, topic):
    with pytest.raises(PySparkException, match="column __topic is null in row"):
        save(spark.sql("select 'x' value, cast(null as string) __topic"), sink)
    with pytest.raises(PySparkException, match=r"above the broker.s limit .*column value of 6000000 bytes, b'xxx"):
        save(spark.sql("select repeat('x', 6000000) value"), sink, topic=topic)
    with pytest.raises(PySparkException, match=r"column __partition is 3 in row 0 .*is not partitioned"):
        save(spark.sql("select 'x' value, 3 __partition"), sink, topic=topic)


def test_what_cannot_be_written_at_all_is_refused_before_anything_runs(spark, sink, topic):
    frame = spark.sql("select 'x' value")
    with pytest.raises(PySparkException, match=r"use \.mode\(.append"):
        frame.write.format("quire").mode("overwrite").options(**sink, topic=topic).save()
    with pytest.raises(PySparkException, match="column price has no place in a message"):
        save(spark.sql("select 'x' value, 1 price"), sink, topic=topic)
    with pytest.raises(PySparkException, match="no topic to write to"):
        save(frame, sink)


def lines(folder: Path, name: str, *texts: str) -> None:
    """Create a file that appears whole, for Spark's file source."""
    (folder / f".{name}").write_text("".join(f"{text}\n" for text in texts))
    (folder / f".{name}").rename(folder / name)


def test_a_stream_writes_each_batch_and_its_tasks_know_query_and_batch(spark, sink, client, topic, tmp_path: Path):
    source, trace = tmp_path / "source", tmp_path / "trace"
    source.mkdir()

    def run() -> str:
        query = (
            spark.readStream.text(str(source))
            .writeStream.format("quire")
            .options(**sink, topic=topic, trace=str(trace))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_S)
        return str(query.id)

    lines(source, "a", "one", "two")
    first = run()
    lines(source, "b", "three")
    assert run() == first
    assert sorted(each.data() for each in read(client, topic, 3)) == [b"one", b"three", b"two"]
    written = [event for event in read_trace(str(trace)) if event["event"] == "written" and event["rows"]]
    assert [(event["query"], event["batch"]) for event in written] == [(first, 0), (first, 1)]


def test_a_stream_in_complete_mode_is_refused_with_the_remedy(spark, sink, topic, tmp_path: Path):
    tmp_path.joinpath("source").mkdir()
    lines(tmp_path / "source", "a", "one")
    counts = spark.readStream.text(str(tmp_path / "source")).groupBy("value").count().select("value")
    query = counts.writeStream.format("quire").outputMode("complete").options(**sink, topic=topic)
    with pytest.raises(PySparkException, match=r"use outputMode\(.append"):
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().processAllAvailable()


def test_a_task_that_is_tried_again_leaves_no_row_out(spark, sink, client, topic, tmp_path: Path):
    marker = str(tmp_path / "failed-once")

    def fail_once(rows):
        import os

        yield from rows
        if not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("once")

    rows = spark.sparkContext.parallelize([(str(number),) for number in range(100)], 1).mapPartitions(fail_once)
    save(spark.createDataFrame(rows, "value string"), sink, topic=topic)
    assert Path(marker).exists()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: Counter[bytes] = Counter()
    while reader.has_message_available():
        found[reader.read_next(RECEIVE_MS).data()] += 1
    reader.close()
    assert set(found) == {b"%d" % number for number in range(100)}
    assert max(found.values()) <= 2, "at least once, and not more often than it was tried"


@pytest.mark.full
def test_a_value_that_is_too_large_is_sent_in_pieces_that_official_clients_and_the_source_put_together(
    spark, sink, options, client, topic
):
    client.subscribe(topic, "kept").close()
    frame = spark.sql("select 'k' as __key, cast(repeat('0123456789abcdef', 786432) as binary) as value")
    with pytest.raises(PySparkException, match="above the broker's limit"):
        save(frame, sink, topic=topic)
    save(frame, sink, topic=topic, chunking="true")
    large = b"0123456789abcdef" * 786_432
    (found,) = read(client, topic, 1)
    assert (found.data() == large, found.partition_key()) == (True, "k")
    (row,) = spark.read.format("quire").options(**options, topic=topic).load().collect()
    assert (bytes(row["value"]) == large, bytes(row["__key"]), row["__entry"] > 1) == (True, b"k", True)
