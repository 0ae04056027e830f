"""Figures of a topic in the console, in the admin REST and in the metrics: one topic, and equal values."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest
from playwright.sync_api import Locator, expect
from prometheus_client.parser import text_string_to_metric_families

from tests.browser.looking import Look
from tests.browser.samples import stats
from tests.support import web
from tests.support.server import StandaloneProcess, standalone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

TOPIC = "persistent://public/default/figures"
SENT, HELD, ACKNOWLEDGED, QUEUE = 50, 7, 4, 200
SIZE = 1000
STEADY = "persistent://public/default/steady"
RATE = 100.0
LOOK_MS = 2000
"""Time between two looks of the page of a topic."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A server that measures the rates of its statistics every second."""
    with standalone(tmp_path_factory.mktemp("figures"), {"statsUpdateFrequencyInSecs": 1}) as started:
        yield started


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


def metrics(server: StandaloneProcess, topic: str = TOPIC) -> dict[tuple[str, str | None], float]:
    """Return the values of a topic's metrics, by name and subscription."""
    found: dict[tuple[str, str | None], float] = {}
    for family in text_string_to_metric_families(web.get(f"{server.web}/metrics").text):
        for sample in family.samples:
            if sample.labels.get("topic") == topic:
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


@contextmanager
def steady(url: str) -> Iterator[None]:
    """Send and consume RATE messages a second, evenly."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(STEADY, "s", message_listener=lambda consumer, message: consumer.acknowledge(message))
    made = client.create_producer(STEADY, batching_enabled=False)
    stop = threading.Event()

    def run() -> None:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            made.send_async(b"x" * SIZE, lambda *_: None)
            due += 1 / RATE

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        client.close()


@pytest.mark.full
def test_rates_of_the_table_are_those_of_the_rest_and_of_the_metrics(look: Look, server: StandaloneProcess) -> None:
    """They are measured over different seconds of an even load, so they are compared until they agree. The first look
    of a console takes over the rates of the statistics, so several must have come before."""
    look.go("topics?search=steady")
    row = look.page.locator(".topic-row:not(.head)").first
    seen: dict[str, tuple[float, ...]] = {}

    def several_looks() -> bool:
        points = row.locator("svg").get_attribute("data-points") or ""
        return len(points.split()) >= 4

    def agreed() -> bool:
        rest, measured = stats(server, STEADY), metrics(server, STEADY)
        cells = row.get_by_role("cell").all_text_contents()
        totals = shown(look.page.locator("main .figures"))
        for name, cell, there, metric in (
            ("Messages in", cells[1], "msgRateIn", "pulsar_rate_in"),
            ("Messages out", cells[2], "msgRateOut", "pulsar_rate_out"),
        ):
            seen[name] = number(cell.split()[-1]), number(totals[name]), rest[there], measured[metric, None]
        in_bytes = rest["msgThroughputIn"], measured["pulsar_throughput_in", None]
        seen["Bytes in"] = number(totals["Bytes in"]), *in_bytes
        return all(0 < max(each) <= 1.15 * min(each) for each in seen.values())

    with steady(server.url):
        expect(row).to_contain_text("steady")
        wait_until(several_looks)
        try:
            wait_until(agreed, "the rates agree")
        except AssertionError as error:
            raise AssertionError(f"rates of page, REST and metrics: {seen}") from error


def number(text: str) -> float:
    """Return a rate as the console writes it, below a million messages or a megabyte."""
    match = re.fullmatch(r"([0-9.]+)(k| B| KB)?/s", text)
    assert match is not None, text
    return float(match[1]) * {None: 1, "k": 1000, " B": 1, " KB": 1024}[match[2]]
