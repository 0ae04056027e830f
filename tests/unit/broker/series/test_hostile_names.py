"""Names that are hostile to the text of metrics: it stays what Prometheus reads, and the limits hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.metrics import register
from broker.series.config import MetricsOptions
from broker.series.reader import REST
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from tests.support.pulsar_frames import SUB
from tests.unit.broker.peers import Room, in_broker

TOPICS = (
    'a"b',
    'a",topic="b',
    "a{b}=c,d",
    "# HELP x",
    "a b ",
    "\N{GRINNING FACE}",
    "\N{COMBINING ACUTE ACCENT}a",
    "n" * 4000,
    "\N{GRINNING FACE}" * 700,
)
PARTS = (*TOPICS, "a\\b", "a\\", "a\\nb", 'a\\"b')
"""Subscriptions, consumers and producers may also have a backslash."""
REFUSED = ('a"} 1\n', "a\nb", "a\r\nb", "a\tb", "\u2028a", "\u0085a", "\x1ba")
FIRST = "persistent://public/default/"


def exposed(room: Room, **options: Any) -> str:
    metrics = Metrics()
    register(metrics, room.broker, ConnectionCounts(), "c", MetricsOptions(**options))
    return metrics.exposition().decode()


def by_label(text: str, name: str, label: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                assert sample.labels[label] not in found
                found[sample.labels[label]] = sample.value
    return found


@pytest.fixture
async def hostile() -> AsyncIterator[Room]:
    """A broker with a message in each topic, and one topic with subscriptions, consumers and producers."""
    async with in_broker() as room:
        peer = await room.connect()
        for number, name in enumerate(TOPICS):
            await peer.producer(FIRST + name, producer_id=number)
            await peer.publish(b"m", producer_id=number)
        for number, name in enumerate(PARTS):
            await peer.subscribe(f"{FIRST}parts", consumer_id=number, name=name, consumer_name=name, subType=SUB.Shared)
            await peer.producer(f"{FIRST}parts", producer_id=100 + number, producer_name=name)
        await peer.publish(b"m", b"m", producer_id=100)
        yield room


async def test_every_name_that_a_client_may_give_is_a_label_with_this_value(hostile: Room) -> None:
    text = exposed(hostile, consumers=True, producers=True)
    counts = by_label(text, "pulsar_in_messages_total", "topic")
    assert counts == {**dict.fromkeys((FIRST + name for name in TOPICS), 1), f"{FIRST}parts": 2}
    backlogs = by_label(text, "pulsar_subscription_back_log", "subscription")
    assert backlogs == dict.fromkeys(PARTS, 2)
    assert set(by_label(text, "pulsar_consumer_available_permits", "consumer_name")) == set(PARTS)
    assert set(by_label(text, "pulsar_producer_msg_rate_in", "producer_name")) >= set(PARTS)
    assert all(line.startswith("#") or line.rpartition(" ")[2] for line in text.split("\n") if line)


async def test_limits_hold_and_the_rest_is_summed(hostile: Room) -> None:
    text = exposed(hostile, topics_max=3, parts_max=2)
    counts = by_label(text, "pulsar_in_messages_total", "topic")
    assert (len(counts), sum(counts.values())) == (4, len(TOPICS) + 2)
    assert counts[REST] == sum(counts.values()) - sum(value for name, value in counts.items() if name != REST)
    whole = by_label(exposed(hostile, topics_max=100, parts_max=2), "pulsar_subscription_back_log", "subscription")
    assert (len(whole), whole[REST]) == (3, 2 * (len(PARTS) - 2))


@pytest.mark.parametrize("name", REFUSED)
async def test_control_characters_are_refused_in_names_of_topics_and_subscriptions(name: str) -> None:
    async with in_broker() as room:
        peer = await room.connect()
        with pytest.raises(AssertionError, match="control char"):
            await peer.producer(FIRST + name)
        with pytest.raises(AssertionError, match="control char"):
            await peer.subscribe(f"{FIRST}good", name=name)
