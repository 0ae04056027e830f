"""`quire.table` and `quire sql` have the rows of the Spark source: all columns, plain and decoded values."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest

import quire
from quire.spark.runtime import close_runtime
from tests.spark.support import make_partitions, numbered, publish
from tests.support.server import StandaloneProcess


class Item(pulsar.schema.Record):  # type: ignore[misc]
    name = pulsar.schema.String()
    counts = pulsar.schema.Array(pulsar.schema.Integer())


def rows_of_spark(spark: Any, options: dict[str, str], **more: str) -> list[dict[str, Any]]:
    frame = spark.read.format("quire").options(**options, **more).load()
    return sorted(
        ({**row.asDict(recursive=True)} for row in frame.collect()), key=lambda row: bytes(row["__messageId"])
    )


def rows_of_table(options: dict[str, str], topic: str, **more: Any) -> list[dict[str, Any]]:
    service_url, admin_url = options["service.url"], options["admin.url"]
    others = {name: text for name, text in options.items() if not name.endswith(".url")}
    table = quire.table(topic, service_url=service_url, admin_url=admin_url, options=others, **more)
    rows = table.read_all().to_pylist()
    for row in rows:
        row["__properties"] = dict(row["__properties"])
        for name in ("__publishTime", "__eventTime"):
            # (Spark gives local times, and these tests have UTC as the zone of sessions)
            row[name] = row[name] and row[name].astimezone().replace(tzinfo=None)
    return sorted(rows, key=lambda row: bytes(row["__messageId"]))


@pytest.fixture(autouse=True)
def ended() -> Any:
    yield
    close_runtime()


def test_a_table_has_the_rows_of_spark(
    spark: Any, server: StandaloneProcess, options: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    make_partitions(server, topic, 2)
    publish(client, topic, numbered(0, 300), batching_enabled=True, compression_type=pulsar.CompressionType.LZ4)
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"x", properties={"a": "b"}, partition_key="key", event_timestamp=1_700_000_000_123)
    producer.close()
    expected = rows_of_spark(spark, options, topic=topic)
    assert len(expected) == 301
    assert rows_of_table(options, topic) == expected


def test_a_table_of_decoded_values_has_the_rows_of_spark(
    spark: Any, options: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Item))
    for number in range(20):
        producer.send_async(Item(name=f"n{number}", counts=[number, number + 1]), None)
    producer.flush()
    producer.close()
    expected = rows_of_spark(spark, options, topic=topic, decode="schema")
    assert expected[3]["value"] == {"name": "n3", "counts": [3, 4]}
    assert rows_of_table(options, topic, decode="schema") == expected
