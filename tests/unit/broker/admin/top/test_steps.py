"""Answers and scrapes about all topics hold no step of the event loop, even where one topic has very
many subscriptions. Steps are measured in calls."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from broker.admin.top.handler import COUNT
from broker.metrics import register
from broker.series import rows
from broker.series.config import MetricsOptions
from broker.series.reader import READ_IN_STEP
from quire.ledger.position import EARLIEST
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from tests.unit.broker.counted_steps import CALLS_MAX, Steps
from tests.unit.broker.peers import Room, in_broker
from tests.unit.broker.rest import rest_of

SUBSCRIPTIONS = 1000
TOPICS = 4


@pytest.fixture
async def busy() -> AsyncIterator[Room]:
    """A broker with topics of 1,000 subscriptions each, all of which have a backlog."""
    async with in_broker() as room:
        peer = await room.connect()
        for number in range(TOPICS):
            name = f"persistent://public/default/t{number}"
            await peer.producer(name, producer_id=1)
            await peer.publish(b"waits")
            await peer.end_producer(1)
            topic = await room.topic(name)
            for each in range(SUBSCRIPTIONS):
                await topic.create_subscription(f"s{each}", EARLIEST)
        yield room


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/quireTop?count=200",
        "/admin/v2/quireTop?sort=age",
        "/console/api/topics",
        "/console/api/loaded-topics",
    ],
)
async def test_an_answer_about_all_topics_holds_no_step(busy: Room, path: str) -> None:
    async with rest_of(busy, console=True) as rest:
        steps = Steps(trio.lowlevel.current_task(), real=False)
        trio.lowlevel.add_instrument(steps)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rest.get, path)
        trio.lowlevel.remove_instrument(steps)
        sys.setprofile(None)
    assert 0 < steps.longest <= CALLS_MAX, f"{steps.longest:.0f} calls in one step of {steps.where}"


@pytest.mark.full
@pytest.mark.parametrize("query", ["count=200", "sort=lag&filter=t00", "sort=age"])
async def test_a_look_at_100_000_topics_holds_no_step_and_answers_only_what_is_shown(query: str) -> None:
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        peer = await room.connect()
        for number in range(100):
            name = f"persistent://public/default/t{number:03}"
            await peer.producer(name, producer_id=1)
            await peer.publish(b"waits")
            await peer.end_producer(1)
            await (await room.topic(name)).create_subscription("s", EARLIEST)
        loaded = room.broker.topics._loaded
        real = list(loaded.values())
        loaded.update({f"more-{number}": real[number % 100] for number in range(100, 100_000)})
        steps = Steps(trio.lowlevel.current_task(), real=False)
        answers: list[dict[str, Any]] = []

        async def look() -> None:
            answers.append(await rest.get(f"/admin/v2/quireTop?{query}"))

        trio.lowlevel.add_instrument(steps)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
        trio.lowlevel.remove_instrument(steps)
        sys.setprofile(None)
    assert 0 < steps.longest <= CALLS_MAX, f"{steps.longest:.0f} calls in one step of {steps.where}"
    [answer] = answers
    assert answer["brokers"][0]["topics"] == 100_000
    assert len(answer["topics"]) == len(answer["stuck"]) == (200 if "count" in query else COUNT)


@pytest.mark.parametrize("topics_max", [2000, 0])
async def test_a_step_of_a_scrape_reads_so_many_subscriptions_at_most(
    busy: Room, monkeypatch: pytest.MonkeyPatch, topics_max: int
) -> None:
    read = 0
    of_subscription = rows.of_subscription

    def counting(subscription: rows.AnySubscription, wall_ms: int) -> rows.Row:
        nonlocal read
        read += 1
        return of_subscription(subscription, wall_ms)

    monkeypatch.setattr(rows, "of_subscription", counting)
    metrics = Metrics()
    register(metrics, busy.broker, ConnectionCounts(), "c", MetricsOptions(topics_max=topics_max))
    most = total = 0
    for _ in metrics.lines():
        most, total, read = max(most, read), total + read, 0
    assert total == TOPICS * SUBSCRIPTIONS
    assert most <= READ_IN_STEP
