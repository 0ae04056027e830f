"""Markup in names, keys, properties and payloads is text on each page that shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest
from playwright.sync_api import expect

from tests.browser.looking import Look
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.cluster

MARKUP = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'
NAME = "<b id=planted>grün"
TOPIC = f"persistent://public/default/{NAME}"


@pytest.fixture(scope="module", autouse=True)
def client(server: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    made.subscribe(TOPIC, MARKUP.replace("/", ""), properties={MARKUP: MARKUP}).close()
    producer = made.create_producer(TOPIC, producer_name=MARKUP)
    for value in (MARKUP.encode(), b'{"a": "%s"}' % MARKUP.replace('"', "'").encode()):
        producer.send(value, partition_key=MARKUP, properties={MARKUP: MARKUP})
    yield made
    made.close()


@pytest.mark.parametrize("tab", ["topics", "", "messages", "subscriptions", "policies", "schema"])
def test_markup_is_shown_as_text(look: Look, tab: str):
    if tab == "topics":
        look.go("topics")
    else:
        look.topic(TOPIC, tab)
    look.shows(NAME)
    if tab == "messages":
        look.shows("window.hit")
    expect(look.page.locator("#planted, main img, main script, [onerror]")).to_have_count(0)
    assert look.page.evaluate("window.hit") is None
