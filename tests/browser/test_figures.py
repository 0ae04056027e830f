"""Figures of a topic in the console, in the admin REST and in the metrics: one topic, and equal values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from playwright.sync_api import Locator, expect
from prometheus_client.parser import text_string_to_metric_families

from tests.browser.looking import Look
from tests.browser.samples import stats
from tests.support import web
from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

TOPIC = "persistent://public/default/figures"
SENT, HELD, ACKNOWLEDGED, QUEUE = 50, 7, 4, 200
SIZE = 1000
LOOK_MS = 2000
"""Time between two looks of the page of a topic."""


@pytest.fixture(scope="module")
def producer(server: StandaloneProcess) -> Iterator[pulsar.Producer]:
    """Messages, all delivered to a consumer, which has acknowledged some and asks for more than there are."""
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(TOPIC, "held", pulsar.ConsumerType.Shared, receiver_queue_size=QUEUE)
    client.subscribe(TOPIC, "late").close()
    made = client.create_producer(TOPIC, batching_enabled=False)
    for _ in range(SENT):
        made.send(b"x" * SIZE)
    for number in range(HELD + ACKNOWLEDGED):
        message = consumer.receive(30_000)
        if number < ACKNOWLEDGED:
            consumer.acknowledge(message)
    yield made
    client.close()


def metrics(server: StandaloneProcess) -> dict[tuple[str, str | None], float]:
    """Return the values of the topic's metrics, by name and subscription."""
    found: dict[tuple[str, str | None], float] = {}
    for family in text_string_to_metric_families(web.get(f"{server.web}/metrics").text):
        for sample in family.samples:
            if sample.labels.get("topic") == TOPIC:
                key = sample.name, sample.labels.get("subscription")
                found[key] = found.get(key, 0) + sample.value
    return found


def bytes_of(size: int) -> str:
    """Return bytes as the console writes them, below a megabyte."""
    shown = size / 1024
    digits = f"{shown:.0f}" if shown >= 100 or shown == int(shown) else f"{shown:.{1 if shown >= 10 else 2}f}"
    return re.sub(r"(\.\d)0$", r"\1", digits) + " KB"


def shown(where: Locator) -> dict[str, str]:
    """Return the figures of a list of facts by name."""
    pairs = where.evaluate(
        "list => [...list.querySelectorAll('div')].map(e => [...e.children].map(c => c.textContent))"
    )
    return {each[0]: each[1] for each in pairs}


def in_rest(found: dict[str, Any]) -> dict[tuple[str, str | None], float]:
    """Return the values of the statistics, by the names of the metrics."""
    values: dict[tuple[str, str | None], float] = {
        ("pulsar_in_messages_total", None): found["msgInCounter"],
        ("pulsar_storage_size", None): found["storageSize"],
        ("pulsar_storage_backlog_size", None): found["backlogSize"],
        ("pulsar_subscriptions_count", None): len(found["subscriptions"]),
        ("pulsar_producers_count", None): len(found["publishers"]),
        ("pulsar_msg_backlog", None): sum(each["msgBacklog"] for each in found["subscriptions"].values()),
    }
    for name, each in found["subscriptions"].items():
        values["pulsar_subscription_back_log", name] = each["msgBacklog"]
        values["pulsar_subscription_unacked_messages", name] = each["unackedMessages"]
        values["pulsar_subscription_consumers_count", name] = len(each["consumers"])
    return values


def test_figures_of_a_topic_are_those_of_the_rest_and_of_the_metrics(
    look: Look, server: StandaloneProcess, producer: pulsar.Producer
) -> None:
    def settled() -> bool:
        held = stats(server, TOPIC)["subscriptions"]["held"]
        return bool(held["msgBacklog"] == held["unackedMessages"] == SENT - ACKNOWLEDGED)

    wait_until(settled)
    rest = stats(server, TOPIC)
    values, measured = in_rest(rest), metrics(server)
    assert {key: measured.get(key) for key in values} == values
    held, late = rest["subscriptions"]["held"], rest["subscriptions"]["late"]
    assert (held["msgBacklog"], late["msgBacklog"], rest["msgInCounter"]) == (SENT - ACKNOWLEDGED, SENT, SENT)
    assert held["consumers"][0]["availablePermits"] == QUEUE - SENT

    look.go("topics?search=figures")
    row = look.page.locator(".topic-row:not(.head)").first
    cells = [str(SENT), bytes_of(rest["storageSize"]), "1", "2", "1"]
    for place, text in enumerate(cells, 3):
        expect(row.get_by_role("cell").nth(place)).to_have_text(text)

    look.topic(TOPIC)
    facts = look.page.locator("main .facts")
    expect(facts).to_contain_text("Storage")
    found = shown(facts)
    assert found["Storage"] == bytes_of(rest["storageSize"])
    assert found["Backlog size"] == bytes_of(rest["backlogSize"])
    assert (found["Backlog"], found["Messages in"], found["Subscriptions"], found["Producers"]) == (
        str(SENT),
        str(rest["msgInCounter"]),
        "2",
        "1",
    )

    look.topic(TOPIC, "subscriptions")
    for name, each in rest["subscriptions"].items():
        card = look.page.locator("main section.card").filter(has=look.page.get_by_role("heading", name=name)).first
        expect(card.locator(".facts").first).to_contain_text("Lag")
        found = shown(card.locator(".facts").first)
        permits = sum(consumer["availablePermits"] for consumer in each["consumers"])
        assert found["Lag"] == str(each["msgBacklog"])
        assert found["Lag in bytes"] == bytes_of(each["backlogSize"])
        assert found["Unacknowledged"] == str(each["unackedMessages"])
        assert found["Permits"] == str(permits)
        assert found["Consumers"] == str(len(each["consumers"]))


def test_a_rate_is_the_difference_of_the_counter_by_the_time_between_two_looks(
    look: Look, server: StandaloneProcess, producer: pulsar.Producer
) -> None:
    """The page has a clock that the test sets, so a look comes exactly two seconds after the one before it."""
    look.page.clock.install()
    look.page.clock.pause_at("2100-01-01T00:00:00")
    look.topic(TOPIC)
    facts = look.page.locator("main .facts")
    before = stats(server, TOPIC)["msgInCounter"]
    expect(facts).to_contain_text(f"Messages in{before}")
    for _ in range(30):
        producer.send(b"x" * SIZE)
    after = stats(server, TOPIC)
    assert metrics(server)["pulsar_in_messages_total", None] == after["msgInCounter"] == before + 30
    look.page.clock.run_for(LOOK_MS)
    expect(facts).to_contain_text(f"Messages in{after['msgInCounter']}")
    expect(look.page.locator("section.chart").first.locator("dd")).to_have_text("15/s")
