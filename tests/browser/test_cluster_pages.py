"""The pages of the cluster on a standalone server, which has one broker and one bookie and says so."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pulsar
import pytest
from playwright.sync_api import expect

from tests.browser.looking import Look
from tests.support import web
from tests.support.server import StandaloneProcess

pytestmark = pytest.mark.cluster

TOPICS = [f"persistent://public/default/orders-{number}" for number in range(4)]
ADMIN = "/admin/v2/namespaces/public/default"


@pytest.fixture(scope="module", autouse=True)
def topics(server: StandaloneProcess) -> Iterator[None]:
    """Topics with a message and a subscription each."""
    client = pulsar.Client(server.url)
    kept = []
    for topic in TOPICS:
        kept.append(client.subscribe(topic, "billing"))
        kept.append(client.create_producer(topic))
        kept[-1].send(b"x" * 1000)
    yield
    client.close()


def bundles(server: StandaloneProcess) -> int:
    count: int = web.get(f"{server.web}{ADMIN}/bundles").json()["numBundles"]
    return count


def checked(look: Look) -> None:
    """Check a page with axe in light and dark, and that it fits a narrow screen."""
    look.accessible()
    look.page.emulate_media(color_scheme="dark")
    look.accessible()
    look.narrow()


def test_a_bundle_is_split_and_unloaded_from_the_ring(look: Look, server: StandaloneProcess) -> None:
    before = bundles(server)
    look.go("brokers")
    look.shows("1 broker serves")
    look.shows("this one")
    slices = look.page.locator("svg.ring g[role=button]")
    expect(slices).to_have_count(before)
    in_the_middle = "path => path.isPointInFill(new DOMPoint(0, 0))"
    assert before == 1
    assert not slices.first.locator("path").evaluate(in_the_middle), "the one bundle covers the number of bundles"
    slices.first.focus()
    look.page.keyboard.press("Enter")
    expect(slices.first).to_have_attribute("aria-pressed", "true")
    detail = look.page.locator(".ring-detail")
    expect(detail.get_by_text("orders-0")).to_be_visible()
    detail.get_by_role("button", name="Split…").click()
    look.confirm("Split")
    look.shows("split", "#toasts")
    expect(slices).to_have_count(before + 1)
    assert bundles(server) == before + 1
    rows = look.page.get_by_role("row").filter(has=look.button("Unload…"))
    expect(rows).to_have_count(before + 1)
    rows.first.get_by_role("button", name="Unload…").click()
    look.shows("Clients of the", "dialog")
    look.confirm("Unload")
    look.shows("unloaded", "#toasts")
    slices.nth(1).press("Enter")
    checked(look)


def test_a_split_that_is_refused_says_why_and_changes_nothing(look: Look, server: StandaloneProcess) -> None:
    before = bundles(server)
    look.go("brokers")
    look.button("Split…").first.click()
    dialog = look.page.locator("dialog[open]")
    dialog.get_by_role("combobox").select_option("flow_or_qps_equally_divide")
    dialog.get_by_role("button", name="Split", exact=True).click()
    expect(dialog.locator(".notice")).to_contain_text("range_equally_divide")
    look.expected.append("412")
    dialog.get_by_role("button", name="Cancel").click()
    assert bundles(server) == before


def test_a_namespace_that_does_not_exist_is_named(look: Look) -> None:
    look.go("brokers")
    look.page.get_by_label("Namespace", exact=True).fill("public/none")
    look.button("Show").click()
    look.shows("Not found, or not permitted")
    look.expected.append("404")


def test_the_map_has_each_ledger_and_says_that_all_were_examined(look: Look) -> None:
    look.go("ledgers")
    look.shows(re.compile(r"Examined (\d+) of \1 ledgers"))
    table = look.page.get_by_role("group", name="Ledgers on bookies")
    for topic in TOPICS:
        expect(table.get_by_role("link", name=topic.removeprefix("persistent://"), exact=True).first).to_be_visible()
    expect(table.get_by_text("copies", exact=True).first).to_be_attached()
    look.shows("Auto recovery never ran on this cluster.")
    checked(look)


def test_the_ledgers_of_one_topic_are_shown(look: Look) -> None:
    look.go(f"ledgers?topic={quote(TOPICS[1], safe='')}")
    look.shows(f"Ledgers 1 to 1 of 1 of {TOPICS[1]}.")
    expect(look.page.get_by_role("group", name="Ledgers on bookies").locator("tbody tr")).to_have_count(1)


def test_the_bookie_has_its_disk(look: Look, server: StandaloneProcess) -> None:
    look.go("bookies")
    look.shows("1 writable")
    expect(look.page.get_by_role("meter")).to_have_attribute("aria-valuetext", re.compile("of .* used, .* free"))
    look.page.get_by_text("Folders and thresholds").click()
    look.shows(str(server.data / "bookie" / "ledgers"))
    checked(look)


def test_the_loss_of_the_one_bookie_would_lose_everything(look: Look) -> None:
    look.go("bookies")
    look.page.get_by_role("link", name="What if it went?").click()
    look.shows("Some entries could not be read any more")
    look.shows("New ledgers could not be made")
    checked(look)


def test_a_warning_appears_while_the_page_is_open(look: Look, server: StandaloneProcess) -> None:
    look.go("logs")
    look.shows("reached")
    with socket.create_connection(("127.0.0.1", server.port)) as garbage:
        garbage.sendall(b"\xff" * 64)
        look.shows("connection closed: protocol violation")
    checked(look)
    look.page.get_by_label("Search").fill("no such text")
    look.shows("No line matches.")


def test_the_pages_can_be_reached_by_keyboard(look: Look) -> None:
    look.go("topics")
    for key, title in (("b", "Brokers"), ("k", "Bookies"), ("l", "Ledgers"), ("w", "Logs")):
        look.page.keyboard.press("g")
        look.page.keyboard.press(key)
        expect(look.page.get_by_role("heading", name=title, level=1)).to_be_visible()
