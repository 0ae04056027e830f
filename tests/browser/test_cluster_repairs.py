"""The pages of a real cluster: two brokers, four bookies, of which one is killed; the map, the repairs and the loss of
a bookie as they are then, until auto recovery has made all copies again."""

from __future__ import annotations

import re
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

BASE = "/console/api/cluster"
TOPICS = [f"persistent://public/default/orders-{number}" for number in range(12)]
RECOVERY = {
    "lostBookieRecoveryDelay": 0,
    "openLedgerRereplicationGracePeriod": 500,
    "rwRereplicateBackoffMs": 200,
    "replicationRateByBytes": 30_000,
}
"""At this rate some ten ledgers of 40 KB take seconds, so that progress is to be seen."""
PORTS = {"httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": 0}
QUORUMS = {
    "managedLedgerDefaultEnsembleSize": 3,
    "managedLedgerDefaultWriteQuorum": 3,
    "managedLedgerDefaultAckQuorum": 2,
}
REPAIRED_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("console") / "cluster"
    conf: Mapping[Kind, Mapping[str, object]] = {Kind.RECOVERY: RECOVERY, Kind.BOOKIE: PORTS, Kind.BROKER: QUORUMS}
    made = LocalCluster.make(folder, Plan(bookies=4, brokers=2, session_timeout_ms=2000, conf=conf))
    try:
        made.up()
        yield made
        made.refresh()
        assert not made.errors()
    finally:
        made.refresh()
        made.abandon()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[pulsar.Client]:
    """A client with a producer and a subscription on each topic, whose first ledgers are closed."""
    made = pulsar.Client(cluster.service_url)
    kept = []
    for topic in TOPICS:
        kept.append(made.subscribe(topic, "billing"))
        kept.append(made.create_producer(topic))
        for _ in range(20):
            kept[-1].send(b"x" * 2000)
    yield made
    made.close()


@pytest.fixture
def look(browser: Browser, cluster: LocalCluster, client: pulsar.Client) -> Iterator[Look]:
    with looking_at(browser, cluster.web_urls[0]) as made:
        yield made


def checked(look: Look, name: str) -> None:
    """Check a page with axe in light and dark, and that it fits a narrow screen; write two pictures of it."""
    for scheme in ("dark", "light"):
        look.page.emulate_media(color_scheme=scheme)
        look.accessible()
    look.picture(f"cluster-{name}")
    look.narrow()
    look.page.emulate_media(color_scheme="dark")
    look.picture(f"cluster-{name}-narrow")


def test_a_bundle_of_another_broker_is_unloaded_to_this_one(look: Look, cluster: LocalCluster) -> None:
    mine = cluster.web_urls[0].partition("://")[2]
    found = web.get(f"{look.base}{BASE}/bundles/public/default").json()
    elsewhere = next(each for each in found["bundles"] if each["broker"] not in (mine, None))
    look.go("brokers")
    look.shows("2 brokers serve")
    arc = look.page.locator("svg.ring g[role=button]").nth(found["bundles"].index(elsewhere))
    expect(arc).to_have_attribute("aria-label", re.compile(f"served by {elsewhere['broker']}"))
    arc.press("Enter")
    checked(look, "brokers")
    look.page.set_viewport_size({"width": 1440, "height": 900})
    detail = look.page.locator(".ring-detail")
    detail.get_by_role("button", name="Unload…").click()
    look.page.locator("dialog[open] select").select_option(mine)
    look.confirm("Unload")
    look.shows("unloaded", "#toasts")
    wait_until(
        lambda: any(
            each["range"] == elsewhere["range"] and each["broker"] == mine
            for each in web.get(f"{look.base}{BASE}/bundles/public/default").json()["bundles"]
        )
    )


def test_bookies_have_disks_and_thresholds_of_their_web_ports(look: Look) -> None:
    look.go("bookies")
    look.shows("4 writable")
    expect(look.page.get_by_role("meter")).to_have_count(4)
    look.page.get_by_text("Folders and thresholds").first.click()
    look.shows("quireDiskReserveMb")
    look.shows(re.compile(r"\d ms"))
    checked(look, "bookies")


def test_a_bookie_that_takes_no_entries_says_why(look: Look) -> None:
    found = web.get(f"{look.base}{BASE}/bookies").json()["bookies"]
    mode = f"{found[1]['webUrl']}/api/v1/bookie/state/readonly"
    web.request("PUT", mode, json={"readOnly": True}).raise_for_status()
    try:
        wait_until(lambda: web.get(f"{look.base}{BASE}/bookies").json()["bookies"][1]["reason"] != "")
        look.go("bookies")
        look.shows("3 writable")
        look.shows("It takes no entries")
        look.shows("an operator said so")
        checked(look, "read-only")
    finally:
        web.request("PUT", mode, json={"readOnly": False}).raise_for_status()
    wait_until(lambda: web.get(f"{look.base}{BASE}/bookies").json()["bookies"][1]["state"] == "writable")


def test_a_killed_bookie_is_seen_as_missing_copies_until_they_are_made_again(look: Look, cluster: LocalCluster) -> None:
    for topic in TOPICS:  # closes ledgers, so that their sizes are known
        path = topic.replace("://", "/")
        answer = web.request("PUT", f"{look.base}/admin/v2/{path}/unload", follow_redirects=True)
        assert answer.status_code == 204, answer.text
    victim = cluster.nodes(Kind.BOOKIE)[0]
    look.go(f"bookie/{victim.address}")
    look.shows("Auto recovery can make the missing copies on the other bookies.")
    before = web.get(f"{look.base}{BASE}/loss/{victim.address}").json()
    assert before["verdict"] == "repairable"
    assert before["copyBytes"] > 0
    assert before["examined"] == before["total"]
    checked(look, "loss")
    look.page.set_viewport_size({"width": 1440, "height": 900})
    look.page.emulate_media(color_scheme="light")
    look.go("ledgers")
    look.shows("nothing to do")
    cluster.kill(victim)
    look.shows(f"Not registered: {victim.address}")
    look.page.get_by_label("State").select_option("BELOW_WRITE_QUORUM")
    rows = look.page.get_by_role("table", name="Ledgers on bookies").locator("tbody tr")
    expect(rows).not_to_have_count(0)
    missing = web.get(f"{look.base}{BASE}/ledgers?harm=BELOW_WRITE_QUORUM").json()["rows"]
    assert len(missing) == before["affected"]
    expect(rows.first.locator(".copy.gone")).to_have_text(re.compile("✕"))
    facts = look.page.locator("dl.facts").first

    def fact(name: str) -> Locator:
        return facts.locator("div", has_text=name).locator("dd")

    expect(fact("Marked ledgers")).to_have_text(re.compile(r"^[1-9]\d*$"))
    expect(look.page.get_by_role("table", name="Most urgent ledgers").locator("tbody tr")).not_to_have_count(0)
    expect(fact("Being repaired now")).to_have_text(re.compile(r"^[1-9]\d*$"))
    expect(fact("Rate")).to_have_text(re.compile(r"^[\d.]*[1-9][\d.]*/s$"))
    expect(fact("Time left, estimated")).to_have_text(re.compile(r"\d (?:ms)|\ds|\dm"))
    checked(look, "repairs")
    wait_until(lambda: web.get(f"{look.base}{BASE}/repairs").json()["marked"] == 0, within=REPAIRED_S)
    look.shows("nothing is marked")

    def whole() -> bool:
        web.request("POST", f"{look.base}{BASE}/survey")
        found = web.get(f"{look.base}{BASE}/ledgers?harm=BELOW_WRITE_QUORUM").json()
        return not found["survey"]["running"] and found["survey"]["examined"] > 0 and not found["rows"]

    wait_until(whole, within=REPAIRED_S)
    after = web.get(f"{look.base}{BASE}/loss/{victim.address}").json()
    assert after["verdict"] == "nothing"


def test_warnings_of_other_processes_are_shown(look: Look, cluster: LocalCluster) -> None:
    other = cluster.web_urls[1].partition("://")[2]
    look.go("logs")
    processes = look.page.get_by_role("region", name="Processes")
    expect(processes.get_by_text(other)).to_be_visible()
    expect(processes.locator(".badge.good")).to_have_count(5)  # two brokers, three bookies
    expect(look.page.locator(".lines .badge").first).to_be_visible()
    checked(look, "logs")
