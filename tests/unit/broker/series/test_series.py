"""Metrics of topics: which have series of their own, and the sums of the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import copy
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from broker.metrics import register
from broker.series import reader, rows
from broker.series.config import MetricsOptions
from broker.series.reader import REST
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB
from tests.unit.broker.peers import Peer, Room, in_broker

TOPICS = [f"persistent://public/default/t{number}" for number in range(5)]
Series = dict[tuple[tuple[str, str], ...], float]


class Scrape:
    """Samples of one broker by name and labels."""

    def __init__(self, room: Room, **options: Any) -> None:
        self._metrics = Metrics()
        register(self._metrics, room.broker, ConnectionCounts(), "c", MetricsOptions(**options))

    def series(self, name: str) -> Series:
        """Return the values of a family by their labels, without that of the cluster."""
        found: Series = {}
        for family in text_string_to_metric_families(self._metrics.exposition().decode()):
            for sample in family.samples:
                if sample.name == name:
                    labels = tuple((key, value) for key, value in sorted(sample.labels.items()) if key != "cluster")
                    assert labels not in found, f"{name}: two series with {labels}"
                    found[labels] = sample.value
        return found

    def by(self, name: str, label: str = "topic") -> dict[str, float]:
        """Return the values of a family by one label."""
        found = {dict(labels)[label]: value for labels, value in self.series(name).items()}
        assert len(found) == len(self.series(name))
        return found


async def published(room: Room, *, subscribe: bool = True) -> Peer:
    """Publish number + 1 messages to each topic, and deliver nothing of them."""
    peer = await room.connect()
    for number, topic in enumerate(TOPICS):
        await peer.producer(topic, producer_id=1)
        if subscribe:
            await peer.subscribe(topic, consumer_id=1, name="s", subType=SUB.Shared)
            await peer.end_consumer(1)
        await peer.publish(*[b"x" * 10] * (number + 1))
        await peer.end_producer(1)
    return peer


@asynccontextmanager
async def five_topics(**options: Any) -> AsyncIterator[Room]:
    async with in_broker(stats_interval_s=10, **options) as room:
        await published(room)
        yield room


async def test_each_topic_has_series_of_its_own_up_to_the_limit() -> None:
    async with five_topics() as room:
        assert Scrape(room, topics_max=5).by("pulsar_in_messages_total") == dict(
            zip(TOPICS, (1, 2, 3, 4, 5), strict=True)
        )


async def test_topics_above_the_limit_are_one_series_of_their_namespace_and_no_sum_changes() -> None:
    async with five_topics() as room:
        scrape, whole = Scrape(room, topics_max=2), Scrape(room)
        found = scrape.by("pulsar_in_messages_total")
        assert len(found) == 3
        assert found[REST] == 15 - sum(value for topic, value in found.items() if topic != REST)
        for name in (
            "pulsar_in_bytes_total",
            "pulsar_msg_backlog",
            "pulsar_storage_size",
            "pulsar_subscriptions_count",
            "pulsar_subscription_back_log",
        ):
            total = sum(scrape.series(name).values())
            assert total == sum(whole.series(name).values()) > 0, name
        assert scrape.series("pulsar_topics_count") == {(("namespace", "public/default"),): 5}
        assert scrape.series("pulsar_broker_msg_backlog") == {(): 15}
        assert scrape.series("pulsar_ml_NumberOfMessagesInBacklog") == {(("namespace", "public/default"),): 15}


async def test_a_topic_keeps_its_series_while_it_is_loaded_and_its_place_goes_to_another() -> None:
    async with five_topics() as room:
        scrape = Scrape(room, topics_max=2)
        first = {topic for topic in scrape.by("pulsar_in_messages_total") if topic != REST}
        peer = await room.connect()
        for _ in range(2):
            busy = next(topic for topic in TOPICS if topic not in first)
            await peer.producer(busy)
            await peer.publish(b"more")
            await peer.end_producer()
            await trio.sleep(11)  # a round
            assert {topic for topic in scrape.by("pulsar_in_messages_total") if topic != REST} == first
        (await room.topic(next(iter(first)))).disconnect_all()
        room.broker.topics._loaded.pop(next(iter(first)))
        after = {topic for topic in scrape.by("pulsar_in_messages_total") if topic != REST}
        assert len(after & first) == 1
        assert busy in after, "a topic with traffic comes first"


async def test_without_series_of_topics_there_are_sums_of_namespaces() -> None:
    async with five_topics() as room:
        scrape = Scrape(room, topics=False)
        assert scrape.series("pulsar_in_messages_total") == {(("namespace", "public/default"),): 15}
        assert scrape.series("pulsar_subscription_back_log") == {(("namespace", "public/default"),): 15}


async def test_subscriptions_above_the_limit_are_summed_by_topic() -> None:
    async with in_broker() as room:
        peer = await room.connect()
        await peer.producer(TOPICS[0])
        for number in range(4):
            await peer.subscribe(TOPICS[0], consumer_id=number + 1, name=f"s{number}")
        await peer.publish(b"a", b"b")
        scrape = Scrape(room, parts_max=1, consumers=True)
        assert scrape.by("pulsar_subscription_back_log", "subscription") == {"s0": 2, REST: 6}
        assert len(scrape.series("pulsar_consumer_available_permits")) == 1


async def test_consumers_producers_cursors_and_sizes_of_backlogs_have_series_where_they_are_asked_for() -> None:
    names = {
        "consumers": "pulsar_consumer_available_permits",
        "producers": "pulsar_producer_msg_rate_in",
        "cursors": "pulsar_ml_cursor_persistLedgerSucceed",
        "backlog_bytes": "quire_subscription_back_log_bytes",
    }
    async with in_broker() as room:
        peer = await room.connect()
        await peer.producer(TOPICS[0], producer_name="p")
        await peer.subscribe(TOPICS[0], permits=7)
        await peer.publish(b"abc")
        await peer.payloads(1)
        for option, name in names.items():
            assert Scrape(room).series(name) == {}
            assert len(Scrape(room, **{option: True}).series(name)) == 1, name
        assert Scrape(room, consumers=True).by(names["consumers"], "consumer_id") == {"1": 6}
        assert set(Scrape(room, producers=True).by(names["producers"], "producer_name")) == {"p"}
        assert Scrape(room, managed_ledgers=False).series("pulsar_ml_StoredMessagesSize") == {}


async def test_the_number_of_a_partition_is_a_label_of_its_own_where_it_is_asked_for() -> None:
    async with in_broker() as room:
        peer = await room.connect()
        await room.broker.administration.create_partitioned_topic(TopicName.parse(TOPICS[1]), 2)
        await peer.producer(f"{TOPICS[1]}-partition-1")
        await peer.producer(TOPICS[0], producer_id=2)
        found = Scrape(room, split_partition=True).series("pulsar_producers_count")
        assert {(dict(labels)["topic"], dict(labels)["partition"]) for labels in found} == {
            (TOPICS[1], "1"),
            (TOPICS[0], "-1"),
        }


async def test_rates_sizes_and_latencies_are_of_the_last_round() -> None:
    async with in_broker(stats_interval_s=10) as room:
        peer, scrape = await room.connect(), Scrape(room)
        await peer.producer(TOPICS[0])
        await peer.publish(*[b"x" * 10] * 19)
        await peer.publish(b"y" * 3000)
        await trio.sleep(11)
        assert scrape.series("pulsar_storage_write_rate").popitem()[1] == pytest.approx(2, rel=0.2)
        assert scrape.series("pulsar_rate_in").popitem()[1] == pytest.approx(2, rel=0.2)
        assert scrape.series("pulsar_entry_size_le_128").popitem()[1] == 19
        assert scrape.series("pulsar_entry_size_le_4_kb").popitem()[1] == 1
        assert scrape.series("pulsar_entry_size_count").popitem()[1] == 20
        buckets = [f"pulsar_storage_write_latency_le_{bound}" for bound in ("0_5", "1", "5")]
        assert sum(scrape.series(name).popitem()[1] for name in buckets) == 20
        assert scrape.series("pulsar_storage_write_latency_count").popitem()[1] == 20
        assert scrape.series("quire_publish_latency_ms_count") == {(): 20}
        await trio.sleep(10)
        assert scrape.series("pulsar_entry_size_count").popitem()[1] == 0
        assert scrape.series("quire_publish_latency_ms_count") == {(): 20}


async def test_a_delivery_at_the_end_of_a_topic_is_timed_and_one_from_its_backlog_is_not() -> None:
    async with in_broker() as room:
        peer, scrape = await room.connect(), Scrape(room)
        await peer.producer(TOPICS[0])
        await peer.subscribe(TOPICS[0], permits=1)
        await peer.publish(b"a", b"b")
        await peer.payloads(1)
        assert scrape.series("quire_dispatch_latency_ms_count") == {(): 0}, "more messages wait behind it"
        await trio.sleep(0.03)
        peer.flow(1)
        await peer.payloads(1)
        assert scrape.series("quire_dispatch_latency_ms_count") == {(): 1}
        assert scrape.series("quire_dispatch_latency_ms_sum")[()] == pytest.approx(31, abs=2)


async def test_the_age_of_a_backlog_is_that_of_its_oldest_entry() -> None:
    async with in_broker(stats_interval_s=10) as room:
        peer, scrape = await room.connect(), Scrape(room)
        await peer.producer(TOPICS[0])
        await peer.subscribe(TOPICS[0], permits=10)
        assert scrape.by("pulsar_storage_backlog_age_seconds") == {TOPICS[0]: 0}
        now_ms = room.broker.context.world.clock.wall_ms()
        await peer.publish(b"old", publish_time=now_ms - 100_000)
        [old] = await acked_later(peer)
        assert scrape.by("pulsar_storage_backlog_age_seconds") == {TOPICS[0]: -1}, "no round has read it"
        await trio.sleep(11)
        assert scrape.by("pulsar_storage_backlog_age_seconds")[TOPICS[0]] == pytest.approx(111, abs=3)
        await trio.sleep(5)
        assert scrape.by("pulsar_storage_backlog_age_seconds")[TOPICS[0]] == pytest.approx(116, abs=3)
        peer.ack(old)
        await trio.testing.wait_all_tasks_blocked()
        assert scrape.by("pulsar_storage_backlog_age_seconds") == {TOPICS[0]: 0}


async def acked_later(peer: Peer) -> list[Any]:
    message, _ = await peer.message()
    return [message.message_id]


async def test_storing_acknowledgements_is_timed() -> None:
    async with in_broker() as room:
        peer, scrape = await room.connect(), Scrape(room)
        await peer.producer(TOPICS[0])
        await peer.subscribe(TOPICS[0], permits=10)
        await peer.publish(b"a")
        message, _ = await peer.message()
        peer.ack(message.message_id)
        await trio.sleep(5)
        assert scrape.series("quire_cursor_persist_latency_ms_count")[()] >= 1


async def test_a_scrape_of_many_topics_reads_those_with_series_and_a_round_reads_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[str] = []
    of_topic = rows.of_topic

    def counting(topic: Any, ages: Any) -> rows.Row:
        reads.append(topic.name.full)
        return of_topic(topic, ages)

    async with five_topics() as room:
        monkeypatch.setattr(reader, "REST_AT_SCRAPE", 2)
        monkeypatch.setattr(rows, "of_topic", counting)
        scrape = Scrape(room, topics_max=2)
        scrape.series("pulsar_topics_count")
        await trio.sleep(11)  # a round sums up the rest
        reads.clear()
        found = scrape._metrics.exposition()
        assert len(reads) == 2
        assert b"quire_rest" in found
        assert scrape.series("pulsar_broker_msg_backlog") == {(): 15}


def steps_of(lines: Iterator[str]) -> int:
    return max(text.count("\n") for text in lines)


async def test_no_step_of_a_scrape_has_more_lines_than_it_may() -> None:
    async with five_topics() as room:
        metrics = Metrics()
        register(metrics, room.broker, ConnectionCounts(), "c")
        room_topics = room.broker.topics._loaded
        some = next(iter(room_topics.values()))
        for number in range(600):
            room_topics[f"copy-{number}"] = copy(some)
        assert 2 <= steps_of(metrics.lines()) <= 256
