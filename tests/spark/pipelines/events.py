"""Messages with event times that are out of order and partly late, and the batch recomputation of their counts.

The times of the messages go from START to SPAN_MS later; every fifth is put back by up to JITTER_MS. In the last
eighth some have a time of the first minutes instead. They have the property `late`, and a key, because clients choose
the partition of other messages by chance. Batches of at most three eighths of all messages read less than seven eighths
of any partition before those windows are closed. The last message of each partition is a day later, and closes all
windows before.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pulsar

START = 1_700_000_040_000 // 60_000 * 60_000
SPAN_MS = 3_600_000
JITTER_MS = 90_000
WATERMARK = "2 minutes"
WINDOW = "1 minute"
KEYS = 8
DAY_MS = 86_400_000


class Event(NamedTuple):
    key: str | None
    at_ms: int
    value: bytes
    late: bool


def events(count: int) -> Iterator[Event]:
    """Yield the messages, the same at each call."""
    chance = random.Random(17)
    for number in range(count):
        key = f"k{number % KEYS}" if number % KEYS else None
        late = number >= count * 7 // 8 and 1 <= number % 40 <= 2
        at_ms = START + (chance.randrange(300_000) if late else number * SPAN_MS // count)
        if not late and number % 5 == 0:
            at_ms -= chance.randrange(JITTER_MS)
        yield Event(key, at_ms, b"%d" % number, late)


def send(client: pulsar.Client, topic: str, given: Iterator[Event], partitions: int = 2) -> int:
    """Publish messages, and behind them one to each partition that closes their windows; return the number of all."""
    producer = client.create_producer(
        topic,
        block_if_queue_full=True,
        batching_enabled=True,
        batching_max_messages=50,
        batching_max_publish_delay_ms=10_000,  # all entries are full, so that the source's estimate of them holds
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    count = 0
    for event in given:
        properties = {"late": "1"} if event.late else None
        ordering = f"o{count % 5}" if count % 3 == 0 else None
        producer.send_async(event.value, None, properties, event.key, ordering, event_timestamp=event.at_ms)
        count += 1
    producer.flush()
    producer.close()
    for number in range(partitions):
        last = client.create_producer(f"{topic}-partition-{number}")
        last.send(b"end", {"late": "1"}, "end", event_timestamp=START + DAY_MS)
        last.close()
    return count + partitions


def recomputed(spark: Any, options: dict[str, str], topic: str) -> Counter[tuple[Any, ...]]:
    """Return the rows (key, start, end, count, bytes) of a batch aggregation of the topic, without the late ones."""
    from pyspark.sql import functions as f

    frame = spark.read.format("quire").options(**options, topic=topic).load()
    frame = frame.where(~f.map_contains_key("__properties", "late"))
    grouped = frame.groupBy("__key", f.window("__eventTime", WINDOW).alias("w"))
    counted = grouped.agg(f.count("*").alias("count"), f.sum(f.octet_length("value")).alias("bytes"))
    rows = counted.select("__key", f.unix_millis("w.start"), f.unix_millis("w.end"), "count", "bytes").collect()
    return Counter((None if row[0] is None else bytes(row[0]).decode(), *row[1:]) for row in rows)
