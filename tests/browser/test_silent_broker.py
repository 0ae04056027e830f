"""The page of topics while a broker of the cluster is suspended: it is registered, and does not answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping

import pulsar
import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.looking import Look, looking_at
from tests.support import web
from tests.support.waiting import wait_until
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan

pytestmark = [pytest.mark.cluster, pytest.mark.full]

TOPICS = [f"persistent://public/default/quiet-{number:02}" for number in range(12)]
SESSION_MS = 120_000
"""Longer than the test suspends the broker: its bundles must stay its own."""
SLOW_MS = 60_000
"""The other broker waits 5 s for the one that is suspended, and less often looks."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("silent") / "cluster"
    conf: Mapping[Kind, Mapping[str, object]] = {Kind.ZOOKEEPER: {"maxSessionTimeout": SESSION_MS}}
    plan = Plan(bookies=1, brokers=2, recoveries=0, session_timeout_ms=SESSION_MS, conf=conf)
    made = LocalCluster.make(folder, plan)
    try:
        made.up()
        yield made
        made.refresh()
        assert not made.errors()
    finally:
        made.refresh()
        made.abandon()
        shutil.rmtree(folder)


@pytest.fixture
def look(browser: Browser, cluster: LocalCluster) -> Iterator[Look]:
    with looking_at(browser, cluster.web_urls[0]) as made:
        yield made


def owners(cluster: LocalCluster) -> dict[str, str]:
    """Return the web address of the broker of each topic."""
    found = {}
    for topic in TOPICS:
        path = topic.replace("://", "/")
        found[topic] = web.get(f"{cluster.web_urls[0]}/lookup/v2/topic/{path}").json()["httpUrl"]
    return found


def test_topics_of_a_suspended_broker_have_no_answer_and_the_page_stays_usable(
    look: Look, cluster: LocalCluster
) -> None:
    first, second = cluster.web_urls
    client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    for topic in TOPICS:
        client.create_producer(topic).send(b"x")
    served = owners(cluster)
    if set(served.values()) == {first} or set(served.values()) == {second}:
        # One broker has all bundles: it gives the one of a topic to the other.
        [one] = set(served.values())
        other = second if one == first else first
        path = TOPICS[0].replace("://", "/")
        bundle = web.get(f"{one}/lookup/v2/topic/{path}/bundle").text
        target = other.partition("://")[2]
        unload = f"{one}/admin/v2/namespaces/public/default/{bundle}/unload?destinationBroker={target}"
        web.request("PUT", unload).raise_for_status()
        wait_until(lambda: owners(cluster)[TOPICS[0]] == other)
        served = owners(cluster)
    mine = next(topic for topic, url in served.items() if url == first)
    lost = next(topic for topic, url in served.items() if url == second)

    def row(topic: str) -> Locator:
        return look.page.locator(".topic-row:not(.head)").filter(has_text=topic.rpartition("/")[2]).first

    look.go("topics?search=quiet")
    silent = cluster.nodes(Kind.BROKER)[1]
    expect(row(lost)).to_contain_text("1 B", timeout=SLOW_MS)
    cluster.pause(silent)
    try:
        expect(row(lost)).to_contain_text("no answer from its broker", timeout=SLOW_MS)
        expect(row(lost).get_by_role("cell").nth(2)).to_have_text("–")
        expect(row(mine)).not_to_contain_text("no answer")
        look.shows("do not answer: they are not in these numbers.")
        expect(look.page.locator(".live-state")).to_have_text("live")
        look.accessible()
        look.picture("cluster-silent")
        look.narrow()
        look.page.emulate_media(color_scheme="dark")
        look.accessible()
        look.picture("cluster-silent-narrow")
        look.page.set_viewport_size({"width": 1440, "height": 900})
        look.page.emulate_media(color_scheme="light")
        # The page is sorted and searched, other pages open, and only what that broker has is missing.
        look.page.get_by_role("columnheader", name="Storage").get_by_role("button").click()
        expect(look.page.locator(".topic-row:not(.head)").first).to_be_visible(timeout=SLOW_MS)
        look.page.get_by_label("Search").fill(mine.rpartition("/")[2])
        expect(look.page.locator(".topic-row:not(.head)")).to_have_count(1, timeout=SLOW_MS)
        row(mine).get_by_role("link").click()
        look.shows("Last publish")
        look.go("brokers")
        look.shows("2 brokers serve")
    finally:
        cluster.resume(silent)
    look.go("topics?search=quiet")
    expect(row(lost)).to_contain_text("public/default")
    expect(row(lost)).not_to_contain_text("no answer", timeout=SLOW_MS)
    client.close()
