"""No client and no scrape holds the event loop: their work is done in short steps.

Steps are counted in items read or matched between two checkpoints, which is the same on every machine; with `full` they
are measured in milliseconds of CPU time.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from copy import copy
from typing import Any
from unittest.mock import patch

import pytest
import trio

from broker.admin.stats import partitioned
from broker.metrics import register
from broker.ownership.bundles import RING_END, Bundle
from broker.ownership.load_reports import Meter
from broker.series import rows
from broker.server import counters_of
from broker.slices import run_through
from quire.service.http import Exposition
from quire.service.measuring.scrapes import Scrapes
from quire.service.metrics import LINES_TOGETHER, Metrics, Samples
from quire.service.serve import ConnectionCounts
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.steps import Steps
from tests.unit.broker.counted_steps import CALLS_MAX, Counted
from tests.unit.broker.counted_steps import Steps as CalledSteps
from tests.unit.broker.peers import Room, in_broker
from tests.unit.broker.rest import rest_of

TOPICS = 10_000
STEP_MAX_S = 0.010


async def receive() -> dict[str, Any]:
    raise AssertionError("a scrape has no body")


async def with_topics(room: Room, count: int) -> None:
    """Register copies of a loaded topic with a subscription under this many names, for loops over all topics."""
    peer = await room.connect()
    await peer.producer()
    await peer.subscribe()
    topic = await room.topic()
    for number in range(count):
        other = copy(topic)
        other.name = TopicName.parse(f"{topic.name.full}-{number}")
        room.broker.topics._loaded[other.name.full] = other


async def scraped(room: Room) -> int:
    """Scrape through the web port's own response; return the size of the answer in bytes."""
    metrics = Metrics()
    register(metrics, room.broker, ConnectionCounts(), "c")
    sizes: list[int] = []

    async def send(message) -> None:
        sizes.append(len(message.get("body", b"")))

    await Exposition(Scrapes(metrics.lines))({"type": "http", "method": "GET"}, receive, send)
    assert max(sizes) < 256 << 10, "it is sent in parts"
    return sum(sizes)


async def test_a_scrape_reads_a_bounded_number_of_samples_in_a_step() -> None:
    counted = Counted()
    trio.lowlevel.add_instrument(counted)
    metrics = Metrics()

    def samples() -> Samples:
        for number in range(TOPICS):
            counted.now += 1
            yield (f"topic-{number}",), number

    def total() -> Samples:
        for number in range(TOPICS):
            counted.now += 1
            if number % 100 == 99:
                yield None
        yield (), TOPICS

    metrics.family("gauge", "by_topic", "", ("topic",), samples)
    metrics.family("gauge", "in_all", "", (), total)

    async def send(message) -> None:
        pass

    await Exposition(Scrapes(metrics.lines))({"type": "http", "method": "GET"}, receive, send)
    trio.lowlevel.remove_instrument(counted)
    assert 0 < counted.most <= LINES_TOGETHER


async def test_no_metric_reads_more_topics_in_a_step_than_it_may() -> None:
    counted = Counted()

    async def test(room: Room) -> None:
        await with_topics(room, 2000)
        of_topic, of_subscription = rows.of_topic, rows.of_subscription

        def counting(read: Callable[..., rows.Row]) -> Callable[..., rows.Row]:
            def counted_read(*args: Any) -> rows.Row:
                counted.now += 1
                return read(*args)

            return counted_read

        await trio.testing.wait_all_tasks_blocked()
        counted.most = 0
        with (
            patch.object(rows, "of_topic", counting(of_topic)),
            patch.object(rows, "of_subscription", counting(of_subscription)),
        ):
            assert await scraped(room) > 1_000_000

    async with in_broker(instruments=[counted]) as room:
        await test(room)
    assert 0 < counted.most <= 2 * LINES_TOGETHER


EVERYTHING = Bundle(NamespaceName("public", "default"), 0, RING_END)


async def lost(room: Room) -> None:
    room.broker.topics.lose(EVERYTHING)
    await trio.testing.wait_all_tasks_blocked()


async def unloaded(room: Room) -> None:
    await room.broker.topics.unload(EVERYTHING)


async def measured(room: Room) -> None:
    def bundle_of(name: TopicName) -> Bundle | None:
        return EVERYTHING if EVERYTHING.has(name) else None

    steps = Meter(0.0).measure(10.0, map(counters_of, room.broker.topics.loaded()), bundle_of, [EVERYTHING])
    found = await run_through(steps)
    assert found[str(EVERYTHING)].topics >= 2000


@pytest.mark.parametrize("walk", [lost, unloaded, measured])
async def test_no_walk_over_all_topics_looks_at_more_of_them_in_a_step_than_it_may(
    walk: Callable[[Room], Awaitable[None]],
) -> None:
    counted = Counted()
    has = Bundle.has

    def counting(bundle: Bundle, name: TopicName) -> bool:
        counted.now += 1
        return has(bundle, name)

    async def test(room: Room) -> None:
        await with_topics(room, 2000)
        await trio.testing.wait_all_tasks_blocked()
        counted.most = 0
        with patch.object(Bundle, "has", counting):
            await walk(room)

    async with in_broker(instruments=[counted]) as room:
        await test(room)
    assert 0 < counted.most <= 100


async def test_statistics_of_many_partitions_are_added_up_in_steps() -> None:
    counted = Counted()
    joined = partitioned._joined

    def counting(name: str, one: Any, other: Any) -> Any:
        counted.now += 1
        return joined(name, one, other)

    async def test(room: Room) -> None:
        await room.broker.administration.create_partitioned_topic(TopicName.parse("persistent://public/default/p"), 20)
        async with rest_of(room) as rest:
            with patch.object(partitioned, "_joined", counting):
                found = await rest.get("/admin/v2/persistent/public/default/p/partitioned-stats")
        assert len(found["partitions"]) == 20

    async with in_broker(instruments=[counted]) as room:
        await test(room)
    assert 0 < counted.most <= 100


@pytest.mark.full
async def test_a_scrape_of_10_000_topics_holds_the_loop_for_less_than_10_ms() -> None:
    steps = Steps()
    async with in_broker(instruments=[steps]) as room:
        await with_topics(room, TOPICS)
        gc.collect()
        await trio.testing.wait_all_tasks_blocked()
        steps.reset()
        await scraped(room)
        assert steps.longest_s < STEP_MAX_S, steps.longest_task


async def test_the_deletion_of_many_partitions_holds_the_loop_in_no_step(room: Room) -> None:
    """Their names, parsed and sorted, were 70,000 calls in one step, and 308,000 of 2,000 partitions."""
    administration = room.broker.administration
    for local, count in (("narrow", 1), ("wide", 500)):  # the first one imports what it needs
        name = TopicName.parse(f"persistent://public/default/{local}")
        await administration.create_partitioned_topic(name, count)
        steps = CalledSteps(trio.lowlevel.current_task(), real=False)
        trio.lowlevel.add_instrument(steps)
        try:
            await administration.delete_partitioned_topic(name, force=True)
        finally:
            trio.lowlevel.remove_instrument(steps)
        assert await administration.partitioned.existing_partitions(name) == []
    assert 0 < steps.longest < CALLS_MAX, steps.where
