"""Topics read back with the official client, without any deduplication of the reader's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pulsar


def messages(client: pulsar.Client, *topics: str) -> Iterator[pulsar.Message]:
    """Yield all messages of topics without partitions, each topic in its order."""
    for topic in topics:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            yield reader.read_next(120_000)
        reader.close()


def partitions(topic: str, count: int = 2) -> list[str]:
    return [f"{topic}-partition-{number}" for number in range(count)]


def windows(client: pulsar.Client, *topics: str) -> Counter[tuple[Any, ...]]:
    """Return the counts that a window pipeline wrote, as (key, start, end, count, bytes)."""
    found: Counter[tuple[Any, ...]] = Counter()
    for message in messages(client, *topics):
        value = json.loads(message.data())
        start, end = (round(datetime.fromisoformat(value[name]).timestamp() * 1000) for name in ("start", "end"))
        assert message.event_timestamp() == end
        found[message.partition_key() or None, start, end, value["count"], value["bytes"]] += 1
    return found


def contents(client: pulsar.Client, *topics: str) -> Counter[tuple[Any, ...]]:
    """Return what a copy has to keep of each message."""
    return Counter(content(message) for message in messages(client, *topics))


def content(message: pulsar.Message) -> tuple[Any, ...]:
    properties = tuple(sorted(message.properties().items()))
    return (
        message.data(), message.has_null_value(), message.partition_key(), properties, message.event_timestamp(),
        message.ordering_key(),
    )  # fmt: skip


def order_of_keys(client: pulsar.Client, topic: str) -> dict[str, list[bytes]]:
    """Return the values of each key, in the order of the topic."""
    found: dict[str, list[bytes]] = {}
    for message in messages(client, *partitions(topic)):
        if message.partition_key() not in ("", "end"):  # those are in both partitions
            found.setdefault(message.partition_key(), []).append(message.data())
    return found
