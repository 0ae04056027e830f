"""Values by schema, options and credentials, with Spark and a real server; the official client writes and reads too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String, StringSchema
from pyspark.errors import PySparkException

from tests.spark.peer import SECURED
from tests.spark.support import DEADLINE_S, Stream, events, publish
from tests.support.credentials import token

RECEIVE_MS = int(DEADLINE_S * 1000)


class Order(Record):  # type: ignore[misc]
    id = Integer()
    name = String()


def later_order() -> Any:
    """Return a later version of Order, under the same name."""

    class Order(Record):  # type: ignore[misc]
        id = Integer()
        name = String()
        note = String(default=None, required_default=True)

    return Order


def hold(client: pulsar.Client, *topics: str) -> None:
    """Keep topics without other subscriptions from being deleted."""
    for topic in topics:
        client.subscribe(topic, "keep").close()


def send(client: pulsar.Client, topic: str, schema: Any, *values: Any) -> None:
    producer = client.create_producer(topic, schema=schema)
    for value in values:
        producer.send(value)
    producer.close()


def read_all(client: pulsar.Client, topic: str) -> list[Any]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(RECEIVE_MS))
    reader.close()
    return found


def test_a_stream_decodes_what_the_official_client_sent_and_bad_rows_become_dead_letters(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    """Two versions of a schema, and a message that has none and is no value of it."""
    dead = f"{topic}-dead"
    send(client, topic, AvroSchema(Order), Order(id=1, name="one"))
    later = later_order()
    send(client, topic, AvroSchema(later), later(id=2, name="two", note="n"))
    publish(client, topic, [b"\xff"])
    hold(client, topic)
    stream = Stream(
        spark,
        {
            **options,
            "topic": topic,
            "subscription": "decoding",
            "startingOffsets": "earliest",
            "decode": "schema",
            "onDecodeError": "deadLetter",
            "deadLetterTopic": dead,
            "columns": "value,__schemaVersion",
        },
        tmp_path,
        ("value.id", "value.name", "value.note", "__schemaVersion"),
    )
    stream.drain()
    assert sorted(stream.rows) == [(1, "one", None, 0), (2, "two", "n", 1)]
    (letter,) = read_all(client, dead)
    assert letter.data() == b"\xff"
    assert letter.properties()["REAL_TOPIC"] == topic
    assert letter.properties()["DECODE_ERROR"]


@pytest.mark.parametrize("encode", ["avro", pytest.param("json", marks=pytest.mark.full)])
def test_rows_are_written_with_a_registered_schema_and_come_back_as_they_were(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, encode: str
) -> None:
    frame = spark.sql(
        "select named_struct('id', id, 'name', concat('n', id), 'at', timestamp_millis(1700000000123), 'tags',"
        " array('a', null), 'm', map('k', named_struct('x', 1.5d))) as value, 'k' as __key, 'o' as __orderingKey"
        " from (select cast(id as int) id from range(3))"
    )
    frame.write.format("quire").mode("append").options(**options, topic=topic, encode=encode, recordName="Order").save()
    hold(client, topic)
    schema = AvroSchema(Order) if encode == "avro" else JsonSchema(Order)
    assert {message.ordering_key() for message in read_all(client, topic)} == {"o"}
    loaded = spark.read.format("quire").options(**options, topic=topic, decode="schema").load()
    assert loaded.schema["value"].dataType.simpleString() == (
        "struct<id:int,name:string,at:timestamp,tags:array<string>,m:map<string,struct<x:double>>>"
    )
    assert sorted(loaded.select("value").collect()) == sorted(frame.select("value").collect())
    if encode == "json":
        found = sorted(schema.decode(message.data()).name for message in read_all(client, topic))
        assert found == ["n0", "n1", "n2"]


@pytest.mark.parametrize("pairs", ["separated", pytest.param("inline", marks=pytest.mark.full)])
def test_pairs_are_written_with_a_schema_for_key_and_value_and_come_back_as_they_were(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, pairs: str
) -> None:
    frame = spark.sql(
        "select named_struct('key', concat('k', id), 'value', named_struct('id', id)) value from range(3)"
    )
    written = frame.write.format("quire").mode("append").options(**options, topic=topic)
    written.options(encode="avro", keyValueEncoding=pairs).save()
    hold(client, topic)
    loaded = spark.read.format("quire").options(**options, topic=topic, decode="schema").load()
    assert loaded.schema["value"].dataType.simpleString() == "struct<key:string,value:struct<id:bigint>>"
    assert sorted(loaded.select("value").collect()) == sorted(frame.collect())
    keys = {bytes(row["__key"]) if row["__key"] else None for row in loaded.select("__key").collect()}
    assert keys == ({b"k0", b"k1", b"k2"} if pairs == "separated" else {None})


@pytest.mark.full
def test_a_value_that_is_none_fails_the_query_or_is_null_with_its_reason(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    send(client, topic, JsonSchema(Order), Order(id=1, name="one"))
    publish(client, topic, [b"{"])
    hold(client, topic)
    read = spark.read.format("quire").options(**options, topic=topic, decode="schema")
    found = read.option("onDecodeError", "null").option("columns", "value,__decodeError,__rawValue").load().collect()
    assert [row["value"] and row["value"]["id"] for row in found] == [1, None]
    assert (found[0]["__decodeError"], found[1]["__rawValue"]) == (None, b"{")
    assert "JSONDecodeError" in found[1]["__decodeError"]
    failing = spark.read.format("quire").options(**options, topic=topic, decode="schema").load()
    with pytest.raises(PySparkException, match=r"is no value of schema version 0 .*onDecodeError=null"):
        failing.collect()


SECRET = token("admin") if SECURED else "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0LW9mLXRoZS10ZXN0.x"


def test_a_credential_in_an_option_is_in_no_plan_progress_or_error(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    """A server without security takes clients without credentials and does not look at those that are sent."""
    publish(client, topic, [b"x"])
    secret = {name: text for name, text in options.items() if name != "authTokenFile"}
    secret |= {"topic": topic, "authToken": SECRET}
    frame = spark.read.format("quire").options(**secret).load()
    assert [bytes(row["value"]) for row in frame.select("value").collect()] == [b"x"]
    shown = [frame._jdf.queryExecution().toString(), frame._jdf.queryExecution().logical().toJSON()]
    stream = Stream(spark, {**secret, "subscription": "secret", "startingOffsets": "earliest"}, tmp_path)
    query = stream.drain()
    assert stream.values() == [b"x"]
    shown += [json.dumps(query.recentProgress, default=str), query._jsq.explainInternal(True)]
    shown += [path.read_text() for path in (tmp_path / "checkpoint" / "offsets").iterdir() if path.suffix != ".crc"]
    shown.append(stream.trace.read_text())
    for wrong in ({"authTokenFile": "/f"}, {"authTokens": SECRET}, {"topics": "y"}):
        with pytest.raises(PySparkException) as info:
            spark.read.format("quire").options(**secret, **wrong).load().collect()
        shown.append(str(info.value))
    assert [text for text in shown if SECRET in text] == []


def test_sql_reads_a_topic_by_a_view_and_a_table_of_the_catalog_by_options_of_the_query(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    send(client, topic, StringSchema(), "a", "b")
    hold(client, topic)
    given = {**options, "topic": topic, "decode": "schema", "columns": "value"}
    pairs = ", ".join(f"`{name}` '{text}'" for name, text in given.items())
    name = topic.rsplit("/", 1)[1]
    spark.sql(f"create temporary view {name}_view using quire options ({pairs})")
    assert sorted(row.value for row in spark.sql(f"select value from {name}_view").collect()) == ["a", "b"]
    spark.sql(f"create table {name}_table using quire options ({pairs})")
    try:
        found = spark.read.options(**given).table(f"{name}_table").collect()
        assert sorted(row.value for row in found) == ["a", "b"]
        equal = ", ".join(f"`{key}` = '{text}'" for key, text in given.items())
        found = spark.sql(f"select value from {name}_table with ({equal})").collect()
        assert sorted(row.value for row in found) == ["a", "b"]
        # Spark gives the options of CREATE TABLE to no read
        with pytest.raises(PySparkException, match="a table of the catalog"):
            spark.sql(f"select * from {name}_table").collect()
    finally:
        spark.sql(f"drop table {name}_table")


@pytest.mark.full
def test_a_stream_waits_for_a_minimum_of_messages_and_cuts_its_tasks(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [b"%d" % number for number in range(10)])
    given = {"subscriptionPrefix": "least", "startingOffsets": "earliest", "maxEntriesPerTask": "4"}
    stream = Stream(spark, {**options, "topic": topic, **given, "minOffsetsPerTrigger": "20"}, tmp_path)
    query = stream.start()
    try:
        query.processAllAvailable()
        assert not any(stream.batches), "ten of twenty messages"
        publish(client, topic, [b"%d" % number for number in range(10, 20)])
        query.processAllAvailable()
        assert [rows for rows in stream.batches if rows] == [20]
    finally:
        query.stop()
    assert sorted(map(int, stream.values())) == list(range(20))
    assert {event["tasks"] for event in events(stream.trace, "partitions") if event["tasks"]} == {5}, "of 4 entries"
