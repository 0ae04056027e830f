"""Pages of topics: each page, each action."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pulsar
import pytest
from playwright.sync_api import Route, expect

from tests.browser.looking import Look
from tests.browser.samples import ORDERS, PARTS, STUCK, path, plant, stats
from tests.support import web
from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def client(server: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = plant(server)
    yield made
    made.close()


def lag(server: StandaloneProcess, subscription: str, topic: str = ORDERS) -> int:
    found: int = stats(server, topic)["subscriptions"][subscription]["msgBacklog"]
    return found


def test_topics_are_listed_sorted_and_filtered_at_the_server(look: Look):
    look.go("topics")
    rows = look.page.locator(".topic-row:not(.head)")
    expect(rows).to_have_count(4)
    expect(look.page.locator(".live-state")).to_have_text("live")
    look.shows("public/default · 3 partitions")
    look.accessible()
    look.picture("topics")
    look.page.get_by_role("columnheader", name="Backlog").get_by_role("button").click()
    expect(rows.first).to_contain_text("stuck")
    look.page.get_by_label("Search").fill("ORD")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("orders")
    assert "search=ORD" in look.page.url
    look.page.get_by_label("Search").fill("")
    look.page.get_by_label("Show").select_option("unconsumed")
    look.shows("No topic matches.")
    look.page.get_by_label("Show").select_option("backlog")
    expect(rows).to_have_count(2)
    look.narrow()
    look.accessible()


def test_a_live_rate_appears_without_a_click(look: Look, client: pulsar.Client):
    producer = client.create_producer("persistent://public/default/raw", batching_enabled=False)
    look.go("topics?search=raw")
    row = look.page.locator(".topic-row:not(.head)").first
    expect(row).to_contain_text("raw")
    for _ in range(200):
        producer.send_async(b"x", None)
    producer.flush()
    expect(row.locator(".spark .line")).to_be_attached()


def test_a_topic_is_created_and_deleted_after_its_name_is_typed(look: Look):
    look.go("topics")
    look.button("Create topic").click()
    look.accessible()
    look.page.get_by_label("Name", exact=True).fill("made")
    look.page.get_by_label("Partitions").fill("2")
    look.confirm("Create")
    look.shows("persistent://public/default/made was created.", "#toasts")
    look.topic("persistent://public/default/made")
    look.button("Add partitions").click()
    look.confirm("Add")
    look.shows("persistent, 3 partitions")
    look.button("Delete").click()
    look.confirm("Delete", "made")
    expect(look.page.locator("main h1")).to_have_text("Topics")
    assert web.get(f"{look.base}{path('persistent://public/default/made')}/partitions").status_code == 404


def test_the_page_of_a_topic_shows_its_numbers(look: Look):
    look.topic(ORDERS)
    look.shows("Messages in")
    expect(look.page.locator("main .facts")).to_contain_text("Subscriptions2")
    look.accessible()
    look.picture("topic")
    look.page.get_by_role("tab", name="Overview").focus()
    look.page.keyboard.press("ArrowRight")
    expect(look.page.get_by_role("tab", name="Subscriptions")).to_have_attribute("aria-selected", "true")
    look.topic(PARTS)
    look.shows("persistent, 3 partitions")
    expect(look.page.locator("tbody tr")).to_have_count(3)
    look.narrow()


def test_a_subscription_that_stands_still_is_explained_with_its_remedy(look: Look):
    look.topic(STUCK, "subscriptions")
    look.shows("blocked")
    look.shows("Acknowledge messages in this consumer")
    expect(look.page.locator("main .facts")).to_contain_text("Lag20")
    look.accessible()
    look.picture("subscriptions")
    look.narrow()
    look.accessible()


def test_messages_are_skipped_cursors_reset_and_subscriptions_made_and_deleted(look: Look, server: StandaloneProcess):
    look.topic(ORDERS, "subscriptions")
    look.shows("spare")
    before = lag(server, "spare")
    assert before > 0
    look.button("Skip all: spare").click()
    look.accessible()
    look.confirm("Skip all", "spare")
    assert lag(server, "spare") == 0
    look.button("Reset…: spare").click()
    look.page.get_by_label("To", exact=True).select_option("earliest")
    look.confirm("Reset")
    assert lag(server, "spare") == before
    look.button("Skip…: spare").click()
    look.confirm("Skip")
    assert lag(server, "spare") == before - 1
    look.button("Reset…: spare").click()
    look.page.get_by_label("Time (published").fill("2020-01-01T00:00")
    look.confirm("Reset")
    assert lag(server, "spare") == before
    look.button("Reset…: spare").click()
    look.page.get_by_label("To", exact=True).select_option("id")
    look.page.get_by_label("Message id").fill("nonsense")
    look.button("Reset").click()
    look.shows("A message id is ledger:entry", "dialog")
    look.page.get_by_label("Message id").fill("0:0")
    look.confirm("Reset")
    look.button("Reset…: spare").click()
    look.page.get_by_label("To", exact=True).select_option("latest")
    look.confirm("Reset")
    assert lag(server, "spare") == 0
    web.request("POST", f"{server.web}{path(ORDERS)}/subscription/spare/resetcursor", json="earliest")
    look.button("Expire…: spare").click()
    look.page.get_by_label("Older than seconds").fill("100000")
    look.confirm("Expire")
    assert lag(server, "spare") == before, "nothing is so old"
    look.button("Expire…: spare").click()
    look.page.get_by_label("Older than seconds").fill("1")
    look.confirm("Expire")
    look.shows("Old messages of spare expire.", "#toasts")
    wait_until(lambda: lag(server, "spare") == 0)
    look.button("Create subscription").click()
    look.page.get_by_label("Name", exact=True).fill("new")
    look.page.get_by_label("Begins at").select_option("earliest")
    look.confirm("Create")
    look.shows("new")
    assert lag(server, "new") == before
    look.button("Delete: new").click()
    look.confirm("Delete", "new")
    expect(look.button("Delete: new")).to_have_count(0)
    assert "new" not in stats(server, ORDERS)["subscriptions"]


def test_messages_are_decoded_found_by_key_and_text_and_never_acknowledged(look: Look, server: StandaloneProcess):
    before = stats(server, ORDERS)["subscriptions"]
    look.topic(ORDERS, "messages")
    messages = look.page.locator(".messages > li")
    expect(messages).to_have_count(40)
    look.shows('"customer": "customer 39"')
    look.page.get_by_label("Key", exact=True).fill("key-3")
    look.button("Read").click()
    expect(messages).to_have_count(10)
    look.page.get_by_label("Text", exact=True).fill("customer 7")
    look.button("Read").click()
    expect(messages).to_have_count(1)
    messages.first.locator("summary").click()
    look.shows('"amount": 10.5')
    expect(messages.first).to_contain_text("LZ4")
    expect(messages.first).to_contain_text("8 of 40")
    expect(messages.first).to_contain_text("2023-11-14")
    expect(messages.first.locator(".pairs")).to_contain_text("sourceweb")
    look.accessible()
    look.picture("messages")
    look.narrow()
    look.accessible()
    after = stats(server, ORDERS)["subscriptions"]
    for name in before:
        assert after[name]["msgBacklog"] == before[name]["msgBacklog"]
        assert after[name]["unackedMessages"] == before[name]["unackedMessages"]
    look.topic("persistent://public/default/raw", "messages")
    look.page.get_by_label("Begin").select_option("earliest")
    look.button("Read").click()
    look.shows("plain text")
    look.shows("00 01 02 03")
    look.page.get_by_label("Begin").select_option("time")
    look.page.get_by_label("Published at or after").fill("2099-01-01T00:00")
    look.button("Read").click()
    look.shows("No messages here.")
    look.page.get_by_label("Published at or after").fill("2001-01-01T00:00")
    look.button("Read").click()
    expect(messages.first).to_contain_text("plain text")
    internal = web.get(f"{server.web}{path('persistent://public/default/raw')}/internalStats").json()
    look.page.get_by_label("Begin").select_option("id")
    look.page.get_by_label("Message id").fill(f"{internal['ledgers'][0]['ledgerId']}:1")
    look.button("Read").click()
    expect(messages.first).to_contain_text('"a"')
    expect(look.page.locator(".messages").first).not_to_contain_text("plain text")


def test_policies_of_a_topic_and_of_a_namespace_are_edited_and_removed(look: Look, server: StandaloneProcess):
    for address, base in (
        (lambda: look.topic(ORDERS, "policies"), f"{server.web}{path(ORDERS)}"),
        (lambda: look.go("namespace/public%2Fdefault"), f"{server.web}/admin/v2/namespaces/public/default"),
    ):
        address()
        look.button("Edit Retention").click()
        look.page.get_by_label("Minutes").fill("90")
        look.page.get_by_label("Size in MB").fill("-1")
        look.confirm("Save")
        look.shows("Minutes: 90 · Size in MB: -1")
        assert web.get(f"{base}/retention").json() == {"retentionTimeInMinutes": 90, "retentionSizeInMB": -1}
        look.button("Edit Message TTL").click()
        look.page.get_by_label("Seconds").fill("86400")
        look.confirm("Save")
        look.shows("86400")
        look.accessible()
        look.button("Remove Retention").click()
        look.confirm("Remove")
        expect(look.button("Remove Retention")).to_have_count(0)
        assert not web.get(f"{base}/retention").content
        look.narrow()
        look.page.set_viewport_size({"width": 1440, "height": 900})


RATE_FIELDS = {"Messages per second (-1: no limit)": "7", "Period in seconds": "3"}
RATE = {
    "dispatchThrottlingRateInMsg": 7,
    "dispatchThrottlingRateInByte": -1,
    "ratePeriodInSecond": 3,
    "relativeToPublishRate": False,
}
FORMS: tuple[tuple[str, dict[str, Any], str, Any], ...] = (
    (
        "Backlog quota",
        {"Bytes (-1: no limit)": "5000", "Then": "consumer_backlog_eviction"},
        "backlogQuotaMap",
        {"destination_storage": {"limitSize": 5000, "limitTime": -1, "policy": "consumer_backlog_eviction"}},
    ),
    (
        "Publish rate",
        {"Messages per second (-1: no limit)": "7", "Bytes per second (-1: no limit)": "8"},
        "publishRate",
        {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": 8},
    ),
    ("Dispatch rate", RATE_FIELDS, "dispatchRate", RATE),
    ("Subscription dispatch rate", RATE_FIELDS, "subscriptionDispatchRate", RATE),
    (
        "Subscribe rate",
        {"Times per period (-1: no limit)": "9", "Period in seconds": "30"},
        "subscribeRate",
        {"subscribeThrottlingRatePerConsumer": 9, "ratePeriodInSecond": 30},
    ),
    (
        "Persistence",
        {"Changes of a position per second (0: no limit)": "0.5"},
        "persistence",
        {"bookkeeperEnsemble": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": 0.5},
    ),
    ("Deduplication", {"Drop duplicates": False}, "deduplicationEnabled", False),
    ("Compaction threshold", {"Bytes (0: not by itself)": "900"}, "compactionThreshold", 900),
    ("Producers of a topic", {"Producers (0: no limit)": "11"}, "maxProducers", 11),
    ("Consumers of a topic", {"Consumers (0: no limit)": "12"}, "maxConsumers", 12),
    ("Consumers of a subscription", {"Consumers (0: no limit)": "13"}, "maxConsumersPerSubscription", 13),
    ("Subscriptions of a topic", {"Subscriptions (0: no limit)": "14"}, "maxSubscriptionsPerTopic", 14),
    ("Unacknowledged, consumer", {"Messages (0: no limit)": "15"}, "maxUnackedMessagesOnConsumer", 15),
    ("Unacknowledged, subscription", {"Messages (0: no limit)": "16"}, "maxUnackedMessagesOnSubscription", 16),
    ("Subscription expiration", {"Minutes (0: never)": "17"}, "subscriptionExpirationTime", 17),
    (
        "Delayed delivery",
        {"Delayed delivery is on": False, "Tick in ms": "500"},
        "delayedDelivery",
        {"active": False, "tickTime": 500},
    ),
    ("Schema compatibility", {"Strategy": "BACKWARD"}, "schemaCompatibilityStrategy", "BACKWARD"),
)
OF_NAMESPACE: tuple[tuple[str, dict[str, Any], str, Any], ...] = (
    ("Compaction threshold", {"Bytes (0: not by itself)": "800"}, "compactionThreshold", 800),
    ("Deduplication", {"Drop duplicates": True}, "deduplication", True),
    ("Topics of the namespace", {"Topics (0: no limit)": "18"}, "maxTopicsPerNamespace", 18),
    ("Schema compatibility", {"Strategy": "FORWARD"}, "schemaCompatibilityStrategy", "FORWARD"),
)


def has(found: Any, expected: Any) -> bool:
    """Return whether an answer has what is expected, and perhaps more fields."""
    if isinstance(expected, dict):
        return all(has(found.get(name), value) for name, value in expected.items())
    return bool(found == expected and type(found) is type(expected))


@pytest.mark.full
def test_each_form_of_a_policy_stores_what_is_entered(look: Look, server: StandaloneProcess):
    topic = "persistent://public/ruled/topic"
    web.request("PUT", f"{server.web}/admin/v2/namespaces/public/ruled", json={}).raise_for_status()
    web.request("PUT", f"{server.web}{path(topic)}", json={}).raise_for_status()
    for address, base, forms in (
        (f"topic/{quote(topic, safe='')}/policies", path(topic), FORMS),
        ("namespace/public%2Fruled", "/admin/v2/namespaces/public/ruled", OF_NAMESPACE),
    ):
        look.go(address)
        for title, fields, resource, expected in forms:
            look.button(f"Edit {title}").click()
            for label, value in fields.items():
                field = look.page.locator("dialog").get_by_label(label, exact=True)
                if isinstance(value, bool):
                    field.set_checked(value)
                elif label in ("Then", "Strategy"):
                    field.select_option(value)
                else:
                    field.fill(value)
            look.confirm("Save")
            found = web.get(f"{server.web}{base}/{resource}").json()
            assert has(found, expected), (title, found)
            expect(look.button(f"Remove {title}")).to_have_count(int(title != "Schema compatibility" or forms is FORMS))


def test_a_topic_that_is_not_persistent_has_its_page(look: Look, client: pulsar.Client):
    name = "non-persistent://public/default/direct"
    consumer = client.subscribe(name, "watching")
    producer = client.create_producer(name, producer_name="direct-producer")
    producer.send(b"x")
    look.go("topics?search=direct")
    row = look.page.locator(".topic-row:not(.head)")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("public/default · non-persistent")
    row.get_by_role("link").click()
    look.shows("direct-producer")
    expect(look.page.locator("main .lead")).to_have_text("non-persistent")
    expect(look.page.locator("main .facts")).to_contain_text("Messages in1")
    expect(look.page.get_by_role("tab")).to_have_count(2)
    look.accessible()
    look.page.get_by_role("tab", name="Subscriptions").click()
    look.shows("watching")
    expect(look.page.locator("main .facts")).to_contain_text("Consumers1")
    expect(look.button("Skip all: watching")).to_have_count(0)
    consumer.close()
    producer.close()
    look.button("Delete").click()
    look.confirm("Delete", "direct")
    expect(look.page.locator("main h1")).to_have_text("Topics")


def test_an_invalid_policy_stays_in_its_dialog_with_the_reason(look: Look):
    look.expected.append("412")
    look.topic(ORDERS, "policies")
    look.button("Edit Persistence").click()
    look.page.get_by_label("Bookies of a ledger").fill("5")
    look.page.get_by_label("Copies", exact=True).fill("5")
    look.button("Save").click()
    look.shows("This cannot be shown now", "dialog")
    look.page.keyboard.press("Escape")
    expect(look.page.locator("dialog")).to_have_count(0)
    expect(look.button("Edit Persistence")).to_be_focused()


def test_schemas_and_internals_are_shown(look: Look):
    look.topic(ORDERS, "schema")
    look.shows("Version 0")
    look.shows('"customer"')
    look.accessible()
    look.button("Add version").click()
    look.page.get_by_label("Definition").fill("{")
    look.expected.append("422")
    look.button("Add").click()
    look.shows("This cannot be shown now", "dialog")
    look.page.keyboard.press("Escape")
    look.topic(ORDERS, "internal")
    look.shows("Last confirmed")
    look.shows("audit")
    look.accessible()
    look.narrow()


def test_namespaces_are_listed_created_and_deleted(look: Look):
    look.go("namespaces")
    look.shows("public/default")
    look.accessible()
    look.button("Create namespace").click()
    look.page.get_by_label("Namespace", exact=True).fill("public/made")
    look.confirm("Create")
    look.page.get_by_role("link", name="public/made").click()
    look.shows("Policies of the namespace")  # all were read before it is gone
    look.button("Delete").click()
    look.confirm("Delete", "public/made")
    expect(look.page.locator("main h1")).to_have_text("Namespaces")
    expect(look.page.get_by_role("link", name="public/made")).to_have_count(0)


def test_what_is_missing_is_said_plainly(look: Look):
    look.expected.append("404")
    look.topic("persistent://public/default/nothing-here")
    look.shows("Not found, or not permitted")
    look.go("nowhere")
    look.shows("There is no such page.")
    look.accessible()


def test_a_topic_is_unloaded(look: Look):
    look.topic("persistent://public/default/raw")
    look.button("Unload").click()
    look.confirm("Unload")
    look.shows("raw was unloaded.", "#toasts")


def test_the_dark_theme_has_its_contrasts(look: Look):
    look.page.emulate_media(color_scheme="dark")
    for address, name in (("topics", "topics-dark"), ("", "messages-dark")):
        if address:
            look.go(address)
            look.shows("orders")
        else:
            look.topic(ORDERS, "messages")
            look.page.locator(".messages summary").first.click()
            look.shows("Sequence id")
        look.accessible()
        look.picture(name)


def test_100_000_topics_are_scrolled_through_without_a_pause(look: Look):
    """The answers are made up here; how long the server needs for them is measured in test_topic_table."""
    numbers = ("messagesIn", "bytesIn", "messagesOut", "bytesOut", "backlog", "storage", "producers", "consumers")
    more = dict.fromkeys((*numbers, "subscriptions", "partitions"), 0) | {"loaded": 1, "curve": []}

    def answer(route: Route) -> None:
        asked = parse_qs(urlsplit(route.request.url).query)
        first, limit = int(asked["from"][0]), int(asked["limit"][0])
        places = range(first, min(first + limit, 100_000))
        rows = [{"topic": f"persistent://public/default/topic-{at:06}", **more} for at in places]
        route.fulfill(
            json={"rows": rows, "from": first, "matching": 100_000, "total": 100_000, "totals": {}, "atMs": 1}
        )

    look.page.route("**/console/api/topics?*", answer)
    look.page.route(
        "**/console/api/topic-events?*", lambda route: route.fulfill(body="", content_type="text/event-stream")
    )
    look.go("topics")
    look.shows("100,000 topics")
    look.page.evaluate(
        "window.long = []; new PerformanceObserver(all => all.getEntries().forEach("
        "each => window.long.push(each.duration))).observe({type: 'longtask'})"
    )
    scroller = look.page.locator(".virtual")
    for share in (0.25, 0.5, 0.99, 1.0):
        scroller.evaluate(f"each => each.scrollTop = each.scrollHeight * {share}")
        expect(look.page.locator(".topic-row:not(.head) a[href]").first).to_be_visible()
    look.shows("topic-099999")
    assert look.page.locator(".topic-row").count() < 60
    # On a machine that is busy with other tests a task takes several times as long.
    assert max(look.page.evaluate("window.long"), default=0) < 500
