"""The tour of docs/tour.md: its commands, as a newcomer types them, and what the console shows between them.

`QUIRE_SCREENSHOTS=docs/tour` writes the pictures that the page has.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.looking import Look
from tests.support.pages.walk import Walk
from tests.support.server import free_port

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tour.md"
ORDERS = "persistent://public/default/orders"
TOUR_S = 300
"""Time that the tour may take a newcomer; reading is most of it."""
COMMANDS_S = 60
WORDS_PER_S = 200 / 60


def test_the_tour(browser: Browser, tmp_path: Path) -> None:
    binary, web_port = free_port(), free_port()
    url, service = f"http://127.0.0.1:{web_port}", f"pulsar://127.0.0.1:{binary}"
    names: dict[str, object] = {
        # (The only difference from a newcomer's machine: ports that no other test has.)
        "quire standalone --data-dir data": f"quire standalone --data-dir data --port {binary} --web-port {web_port}",
        "pulsar://127.0.0.1:6650": service,
        "http://127.0.0.1:8080": url,
    }
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme="light", reduced_motion="reduce", locale="en-GB"
    )
    folder = os.environ.get("QUIRE_SCREENSHOTS")
    look = Look(context.new_page(), url, None if folder is None else Path(folder))
    begun = time.monotonic()
    try:
        with Walk("tour.md", tmp_path / "tour", names, web=url, service=service) as tour:
            tour.section("Start")
            look.go("topics")
            tour.section("Make a topic")
            expect(look.page.locator(".topic-row:not(.head)").first).to_contain_text("orders")
            look.picture("topics")
            tour.section("Send messages, and see them")
            look.topic(ORDERS, "messages")
            look.button("Read").click()
            look.shows("coffee")
            look.picture("messages")
            for _ in range(2):  # the application that acknowledges nothing; the explanation
                tour.next()
            look.topic(ORDERS, "subscriptions")
            look.shows("blocked")
            look.shows("Acknowledge them, or reconnect the consumer")
            look.picture("stuck")
            tour.section("Why does it stand still?")
            expect(look.page.get_by_text("Acknowledge them, or reconnect the consumer")).to_have_count(0)
            look.go("topics")
        look.check()
    finally:
        context.close()
    assert time.monotonic() - begun < COMMANDS_S
    assert len(PAGE.read_text().split()) / WORDS_PER_S + COMMANDS_S < TOUR_S, "it takes more than five minutes to read"


def test_the_pictures_of_the_tour_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE.read_text())
    assert pictures == ["tour/topics.png", "tour/messages.png", "tour/stuck.png"]
    for each in pictures:
        assert (PAGE.parent / each).read_bytes().startswith(b"\x89PNG")
